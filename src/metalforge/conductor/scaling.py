r"""Where the quenched transition is on a lattice, before anything was measured there, and how broad it is.

`experiments/heads/transition_fit.py` fits the curve to the peaks of the susceptibility of |L| in the corpus, not to
published ones:

    b0(N_t, N_s) = a(N_t) - h (N_t / N_s)^3
    a(N_t)       = sum_k powers_k v^k        v = log N_t or N_t^(-1/2), whichever is off less for an N_t left out
    width        = at_two (2 N_t / N_s)^power             half the breadth of the peak

An N_t that was in the corpus has an a(N_t) of its own, with its error. Any other has the curve's, and its error is what
the curve is off by for an N_t that is left out. That is also the unit in which the head `beta_priority` says where the
peak is (`peak_of`).
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from math import asinh, log
from typing import Literal

import msgspec
import numpy as np

from metalforge.core import ExpectedPeak


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
