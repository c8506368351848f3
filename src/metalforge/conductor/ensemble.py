r"""Several reservoirs with the same heads: the mean of their answers, and an interval around it.

    spread^2 = variance of the members + noise^2
    interval = mean +- q_p spread,        q_p = quantile of |mean - label| / spread over couplings left out

Members differ by the seed of their reservoirs, so their variance says how much an answer depends on the draw; `noise`
is a head's error on couplings that were left out when it was fitted. Errors are not normal, so q_p is read off the
left-out answers (split conformal prediction: V. Vovk et al., 2005), for 68 % and 95 % apart. Only couplings between
others of their lattice count: at the edge of a scan leaving one out is extrapolation, which no interval is meant for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.training import predict

from .chains import Doubles
from .dataset import Example
from .heads_training import Trained, reservoir, train_heads
from .layouts import CONDUCTOR_11
from .program import ConductorProgram

__all__ = ["LEVELS", "Ensemble", "Predicted", "ensemble_of", "train_ensemble", "values_of"]

LEVELS = (0.68, 0.95)
NORMAL = (0.994, 1.960)
"""Half widths of these levels in standard deviations, for heads with nothing left out to read them off."""


class Predicted(NamedTuple):
    """A head's value for every trajectory, and half the width of its intervals at `LEVELS`.

    Of two classes the value is the probability of the second.
    """

    value: Doubles
    spread: Doubles
    half_68: Doubles
    half_95: Doubles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ensemble:
    """Networks with one layout; `widths` are the half widths of a head's intervals in units of its spread."""

    members: tuple[Trained, ...]
    widths: Mapping[str, tuple[float, float]]

    def predict(self, inputs: Doubles) -> dict[str, Predicted]:
        """Return every trained head along a chain (trajectories, features) from rest."""
        answers = [values_of(member, inputs) for member in self.members]
        found = {}
        for name in answers[0]:
            value, spread = _pooled([a[name] for a in answers], [m.fits[name].noise for m in self.members])
            narrow, wide = self.widths[name]
            found[name] = Predicted(value, spread, narrow * spread, wide * spread)
        return found


def ensemble_of(members: Sequence[Trained]) -> Ensemble:
    """Return an ensemble of networks that were fitted to the same chains."""
    if not members:
        raise SpecError("an ensemble wants at least one member")
    return Ensemble(members=tuple(members), widths={name: _widths(name, members) for name in members[0].fits})


def _widths(name: str, members: Sequence[Trained]) -> tuple[float, float]:
    """Return the quantiles of left-out errors in units of the spread."""
    rows = [member.left_out[name] for member in members if name in member.left_out]
    if len(rows) < len(members) or not rows[0].inside.any():
        return NORMAL
    value, spread = _pooled([row.said for row in rows], [member.fits[name].noise for member in members])
    pulls = (np.abs(value - rows[0].label) / spread)[rows[0].inside]
    # Chains, not rows, are independent: with few of them a quantile is taken a little further out.
    chains = len(np.unique(rows[0].chain[rows[0].inside]))
    levels = [min(level * (1 + 1 / chains), 1.0) for level in LEVELS]
    narrow, wide = np.quantile(pulls, levels)
    return float(narrow), float(wide)


def _pooled(said: Sequence[Doubles], noise: Sequence[float]) -> tuple[Doubles, Doubles]:
    """Return mean and spread of what members say."""
    stack = np.stack(said)
    return stack.mean(axis=0), np.sqrt(stack.var(axis=0) + float(np.mean(noise)) ** 2)


def values_of(trained: Trained, inputs: Doubles) -> dict[str, Doubles]:
    """Return every trained head of one network along a chain; of two classes, the probability of the second."""
    program = ConductorProgram(weights=trained.weights)
    decoded = program.decode(predict(trained.weights, inputs.astype(trained.weights.dtype)))
    return {name: np.asarray(decoded[name][:, -1]) for name in trained.fits}


def train_ensemble(
    examples: Sequence[Example], *, members: int = 3, seed: int = 1, layout: HeadLayout = CONDUCTOR_11
) -> Ensemble:
    """Return so many networks, of seeds `seed`, `seed` + 1 and so on."""
    return ensemble_of([train_heads(examples, weights=reservoir(seed + k), layout=layout) for k in range(members)])
