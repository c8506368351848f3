"""Where a reweighted susceptibility is largest, how high and how wide: of the data and of every replica."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError

from .estimate import Floats
from .histograms import Joint, variance
from .reweight import checked_targets
from .susceptibility import checked_volume

MAX_EDGE_FRACTION = 0.16
"""Fraction of replicas at the edge above which the error bar itself leaves the range: the one-sided tail of 1 sigma."""
GRID = 801
"""Points searched: the parabola through the highest three is then exact to a millionth of a range of a few widths."""


class Peak(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The maximum of the susceptibility: position, height and their bootstrap errors.

    With `at_edge` true there is no peak inside the range: the position is the edge, or so near it that more than 16 %
    of the replicas (`edge_fraction`) have theirs there, and the errors are None. Widen the range or add a run.
    """

    beta_c: float
    beta_c_error: float | None
    height: float
    height_error: float | None
    at_edge: bool
    edge_fraction: float
    n_bootstrap: int


def locate_peak(joint: Joint, low: float, high: float, *, spatial_volume: float) -> Peak:
    """Return the maximum of chi(beta) = V_s (<O^2> - <O>^2) between `low` and `high`.

    It is looked for in the data and in each bootstrap replica on its own; the errors are the spread of the replicas.
    The largest value of a noisy curve tends to be too high, by less than its error.

    Raises
    ------
    SpecError
        The range is empty or reaches beyond what the runs can be reweighted to.
    """
    if not low < high:
        raise SpecError(f"`low` must be less than `high`. Got {low} and {high}")
    volume = checked_volume(spatial_volume)
    grid = checked_targets(joint, np.linspace(low, high, GRID))
    curves = variance(joint.moments(grid))
    top = np.argmax(curves, axis=1)
    places, heights = refined_maxima(grid, curves, top)
    on_edge = (top == 0) | (top == GRID - 1)
    edge_fraction = float(np.mean(on_edge[1:]))
    at_edge = bool(on_edge[0]) or edge_fraction > MAX_EDGE_FRACTION
    beta_c = float(places[0])
    scale = joint.spread_to_error(beta_c)
    return Peak(
        beta_c=beta_c,
        beta_c_error=None if at_edge else float(scale * np.std(places[1:], ddof=1)),
        height=float(volume * heights[0]),
        height_error=None if at_edge else float(scale * volume * np.std(heights[1:], ddof=1)),
        at_edge=at_edge,
        edge_fraction=edge_fraction,
        n_bootstrap=len(places) - 1,
    )


def refined_maxima(grid: Floats, curves: Floats, top: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return place and height of each curve's maximum, by the parabola through its highest point and neighbours."""
    row = np.arange(len(top))
    middle = np.clip(top, 1, grid.size - 2)
    left, centre, right = curves[row, middle - 1], curves[row, middle], curves[row, middle + 1]
    bend = left - 2 * centre + right
    inside = (middle == top) & (bend < 0)
    shift = np.where(inside, 0.5 * (left - right) / np.where(inside, bend, -1.0), 0.0)
    place = np.where(inside, grid[middle] + shift * (grid[1] - grid[0]), grid[top])
    height = np.where(inside, centre - 0.25 * (left - right) * shift, curves[row, top])
    return place, height


def half_width(grid: Floats, curve: Floats, top: int) -> float:
    """Return half of the distance between the places left and right at which the curve has fallen to half.

    Where it does not fall so far within what is covered, that side ends there.
    """
    fallen = curve < curve[top] / 2
    left = np.flatnonzero(fallen[:top])
    right = np.flatnonzero(fallen[top:])
    low = grid[left[-1]] if left.size else grid[0]
    high = grid[top + right[0]] if right.size else grid[-1]
    return float((high - low) / 2)
