r"""Several reservoirs with the same heads: the mean of their answers, and how far off it may be.

    spread^2 = variance of the members + noise^2

Members differ by the seed of their reservoirs, so their variance says how much an answer depends on the draw; `noise`
is a head's error on couplings that were left out when it was fitted.
"""

from collections.abc import Sequence
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

__all__ = ["Ensemble", "Predicted", "train_ensemble"]


class Predicted(NamedTuple):
    """A head's value and its standard deviation for every trajectory; of two classes, the probability of the second."""

    value: Doubles
    spread: Doubles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ensemble:
    """Networks with one layout."""

    members: tuple[Trained, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise SpecError("an ensemble wants at least one member")

    def predict(self, inputs: Doubles) -> dict[str, Predicted]:
        """Return every trained head along a chain (trajectories, features) from rest."""
        answers = [values_of(member, inputs) for member in self.members]
        found = {}
        for name in answers[0]:
            stack = np.stack([answer[name] for answer in answers])
            noise = float(np.mean([member.fits[name].noise for member in self.members]))
            found[name] = Predicted(stack.mean(axis=0), np.sqrt(stack.var(axis=0) + noise**2))
        return found


def values_of(trained: Trained, inputs: Doubles) -> dict[str, Doubles]:
    """Return every trained head of one network along a chain; of two classes, the probability of the second."""
    program = ConductorProgram(weights=trained.weights)
    decoded = program.decode(predict(trained.weights, inputs.astype(trained.weights.dtype)))
    return {name: np.asarray(decoded[name][:, -1]) for name in trained.fits}


def train_ensemble(
    examples: Sequence[Example], *, members: int = 3, seed: int = 1, layout: HeadLayout = CONDUCTOR_11
) -> Ensemble:
    """Return so many networks, of seeds `seed`, `seed` + 1 and so on."""
    return Ensemble(
        members=tuple(train_heads(examples, weights=reservoir(seed + k), layout=layout) for k in range(members))
    )
