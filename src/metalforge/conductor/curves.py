r"""What is known of Wilson's action without sea quarks before anything was measured: its transition and its plaquette.

`experiments/heads/transition_fit.py` fits the transition to the peaks of the susceptibility of |L| in the corpus, not
to published ones:

    b0(N_t, N_s) = a(N_t) - h (N_t / N_s)^3
    a(N_t)       = sum_k powers_k v^k        v = log N_t or N_t^(-1/2), whichever is off less for an N_t left out
    width        = at_two (2 N_t / N_s)^power             half the breadth of the peak

An N_t that was in the corpus has an a(N_t) of its own, with its error. Any other has the curve's, and its error is what
the curve is off by for an N_t that is left out. That is also the unit in which the head `beta_priority` says where the
peak is (`peak_of`).

Knots of the plaquette (`data/plaquette.toml`, each with its source) are joined by a cubic spline; above the last, the
weak coupling series takes over, with a fourth term that goes through that knot. The spread follows from the slope: the
weight is exp(6 V beta P), so

    dP/dbeta = 6 V var P,        sd P = s(beta) V^(-1/2),        s = sqrt(P' / 6).
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from math import asinh, log
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from metalforge.core import ExpectedPeak, SpecError


class KnownExtent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The peak of an N_t in large volumes, and its error."""

    n_t: int
    mean: float
    error: float


class ScalingCurve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fit as it is shipped; `unit` is the error of an N_t that is not `known`."""

    source: str
    unit: float
    variable: Literal["log", "root"]
    """What the polynomial is in: log N_t, or N_t^(-1/2)."""
    powers: tuple[float, ...]
    finite_size: float
    width_at_two: float
    width_power: float
    known: tuple[KnownExtent, ...] = ()

    def __call__(self, n_t: int, n_s: float) -> ExpectedPeak:
        """Return the transition on N_s^3 x N_t."""
        ratio = n_t / n_s
        here = next((one for one in self.known if one.n_t == n_t), None)
        large, error = (self.between(n_t), self.unit) if here is None else (here.mean, here.error)
        mean = large - self.finite_size * ratio**3
        return ExpectedPeak(mean, error, self.width_at_two * (2 * ratio) ** self.width_power, self.source)

    def between(self, n_t: int) -> float:
        """Return the peak in large volumes as the polynomial has it."""
        return float(np.polynomial.polynomial.polyval(VARIABLES[self.variable](n_t), self.powers))


VARIABLES: dict[str, Callable[[float], float]] = {"log": log, "root": lambda n_t: n_t**-0.5}


@cache
def transition_curve() -> ScalingCurve:
    """Return the shipped curve."""
    return msgspec.toml.decode(files(__package__).joinpath("data/transition.toml").read_bytes(), type=ScalingCurve)


def transition_of(n_t: int, n_s: float) -> ExpectedPeak:
    """Return where the quenched transition is expected on N_s^3 x N_t."""
    return transition_curve()(n_t, n_s)


def spatial_extent(dims: Sequence[int]) -> float:
    """Return N_s of a lattice; of three extents that differ, their geometric mean."""
    return float(np.cbrt(np.prod(dims[:3])))


def transition_on(dims: Sequence[int]) -> ExpectedPeak:
    """Return where the quenched transition is expected on a lattice."""
    return transition_of(dims[3], spatial_extent(dims))


def scaled_coupling(beta: float, transition: ExpectedPeak) -> float:
    """Return x: how far a coupling is from the transition, in its widths; far away it grows as the logarithm."""
    return asinh((beta - transition.mean) / transition.width)


def peak_of(reading: float, transition: ExpectedPeak) -> float:
    """Return the coupling of the peak that a reading of `beta_priority` means."""
    return transition.mean + transition_curve().unit * reading


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
