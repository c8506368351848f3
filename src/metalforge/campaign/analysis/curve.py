"""The order parameter, chi and B4 against coordinate with error bands: what a report draws."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.statistics import BEYOND, MIN_EFFECTIVE, Joint, ReweightedCurve, join, reweight

from .selection import block_lengths, clusters, prepare
from .series import PointSeries

Floats = NDArray[np.float64]
COLUMNS = ("mean", "mean_error", "susceptibility", "susceptibility_error", "b4", "b4_error")
REPLICAS = 60
"""Bands are drawn, not quoted: known to 9 %."""


class TransitionCurve(NamedTuple):
    """Reweighted curves where the runs cover what was asked, with one standard error.

    `segment` numbers the stretches between which no runs overlap: no line is drawn from one to the next.
    """

    segment: NDArray[np.int64]
    coordinate: Floats
    order: Floats
    order_error: Floats
    chi: Floats
    chi_error: Floats
    b4: Floats
    b4_error: Floats


def curve(points: Sequence[PointSeries], coordinates: ArrayLike, *, seed: int) -> TransitionCurve:
    """Return the curves at those `coordinates` that at least 10 effective samples carry."""
    wanted = np.unique(np.asarray(coordinates, dtype=np.float64))
    usable, _ = prepare(points)
    rng = np.random.default_rng([seed, len(usable)])
    parts: list[ReweightedCurve] = []
    places: list[Floats] = []
    for kept in clusters(usable):
        joint = join([c.rows(b) for c, b in zip(kept, block_lengths(kept), strict=True)], rng, REPLICAS)
        inside = _covered(joint, wanted)
        if inside.size:
            parts.append(reweight(joint, inside, spatial_volume=kept[0].point.volume))
            places.append(inside)
    columns = (np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0)]) for name in COLUMNS)
    segment = np.repeat(np.arange(len(parts)), [inside.size for inside in places])
    return TransitionCurve(segment, np.concatenate(places or [np.zeros(0)]), *columns)


def _covered(joint: Joint, wanted: Floats) -> Floats:
    margin = BEYOND / joint.spread
    inside = wanted[(wanted >= joint.coordinates[0] - margin) & (wanted <= joint.coordinates[-1] + margin)]
    return np.asarray(inside[joint.n_effective(inside) >= MIN_EFFECTIVE] if inside.size else inside, dtype=np.float64)
