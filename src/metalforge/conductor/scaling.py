r"""Where the quenched transition is on a lattice, before anything was measured there, and how broad it is.

The curve is fitted to the corpus's own peaks of the susceptibility of |L|, not to published couplings:

    b0(N_t, N_s) = sum_k powers_k (log N_t)^k - h (N_t / N_s)^3
    width        = at_two (2 N_t / N_s)^power             half the breadth of the peak

b0 is known as well as the fit is for an N_t that was in it; for any other its error is what it was off by for an N_t
that was left out. That is also the unit in which the head `beta_priority` says where the peak is (`peak_of`).

Beside it stands the published two-loop curve of asymptotic scaling, a lambda = f(beta), through one known point:

    f(beta) = (6 b_0 / beta)^(-b_1 / 2 b_0^2) exp(-beta / 12 b_0),    b_0 = 11 / 16 pi^2,  b_1 = 102 / (16 pi^2)^2

so that a peak at beta_1 on N_1 means f(beta_2) = f(beta_1) N_1 / N_2 on N_2.
"""

from functools import cache
from importlib.resources import files
from math import asinh, log, pi
from typing import NamedTuple

import msgspec
import numpy as np


class Transition(NamedTuple):
    """The coupling of the peak, how far it may be off, and half the breadth of the peak."""

    mean: float
    error: float
    width: float


class _Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    powers: tuple[float, ...]
    finite_size: float
    error: float


class _Breadth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at_two: float
    power: float


class TransitionCurve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fit as it is shipped; `known` are the N_t in it, `unit` the error for any other."""

    source: str
    known: tuple[int, ...]
    unit: float
    curve: _Curve
    breadth: _Breadth

    def __call__(self, n_t: int, n_s: float) -> Transition:
        """Return the transition on N_s^3 x N_t."""
        ratio = n_t / n_s
        mean = float(np.polynomial.polynomial.polyval(log(n_t), self.curve.powers)) - self.curve.finite_size * ratio**3
        error = self.curve.error if n_t in self.known else self.unit
        return Transition(mean, error, self.breadth.at_two * (2 * ratio) ** self.breadth.power)


@cache
def transition_curve() -> TransitionCurve:
    """Return the shipped curve."""
    return msgspec.toml.decode(files(__package__).joinpath("data/transition.toml").read_bytes(), type=TransitionCurve)


def transition_of(n_t: int, n_s: float) -> Transition:
    """Return where the quenched transition is expected on N_s^3 x N_t."""
    return transition_curve()(n_t, n_s)


def scaled_coupling(beta: float, transition: Transition) -> float:
    """Return x: how far a coupling is from the transition, in its widths; far away it grows as the logarithm."""
    return asinh((beta - transition.mean) / transition.width)


def peak_of(reading: float, transition: Transition) -> float:
    """Return the coupling of the peak that a reading of `beta_priority` means."""
    return transition.mean + transition_curve().unit * reading


B_0, B_1 = 11 / (16 * pi**2), 102 / (16 * pi**2) ** 2


def two_loop(beta: float) -> float:
    """Return log(a lambda) of asymptotic scaling."""
    return -B_1 / (2 * B_0**2) * log(6 * B_0 / beta) - beta / (12 * B_0)


def two_loop_peak(n_t: int, known: tuple[int, float]) -> float:
    """Return the coupling of the peak on N_t that asymptotic scaling gives from a `known` (N_t, coupling)."""
    from scipy.optimize import brentq  # a fifth of a second, which campaigns need not wait

    n_known, beta = known
    wanted = two_loop(beta) + log(n_known / n_t)
    return float(brentq(lambda b: two_loop(b) - wanted, 1.0, 50.0))
