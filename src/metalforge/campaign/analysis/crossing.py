"""Where rates cross zero along the coordinate, by a line or a parabola through them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CURVED = 8
"""Rates from which on their curve may bend: fewer, as a steerer has them at first, hardly say where a line goes."""


class Crossing(NamedTuple):
    """Where a curve through rates is zero, its error, and by how many of its errors the slope is above zero."""

    at: float
    error: float
    steep: float


def crossing_of(x: Sequence[float] | Floats, rate: Sequence[float] | Floats, weight: Floats) -> Crossing | None:
    """Return where rates cross zero; None for fewer than three, at one place, or where they do not rise there.

    They lie on a line, from `CURVED` on on a parabola. The error comes from the residuals, with weights that are
    inverse variances up to a factor.
    """
    from scipy.special import stdtrit  # the live page has its first data without SciPy

    x, rate = np.asarray(x, np.float64), np.asarray(rate, np.float64)
    if len(x) < 3:
        return None
    total = float(weight.sum())
    middle = float(weight @ x) / total
    width = math.sqrt(float(weight @ (x - middle) ** 2) / total)
    if not width > 1e-6:
        return None
    powers = np.vander((x - middle) / width, 3 if len(x) >= CURVED else 2, increasing=True)
    inverse = np.linalg.pinv(powers.T @ (powers * weight[:, None]))
    fitted = np.polynomial.Polynomial(inverse @ (powers.T @ (weight * rate)))
    rises = [z.real for z in fitted.roots() if abs(z.imag) < 1e-9 and fitted.deriv()(z.real) > 0]
    if not rises:
        return None
    at = float(min(rises, key=abs))
    slope = float(fitted.deriv()(at))
    here = at ** np.arange(powers.shape[1])
    change = np.concatenate([[0.0], np.arange(1, powers.shape[1]) * here[:-1]])
    free = len(x) - powers.shape[1]
    sigma = math.sqrt(float(weight @ (rate - fitted((x - middle) / width)) ** 2) / free)
    wider = float(stdtrit(free, 0.841345))
    error = wider * sigma / slope * math.sqrt(here @ inverse @ here)
    steep = slope / (sigma * math.sqrt(change @ inverse @ change)) if sigma > 0 else math.inf
    return Crossing(middle + width * at, width * error, steep)
