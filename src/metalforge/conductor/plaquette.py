"""The plaquette of Wilson's action on large lattices without sea quarks: its mean and spread at any coupling.

Knots (`data/plaquette.toml`, each with its source) are joined by a cubic spline; above the last, the weak coupling
series takes over, with a fourth term that goes through that knot. The spread follows from the slope: the weight is
exp(6 V beta P), so

    dP/dbeta = 6 V var P,        sd P = s(beta) V^(-1/2),        s = sqrt(P' / 6).
"""

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.core import SpecError


class Plaquette(NamedTuple):
    """Mean, its derivative by beta, and the standard deviation of a configuration times the root of its sites."""

    mean: float
    slope: float
    deviation: float


class _Knots(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    source: str
    values: tuple[tuple[float, float], ...]
    """Coupling and plaquette."""


class _Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    strong_slope: float
    """dP/dbeta at beta = 0."""
    weak: tuple[float, ...]
    """P = 1 - sum of weak[k] / beta^(k + 1)."""
    weak_source: str
    knots: tuple[_Knots, ...]


_CURVE = msgspec.toml.decode(files(__package__).joinpath("data/plaquette.toml").read_bytes(), type=_Curve)
_BETAS, _MEANS = np.array(sorted(knot for part in _CURVE.knots for knot in part.values)).T
_POWERS = np.arange(1, len(_CURVE.weak) + 2)
_SHORT = 1.0 - _MEANS[-1] - np.sum(np.array(_CURVE.weak) / _BETAS[-1] ** _POWERS[:-1])
_TERMS = np.array([*_CURVE.weak, _SHORT * _BETAS[-1] ** _POWERS[-1]])
"""Of the weak series, with the one that joins it to the last knot."""


def _weak(beta: float) -> tuple[float, float]:
    """Return mean and slope of the weak coupling series."""
    parts = _TERMS / beta**_POWERS
    return float(1.0 - parts.sum()), float((_POWERS * parts).sum() / beta)


def _slopes() -> np.ndarray:
    """Return the slopes at the knots of the cubic spline with two continuous derivatives, given those at its ends."""
    h, rise = np.diff(_BETAS), np.diff(_MEANS) / np.diff(_BETAS)
    matrix, right = np.eye(len(_BETAS)), np.zeros(len(_BETAS))
    right[0], right[-1] = _CURVE.strong_slope, _weak(float(_BETAS[-1]))[1]
    for i in range(1, len(_BETAS) - 1):
        matrix[i, i - 1 : i + 2] = h[i], 2 * (h[i - 1] + h[i]), h[i - 1]
        right[i] = 3 * (h[i] * rise[i - 1] + h[i - 1] * rise[i])
    return np.linalg.solve(matrix, right)


_SLOPES = _slopes()


@lru_cache(maxsize=1024)
def plaquette_of(beta: float) -> Plaquette:
    """Return the plaquette at a coupling, which must not be negative."""
    if not 0.0 <= beta < np.inf:
        raise SpecError(f"`beta` must be a finite number, 0 or more. Got {beta}")
    if beta >= _BETAS[-1]:
        mean, slope = _weak(beta)
    else:
        i = int(np.searchsorted(_BETAS, beta, side="right")) - 1
        h = float(_BETAS[i + 1] - _BETAS[i])
        t, rise = (beta - float(_BETAS[i])) / h, float(_MEANS[i + 1] - _MEANS[i])
        left, right = h * float(_SLOPES[i]) - rise, rise - h * float(_SLOPES[i + 1])
        mean = float(_MEANS[i]) + t * rise + t * (1 - t) * ((1 - t) * left + t * right)
        slope = (rise + (1 - 2 * t) * ((1 - t) * left + t * right) + t * (1 - t) * (right - left)) / h
    return Plaquette(mean, slope, float(np.sqrt(slope / 6)))
