"""A column of measurements as it is quoted: a mean, with an error where one is known."""

from collections.abc import Callable
from typing import Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from .estimate import MIN_LENGTH, Estimate
from .gamma import gamma_method

Floats = NDArray[np.float64]


class Averaged(Protocol):
    """How a column is averaged."""

    @property
    def transform(self) -> Callable[[Floats], Floats]:
        """What is averaged: the column itself, or something of every row."""
        ...

    @property
    def error(self) -> bool:
        """Whether the mean is quoted with a Gamma-method error."""
        ...


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A mean with its error and integrated autocorrelation time; None where there are too few measurements for them."""

    mean: float
    error: float | None
    tau_int: float | None

    @classmethod
    def of(cls, found: Estimate) -> Self:
        """Return an estimate as it is quoted."""
        return cls(mean=found.mean, error=found.error, tau_int=found.tau_int)


def value_of(column: Averaged, rows: Floats, *, fewest: int = MIN_LENGTH) -> Value | None:
    """Return how a column of measurements is quoted; None below `fewest` finite rows, where no error is known."""
    found = np.asarray(column.transform(rows[np.isfinite(rows)]), np.float64)
    if not column.error:
        return Value(mean=float(found.mean()), error=None, tau_int=None) if found.size else None
    if found.size < fewest:
        return None
    return Value.of(gamma_method(found))
