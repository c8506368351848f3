r"""The rule by which the thermalisation head ends a warm-up, and how its one free number is chosen.

    stop = factor * (trajectories until the head was above 0.9 for 10 in a row: `early_stop`)

A head says when a chain has entered its equilibrium band; what is left of a transient then is still as large as a
fluctuation, and takes about as long again to vanish, several times for slow modes. `factor` is the least of `FACTORS`
with which at most `ALLOWED` of the training chains stop before their label, judged by what the head said of couplings
that were left out when it was fitted. Chains that reject most of their trajectories do not count.
"""

from collections.abc import Sequence

import numpy as np

from metalforge.core.errors import SpecError

from .dataset import Example
from .early_stop import first_sure
from .heads_training import LABEL_OF, Trained

__all__ = ["choose_factor", "thermalisation_head"]

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
