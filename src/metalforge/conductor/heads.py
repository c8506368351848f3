"""What the worker asks of a conductor: values of named heads, for a frame by itself or along a chain."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from metalforge.core.schema import HeadLayout

__all__ = ["Conductor", "HeadReading"]


class HeadReading(NamedTuple):
    """A head's value, decoded, and the predictive standard deviation of its first entry; None where it is not known."""

    value: NDArray[np.float64]
    spread: float | None


class Conductor(Protocol):
    """Many heads from one pass."""

    @property
    def layout(self) -> HeadLayout:
        """The heads, with which of them are trained."""
        ...

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the heads."""
        ...

    def read(self, frame: Mapping[str, float], *, chain: str | None = None) -> Mapping[str, HeadReading]:
        """Return every head for a frame: one step from rest, or from the state that a chain carries; none is changed.

        A chain of which nothing was observed yet is at rest.
        """
        ...

    def observe(self, chain: str, frame: Mapping[str, float]) -> Mapping[str, HeadReading]:
        """Return every head after one step of a chain's carried state."""
        ...

    def end(self, chain: str) -> None:
        """Forget a chain; one that is not known is no error."""
        ...
