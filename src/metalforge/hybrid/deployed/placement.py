"""Which layers of a model run on the NPU, and the ranges that are needed before any of them can."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from metalforge.core import FeatureSchema, PathLike, PlacementError, SpecError, naming
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.inputs import loaded, model_inputs
from metalforge.hybrid.model.ops import FullyConnectedOp, RecurrentStep
from metalforge.hybrid.routing.plan import OpPlan
from metalforge.hybrid.routing.ranges import find_ranges

ALLOW_HOST = "`--allow-host`, or `allow_host=True`, accepts the host"


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


def require_ranges(graph: OpGraph) -> None:
    """Raise where nothing tells how large the inputs of some layers are."""
    known = find_ranges(graph)
    lost = [
        f"`{node.name}`"
        for node in graph.nodes
        if isinstance(node.op, FullyConnectedOp | RecurrentStep) and node.inputs[0] not in known
    ]
    if lost and not graph.ranges:
        raise UnknownRangeError(f"the inputs of {', '.join(lost[:4])}{' and others' if len(lost) > 4 else ''}")


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


def scaled_inputs(schema: FeatureSchema | None, inputs: Any) -> dict[str, Any]:
    """Return raw inputs by name as a graph sees them."""
    return dict(inputs) if schema is None else {name: schema.scaled(values) for name, values in inputs.items()}
