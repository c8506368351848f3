"""`Estimate`, a number with its error and how the error was found, and the checks a series must pass first."""

import math
from collections.abc import Sequence
from typing import Self, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import SpecError

Floats: TypeAlias = NDArray[np.float64]

MIN_LENGTH = 5
"""Shortest series analysed: below this half the series leaves no lag to sum over; pyerrors refuses the same."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mean (or a function of means) with its error, autocorrelation time and summation window.

    `tau_int` counts measurements and is 0.5 for uncorrelated data, so that error^2 = 2 tau_int var / n.
    `error_error` is the standard error of `error`, `window` the last lag that was summed, `n` the series' length.
    """

    mean: float
    error: float
    error_error: float
    tau_int: float
    tau_int_error: float
    window: int
    n: int

    def __str__(self) -> str:
        """Return for example ``0.54922(17), tau_int 3.30(42), window 14, n 2000``."""
        tau = with_error(self.tau_int, self.tau_int_error)
        return f"{with_error(self.mean, self.error)}, tau_int {tau}, window {self.window}, n {self.n}"


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A mean with its error and integrated autocorrelation time; None where there are too few measurements for them."""

    mean: float
    error: float | None = None
    tau_int: float | None = None

    @classmethod
    def of(cls, found: Estimate) -> Self:
        """Return an estimate as it is quoted."""
        return cls(mean=found.mean, error=found.error, tau_int=found.tau_int)


def with_error(value: float, error: float) -> str:
    """Return the usual short form with two digits of error: ``0.54922(17)``, ``1.33(11)``, ``5180(230)``."""
    if not (math.isfinite(value) and math.isfinite(error)) or error <= 0:
        return f"{value:.6g}({error:.2g})"
    places = 1 - math.floor(math.log10(error))
    if round(error * 10.0**places) == 100:  # 0.0996 rounds up to three digits
        places -= 1
    if places <= 0:
        return f"{round(value, places):.0f}({round(error, places):.0f})"
    # Two digits below the point of a small error stand alone; an error above one keeps its own decimal point.
    shown = f"{error:.{places}f}" if error >= 1 else f"{round(error * 10.0**places)}"
    return f"{value:.{places}f}({shown})"


def as_series(series: ArrayLike, what: str = "series") -> Floats:
    """Return `series` as a one-dimensional array of finite doubles, long enough to analyse."""
    return _as_reals(
        series, what, 1, "be one-dimensional, one number per measurement", "one observable of one chain at a time"
    )


def as_matrix(series: ArrayLike | Sequence[ArrayLike], what: str = "series_matrix") -> Floats:
    """Return several series, measured on the same configurations, as an array of shape (observables, n)."""
    return _as_reals(series, what, 2, "have shape (observables, measurements)", "series as rows: np.stack([a, b])")


def _as_reals(values: object, what: str, dimensions: int, wanted: str, hint: str) -> Floats:
    try:
        x = np.asarray(values)
    except ValueError as ragged:
        raise SpecError(
            f"`{what}` must hold series of one length, measured on the same configurations. Got different lengths"
        ) from ragged
    if np.iscomplexobj(x):
        raise SpecError(f"`{what}` must be real. Got complex numbers\nhint: take np.abs(...) or .real first")
    if x.dtype.kind not in "biuf":
        raise SpecError(f"`{what}` must be numbers. Got {x.dtype}")
    if x.ndim != dimensions:
        raise SpecError(f"`{what}` must {wanted}. Got shape {x.shape}\nhint: pass {hint}")
    n = x.shape[-1]
    if n < MIN_LENGTH or x.size == 0:
        raise SpecError(
            f"`{what}` must have at least {MIN_LENGTH} measurements. Got {n}\nhint: run the chain for longer"
        )
    x = x.astype(np.float64, copy=False)
    bad = np.flatnonzero(~np.isfinite(x).reshape(-1, n).all(axis=0))
    if bad.size:
        raise SpecError(
            f"`{what}` must be finite. Got {bad.size} measurements with NaN or infinity, the first at index {bad[0]}\n"
            "hint: find out why the run diverged; an average over the rest would hide it"
        )
    return x
