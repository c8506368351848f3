"""What can be evaluated: a network whose readout may be fitted anew, or any graph as it is.

Each keeps its data apart: ranges (and new readouts) come from the calibration part, scores from the held-out part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from metalforge.core.arrays import Array, Reals
from metalforge.core.errors import SpecError, find
from metalforge.core.substrate import Cost
from metalforge.core.threads import one_thread
from metalforge.hybrid.deployed.model import read_heads
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import LastLayer
from metalforge.hybrid.esn.tasks import Task, features_of
from metalforge.hybrid.model.graph import OpGraph, graph_from_esn
from metalforge.hybrid.model.inputs import Given, as_series_of, model_inputs
from metalforge.hybrid.model.ops import Elementwise, FullyConnectedOp
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.hybrid.routing.plan import Plan
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.reservoir.readout import select_ridge
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu import mesh
from metalforge.substrates.npu.costs import programs_cost
from metalforge.substrates.npu.device import ResourceError
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.ladder import ladder_of
from metalforge.substrates.npu.program import Program
from metalforge.substrates.profiles import profile as find_profile

from .opening import DEPLOYED, Opened
from .report import Fitting
from .scoring import Scorer
from .targets import are_classes, as_list, codes_of, names_of, series_task

AT_ONCE = 256
"""Samples of one call."""
CALIBRATED = 2000
"""Samples or steps that ranges are measured on at most: more would hardly show larger values."""
RIDGES = tuple(10.0**k for k in range(-8, 3))
FOLDS = 5
ON_HOST = "the readout stays on the host, where it is not rounded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What of the data is held out, and what targets and outputs are called."""

    held_out: float = 0.5
    washout: int = 0
    labels: tuple[str, ...] | None = None
    output: str | None = None
    calibration: Any = None
    """Inputs to measure ranges on, as they were given; of a graph, as it takes them."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise SpecError(f"the share that is held out must be between 0 and 1. Got {self.held_out}")


class Answers(NamedTuple):
    """Outputs on the held-out rows, of the model's own readout and of a fitted one; None where there is none."""

    as_is: Reals | None
    refitted: Reals | None


class Trial(NamedTuple):
    """A precision: answers on the chip (None where it fits no profile), rows sent there, and fit and price."""

    answers: Answers | None
    chip_rows: int
    on: tuple[Fitting, ...]
    input_on_host: bool = False
    """Whether W_in stays on the host: beside W_res it would cost precision."""


class Subject(Protocol):
    """A model with its data."""

    kind: str
    unit: str
    labels: tuple[str, ...]
    scorer: Scorer
    calibrated_on: str
    held_out: str

    def software(self) -> Answers:
        """Return the answers in software."""

    def trial(self, precision: str, profiles: Sequence[str]) -> Trial:
        """Return what a precision gives on the first profile that has room, and what it costs on all."""

    def plan(self, precision: str, profile: str) -> Plan:
        """Return where everything runs."""


def chosen_rows(n: int, share: float, codes: Array | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which of n are for calibration and which are held out: drawn by a fixed seed, classes in equal shares."""
    order = np.random.default_rng(0).permutation(n)
    if codes is not None:
        order = order[np.argsort(codes[order], kind="stable")]
    marks = np.floor(np.arange(1, n + 1) * share) > np.floor(np.arange(n) * share)
    if marks.all() or not marks.any():
        raise SpecError(f"{n} cannot be divided into a part for calibration and one to hold out")
    return np.sort(order[~marks]), np.sort(order[marks])


def divided(task: Task, share: float) -> tuple[Task, Task]:
    """Return the part for calibration and the held-out one: whole series, or one series in the order of time.

    The held-out part of one series goes on from the state that the first part left.
    """
    n, steps = task.inputs.shape[:2]
    if n > 1:
        codes = task.targets if task.classes and not task.each_step else None
        return task.part((rows := chosen_rows(n, share, codes))[0]), task.part(rows[1])
    cut = round((1 - share) * steps)
    if not task.each_step or not task.washout < cut < steps:
        raise SpecError(
            f"one series of {steps} steps with {len(task.labels)} targets after its washout cannot be divided"
            "\nhint: more series, or a target for every step"
        )
    first = replace(task, inputs=task.inputs[:, :cut], targets=task.targets[:, :cut])
    return first, replace(task, washout=cut)


def _said(task: Task) -> str:
    n, steps = task.inputs.shape[:2]
    rows = len(task.labels)
    return f"{rows} of {steps} steps" if n == 1 else f"{n} series" + (f", {rows} steps" if task.each_step else "")


class NetworkSubject:
    """An echo state network: the product on the chip, activation and readout on the host."""

    unit = "step"

    def __init__(self, opened: Opened, inputs: Given, targets: Given, options: Options) -> None:
        weights = opened.model
        assert isinstance(weights, EsnWeights)
        if weights.w_fb is not None:
            raise SpecError(
                "a network that hears its own outputs cannot be evaluated: what it says depends on what it said"
                "\nhint: HybridEsn.from_weights(weights).with_hardware_linear(device) runs it"
            )
        self.weights, self._opened = weights, opened
        self.kind = f"reservoir, {weights.inputs} inputs, {weights.units} units, {weights.outputs} outputs"
        series = self._series("input", inputs)
        task, self.labels = series_task(series, targets, weights.outputs, options.labels, options.washout)
        self.training: Task | None = None
        if options.calibration is None:
            self.training, self.held = divided(task, options.held_out)
            ends = self.training.ends + 1
            self.seen = [one[:end] for one, end in zip(self.training.inputs, ends, strict=True)]
            self.calibrated_on = _said(self.training)
        else:
            self.held = task
            self.seen = self._series("calibration", options.calibration)
            self.calibrated_on = f"{len(self.seen)} series of their own"
        self.held_out = _said(self.held)
        if self.training is None and weights.w_out is None:
            raise SpecError("the model has no readout, and nothing to fit one on\nhint: leave --calibration out")
        threshold = 0.5 if self.labels and weights.outputs == 1 else None
        self.scorer = Scorer(self.held.labels, self.held.groups, threshold=threshold)
        self._software = HybridEsn.from_weights(weights, calibration=self.seen)

    def _series(self, name: str, given: Given) -> list[Reals]:
        """Return series as the network sees them."""
        if self._opened.samples and isinstance(given, np.ndarray) and given.ndim == 2:
            given = given[:, np.newaxis]
        found = as_series_of(name, given, self.weights.inputs, self.weights.dtype)
        schema = self._opened.features
        return found if schema is None else [schema.scaled(one).astype(self.weights.dtype) for one in found]

    def software(self) -> Answers:
        """Return the answers in software."""
        return self._answers(self._software)

    def trial(self, precision: str, profiles: Sequence[str]) -> Trial:
        """Return the network at a precision, or as it was deployed."""
        if precision.startswith(DEPLOYED):
            esn = self._opened.on_chip
            assert isinstance(esn, HybridEsn)
            rows = esn.path.rows_per_step if esn.path is not None else 0
            fitting = tuple(_fitting(esn.programs.programs, rows, name) for name in profiles)
            return Trial(Answers(self._own(features_of(esn, self.held)), None), rows, fitting)
        rows, on_host = encoding_of(precision).activation_bits // 4, False
        answers, on = None, []
        for name in profiles:
            with EmulatedDevice(name) as device:
                try:
                    esn = self._software.with_hardware_linear(device, precision=precision, refit_readout=False)
                except ResourceError as error:
                    on.append(_refused(name, error))
                    continue
                assert isinstance(esn.path, LastLayer)
                on.append(_fitting(esn.path.programs, rows, name))
                on_host = esn.path.place == "host"
                answers = self._answers(esn) if answers is None else answers
        return Trial(answers, rows, tuple(on), on_host)

    def plan(self, precision: str, profile: str) -> Plan:
        """Return where everything runs; the readout is pinned to the host."""
        precision = precision.removeprefix(DEPLOYED).strip() or "W4A4"
        graph = graph_from_esn(self.weights)
        pins = {node.name: "software" for node in graph.nodes if isinstance(node.op, FullyConnectedOp)}
        router = OperationRouter(objective="hw_only", profile=profile, precision=precision)
        return router.plan(graph, pin=pins, calibration=_few([{"input": one} for one in self.seen]))  # type: ignore[arg-type]

    def _answers(self, esn: HybridEsn) -> Answers:
        features = features_of(esn, self.held)
        return Answers(self._own(features), self._refitted(esn, features))

    def _own(self, features: Reals) -> Reals | None:
        """Return what the model's own readout says, in its own units."""
        if self.weights.w_out is None or self.weights.out_bias is None:
            return None
        said = np.asarray(features @ self.weights.w_out.T + self.weights.out_bias)
        return said if self.scorer.classes else read_heads(self._opened.heads, said)

    def _refitted(self, esn: HybridEsn, features: Reals) -> Reals | None:
        """Return outputs of a readout fitted to this substrate's own states; its ridge is chosen there, too."""
        if self.training is None or len(self.training.labels) < 2 * FOLDS:
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

    def __init__(self, opened: Opened, inputs: Given, targets: Given, options: Options) -> None:
        graph = opened.model
        assert isinstance(graph, OpGraph)
        self._opened = opened
        self.graph, self.unit = graph, "step" if graph.stateful else "sample"
        shapes = ", ".join(f"{name} {_shape(shape)}" for name, shape in graph.inputs.items())
        self.kind = f"graph of {len(graph.nodes)} ops, input {shapes}"
        found, given = _scaled(opened, model_inputs(graph, inputs)), as_list(targets)
        if options.calibration is not None:
            options = replace(options, calibration=_scaled(opened, model_inputs(graph, options.calibration)))
        self.output = _output(graph, options.output, given)
        shape = graph.shapes[self.output]
        width = (shape[-1] or 1) if len(shape) > 1 else 1
        if opened.heads is not None:
            width = opened.heads.width
        single = are_classes(given) and width == 1  # one output that tells two classes apart
        part = _series_part if graph.stateful else _sample_part
        self._part = part(graph, found, given, self.output, 2 if single else width, options)
        self.labels, self.calibrated_on, self.held_out = self._part.labels, *self._part.said
        producer = graph.producer(self.output)
        sigmoid = producer is not None and isinstance(producer.op, Elementwise) and producer.op.function == "sigmoid"
        threshold = 0.5 if sigmoid else 0.0
        self.scorer = Scorer(self._part.wanted, self._part.groups, threshold=threshold if single else None)

    def software(self) -> Answers:
        """Return the answers in software."""
        return Answers(self._rows(host_plan(self.graph)), None)

    def trial(self, precision: str, profiles: Sequence[str]) -> Trial:
        """Return the graph at a precision, or as it was deployed."""
        if precision.startswith(DEPLOYED):
            return self._deployed(profiles)
        plans = [self.plan(precision, name) for name in profiles]
        on = tuple(_fitting_of(plan) for plan in plans)
        first = next((plan for plan in plans if plan.jobs), None)
        answers = None if first is None else Answers(self._rows(first), None)
        return Trial(answers, sum(job.passes for job in first.jobs) if first else 0, on)

    def plan(self, precision: str, profile: str) -> Plan:
        """Return where everything runs."""
        chip = self._opened.on_chip
        if precision.startswith(DEPLOYED) and isinstance(chip, Plan):
            return chip
        name = precision.removeprefix(DEPLOYED).strip()
        router = OperationRouter(objective="hw_only", profile=profile, precision=name)
        return router.plan(self.graph, calibration=self._part.calibration)

    def _deployed(self, profiles: Sequence[str]) -> Trial:
        """Return the plan or program that is in the file."""
        chip = self._opened.on_chip
        if isinstance(chip, Program):
            rows, ladder = chip.encoding.activation_bits // 4, ladder_of(chip)
            with EmulatedDevice(profiles[0]) as device:
                device.load(chip)
                said = ladder.decode(device.infer_linear(ladder.encode(self._part.inputs["input"])))
            return Trial(Answers(said, None), rows, tuple(_fitting([chip], rows, name) for name in profiles))
        assert isinstance(chip, Plan)
        on = tuple(_fitting_of_jobs(chip, name) for name in profiles)
        return Trial(Answers(self._rows(chip), None), sum(job.passes for job in chip.jobs), on)

    def _rows(self, plan: Plan) -> Reals:
        """Return the held-out rows of the output."""
        part = self._part
        with HybridExecutor(plan) as executor:
            if part.task is not None:
                return part.task.seen(self._named(executor.run(part.inputs)))
            starts = range(0, part.n, AT_ONCE)
            calls = (_at(self.graph, part.inputs, slice(start, start + AT_ONCE)) for start in starts)
            whole = np.concatenate([self._named(executor.forward(call)) for call in calls])
        return whole.reshape(-1, whole.shape[-1]) if whole.ndim > 1 else whole

    def _named(self, outputs: Any) -> Array:
        heads, parts = self._opened.heads, outputs if isinstance(outputs, Mapping) else {self.output: outputs}
        if heads is not None:
            joined = np.concatenate([parts[name] for name in self.graph.outputs], axis=-1)
            return read_heads(heads, joined, activated=True)
        return np.asarray(outputs[self.output] if isinstance(outputs, Mapping) else outputs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """Data of a graph: examples to measure ranges on, and held-out inputs with what should come of them."""

    calibration: list[dict[str, Array]]
    inputs: dict[str, Array]
    n: int
    task: Task | None
    wanted: Array
    groups: NDArray[np.int64]
    labels: tuple[str, ...]
    said: tuple[str, str]


def _series_part(
    graph: OpGraph, found: list[dict[str, Array]], given: Any, output: str, width: int, options: Options
) -> _Part:
    if len(graph.inputs) > 1:
        raise SpecError(f"a model with a state and {len(graph.inputs)} inputs cannot be evaluated: one is wanted")
    (name,) = graph.inputs
    task, labels = series_task([one[name] for one in found], given, width, options.labels, options.washout)
    if options.calibration is None:
        first, held = divided(task, options.held_out)
        seen = [{name: one[:end]} for one, end in zip(first.inputs, first.ends + 1, strict=True)]
        said = _said(first), _said(held)
    else:
        held, seen = task, options.calibration
        said = f"{len(seen)} series of their own", _said(held)
    return _Part(
        calibration=_few(seen),
        inputs={name: held.inputs},
        n=len(held.inputs),
        task=held,
        wanted=held.labels,
        groups=held.groups,
        labels=labels,
        said=said,
    )


def _sample_part(
    graph: OpGraph, found: list[dict[str, Array]], given: Any, output: str, width: int, options: Options
) -> _Part:
    if not isinstance(given, np.ndarray):
        raise SpecError("the model keeps no state, so its targets are one array, not one for each series")
    (inputs,), shape = found, graph.shapes[output]
    n = next((len(inputs[name]) for name, extents in graph.inputs.items() if extents[:1] == (None,)), 1)
    labels = names_of(given, width, options.labels) if are_classes(given) else ()
    open_extents = dict(enumerate(given.shape))
    lead = (n, *(open_extents.get(i, 1) if m is None else m for i, m in enumerate(shape[1:-1], 1)))
    given = given[..., 0] if given.shape == (*lead, 1) else given
    wanted_shape = lead if labels or width == 1 else (*lead, width)
    if given.shape != wanted_shape:
        hint = "" if labels or given.shape != lead else "\nhint: whole numbers or words are classes: y.astype(int)"
        raise SpecError(f"targets of shape {wanted_shape} are wanted for {n} samples. Got {given.shape}{hint}")
    truth = codes_of(given, labels) if labels else given.astype(np.float64).reshape(*lead, width)
    if not np.all(np.isfinite(truth)):
        raise SpecError("targets must be finite. Got NaN or infinity")
    if options.calibration is None:
        codes = truth if labels and truth.ndim == 1 else None
        first, held = chosen_rows(n, options.held_out, codes)
        seen, said = _at(graph, inputs, first[:CALIBRATED]), f"{len(first)} samples"
    else:
        (seen,), held = options.calibration, np.arange(n)
        said = "samples of their own"
    rows = truth[held]
    return _Part(
        calibration=[seen],
        inputs=_at(graph, inputs, held),
        n=len(held),
        task=None,
        wanted=rows.reshape(-1) if labels else rows.reshape(-1, width),
        groups=np.repeat(np.arange(len(held)), int(np.prod(lead[1:]))),
        labels=labels,
        said=(said, f"{len(held)} others"),
    )


def _at(graph: OpGraph, inputs: Mapping[str, Array], rows: Any) -> dict[str, Array]:
    """Return some samples; inputs without a batch axis are the same for all."""
    return {name: x[rows] if graph.inputs[name][:1] == (None,) else x for name, x in inputs.items()}


def _few(series: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """Return as many steps as ranges are measured on, of whole series as far as they go."""
    left, found = CALIBRATED, []
    for one in series:
        if left > 0:
            found.append({name: values[:left] for name, values in one.items()})
            left -= min(len(values) for values in one.values())
    return found


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


def _fitting(programs: Sequence[Program], rows: int, profile: str) -> Fitting:
    chip = find_profile(profile)
    try:
        mesh.side_by_side(programs, chip)
    except ResourceError as error:
        return _refused(profile, error)
    return Fitting(profile=profile, fits=True, reason="", cost=programs_cost(programs, rows, chip))


def _fitting_of(plan: Plan) -> Fitting:
    """Return whether all work for an NPU is on it, by a plan."""
    lost = [f"{row.op}: {row.reason}" for row in plan.record.ops if row.fallback]
    return Fitting(
        profile=plan.record.profile, fits=not lost, reason="; ".join(lost[:2]), cost=plan.record.device_total
    )


def _fitting_of_jobs(plan: Plan, profile: str) -> Fitting:
    """Return whether the programs of a plan fit another profile than its own, and what they cost there."""
    chip = find_profile(profile)
    try:
        mesh.side_by_side([program for job in plan.jobs for program in job.programs], chip)
    except ResourceError as error:
        return _refused(profile, error)
    rows = [job.positions * (job.encoding.activation_bits // 4) for job in plan.jobs]
    cost = Cost.total(programs_cost(job.programs, n, chip) for job, n in zip(plan.jobs, rows, strict=True))
    return Fitting(profile=profile, fits=True, reason="", cost=cost)


def _scaled(opened: Opened, given: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """Return inputs as the model sees them."""
    schema = opened.features
    return given if schema is None else [{name: schema.scaled(x) for name, x in one.items()} for one in given]


def _refused(profile: str, error: Exception) -> Fitting:
    first = str(error).partition("\n")[0]
    return Fitting(profile=profile, fits=False, reason=first, cost=Cost(unknown="it does not fit"))
