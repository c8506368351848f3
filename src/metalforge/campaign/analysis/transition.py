r"""The peak of one system from the chains of a campaign: of chi(coordinate) = V (<O^2> - <O>^2), O the order parameter.

The chains that can be joined are (`selection`), multi-histogram reweighting gives chi everywhere between them
(`metalforge.statistics`), and the peak of every bootstrap replica is looked for on its own: their spread is the error.
Where the chains that carry the peak contradict each other, a chain's own blocks say little of how far it is off, and
the errors are those of chains that scatter so,

    error = spread * sqrt(chi^2 / dof),     chi^2 = sum over chains of ((own mean - joint mean) / own error)^2,

for E or O, whichever disagrees more, if chance gives such a chi^2 less than once in a hundred times (the scale factor
of R. T. Birge, Phys. Rev. 40 (1932) 207). And tau_int, which says how long a block must be, is itself known only to

    delta tau / tau = sqrt((4 / N) (W + 1/2 - tau)) = sqrt(10 / n_eff),     W = 6 tau,     N = 2 tau n_eff

(U. Wolff, Comput. Phys. Commun. 156 (2004) 143, eq. (42)); a campaign that stops when it has enough blocks stops
sooner where tau came out small. Errors are those of tau + delta tau; between two phases tau is known better, from
crossings (`phases`). A peak at the edge of what the chains cover is no peak, and is an error with what to measure next,
not a number. Whether a peak that was found may be quoted is for `evidence` to say.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import require_at_least
from metalforge.statistics import (
    BEYOND,
    MIN_EFFECTIVE,
    Joint,
    NotLocated,
    half_width,
    join,
    kurtosis,
    refined_maxima,
    variance,
)

from .agreement import Pulls, pulls_of
from .phases import remembering
from .selection import LeftOutChain, MeasuredChain, PointSeries, System, block_lengths, clusters, prepare

Floats = NDArray[np.float64]
REACH = 6.0
"""Distance from the peak, in 1 / sd(E), beyond which a run carries nothing there: it is left out of the replicas."""
GRID_STEP = 0.15
"""Spacing of the search in 1 / sd(E): a reweighted curve is smooth on the scale of 1."""
MAX_EDGE_FRACTION = 0.05
"""Part of the replicas with their peak at an edge above which there may be none inside: one-sided 5 %."""
MIN_BLOCKS = 8.0
"""Fewest blocks that carry the peak: the error itself is then known to a quarter."""
TAU_VARIANCE = 10.0
"""(delta tau / tau)^2 for one effective sample, with a window of 6 tau."""
CARRIES = 0.01
"""Part of the weight at the peak above which a chain carries it."""
BY_CHANCE = 0.01
"""Chance of a disagreement between chains below which it is taken for one."""


class Transition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The peak of the susceptibility: position, height and B4 there with bootstrap errors, and what they rest on.

    `samples` counts rows of the chains used, `n_effective` the independent samples that carry the average at the peak
    and `n_blocks` the blocks; `width` is half of the peak's width at half of its height; `scatter` is the factor in the
    errors for chains that contradict each other. `coordinates` are those used, `left_out` names every other chain.
    """

    system: System
    result: float
    error: float
    height: float
    height_error: float
    b4: float
    b4_error: float
    chains: int
    samples: int
    n_effective: float
    tau_int: float
    coordinates: tuple[float, ...]
    left_out: tuple[LeftOutChain, ...]
    n_bootstrap: int
    n_blocks: float = 0.0
    width: float = 0.0
    scatter: float = 1.0


class Located(NamedTuple):
    """A peak with what it was found from: the chains that were joined, their tables, and how far each is off."""

    transition: Transition
    joint: Joint
    chains: tuple[MeasuredChain, ...]
    pulls: Pulls


class ChainErrors(NamedTuple):
    """chi of one chain, with the standard errors of its order parameter and of chi."""

    order_error: float
    chi: float
    chi_error: float


def chain_errors(points: Sequence[PointSeries], located: Located | None) -> dict[str, ChainErrors]:
    """Return chi and errors by chain, without relying on a short chain's own variance and tau_int.

    Chains that are too short are left out. For a chain that was joined, variance and B4 are those of all chains
    reweighted to where it is, and tau_int is the one with which it was joined. Any other chain has its own variance,
    and tau_int of all chains together.
    """
    found = {}
    for chain in prepare(points)[0] if points else []:
        mean_variance = 2 * chain.tau / chain.order.size * float(chain.order.var())
        found[chain.point.chain] = ChainErrors(float(np.sqrt(mean_variance)), chain.chi, chain.chi_error)
    if located is not None:
        moments = located.joint.moments(np.array([chain.coordinate for chain in located.chains]))[:, 0]
        for chain, spread, b4 in zip(located.chains, variance(moments), kurtosis(moments[1:]), strict=True):
            chi = chain.point.volume * float(spread)
            mean_variance = 2 * chain.tau / chain.order.size * float(spread)
            chi_error = chi * float(np.sqrt((b4 - 1) * max(chain.tau, 1.0) / chain.order.size))
            found[chain.point.chain] = ChainErrors(float(np.sqrt(mean_variance)), chain.chi, chi_error)
    return found


def locate(points: Sequence[PointSeries], *, seed: int, n_bootstrap: int = 100) -> Located:
    """Return where chi peaks, with its error from `n_bootstrap` replicas drawn from `seed`, and what it rests on.

    Raises `NotLocated` for too little data, no two overlapping runs around a maximum, a maximum at the edge of what the
    runs cover, or a larger susceptibility measured somewhere that cannot be joined; it says what to measure.
    """
    require_at_least(2, n_bootstrap=n_bootstrap)
    usable, left = prepare(points)
    if not usable:
        raise NotLocated(f"all {len(left)} chains are too short: {left[0].reason}\nhint: run them for longer")
    rng = np.random.default_rng([seed, len(usable)])
    chains, apart = _cluster(usable)
    span = f"the cluster at {chains[0].coordinate:g} .. {chains[-1].coordinate:g}"
    left += [chain.leave_out(f"does not overlap with {span}") for chain in apart]
    coarse = join(chains, [chain.energy.size for chain in chains], rng)
    grid = _search_grid(coarse, coarse.coordinates[0], coarse.coordinates[-1])
    curve_there = variance(coarse.moments(grid))[0]
    top = int(np.argmax(curve_there))
    near = [chain for chain in chains if abs(chain.coordinate - grid[top]) * coarse.spread <= REACH]
    left += [c.leave_out("so far from the peak that it says nothing of it") for c in chains if c not in near]
    near, tracks, tau_known = remembering(coarse, near, float(grid[top]), half_width(grid, curve_there, top))
    joint = join(near, block_lengths(near), rng, n_bootstrap)
    pulls = pulls_of(joint, near, tracks)
    found = _peak(joint, near, left, n_bootstrap, tau_known, pulls)
    _refuse_higher(apart, found)
    return Located(found, joint, tuple(near), pulls)


def _cluster(usable: list[MeasuredChain]) -> tuple[list[MeasuredChain], list[MeasuredChain]]:
    """Return the overlapping chains with the largest susceptibility, and those apart from them."""
    parts = clusters(usable)
    best = max(parts, key=lambda part: max(chain.chi - chain.chi_error for chain in part))
    return best, [chain for part in parts if part is not best for chain in part]


def _refuse_higher(apart: Sequence[MeasuredChain], found: Transition) -> None:
    """Return if no chain that could not be joined has measured more than the peak."""
    for chain in apart:
        if chain.chi - chain.chi_error > found.height + found.height_error:
            raise NotLocated(
                f"the peak near {found.result:.5g} is {found.height:.3g} high, but a run at "
                f"{chain.coordinate:g}, which does not overlap with it, has chi = {chain.chi:.3g}"
                f"\nhint: add runs between {chain.coordinate:g} and {found.result:.5g}"
            )


def _search_grid(joint: Joint, low: float, high: float) -> Floats:
    low, high = low - BEYOND / joint.spread, high + BEYOND / joint.spread
    return np.linspace(low, high, max(9, int(np.ceil((high - low) * joint.spread / GRID_STEP)) + 1))


def _peak(
    joint: Joint,
    chains: Sequence[MeasuredChain],
    left: list[LeftOutChain],
    n_bootstrap: int,
    tau_known: float | None,
    pulls: Pulls,
) -> Transition:
    volume = chains[0].point.volume
    grid = _search_grid(joint, joint.coordinates[0], joint.coordinates[-1])
    moments = joint.moments(grid)
    curves = variance(moments)
    top = np.argmax(curves, axis=1)
    places, heights = refined_maxima(grid, curves, top)
    result = float(places[0])
    at_edge = (top == 0) | (top == grid.size - 1)
    covered = f"the runs at {joint.coordinates[0]:g} .. {joint.coordinates[-1]:g}"
    if at_edge[0] or at_edge[1:].mean() > MAX_EDGE_FRACTION:
        side = grid[0] if np.sum(top[at_edge] == 0) * 2 > at_edge.sum() else grid[-1]
        beyond = side + np.sign(side - joint.coordinates.mean()) / joint.spread
        raise NotLocated(
            f"the susceptibility is largest at the edge of what {covered} cover: the peak may lie beyond"
            f"\nhint: add a run near {beyond:.5g}"
        )
    carried, blocks = float(joint.n_effective(np.array([result]))[0]), joint.n_blocks(result)
    if carried < MIN_EFFECTIVE or blocks < MIN_BLOCKS:
        raise NotLocated(
            f"the peak near {result:.5g} needs {MIN_EFFECTIVE:g} effective samples in {MIN_BLOCKS:g} blocks. "
            f"Got {carried:.1f} in {blocks:.1f} from {covered}\nhint: add statistics near {result:.5g}"
        )
    scatter = _scatter(joint, chains, result, pulls)
    delta_tau = np.sqrt(TAU_VARIANCE / carried) if tau_known is None else tau_known
    to_error = scatter * joint.spread_to_error(result) * np.sqrt(1 + delta_tau)
    errors = to_error * np.std(np.stack([places, volume * heights])[:, 1:], axis=1, ddof=1)
    # The step of the grid is far below the error, and B4 changes little on it: the nearest point will do.
    b4 = kurtosis(moments[1:, np.arange(len(top)), top])
    shares = np.bincount(joint.chain_of_block, joint.shares(result), minlength=len(chains))
    return Transition(
        system=chains[0].point.system,
        result=result,
        error=float(errors[0]),
        height=float(volume * heights[0]),
        height_error=float(errors[1]),
        b4=float(b4[0]),
        b4_error=float(to_error * np.std(b4[1:], ddof=1)),
        chains=len(chains),
        samples=sum(chain.energy.size for chain in chains),
        n_effective=carried,
        tau_int=float(np.average([chain.tau for chain in chains], weights=shares)),
        coordinates=tuple(float(coordinate) for coordinate in joint.coordinates),
        left_out=tuple(sorted(left, key=lambda out: (out.coordinate, out.rows, out.reason))),
        n_bootstrap=n_bootstrap,
        n_blocks=blocks,
        width=half_width(grid, curves[0], int(top[0])),
        scatter=scatter,
    )


def _scatter(joint: Joint, chains: Sequence[MeasuredChain], result: float, pulls: Pulls) -> float:
    """Return the factor by which errors grow because the chains that carry the peak contradict each other."""
    from scipy.special import chdtri

    shares = np.bincount(joint.chain_of_block, joint.shares(result), minlength=len(chains))
    carrying = np.flatnonzero(shares > CARRIES)
    if carrying.size < 2:
        return 1.0
    found = joint.pulls(chains) if pulls.share is None else np.array([pulls.energy, pulls.order, pulls.share])
    dof = carrying.size - 1
    worst = float(np.max(np.sum(found[:, carrying] ** 2, axis=1)))
    return float(np.sqrt(worst / dof)) if worst > chdtri(dof, BY_CHANCE / len(found)) else 1.0
