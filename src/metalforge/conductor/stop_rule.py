r"""The rule by which the thermalisation head ends a warm-up, and how its one free number is chosen.

    stop = factor * (trajectories until the head was above `SURE` for `IN_A_ROW` in a row)

A head says when a chain has entered its equilibrium band; what is left of a transient then is still as large as a
fluctuation, and takes about as long again to vanish, several times for slow modes. `factor` is the least of `FACTORS`
with which at most `ALLOWED` of the training chains stop before their label, judged by what the head said of couplings
that were left out when it was fitted. Chains that reject most of their trajectories do not count.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

from .chains import Doubles
from .dataset import Example
from .heads_training import LABEL_OF, Trained

__all__ = ["IN_A_ROW", "SURE", "choose_factor", "first_sure", "first_yes", "thermalisation_head"]

SURE = 0.9
IN_A_ROW = 10
FACTORS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
ALLOWED = 0.01
SOUND = 0.5
"""Share of accepted trajectories below which a chain is broken rather than slow."""


def thermalisation_head(trained: Trained) -> str:
    """Return the name of the trained head for thermalisation."""
    for name in trained.fits:
        if LABEL_OF.get(name, name) == "thermalization":
            return name
    raise SpecError("an early stop needs a trained thermalisation head")


def first_yes(yes: NDArray[np.bool_]) -> int:
    """Return the first index that says yes; the length where none does."""
    return int(np.argmax(yes)) if yes.any() else len(yes)


def first_sure(probability: Doubles) -> int:
    """Return after how many trajectories the head has been sure for some in a row."""
    sure = np.convolve(probability > SURE, np.ones(IN_A_ROW), mode="full")[: len(probability)] > IN_A_ROW - 0.5
    return first_yes(sure) + 1


def choose_factor(trained: Trained, examples: Sequence[Example]) -> float:
    """Return the factor for a network that was fitted to these chains; the largest where none is safe enough."""
    left_out = trained.left_out.get(thermalisation_head(trained))
    if left_out is None:
        raise SpecError("the rule is chosen by what was left out in training, which weights of a file do not carry")
    first, wanted = [], []
    for i in np.unique(left_out.chain[left_out.inside]):
        length, accepted = examples[i].labels.length, examples[i].chain.column("accepted")
        if length is not None and np.nanmean(accepted) > SOUND:
            first.append(first_sure(left_out.said[left_out.chain == i]))
            wanted.append(length)
    for factor in FACTORS:
        if first and np.mean(factor * np.array(first) < np.array(wanted)) <= ALLOWED:
            return factor
    return FACTORS[-1]
