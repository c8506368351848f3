r"""The study of warm-ups that the thermalisation head ends: their length, and the bias that is left.

On test chains of sweeps, of every lattice and coupling whose equilibrium is known. A rule says after how many updates a
chain is measured, from `SHORTEST` to `LONGEST`; a visit is the mean over the next `MEASURED` updates (less of
either for short chains), and its bias

    (visit - equilibrium) / sigma,     sigma the error of one visit in equilibrium,

averaged over the chains of one start at a coupling, then over couplings, with an interval that draws couplings again.
Hot and cold starts are apart, since their biases have opposite signs and would cancel. A rule is unbiased where all
intervals are within +-`ALLOWED`, in the plaquette and in |L|.

Beside the head stand classical criteria and fixed lengths, one of them the mean length of the head's own rule: a head
that looks at the chain is worth something only where it leaves less than that. The control that starts at update 3
must fail, or the test could not have seen a bias.

The head's rule, stop = factor * (frames until it was above 0.9 for 3 in a row: `early_stop`), has one free number, the
least of `FACTORS` with which at most `PREMATURE` of the training chains stop before their label, judged by what the
head said of clusters that were left out when it was fitted.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.conductor.features import SWEEPS
from metalforge.conductor.scores import CouplingInterval
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError

from .baselines import says
from .labels import TRAJECTORIES, WARMING, Equilibrium, Example, Labeller, label_of
from .predictions import values_of
from .scores import StopRule, StopStudy, over_couplings
from .training import Trained

SURE, IN_A_ROW = 0.9, 3
"""Probability above which the thermalisation head is sure, and frames in a row for which it must be."""
FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0)
PREMATURE = 0.01
SHORTEST, LONGEST, MEASURED, CONTROL = 80, WARMING, 600, 3
ALLOWED = 0.3
Rule: TypeAlias = Callable[[Example], float]


def first_yes(yes: NDArray[np.bool_]) -> int:
    """Return the first index that says yes; the length where none does."""
    return int(np.argmax(yes)) if yes.any() else len(yes)


def first_sure(probability: Doubles, sure: float = SURE, in_a_row: int = IN_A_ROW) -> int:
    """Return after how many frames the head has been sure for some in a row; one more than all if it was not."""
    run = np.convolve(probability > sure, np.ones(in_a_row), mode="full")[: len(probability)] > in_a_row - 0.5
    return first_yes(run) + 1


def thermalisation_head(trained: Trained) -> str:
    """Return the name of the trained head for the thermalisation of sweeps."""
    for name in trained.fits:
        if label_of(name) == "thermalization" and name not in TRAJECTORIES:
            return name
    raise SpecError("an early stop needs a trained thermalisation head")


def choose_factor(trained: Trained, examples: Sequence[Example]) -> float:
    """Return the factor for a network that was fitted to these chains; the largest where none is safe enough."""
    left_out = trained.left_out.get(thermalisation_head(trained))
    if left_out is None:
        raise SpecError("the rule is chosen by what was left out in training, which weights of a file do not carry")
    first, wanted = [], []
    for i in np.unique(left_out.chain):
        if examples[i].length is not None:
            first.append(first_sure(left_out.said[left_out.chain == i]))
            wanted.append(examples[i].length)
    for factor in FACTORS:
        stops = np.clip(factor * SWEEPS * np.array(first), SHORTEST, LONGEST)
        if first and np.mean(stops < np.array(wanted)) <= PREMATURE:
            return factor
    return FACTORS[-1]


def stop_study(trained: Trained, test: Sequence[Example], labeller: Labeller, *, factor: float) -> StopStudy:
    """Judge every rule on test chains; `factor` is that of the head's rule (`choose_factor`)."""
    head = thermalisation_head(trained)
    chains = [
        (example, known)
        for example in test
        if example.chain.entry.algorithm == "heatbath" and not example.chain.entry.fault
        if (known := labeller.known(example.chain.entry)) is not None
    ]
    if not chains:
        raise SpecError("the early stop is judged on sweeps whose equilibrium is known. Got none")
    recorded = min(example.chain.entry.updates for example, _ in chains)
    longest = min(LONGEST, recorded * 2 // 5)
    measured = min(MEASURED, recorded - longest)

    def by_head(example: Example) -> float:
        return factor * SWEEPS * first_sure(values_of(trained, example.inputs[: longest // SWEEPS])[head])

    rules: dict[str, Rule] = {
        "head": by_head,
        "MSER": lambda example: SWEEPS * (1 + first_yes(says("MSER", example) > 0)),
        "Geweke": lambda example: SWEEPS * (1 + first_yes(says("Geweke", example) > 0)),
    }
    starts = {
        name: [round(float(np.clip(rule(example), SHORTEST, longest))) for example, _ in chains]
        for name, rule in rules.items()
    }
    mean = round(float(np.mean(starts["head"])))
    fixed = {f"fixed, the head's mean ({mean})": mean, f"fixed, {SHORTEST}": SHORTEST, f"fixed, {longest}": longest}
    starts |= {name: [n] * len(chains) for name, n in (fixed | {f"update {CONTROL}": CONTROL}).items()}
    return StopStudy(
        lattices=len({example.lattice for example, _ in chains}),
        clusters=len({example.cluster for example, _ in chains}),
        chains=sum(example.chain.entry.start == "hot" for example, _ in chains),
        shortest=SHORTEST,
        longest=longest,
        measured=measured,
        sure=SURE,
        in_a_row=IN_A_ROW,
        factor=factor,
        rules=tuple(_judge(name, here, chains, measured) for name, here in starts.items()),
    )


def _judge(name: str, starts: Sequence[int], chains: Sequence[tuple[Example, Equilibrium]], measured: int) -> StopRule:
    premature = [e.length is None or start < e.length for start, (e, _) in zip(starts, chains, strict=True)]
    biases = {
        f"{what}_{start}": _bias(what, start, starts, chains, measured)
        for what in ("plaquette", "polyakov")
        for start in ("hot", "cold")
    }
    return StopRule(
        rule=name,
        length=float(np.mean(starts)),
        premature=float(np.mean(premature)),
        unbiased=all(bias.low > -ALLOWED and bias.high < ALLOWED for bias in biases.values()),
        **biases,
    )


def _bias(
    what: str, start: str, starts: Sequence[int], chains: Sequence[tuple[Example, Equilibrium]], measured: int
) -> CouplingInterval:
    found: dict[object, list[float]] = {}
    for begin, (example, known) in zip(starts, chains, strict=True):
        if example.chain.entry.start == start:
            truth = known.plaquette if what == "plaquette" else known.loop
            visit = float(_observable(example, what)[begin : begin + measured].mean())
            sigma = truth.error * np.sqrt(known.rows / measured)
            found.setdefault(example.cluster, []).append((visit - truth.mean) / sigma)
    return over_couplings([float(np.mean(values)) for values in found.values()])


def _observable(example: Example, what: str) -> Doubles:
    return example.chain.loop if what == "polyakov" else example.chain.column("plaquette")
