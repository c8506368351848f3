"""`load`: a model in a file, ready to predict, on the device that it was deployed to or on another.

Before any layer runs on an NPU, the ranges of its inputs are needed: given, measured, or of the model itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from metalforge.core import Array, FeatureSchema, MetalforgeError, PathLike, PlacementError, SpecError, naming
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.inputs import loaded, model_inputs
from metalforge.hybrid.model.opening import as_graph
from metalforge.hybrid.model.ops import FullyConnectedOp, RecurrentStep
from metalforge.hybrid.routing.candidates import DEFAULT_PROFILE
from metalforge.hybrid.routing.plan import OpPlan, Plan
from metalforge.hybrid.routing.ranges import find_ranges
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.running.device_matrix import OnFailure
from metalforge.reservoir import EsnWeights, load_weights
from metalforge.substrates import EmulatedDevice, NpuDevice, NpuError, ProgramError

from .model import Deployed, DeployedEsn, DeployedPlan, fingerprints, network_series, scaled_inputs
from .plan_file import thawed
from .record import EsnRecord, PlanFile, read_entry

IN_FOLDER = "weights.safetensors"
"""The file of a folder that is loaded, as `search` writes it."""
DEFAULT_PRECISION = "W8A8"
"""Of a network that is put on a device here."""
ALLOW_HOST = "`--allow-host`, or `allow_host=True`, accepts the host"


class _Asked(NamedTuple):
    """What `load` was asked for."""

    device: NpuDevice | None
    input_range: float | None
    calibration: PathLike | None
    allow_host: bool
    on_device_failure: OnFailure


def load(
    path: PathLike,
    *,
    device: NpuDevice | None = None,
    input_range: float | None = None,
    calibration: PathLike | None = None,
    allow_host: bool = False,
    on_device_failure: OnFailure = "fallback",
) -> Deployed:
    """Return the model in a file that `deploy` wrote, in a folder of `metalforge search --out`, or of another tool.

    A model that was deployed to a device runs on `device`, or on an emulated one of its profile. Any other (.onnx,
    weights, a network that was deployed in software) is compiled for `device`, and runs in software without one.

    Parameters
    ----------
    device
        The NPU that runs the model.
    input_range, calibration
        The largest size of an input as the model sees it, or a file of raw example inputs to measure ranges on: for a
        model that is compiled here and has no ranges of its own.
    allow_host
        Whether all of the model may run on the host although a device is given.

    Raises
    ------
    PlacementError
        No layer can run on `device`, and `allow_host` is false.
    SpecError
        The file cannot be read, or a model that is compiled here lacks ranges.
    """
    file = _file(path)
    expect_one_source(input_range, calibration)
    asked = _Asked(device, input_range, calibration, allow_host, on_device_failure)
    if file.suffix == ".onnx":
        found: Deployed = _onnx(file, asked)
    else:
        record, arrays = _entry(file)
        compiled = isinstance(record, PlanFile) or record.mode != "software"
        if compiled and (input_range is not None or calibration is not None):
            raise SpecError(f"{file}: was compiled with its ranges\nhint: compile the model again for others")
        if isinstance(record, PlanFile):
            with naming(file):
                if record.plan is None:
                    raise SpecError("holds no plan")
                found = _planned(thawed(record.plan, arrays), record, asked)
        elif compiled:
            found = _deployed(file, record, asked)
        else:
            found = _network(file, record, asked)
    if device is not None and not allow_host:
        try:
            require_npu(file.name, found.places(), ALLOW_HOST)
        except MetalforgeError:
            found.close()
            raise
    return found


def deployed_profile(path: PathLike) -> str:
    """Return the profile of the device that the model in a file was deployed to; the default where it was to none."""
    file = _file(path)
    record = EsnRecord() if file.suffix == ".onnx" else _entry(file)[0]
    if isinstance(record, PlanFile):
        return DEFAULT_PROFILE if record.plan is None else record.plan.profile
    return record.profile


def _file(path: PathLike) -> Path:
    return Path(path) / IN_FOLDER if Path(path).is_dir() else Path(path)


def _entry(file: Path) -> tuple[EsnRecord | PlanFile, dict[str, Array]]:
    """Return how the model in a file was deployed, and the arrays of a plan; plain weights are in software."""
    record, arrays = (None, {}) if file.suffix == ".json" else read_entry(file)
    return record or EsnRecord(), arrays


def _onnx(file: Path, asked: _Asked) -> DeployedPlan:
    """Return an ONNX model, planned for a device or all in software."""
    graph, data = with_ranges(as_graph(file), None, asked.input_range, asked.calibration)
    device = asked.device
    if device is None:
        plan = OperationRouter(objective="accuracy").plan(graph)
    else:
        if data is None and not asked.allow_host and not graph.ranges:
            known = find_ranges(graph)
            layers = [node for node in graph.nodes if isinstance(node.op, FullyConnectedOp | RecurrentStep)]
            lost = [f"`{node.name}`" for node in layers if node.inputs[0] not in known]
            if lost:
                with naming(file):
                    raise UnknownRangeError(f"the inputs of {', '.join(lost[:4])}{' and others' * (len(lost) > 4)}")
        router = OperationRouter(objective="hw_only", profile=getattr(device, "profile", DEFAULT_PROFILE))
        plan = router.plan(graph, calibration=data)
    return _planned(plan, PlanFile(), asked)


def _planned(plan: Plan, record: PlanFile, asked: _Asked) -> DeployedPlan:
    device = asked.device or EmulatedDevice(plan.profile)
    return DeployedPlan(plan, record, device, owned=asked.device is None, on_device_failure=asked.on_device_failure)


def _deployed(file: Path, record: EsnRecord, asked: _Asked) -> DeployedEsn:
    """Return a network on its device, with the integers that it was deployed with."""
    weights = load_weights(file)
    with naming(file):
        device = asked.device or EmulatedDevice(record.profile)
        esn = _placed(HybridEsn(weights), record, device, asked.on_device_failure)
        if fingerprints(esn) != record.programs:
            esn.close()
            raise SpecError(
                f"was deployed by {record.made_by}, and this version compiles it to other integers"
                "\nhint: run it with that version, or deploy the network again"
            )
    return DeployedEsn(esn, record, device, owned=asked.device is None)


def _network(file: Path, record: EsnRecord, asked: _Asked) -> DeployedEsn:
    """Return a network that was compiled for no device: its product on one, or all of it in software."""
    weights = load_weights(file)
    software = msgspec.structs.replace(record, mode="software")
    if asked.device is None:
        return DeployedEsn(HybridEsn(weights), software)
    placed = msgspec.structs.replace(record, mode="hardware-linear", approach="last-layer", precision=DEFAULT_PRECISION)
    try:
        if weights.ranges is None and asked.input_range is None and asked.calibration is None:
            raise UnknownRangeError(f"the inputs of {file}")
        esn = _placed(_measured(weights, record, asked), placed, asked.device, asked.on_device_failure)
    except (NpuError, ProgramError, UnknownRangeError) as error:
        if not asked.allow_host:
            raise
        return DeployedEsn(HybridEsn(weights), software, reason=str(error).partition("\n")[0])
    return DeployedEsn(esn, placed, asked.device)


def _measured(weights: EsnWeights, record: EsnRecord, asked: _Asked) -> HybridEsn:
    """Return a network with the ranges of its inputs and states."""
    if asked.calibration is None:
        return HybridEsn.from_weights(weights, input_range=asked.input_range)
    with naming(asked.calibration):
        series = network_series(
            "calibration",
            loaded(asked.calibration),
            weights,
            weights.dtype,
            samples=record.rows == "samples",
            layout=record.layout,
        )
    return HybridEsn.from_weights(weights, calibration=series)


def _placed(esn: HybridEsn, record: EsnRecord, device: NpuDevice, on_device_failure: OnFailure) -> HybridEsn:
    """Return a network on a device, as its record says."""
    precision, inputs = record.precision or DEFAULT_PRECISION, record.inputs or "auto"
    if record.mode == "chunked":
        return esn.with_chunks(
            device,
            profile=record.profile,
            precision=precision,
            chunk_units=record.chunk_units,
            device_units=record.device_units,
            overflow="swap",
            inputs=inputs,
            ranges=esn.weights.ranges,
            on_device_failure=on_device_failure,
        )
    if record.mode == "hardware-native":
        return esn.with_hardware_native(device, on_device_failure=on_device_failure)
    approach = record.approach or "last-layer"
    return esn.with_hardware_linear(device, approach, precision, inputs=inputs, on_device_failure=on_device_failure)


# Ranges and places.


class UnknownRangeError(SpecError):
    """Values of unknown size, which cannot be turned into the integers of the NPU."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the range of {what} is not known, and the NPU computes in integers"
            "\nhint: measure it on example inputs (`--calibration X.npy`, `calibration=`), or give the largest size "
            f"of an input (`--range R`, `input_range=`); {ALLOW_HOST}"
        )


def require_npu(name: str, places: Sequence[OpPlan], hint: str = "") -> None:
    """Raise `PlacementError` where no layer runs on the NPU, with the reason of each and one more hint."""
    if not any(place.encoding for place in places):
        reasons = "; ".join(f"{place.op}: {place.reason}" for place in places)
        raise PlacementError(
            f"no layer of `{name}` runs on the NPU: {reasons}"
            f"\nhint: `metalforge npu explain` tells what would help{'; ' * bool(hint)}{hint}"
        )


def with_ranges(
    graph: OpGraph, features: FeatureSchema | None, input_range: float | None, calibration: PathLike | None
) -> tuple[OpGraph, list[dict[str, Any]] | None]:
    """Return a graph with the given range of its inputs, and the calibration data in a file as the graph sees them."""
    expect_one_source(input_range, calibration)
    if calibration is not None:
        found = loaded(calibration)
        with naming(calibration):
            data = [scaled_inputs(features, batch) for batch in model_inputs(graph, found)]
        return replace(graph, ranges={}), data
    return graph if input_range is None else replace(graph, ranges=dict.fromkeys(graph.inputs, input_range)), None


def expect_one_source(input_range: float | None, calibration: object) -> None:
    """Raise where ranges are both given and measured."""
    if input_range is not None and calibration is not None:
        raise SpecError("the range of the inputs is given, or measured on data: `--range` or `--calibration`, not both")
