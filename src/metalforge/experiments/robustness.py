"""Experiment robustness: whether an int4 chip is an accidental defence against small, chosen changes of its input.

Every model (`robustness_models`) is attacked through its own slopes (FGSM, PGD) and by questions alone (Square attack);
what was made for one is shown to all. A model's worst case counts a sequence as right only if it withstood everything
that anybody made at that size. Random signs of the same size are the control. Intervals resample reservoirs and whole
sequences (`hybrid.attacks.outcomes`).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.attacks.gradient_attacks import fgsm, pgd, random_signs, square_attack
from metalforge.hybrid.attacks.outcomes import share, share_difference, transfer_rate

from .protocol import (
    Check,
    Figure,
    HasInterval,
    Progress,
    Result,
    ResultRow,
    Settings,
    experiment,
    row_of,
    rows_of,
    shown,
)
from .robustness_models import FLOAT_TWIN, MODELS, SAME_WEIGHTS, TASKS, Arena, open_arena

__all__ = ["CHIPS", "WORDS", "Flags", "attack_arena", "run", "verdicts"]

RESERVOIRS, TESTED = 3, 200
EPSILONS = (0.02, 0.05, 0.1)
"""Largest change of a number; the inputs of both tasks have an rms of 1."""
QUERIED = 0.05
"""The size at which the black-box attack runs."""
STEPS, QUERIES = 20, 100
FLOAT_STARTS, CHIP_STARTS = 1, 4
"""Climbs of PGD: restarts find next to nothing in float (tried with 2), and do find more where rounding makes steps."""
CHIPS = tuple(SAME_WEIGHTS)
WORDS = (
    "epsilon: the largest change of an input number; inputs have an rms of 1.",
    "random signs: the same size without a direction. What is lost beyond this column is the attack's doing.",
    "from twin: made with the exact gradient of the float network before rounding, shown to this model.",
    "own: made through this model itself; on a chip by a straight-through estimate at the chip's states, with the "
    "chip's weights.",
    f"square: random search, {QUERIES} questions per sequence (5 with --quick), no slopes; at epsilon {QUERIED} only.",
    "worst: right under every attack that was made at this size for any of the models.",
    "against twin: worst case less that of the float network before rounding, on the same sequences. Rounded weights "
    "are another network, which is part of it.",
    "against same weights: worst case less that of the float network with the chip's rounded weights. Only inputs and "
    "states are rounded here and not there; above 0 is what a defence by rounding would show.",
    "transfer: of the sequences that fool the float twin by PGD and that both read rightly otherwise, those that fool "
    "this model too.",
    "Chips are emulated, their integers exact. The vowel-like sequences are synthetic.",
)
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
    return Result.of(rows, _table(rows), (*verdicts(rows), *WORDS), _checks(rows))


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


def _task_rows(task: str, found: list[Flags]) -> list[ResultRow]:
    """Return the rows of one task from the flags of its reservoirs."""

    def flags(model: str, attack: str, epsilon: float) -> list[NDArray[np.bool_]]:
        return [right[model, attack, epsilon] for right in found]

    def worst(model: str, epsilon: float) -> list[NDArray[np.bool_]]:
        # The control is no attack: it was not made to fool anybody, and does not count here.
        return [
            np.logical_and.reduce(
                [r for (m, a, e), r in right.items() if m == model and e in (0.0, epsilon) and a != "random signs"]
            )
            for right in found
        ]

    simple = share(flags("baseline", "clean", 0.0))
    rows = [_accuracy(task, "baseline: logistic on the mean", "f64", "clean", simple, simple.value)]
    epsilons = sorted({e for _, _, e in found[0] if e})
    for model, (approach, precision) in MODELS.items():
        twin = FLOAT_TWIN[model]

        def add(metric: str, value: HasInterval, reference: float, of: tuple[str, str] = (approach, precision)) -> None:
            rows.append(_accuracy(task, *of, metric, value, reference))

        add("clean", share(flags(model, "clean", 0.0)), share(flags(twin, "clean", 0.0)).value)
        for e in epsilons:
            at = f"epsilon {e:g}"
            control = flags(twin, "random signs", e)
            add(f"random signs, {at}", share(flags(model, "random signs", e)), share(control).value)
            for attack in ("fgsm", "pgd", "square"):
                if (model, f"{attack} on {model}", e) not in found[0]:
                    continue
                on_twin = flags(twin, f"{attack} on {twin}", e)
                fooled = share(on_twin).value
                add(f"{attack} own, {at}", share(flags(model, f"{attack} on {model}", e)), fooled)
                if twin == model:
                    continue
                carried = flags(model, f"{attack} on {twin}", e)
                add(f"{attack} from twin, {at}", share(carried), fooled)
                clean = flags(twin, "clean", 0.0), flags(model, "clean", 0.0)
                add(f"{attack} transfer, {at}", transfer_rate(clean[0], on_twin, clean[1], carried), 1.0)
            add(f"worst, {at}", share(worst(model, e)), share(worst(twin, e)).value)
            if twin != model:
                add(f"against twin, {at}", share_difference(worst(model, e), worst(twin, e)), 0.0)
            if model in SAME_WEIGHTS:
                same = worst(SAME_WEIGHTS[model], e)
                add(f"against same weights, {at}", share_difference(worst(model, e), same), 0.0)
    return rows


def _accuracy(task: str, approach: str, precision: str, metric: str, found: HasInterval, reference: float) -> ResultRow:
    return row_of(task, approach, metric, found, reference, precision=precision, refit=True, less=False)


def verdicts(rows: Sequence[ResultRow]) -> list[str]:
    """Return whether int4 is a defence, in a sentence, and then how each model on the chip stands."""
    chips = [MODELS[m][0] for m in CHIPS]
    rounded = [r for r in rows if r.approach in chips and r.metric.startswith("against same weights")]
    safer, weaker = sum(r.low > 0 for r in rounded), sum(r.high < 0 for r in rounded)
    lines = [
        f"Rounding to int4 is {'a' if safer > weaker else 'no'} defence here: of {len(rounded)} worst cases a chip is "
        f"safer than the float network with the same weights in {safer}, weaker in {weaker}, not told apart in "
        f"{len(rounded) - safer - weaker}."
    ]
    for model in CHIPS:
        approach, precision = MODELS[model]
        for other, what in (("same weights", "the float network with the same rounded weights"), ("twin", "float")):
            metric = f"against {other}"
            compared = [r for r in rows_of(rows, approach=approach, precision=precision) if r.metric.startswith(metric)]
            better, worse = sum(r.low > 0 for r in compared), sum(r.high < 0 for r in compared)
            most = max(compared, key=lambda r: r.value)
            lines.append(
                f"{model} against {what}: worst case better in {better}, worse in {worse}, not told apart in "
                f"{len(compared) - better - worse} of {len(compared)}; on average "
                f"{100 * np.mean([r.value for r in compared]):+.1f} points, at best "
                f"{100 * most.value:+.1f} points ({100 * most.low:+.1f} .. {100 * most.high:+.1f}), "
                f"{most.task}, {most.metric.split(', ')[1]}."
            )
    return lines


def _table(rows: Sequence[ResultRow]) -> Iterator[tuple[str, ...]]:
    """Give one line a task, model and epsilon; accuracies in percent with their intervals."""
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
        percent = Figure(100 * row.value, 100 * row.low, 100 * row.high)
        return shown(percent, "+.1f" if row.metric.startswith("against") else ".1f")

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
    int4 = [MODELS[m][0] for m in CHIPS]
    against = [r for r in rows if r.approach in int4 and r.metric.startswith("against same weights")]
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
