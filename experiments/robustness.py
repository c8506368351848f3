"""Experiment robustness: whether an int4 chip is an accidental defence against small, chosen changes of its input.

Every model is attacked through its own slopes (FGSM, PGD) and by questions alone (Square attack);
what was made for one is shown to all. A model's worst case counts a sequence as right only if it withstood everything
made for any model at that size. Random signs of the same size are the control. Intervals resample reservoirs and whole
sequences (`experiments.attacks.outcomes`). Two networks, each in float and on the chip, every readout fitted to its own
states:

- `random`: normal weights, tanh. On the chip as W4A8 with inputs on the host, and as W4A4 with inputs on the chip too.
- `ring`: equal weights in a ring, input weights of random sign (A. Rodan, P. Tino, 2011), with a bounded ReLU. On the
  chip natively; a ring loses no weight to four bits, and random weights do not work there (experiment parity).

Where four bits change the weights, the float network with the changed ones is a model of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from experiments.attacks.gradient_attacks import fgsm, pgd, random_signs, square_attack
from experiments.attacks.outcomes import share, share_difference, transfer_rate
from experiments.attacks.victim import Victim, effective_weights
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task, refit
from metalforge.reservoir.datasets import LabelledSequences, sequence_classification, vowel_like
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.metrics import Interval
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.emulator import EmulatedDevice

from .problems import ring
from .protocol import Check, Progress, Result, ResultRow, Settings, experiment, row_of, rows_of, shown, words

UNITS = 128
RADIUS = 0.9
MODELS: dict[str, tuple[str, str]] = {
    "tanh": ("tanh", "f32"),
    "host-tanh W4A8": ("host-tanh, inputs on the host", "W4A8"),
    "host-tanh W4A4": ("host-tanh, inputs on the chip", "W4A4"),
    "tanh, weights of W4A8": ("tanh, weights of W4A8", "f32"),
    "tanh, weights of W4A4": ("tanh, weights of W4A4", "f32"),
    "bounded ReLU": ("bounded ReLU", "f32"),
    "native W4A4": ("native", "W4A4"),
    "bounded ReLU, native weights": ("bounded ReLU, weights of native", "f32"),
}
"""Approach and precision of each model, for rows."""
FLOAT_TWIN = {name: "tanh" if "tanh" in name else "bounded ReLU" for name in MODELS}
"""The model in float, before any rounding, that each is compared with."""
SAME_WEIGHTS = {
    "host-tanh W4A8": "tanh, weights of W4A8",
    "host-tanh W4A4": "tanh, weights of W4A4",
    "native W4A4": "bounded ReLU, native weights",
}
"""The model in float with the rounded weights of each chip: only inputs and states are not rounded there."""


class ClassTask(NamedTuple):
    """A maker of labelled sequences from (n, seed), how many train, and what suits the networks."""

    make: Callable[[int, int], LabelledSequences]
    train: int
    leak: float
    ridge: float


TASKS = {
    "patterns": ClassTask(make=lambda n, seed: sequence_classification(n, seed=seed), train=2000, leak=0.3, ridge=0.1),
    "vowel-like (synthetic)": ClassTask(make=lambda n, seed: vowel_like(n, seed=seed), train=270, leak=0.1, ridge=0.1),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arena:
    """One reservoir seed of a task: models by name, and test sequences that none has seen."""

    victims: dict[str, Victim]
    inputs: NDArray[np.floating[Any]]
    labels: NDArray[np.int64]
    spoken: NDArray[np.float32]
    """1 where there is a sequence, 0 in the rest before a short one, which no attack may change."""
    baseline: NDArray[np.bool_]
    """Which test sequences a logistic regression on the mean frame reads rightly: memory is worth what exceeds it."""


@contextmanager
def open_arena(task: ClassTask, seed: int, tested: int, profile: str) -> Iterator[Arena]:
    """Give all models of a task, trained; their devices are open inside the `with`."""
    data = task.make(task.train + tested, seed)
    x, y = data.inputs.astype(np.float32), data.labels
    training = Task(inputs=x[: task.train], targets=y[: task.train])

    def trained(esn: HybridEsn) -> HybridEsn:
        return refit(esn, training, ridge=task.ridge)

    def software(weights: EsnWeights) -> HybridEsn:
        return trained(HybridEsn.from_weights(weights, calibration=training.inputs))

    with ExitStack() as stack:

        def device() -> EmulatedDevice:
            return stack.enter_context(EmulatedDevice(profile))

        inputs = x.shape[2]
        leak, scaling = task.leak, 0.2 / np.sqrt(inputs)
        drawn = make_esn(
            UNITS, inputs, seed=seed, leak=leak, spectral_radius=RADIUS, input_scaling=0.3, connectivity=1.0
        )
        designed = ring(inputs, signs=[seed, 11], leak=leak, radius=RADIUS, input_scaling=scaling, units=UNITS)
        tanh, bounded = (software(weights.astype(np.float32)) for weights in (drawn, designed))
        wide = trained(tanh.with_hardware_linear(device(), "last-layer", "W4A8", inputs="host"))
        narrow = trained(tanh.with_hardware_linear(device(), "last-layer", "W4A4", inputs="device"))
        native = trained(bounded.with_hardware_native(device()))
        networks = {
            "tanh": tanh,
            "host-tanh W4A8": wide,
            "host-tanh W4A4": narrow,
            "tanh, weights of W4A8": software(effective_weights(wide)),
            "tanh, weights of W4A4": software(effective_weights(narrow)),
            "bounded ReLU": bounded,
            "native W4A4": native,
            "bounded ReLU, native weights": software(effective_weights(native)),
        }
        simple = LogisticRegression(max_iter=500).fit(x[: task.train].mean(axis=1), y[: task.train])
        yield Arena(
            victims={name: Victim(networks[name], name=name) for name in MODELS},
            inputs=x[task.train :],
            labels=y[task.train :],
            spoken=np.asarray(x[task.train :].any(axis=2, keepdims=True), np.float32),
            baseline=np.asarray(simple.predict(x[task.train :].mean(axis=1)) == y[task.train :]),
        )


RESERVOIRS, TESTED = 3, 200
EPSILONS = (0.02, 0.05, 0.1)
"""Largest change of a number; the inputs of both tasks have an rms of 1."""
QUERIED = 0.05
"""The size at which the black-box attack runs."""
STEPS, QUERIES = 20, 100
FLOAT_STARTS, CHIP_STARTS = 1, 4
"""Climbs of PGD: restarts find next to nothing in float (tried with 2), and do find more where rounding makes steps."""
CHIPS = tuple(SAME_WEIGHTS)
Flags = dict[tuple[str, str, float], NDArray[np.bool_]]
"""(model, attack, epsilon) to what the model read rightly; attacks are named after what they were made on."""


@experiment("robustness", "Is an int4 chip an accidental defence against small, chosen changes of its input?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return accuracies of every model under every attack, transfer rates, and what they say about int4."""
    quick = settings.quick
    tasks = dict(list(TASKS.items())[-1:]) if quick else TASKS
    reservoirs, tested = (1, 60) if quick else (RESERVOIRS, TESTED)
    rows: list[ResultRow] = []
    for n, (name, task) in enumerate(tasks.items()):
        found: list[Flags] = []
        for i in range(reservoirs):
            progress(n * reservoirs + i, len(tasks) * reservoirs, f"{name}, reservoir {i + 1}")
            with open_arena(task, settings.seed + i, tested, settings.profile) as arena:
                found.append(attack_arena(arena, seed=settings.seed + i, quick=quick))
        rows += _task_rows(name, found)
    legend = words("robustness.legend", queries=QUERIES, queried=QUERIED)
    return Result.of(rows, _table(rows), (*verdicts(rows), *legend), _checks(rows))


def attack_arena(arena: Arena, *, seed: int, quick: bool = False) -> Flags:
    """Return what every model reads rightly of what was made for every model."""
    u, labels = arena.inputs, arena.labels
    steps, queries = (3, 5) if quick else (STEPS, QUERIES)
    right: Flags = {("baseline", "clean", 0.0): arena.baseline}

    def show(attack: str, epsilon: float, changed: NDArray[np.floating[Any]]) -> None:
        for model, victim in arena.victims.items():
            right[model, attack, epsilon] = victim.predict(changed) == labels

    show("clean", 0.0, u)
    for epsilon in (QUERIED,) if quick else EPSILONS:
        size = epsilon * arena.spoken
        show("random signs", epsilon, random_signs(u, size, seed=seed))
        for name, victim in arena.victims.items():
            starts = CHIP_STARTS if name in CHIPS and not quick else FLOAT_STARTS
            show(f"fgsm on {name}", epsilon, fgsm(victim, u, labels, size, objective="margin"))
            climbed = pgd(victim, u, labels, size, steps=steps, restarts=starts, seed=seed)
            show(f"pgd on {name}", epsilon, climbed)
            if epsilon == QUERIED:
                show(f"square on {name}", epsilon, square_attack(victim, u, labels, size, queries=queries, seed=seed))
    return right


def _task_rows(task: str, found: list[Flags]) -> Iterator[ResultRow]:
    """Give the rows of one task from the flags of its reservoirs."""

    def flags(model: str, attack: str, epsilon: float) -> list[NDArray[np.bool_]]:
        return [right[model, attack, epsilon] for right in found]

    def worst(model: str, epsilon: float) -> list[NDArray[np.bool_]]:
        # The control is no attack: it is no attempt to fool a model, and does not count here.
        return [
            np.logical_and.reduce(
                [r for (m, a, e), r in right.items() if m == model and e in (0.0, epsilon) and a != "random signs"]
            )
            for right in found
        ]

    simple = share(flags("baseline", "clean", 0.0))
    usual = partial(row_of, task, refit=True, less=False)
    yield usual("baseline: logistic on the mean", "clean", simple, simple.value, precision="f64")
    epsilons = sorted({e for _, _, e in found[0] if e})
    for model, (approach, precision) in MODELS.items():
        twin, of = FLOAT_TWIN[model], partial(usual, approach, precision=precision)
        yield of("clean", share(flags(model, "clean", 0.0)), share(flags(twin, "clean", 0.0)).value)
        for e in epsilons:
            at = f"epsilon {e:g}"
            control = flags(twin, "random signs", e)
            yield of(f"random signs, {at}", share(flags(model, "random signs", e)), share(control).value)
            for attack in ("fgsm", "pgd", "square"):
                if (model, f"{attack} on {model}", e) not in found[0]:
                    continue
                on_twin = flags(twin, f"{attack} on {twin}", e)
                fooled = share(on_twin).value
                yield of(f"{attack} own, {at}", share(flags(model, f"{attack} on {model}", e)), fooled)
                if twin == model:
                    continue
                carried = flags(model, f"{attack} on {twin}", e)
                yield of(f"{attack} from twin, {at}", share(carried), fooled)
                clean = flags(twin, "clean", 0.0), flags(model, "clean", 0.0)
                yield of(f"{attack} transfer, {at}", transfer_rate(clean[0], on_twin, clean[1], carried), 1.0)
            yield of(f"worst, {at}", share(worst(model, e)), share(worst(twin, e)).value)
            if twin != model:
                yield of(f"against twin, {at}", share_difference(worst(model, e), worst(twin, e)))
            if model in SAME_WEIGHTS:
                same = worst(SAME_WEIGHTS[model], e)
                yield of(f"against same weights, {at}", share_difference(worst(model, e), same))


def _rounded(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows of chips against float networks with the same weights."""
    chips = [MODELS[model][0] for model in CHIPS]
    return [r for r in rows if r.approach in chips and r.metric.startswith("against same weights")]


def verdicts(rows: Sequence[ResultRow]) -> list[str]:
    """Return whether int4 is a defence, in a sentence, and then how each model on the chip stands."""
    rounded = _rounded(rows)
    told = _told_apart(rounded)
    said = words("robustness.verdict", a="a" if told["better"] > told["worse"] else "no", **told)
    for model in CHIPS:
        approach, precision = MODELS[model]
        for other, what in (("same weights", "the float network with the same rounded weights"), ("twin", "float")):
            mine = rows_of(rows, approach=approach, precision=precision)
            compared = [r for r in mine if r.metric.startswith(f"against {other}")]
            most = max(compared, key=lambda r: r.value)
            best, mean = _percent(most), 100 * np.mean([r.value for r in compared])
            where = {"task": most.task, "where": most.metric.split(", ")[1]}
            said += words(
                "robustness.chip", model=model, what=what, mean=mean, best=best, **where, **_told_apart(compared)
            )
    return said


def _told_apart(rows: Sequence[ResultRow]) -> dict[str, int]:
    """Return how many differences are above 0, below, and neither."""
    better, worse = sum(r.low > 0 for r in rows), sum(r.high < 0 for r in rows)
    return {"better": better, "worse": worse, "even": len(rows) - better - worse, "n": len(rows)}


def _percent(row: ResultRow) -> Interval:
    return Interval(row.value, row.low, row.high).times(100)


def _table(rows: Sequence[ResultRow]) -> Iterator[tuple[str, ...]]:
    """Give one line per task, model and epsilon; accuracies in percent with their intervals."""
    columns = (
        "random signs", "fgsm from twin", "pgd from twin", "fgsm own", "pgd own", "square own", "worst",
        "against twin", "against same weights", "pgd transfer",
    )  # fmt: skip
    yield ("task", "model", "precision", "epsilon", "clean", *columns)
    by_metric = {(r.task, r.approach, r.precision, r.metric): r for r in rows}

    def cell(row: ResultRow | None) -> str:
        if row is None:
            return ""
        if np.isnan(row.value):
            return "no case"
        return shown(_percent(row), "+.1f" if row.metric.startswith("against") else ".1f")

    epsilons = sorted({r.metric.split("epsilon ")[1] for r in rows if "epsilon" in r.metric}, key=float)
    for clean in rows_of(rows, metric="clean"):
        key = clean.task, clean.approach, clean.precision
        if clean.approach.startswith("baseline"):
            yield (*key, "0", cell(clean), *[""] * len(columns))
            continue
        for e in epsilons:
            cells = [cell(by_metric.get((*key, f"{column}, epsilon {e}"))) for column in columns]
            yield (*key, e, cell(clean), *cells)


def _checks(rows: Sequence[ResultRow]) -> Iterator[Check]:
    """Give the claim of an accidental defence, and whether the attacks were what they should be."""
    against = _rounded(rows)
    own = {(r.task, r.approach, r.metric.split(", ")[1]): r for r in rows if r.metric.startswith("pgd own")}

    def beside_own(attack: str) -> list[tuple[ResultRow, ResultRow]]:
        found = [r for r in rows if r.metric.startswith(attack)]
        return [(r, own[r.task, r.approach, r.metric.split(", ")[1]]) for r in found]

    def count(asked: str, held: Sequence[bool]) -> Check:
        return asked, f"{sum(held)} of {len(held)}", all(held)

    defended = "int4 is an accidental defence: worst case above that of float with the same weights"
    yield count(defended, [r.low > 0 for r in against])
    stronger = [attack.value < random.value for random, attack in beside_own("random signs")]
    yield count("PGD takes more than random signs of its size", stronger)
    unmasked = [square.value >= attack.low for square, attack in beside_own("square own")]
    yield count("no masked slopes: questions alone find no more than PGD's interval", unmasked)
