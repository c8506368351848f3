"""What can be evaluated: a network whose readout may be fitted anew, or any graph as it is.

What was deployed or compiled is also evaluated as it is on a chip. A program of one layer says what matrix it stands
for: integers times scales, for inputs within its ranges. In software that matrix is what it is held against; what its
quantisation lost before is not in the file.

Each subject keeps its data apart: ranges (and new readouts) come from the calibration part, scores from the held-out
part.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from metalforge.core import Array, Cost, FeatureSchema, HeadLayout, Reals, SpecError, find, naming, one_thread
from metalforge.hybrid.deployed import Deployed, load
from metalforge.hybrid.deployed.model import DeployedEsn, DeployedPlan, network_series, read_graph, scaled_inputs
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task, features_of, outputs
from metalforge.hybrid.model.graph import Node, OpGraph, graph_from_esn
from metalforge.hybrid.model.inputs import Given, Outputs, model_inputs
from metalforge.hybrid.model.opening import as_graph, expect_model
from metalforge.hybrid.model.ops import Elementwise, FullyConnectedOp
from metalforge.hybrid.routing.encodings import encoding_of, precision_of
from metalforge.hybrid.routing.plan import Plan
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.reservoir import EsnWeights, Layout, as_weights, head_values, select_ridge
from metalforge.substrates import (
    EmulatedDevice,
    Program,
    ResourceError,
    input_levels,
    ladder_of,
    mesh,
    programs_cost,
    wire,
)
from metalforge.substrates import profile as find_profile

from .data import Options, are_classes, as_list, at, few, sample_part, series_part
from .report import Fitting, Scorer

DEPLOYED = "deployed"
"""What the row of a model as it was deployed is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """A model, and how it reads and names things."""

    model: EsnWeights | OpGraph
    on_chip: HybridEsn | Plan | Program | None = None
    labels: tuple[str, ...] | None = None
    samples: bool = False
    """Whether a table of two axes is series of one step."""
    layout: Layout = "steps_first"
    """The order of the axes of several series."""
    features: FeatureSchema | None = None
    heads: HeadLayout | None = None
    """What scales inputs and outputs of a graph; a network has its own."""

    @property
    def precision(self) -> str:
        """The name of its row as it was deployed."""
        chip = self.on_chip
        known = precision_of(chip.encoding) if isinstance(chip, Program) else getattr(chip, "precision", None)
        return f"{DEPLOYED} {known}" if known else DEPLOYED


def open_model(model: Any) -> OpenedModel:
    """Return a model by its path, or of any object that is one."""
    if isinstance(model, str | os.PathLike):
        return _of_file(Path(model))
    if isinstance(model, Deployed):
        return _of_deployed(model)
    if isinstance(model, Plan):
        return OpenedModel(model=model.graph, on_chip=model)
    if isinstance(model, OpGraph):
        return OpenedModel(model=model)
    if isinstance(model, HybridEsn):
        return _of_network(model)
    classes = getattr(model, "classes_", None)
    return OpenedModel(
        model=as_weights(model),
        labels=None if classes is None else tuple(map(str, classes)),
        samples=(getattr(model, "rows", None) or getattr(model, "ROWS", None)) == "samples",
        layout=getattr(model, "layout_", "steps_first"),
    )


def _of_file(path: Path) -> OpenedModel:
    if not path.is_dir():
        expect_model(path, {".mfd": "what was deployed", ".mfp": "a program"})
    if path.suffix == ".onnx":
        return OpenedModel(model=as_graph(path))
    if path.suffix != ".mfp":
        return _of_deployed(load(path))
    program = wire.load(path)
    with naming(path):
        return OpenedModel(model=_graph_of(program), on_chip=program)


def _of_deployed(model: Deployed) -> OpenedModel:
    labels = None if model.record.labels is None else tuple(map(str, model.record.labels))
    if isinstance(model, DeployedPlan):
        record = model.record
        return OpenedModel(
            model=model.plan.graph,
            on_chip=model.plan if model.plan.jobs else None,
            labels=labels,
            features=record.features,
            heads=record.heads,
        )
    assert isinstance(model, DeployedEsn)
    series = model.record
    return replace(_of_network(model.esn), labels=labels, samples=series.rows == "samples", layout=series.layout)


def _of_network(esn: HybridEsn) -> OpenedModel:
    return OpenedModel(model=esn.weights, on_chip=esn if esn.mode != "software" else None)


def _graph_of(program: Program) -> OpGraph:
    """Return the matrix that a program of one layer stands for, as a graph."""
    if len(program.layers) != 1 or program.layers[0].activation != "linear":
        raise SpecError(
            f"program `{program.name}` has layers with activations, which say nothing of the reals they stand for"
            "\nhint: evaluate the model that it was compiled from"
        )
    ladder = ladder_of(program)
    step = ladder.ranges / input_levels(ladder.encoding)
    matrix = ladder.integers * ladder.scales[:, np.newaxis] / step
    return OpGraph(
        name=program.name,
        inputs={"input": (None, matrix.shape[1])},
        nodes=(Node(name="product", op=FullyConnectedOp(weights=matrix), inputs=("input",)),),
        outputs=("product",),
        dtype="float64",
    )


AT_ONCE = 256
"""Samples of one call."""
RIDGES = tuple(10.0**k for k in range(-8, 3))
FOLDS = 5
ON_HOST = "the readout stays on the host, where it is not rounded"


Answers: TypeAlias = tuple[Reals | None, Reals | None]
"""Outputs on the held-out rows, of the model's own readout and of a fitted one; None where there is none."""


class Trial(NamedTuple):
    """A precision: answers on the chip (None where it fits no profile), rows sent there, and fit and price."""

    answers: Answers | None
    chip_rows: int
    on: tuple[Fitting, ...]
    input_on_host: bool = False
    """Whether W_in stays on the host: beside W_res it would cost precision."""


class NetworkSubject:
    """An echo state network: the product on the chip, activation and readout on the host."""

    unit = "step"

    def __init__(self, opened: OpenedModel, inputs: Given, targets: Given, options: Options) -> None:
        weights = opened.model
        assert isinstance(weights, EsnWeights)
        if weights.w_fb is not None:
            raise SpecError(
                "a network that hears its own outputs cannot be evaluated: what it says depends on what it said"
                "\nhint: HybridEsn.from_weights(weights).with_hardware_linear(device) runs it"
            )
        self.weights, self._opened = weights, opened
        self.kind = f"reservoir, {weights.inputs} inputs, {weights.units} units, {weights.outputs} outputs"
        apart = None if options.calibration is None else self._series("calibration", options.calibration)
        part = series_part(self._series("input", inputs), targets, weights.outputs, options, apart)
        assert isinstance(part.held, Task)
        self.seen, self.held, self.labels = part.seen, part.held, part.labels
        self.calibrated_on, self.held_out = part.said
        enough = part.training is not None and len(part.training.labels) >= 2 * FOLDS
        self.training = part.training if enough else None
        if self.training is None and weights.w_out is None:
            raise SpecError(
                "the model has no readout, and nothing to fit one on"
                "\nhint: leave --calibration out; else a smaller --held-out, or more data"
            )
        threshold = 0.5 if self.labels and weights.outputs == 1 else None
        self.scorer = Scorer(part.wanted, part.groups, threshold=threshold)
        self._software = HybridEsn.from_weights(weights, calibration=self.seen)

    def _series(self, name: str, given: Given) -> list[Reals]:
        """Return series as the network sees them."""
        opened = self._opened
        return network_series(
            name, given, self.weights, self.weights.dtype, samples=opened.samples, layout=opened.layout
        )

    def software(self) -> Answers:
        """Return the answers in software."""
        return self._answers(self._software)

    def trial(self, precision: str, profiles: Sequence[str]) -> Trial:
        """Return the network at a precision, or as it was deployed."""
        if precision.startswith(DEPLOYED):
            esn = self._opened.on_chip
            assert isinstance(esn, HybridEsn)
            rows = esn.path.rows_per_step if esn.path is not None else 0
            fitting = tuple(_fitting([(esn.programs.programs, 1)], name) for name in profiles)
            return Trial((self._own(features_of(esn, self.held)), None), rows, fitting)
        rows, on_host = encoding_of(precision).rows, False
        answers, on = None, []
        for name in profiles:
            with EmulatedDevice(name) as device:
                try:
                    esn = self._software.with_hardware_linear(device, precision=precision)
                except ResourceError as error:
                    on.append(_refused(name, error))
                    continue
                on.append(_fitting([(esn.programs.programs, 1)], name))
                on_host = esn.path is not None and esn.path.place == "host"
                answers = self._answers(esn) if answers is None else answers
        return Trial(answers, rows, tuple(on), on_host)

    def plan(self, precision: str, profile: str) -> Plan:
        """Return where everything runs; the readout is pinned to the host."""
        precision = precision.removeprefix(DEPLOYED).strip() or "W4A4"
        graph = graph_from_esn(self.weights)
        pins = {node.name: "software" for node in graph.nodes if isinstance(node.op, FullyConnectedOp)}
        router = OperationRouter(objective="hw_only", profile=profile, precision=precision)
        return router.plan(graph, pin=pins, calibration=few([{"input": one} for one in self.seen]))  # type: ignore[arg-type]

    def _answers(self, esn: HybridEsn) -> Answers:
        features = features_of(esn, self.held)
        return self._own(features), self._refitted(esn, features)

    def _own(self, features: Reals) -> Reals | None:
        """Return what the model's own readout says, in its own units."""
        if self.weights.w_out is None or self.weights.out_bias is None:
            return None
        said = outputs(self._software, self.held, features=features)
        if self.scorer.classes or self.weights.heads is None:
            return said
        return head_values(self.weights.heads, self.weights.features, said, self.held.seen(self.held.inputs))

    def _refitted(self, esn: HybridEsn, features: Reals) -> Reals | None:
        """Return outputs of a readout fitted to this substrate's own states; its ridge is chosen there, too."""
        if self.training is None:
            return None
        wanted: Reals = self.training.labels
        if self.labels:
            wanted = np.asarray(np.eye(len(self.labels))[wanted])
        with one_thread():  # small matrices
            x = features_of(esn, self.training)
            # Classes may lie one after the other: every fold has some of each. Steps of a series stay together.
            order = np.arange(len(x)) if self.training.each_step else np.random.default_rng(0).permutation(len(x))
            pairs = [(x[rows], wanted[rows]) for rows in np.array_split(order, FOLDS)]
            found = np.asarray(select_ridge(pairs, RIDGES).readout(features))
        return found if self.scorer._threshold is None else found[:, 1:] - found[:, :1] + 0.5


class GraphSubject:
    """A graph as it is: what maps goes to the chip at the precision, everything else is the host's."""

    def __init__(self, opened: OpenedModel, inputs: Given, targets: Given, options: Options) -> None:
        graph = opened.model
        assert isinstance(graph, OpGraph)
        self._opened = opened
        self.graph, self.unit = graph, "step" if graph.stateful else "sample"
        shapes = ", ".join(f"{name} {_shape(shape)}" for name, shape in graph.inputs.items())
        self.kind = f"graph of {len(graph.nodes)} ops, input {shapes}"
        found, given = self._scaled(inputs), as_list(targets)
        if options.calibration is not None:
            options = replace(options, calibration=self._scaled(options.calibration))
        self.output = _output(graph, options.output, given)
        shape = graph.shapes[self.output]
        width = (shape[-1] or 1) if len(shape) > 1 else 1
        if opened.heads is not None:
            width = opened.heads.width
        single = are_classes(given) and width == 1  # one output that tells two classes apart
        width = 2 if single else width
        if graph.stateful:
            if len(graph.inputs) > 1:
                count = len(graph.inputs)
                raise SpecError(f"a model with a state and {count} inputs cannot be evaluated: one is wanted")
            (name,) = graph.inputs
            apart = None if options.calibration is None else [one[name] for one in options.calibration]
            self._part = series_part([one[name] for one in found], given, width, options, apart)
            self._calibration = few([{name: one} for one in self._part.seen])
        else:
            self._part = sample_part(graph, found[0], given, self.output, width, options)
            self._calibration = self._part.seen
        self.labels, self.calibrated_on, self.held_out = self._part.labels, *self._part.said
        producer = graph.producer(self.output)
        sigmoid = producer is not None and isinstance(producer.op, Elementwise) and producer.op.function == "sigmoid"
        threshold = 0.5 if sigmoid else 0.0
        self.scorer = Scorer(self._part.wanted, self._part.groups, threshold=threshold if single else None)

    def software(self) -> Answers:
        """Return the answers in software."""
        return self._rows(host_plan(self.graph)), None

    def trial(self, precision: str, profiles: Sequence[str]) -> Trial:
        """Return the graph at a precision, or as it was deployed."""
        if precision.startswith(DEPLOYED):
            return self._deployed(profiles)
        plans = [self.plan(precision, name) for name in profiles]
        on = tuple(_fitting_of(plan) for plan in plans)
        first = next((plan for plan in plans if plan.jobs), None)
        answers = None if first is None else (self._rows(first), None)
        return Trial(answers, sum(job.passes for job in first.jobs) if first else 0, on)

    def plan(self, precision: str, profile: str) -> Plan:
        """Return where everything runs."""
        chip = self._opened.on_chip
        if precision.startswith(DEPLOYED) and isinstance(chip, Plan):
            return chip
        name = precision.removeprefix(DEPLOYED).strip()
        router = OperationRouter(objective="hw_only", profile=profile, precision=name)
        return router.plan(self.graph, calibration=self._calibration)

    def _deployed(self, profiles: Sequence[str]) -> Trial:
        """Return the plan or program that is in the file."""
        chip = self._opened.on_chip
        if isinstance(chip, Program):
            rows, ladder, held = chip.encoding.rows, ladder_of(chip), self._part.held
            assert isinstance(held, dict)
            with EmulatedDevice(profiles[0]) as device:
                device.load(chip)
                said = ladder.decode(device.infer_linear(ladder.encode(held["input"])))
            return Trial((said, None), rows, tuple(_fitting([([chip], 1)], name) for name in profiles))
        assert isinstance(chip, Plan)
        on = tuple(_fitting([(job.programs, job.positions) for job in chip.jobs], name) for name in profiles)
        return Trial((self._rows(chip), None), sum(job.passes for job in chip.jobs), on)

    def _scaled(self, given: Given) -> list[dict[str, Array]]:
        """Return inputs as the graph sees them."""
        return [scaled_inputs(self._opened.features, one) for one in model_inputs(self.graph, given)]

    def _rows(self, plan: Plan) -> Reals:
        """Return the held-out rows of the output."""
        held = self._part.held
        with HybridExecutor(plan) as executor:
            if isinstance(held, Task):
                (name,) = self.graph.inputs
                return held.seen(self._named(executor.run({name: held.inputs}), {name: held.inputs}))
            starts = range(0, int(self._part.groups[-1]) + 1, AT_ONCE)
            calls = (at(self.graph, held, slice(start, start + AT_ONCE)) for start in starts)
            whole = np.concatenate([self._named(executor.forward(call), call) for call in calls])
        return whole.reshape(-1, whole.shape[-1]) if whole.ndim > 1 else whole

    def _named(self, outputs: Outputs, inputs: Any) -> Array:
        said = read_graph(self._opened.heads, self._opened.features, self.graph, outputs, inputs)
        return np.asarray(said[self.output] if isinstance(said, dict) else said)


Subject: TypeAlias = NetworkSubject | GraphSubject
"""A model with its data."""


def _output(graph: OpGraph, asked: str | None, targets: Any) -> str:
    """Return the output that is scored: the one that was asked for, the only one, or the first that fits."""
    if asked is not None:
        return find("output", asked, {name: name for name in graph.outputs})
    if len(graph.outputs) == 1:
        return graph.outputs[0]
    width = len(np.unique(np.concatenate([np.ravel(one) for one in targets]))) if are_classes(targets) else None
    if width is None:
        last = targets if isinstance(targets, np.ndarray) else targets[0]
        width = last.shape[-1] if last.ndim > 1 else 1
    fitting = [name for name in graph.outputs if (graph.shapes[name][-1] or 1) == width]
    if len(fitting) != 1:
        raise SpecError(f"the model has outputs {', '.join(graph.outputs)}\nhint: --output says which is scored")
    return fitting[0]


def host_plan(graph: OpGraph) -> Plan:
    """Return the plan that leaves everything on the host."""
    return OperationRouter().plan(graph, pin=dict.fromkeys((node.name for node in graph.nodes), "software"))


def _shape(shape: Sequence[int | None]) -> str:
    return " x ".join("N" if n is None else str(n) for n in shape)


def _fitting(work: Sequence[tuple[Sequence[Program], int]], profile: str) -> Fitting:
    """Return whether programs fit a profile side by side, and what so many vectors for each of them cost there."""
    chip = find_profile(profile)
    try:
        mesh.side_by_side([program for programs, _ in work for program in programs], chip)
    except ResourceError as error:
        return _refused(profile, error)
    cost = Cost.total(programs_cost(programs, chip, vectors) for programs, vectors in work)
    return Fitting(profile=profile, fits=True, reason="", cost=cost)


def _fitting_of(plan: Plan) -> Fitting:
    """Return whether all work for an NPU is on it, by a plan."""
    lost = [f"{row.op}: {row.reason}" for row in plan.record.ops if row.fallback]
    return Fitting(
        profile=plan.record.profile, fits=not lost, reason="; ".join(lost[:2]), cost=plan.record.device_total
    )


def _refused(profile: str, error: Exception) -> Fitting:
    first = str(error).partition("\n")[0]
    return Fitting(profile=profile, fits=False, reason=first, cost=Cost(unknown="it does not fit"))
