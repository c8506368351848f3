"""The order parameter, chi and B4 against beta with error bands: what a report draws."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.errors import SpecError
from metalforge.statistics.histograms import BEYOND, MIN_EFFECTIVE, Joint, join
from metalforge.statistics.reweight import ReweightedCurve, reweight

from .selection import block_lengths, clusters, prepare
from .series import Dims, PointSeries

Floats = NDArray[np.float64]
REPLICAS = 60
"""Bands are drawn, not quoted: known to 9 %."""


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


def curve(points: Sequence[PointSeries], betas: ArrayLike, *, seed: int) -> TransitionCurve:
    """Return the curves at those `betas` that at least 10 effective samples carry."""
    wanted = np.unique(np.asarray(betas, dtype=np.float64))
    if wanted.ndim != 1 or wanted.size == 0 or not np.all(np.isfinite(wanted)):
        raise SpecError(f"`betas` must be a list of finite numbers. Got {betas!r}")
    usable, _ = prepare(points)
    rng = np.random.default_rng([seed, len(usable)])
    parts: list[ReweightedCurve] = []
    for kept in clusters(usable):
        joint = join([c.rows(b) for c, b in zip(kept, block_lengths(kept), strict=True)], rng, REPLICAS)
        inside = _covered(joint, wanted)
        if inside.size:
            parts.append(reweight(joint, inside, spatial_volume=kept[0].point.spatial_volume))

    def column(name: str) -> tuple[float, ...]:
        return tuple(float(value) for part in parts for value in getattr(part, name))

    return TransitionCurve(
        dims=points[0].dims,
        beta=column("beta"),
        segment=tuple(i for i, part in enumerate(parts) for _ in part.beta),
        order=column("mean"),
        order_error=column("mean_error"),
        chi=column("susceptibility"),
        chi_error=column("susceptibility_error"),
        b4=column("b4"),
        b4_error=column("b4_error"),
    )


def _covered(joint: Joint, wanted: Floats) -> Floats:
    margin = BEYOND / joint.spread
    inside = wanted[(wanted >= joint.betas[0] - margin) & (wanted <= joint.betas[-1] + margin)]
    return np.asarray(inside[joint.n_effective(inside) >= MIN_EFFECTIVE] if inside.size else inside, dtype=np.float64)
