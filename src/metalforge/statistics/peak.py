"""The pseudo-critical beta: where the reweighted susceptibility is largest, with its error, and how high it is."""

import msgspec
import numpy as np

from metalforge.core.errors import SpecError

from .estimate import Floats
from .reweight import JointRuns, checked_targets
from .susceptibility import checked_volume

__all__ = ["Peak", "locate_peak"]

MAX_EDGE_FRACTION = 0.16
"""Fraction of replicas at the edge above which the error bar itself leaves the range: the one-sided tail of 1 sigma."""
GRID = 41
"""Points searched before refining; enough to tell two maxima apart over a range of a few peak widths."""


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


def locate_peak(joint: JointRuns, low: float, high: float, *, spatial_volume: float) -> Peak:
    """Return the maximum of chi(beta) = V_s (<O^2> - <O>^2) between `low` and `high`.

    The highest of 41 points is refined by Brent's method between its neighbours, for the data and for each bootstrap
    replica on its own; the errors are the spread of the replicas. The largest value of a noisy curve tends to be too
    high, by less than its error.

    Raises
    ------
    SpecError
        The range is empty or reaches beyond what the runs can be reweighted to.
    """
    if not low < high:
        raise SpecError(f"`low` must be less than `high`. Got {low} and {high}")
    volume = checked_volume(spatial_volume)
    grid = checked_targets(joint, np.linspace(low, high, GRID))
    rows = np.concatenate([np.ones((1, joint.energies.size)), joint.replicas])
    coarse = np.argmax(_variances(joint, grid, rows), axis=1)
    found = np.array([_refine(joint, grid, row, int(top)) for row, top in zip(rows, coarse, strict=True)])
    on_edge = (coarse == 0) | (coarse == GRID - 1)
    edge_fraction = float(np.mean(on_edge[1:]))
    at_edge = bool(on_edge[0]) or edge_fraction > MAX_EDGE_FRACTION
    errors = joint.spread_to_error * np.std(found[1:], axis=0, ddof=1)
    return Peak(
        beta_c=float(found[0, 0]),
        beta_c_error=None if at_edge else float(errors[0]),
        height=float(volume * found[0, 1]),
        height_error=None if at_edge else float(volume * errors[1]),
        at_edge=at_edge,
        edge_fraction=edge_fraction,
        n_bootstrap=joint.replicas.shape[0],
    )


def _variances(joint: JointRuns, betas: Floats, rows: Floats) -> Floats:
    """Return <O^2> - <O>^2 for each row of sample factors and each beta, of shape (rows, betas)."""
    weights = joint.weights(betas).T
    shifted = joint.observables - np.mean(joint.observables)
    norm = rows @ weights
    first = (rows * shifted) @ weights / norm
    return np.asarray((rows * shifted**2) @ weights / norm - first**2, dtype=np.float64)


def _refine(joint: JointRuns, grid: Floats, row: Floats, top: int) -> tuple[float, float]:
    """Return the maximum near ``grid[top]``, as (beta, variance)."""
    from scipy.optimize import minimize_scalar

    def lowered(beta: float) -> float:
        return -float(_variances(joint, np.array([beta]), row[None, :])[0, 0])

    if top in (0, grid.size - 1):
        return float(grid[top]), -lowered(float(grid[top]))
    step = float(grid[1] - grid[0])
    # A thousandth of the grid step is far inside the error of any peak the grid resolves.
    best = minimize_scalar(
        lowered, bounds=(grid[top - 1], grid[top + 1]), method="bounded", options={"xatol": 1e-3 * step}
    )
    return float(best.x), -float(best.fun)
