"""What figures of chains show, as data: histories, a complex plane, memory, swaps, and what a peak rests on."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.analysis.evidence import MIN_OVERLAP, Finding
from metalforge.campaign.analysis.phases import Shape, shape_at, transits
from metalforge.campaign.analysis.selection import neighbours, overlap
from metalforge.campaign.analysis.transition import Located
from metalforge.campaign.theory import System
from metalforge.statistics import MIN_LENGTH, autocorrelation, gamma_method

from .decisions import ResultPart

Floats = NDArray[np.float64]
BINS = 40
DOTS = 500
"""Rows of one chain in a scatter: more hide each other."""
SHORTEST_MEMORY = 20
"""Updates over which an autocorrelation is shown, at least; twice its window where that is longer."""
MOST_MARKS = 400
"""Crossings that are marked in a history: more are a grey band."""
STEPS = 300
"""Updates at which the places of replicas are shown."""


class ComplexPlane(NamedTuple):
    """Numbers of a chain in the complex plane, thinned; `reach` is the largest modulus of all its rows."""

    re: Floats
    im: Floats
    reach: float
    label: str = ""


class ChainHistory(NamedTuple):
    """Two series of a chain, update by update, with what they are; measurement begins after `warmup`.

    `measured` is what a histogram of the measurement shows, and `order` what that is.
    """

    series: tuple[Floats, Floats]
    labels: tuple[str, str]
    warmup: int
    measured: Floats
    order: str
    plane: ComplexPlane | None = None


def histogram_edges(values: Floats) -> Floats:
    """Return the edges of the bins for an order parameter: from 0, or from below where it goes there."""
    return np.linspace(min(float(values.min()), 0.0), float(values.max()), BINS + 1)


def plane_of(values: NDArray[np.complex128], label: str = "") -> ComplexPlane:
    """Return where a complex number was during a measurement."""
    shown = values[:: max(1, -(-values.size // DOTS))]
    return ComplexPlane(shown.real, shown.imag, float(np.abs(values).max(initial=0.0)), label)


class ChainMemory(NamedTuple):
    """The autocorrelation of an order parameter; tau_int is summed up to the distance `window`, in updates."""

    rho: Floats
    window: int
    tau: float
    tau_error: float


def memory_of(order: Floats) -> ChainMemory | None:
    """Return how long a chain remembers; None where it is too short, or stuck."""
    if order.size < MIN_LENGTH or np.ptp(order) == 0:
        return None
    found = gamma_method(order)
    rho = autocorrelation(order)[: max(SHORTEST_MEMORY, 2 * found.window) + 1]
    return ChainMemory(rho, found.window, found.tau_int, found.tau_int_error)


class SupportingChain(ResultPart, frozen=True, kw_only=True):
    """A chain that was joined for a peak: its own independent samples, and how many of those at the peak are its.

    `crossings` counts ways between the phases, `marks` are the measured updates of the first of them.
    """

    chain: str
    coordinate: float
    near: bool
    own: float
    carried: float
    crossings: int
    marks: tuple[int, ...]


class PeakSupport(ResultPart, frozen=True, kw_only=True):
    """What the peak of one volume rests on; `low` and `high` are the thresholds of the order parameter's phases.

    `overlaps` has two neighbouring couplings and how much the energies there overlap, 0 to 1.
    """

    system: System
    result: float
    width: float
    two_phases: bool
    low: float
    high: float
    needed: float
    overlaps: tuple[tuple[float, float, float], ...]
    chains: tuple[SupportingChain, ...]


def support_of(located: Located, shape: Shape | None = None) -> PeakSupport:
    """Return what a peak rests on: overlap of neighbours, effective samples and crossings of every joined chain."""
    found, chains = located.transition, located.chains
    shape = shape or shape_at(located.joint, chains, found.result)
    low, high = shape.thresholds
    shares = np.bincount(located.joint.chain_of_block, located.joint.shares(found.result), minlength=len(chains))
    crossed = [transits(chain.order, low, high) for chain in chains]
    return PeakSupport(
        system=found.system,
        result=found.result,
        width=found.width,
        two_phases=shape.two_phases,
        low=low,
        high=high,
        needed=MIN_OVERLAP,
        overlaps=tuple(
            (below[0].coordinate, above[0].coordinate, overlap(below, above))
            for below, above in pairwise(neighbours(chains))
        ),
        chains=tuple(
            SupportingChain(
                chain=chain.point.chain,
                coordinate=chain.coordinate,
                near=abs(chain.coordinate - found.result) <= found.width,
                own=chain.energy.size / (2 * chain.tau),
                carried=float(found.n_effective * share),
                crossings=ways.size,
                marks=tuple(ways[:MOST_MARKS].tolist()),
            )
            for chain, share, ways in zip(chains, shares, crossed, strict=True)
        ),
    )


def supports_of(found: Mapping[System, Any]) -> tuple[PeakSupport, ...]:
    """Return what the located peaks rest on, by system; nothing of what is no peak."""
    peaks = [finding for finding in found.values() if isinstance(finding, Finding)]
    return tuple(support_of(peak.located) for peak in peaks if peak.located is not None)
