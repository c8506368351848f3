"""What the worker asks of a conductor: values of named heads, for a frame by itself or along a chain."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Conductor", "HeadReading"]


class HeadReading(NamedTuple):
    """A head's value, decoded, and the predictive standard deviation of its first entry; None where it is not known."""

    value: NDArray[np.float64]
    spread: float | None


class Conductor(Protocol):
    """Many heads from one pass."""

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the heads."""
        ...

    def read(self, frame: Mapping[str, float]) -> Mapping[str, HeadReading]:
        """Return every head for a context frame: one step from rest, no state is changed."""
        ...

    def observe(self, chain: str, frame: Mapping[str, float]) -> Mapping[str, HeadReading]:
        """Return every head after one step of a chain's carried state."""
        ...

    def retrain(self, records: Sequence[Any]) -> None:
        """Fit the heads anew."""
        ...

    def export(self, path: str | PathLike[str]) -> None:
        """Write the weights."""
        ...
