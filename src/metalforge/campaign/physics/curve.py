"""The order parameter, chi and B4 against beta with error bands, and the chains' own points: what a report draws."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.errors import SpecError
from metalforge.statistics import gamma_method
from metalforge.statistics.susceptibility import kurtosis

from .histograms import BEYOND, MIN_EFFECTIVE, Joint, join, variance
from .selection import LeftOut, Measured, block_lengths, clusters, prepare
from .series import Dims, PointSeries

__all__ = ["ChainPoint", "TransitionCurve", "curve"]

Floats = NDArray[np.float64]
REPLICAS = 60
"""Bands are drawn, not quoted: known to 9 %."""


class ChainPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one chain says on its own, with errors that know its memory."""

    beta: float
    rows: int
    tau_int: float
    plaquette: float
    plaquette_error: float
    order: float
    order_error: float
    chi: float
    chi_error: float


class TransitionCurve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reweighted curves on those of the asked beta that the runs cover, with one standard error.

    `segment` numbers the stretches of beta between which no runs overlap: no line is drawn from one to the next.
    """

    dims: Dims
    beta: tuple[float, ...]
    segment: tuple[int, ...]
    order: tuple[float, ...]
    order_error: tuple[float, ...]
    chi: tuple[float, ...]
    chi_error: tuple[float, ...]
    b4: tuple[float, ...]
    b4_error: tuple[float, ...]
    points: tuple[ChainPoint, ...]
    left_out: tuple[LeftOut, ...]


def curve(points: Sequence[PointSeries], betas: ArrayLike, *, seed: int) -> TransitionCurve:
    """Return the curves at those `betas` that at least 10 effective samples carry, and every chain's own point."""
    wanted = np.unique(np.asarray(betas, dtype=np.float64))
    if wanted.ndim != 1 or wanted.size == 0 or not np.all(np.isfinite(wanted)):
        raise SpecError(f"`betas` must be a list of finite numbers. Got {betas!r}")
    usable, left = prepare(points)
    rng = np.random.default_rng([seed, len(usable)])
    columns: list[Floats] = []
    segments: list[int] = []
    for kept in clusters(usable):
        joint = join([c.rows(b) for c, b in zip(kept, block_lengths(kept), strict=True)], rng, REPLICAS)
        inside = _covered(joint, wanted)
        if inside.size:
            columns.append(_columns(joint, inside, kept[0].point.spatial_volume))
            segments += [segments[-1] + 1 if segments else 0] * inside.size
    table = np.concatenate(columns, axis=1) if columns else np.empty((7, 0))
    beta, loop, loop_error, chi, chi_error, b4, b4_error = (tuple(row.tolist()) for row in table)
    return TransitionCurve(
        dims=points[0].dims,
        beta=beta,
        segment=tuple(segments),
        order=loop,
        order_error=loop_error,
        chi=chi,
        chi_error=chi_error,
        b4=b4,
        b4_error=b4_error,
        points=tuple(_own(chain) for chain in usable),
        left_out=tuple(sorted(left, key=lambda out: (out.beta, out.rows, out.reason))),
    )


def _covered(joint: Joint, wanted: Floats) -> Floats:
    margin = BEYOND / joint.spread
    inside = wanted[(wanted >= joint.betas[0] - margin) & (wanted <= joint.betas[-1] + margin)]
    return np.asarray(inside[joint.n_effective(inside) >= MIN_EFFECTIVE] if inside.size else inside, dtype=np.float64)


def _columns(joint: Joint, betas: Floats, volume: int) -> Floats:
    """Return beta and the three curves with their errors, of shape (7, betas)."""
    moments = joint.moments(betas)
    scale = np.array([joint.spread_to_error(float(beta)) for beta in betas])
    rows: list[Floats] = [betas]
    for values in (joint.centre + moments[1], volume * variance(moments), kurtosis(moments[1:])):
        rows += [values[0], scale * np.std(values[1:], axis=0, ddof=1)]
    return np.stack(rows)


def _own(chain: Measured) -> ChainPoint:
    plaquette, loop = gamma_method(chain.point.plaquette), chain.order
    return ChainPoint(
        beta=chain.beta,
        rows=loop.size,
        tau_int=chain.tau,
        plaquette=plaquette.mean,
        plaquette_error=plaquette.error,
        order=float(loop.mean()),
        order_error=float(np.sqrt(2 * chain.tau * loop.var() / loop.size)),
        chi=chain.chi,
        chi_error=chain.chi_error,
    )
