"""The order parameter, chi and B4 against coordinate with error bands: what a report draws."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import SpecError
from metalforge.statistics import BEYOND, MIN_EFFECTIVE, Joint, join, kurtosis, variance

from .selection import PointSeries, block_lengths, clusters, prepare

Floats = NDArray[np.float64]
REPLICAS = 60
"""Bands are drawn, not quoted: known to 9 %."""
LARGEST_PULL = 5.0
"""Standard errors between a run's own <E> and that of all runs together, beyond which runs joined by hand are refused:
chance gives less than 4."""


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


def curve(
    points: Sequence[PointSeries], coordinates: ArrayLike, *, seed: int, largest_pull: float = LARGEST_PULL
) -> TransitionCurve:
    """Return the curves at those `coordinates` that at least 10 effective samples carry.

    Raises
    ------
    SpecError
        A run's own <E> is more than `largest_pull` standard errors from what all runs together give there, as with a
        wrong sign or normalisation of E. Chains that sit in two phases disagree like this, too.
    """
    wanted = np.unique(np.asarray(coordinates, dtype=np.float64))
    if not wanted.size or not np.isfinite(wanted).all():
        raise SpecError(f"`coordinates` must be one or more finite numbers. Got {wanted}")
    usable, _ = prepare(points)
    rng = np.random.default_rng([seed, len(usable)])
    parts = [TransitionCurve(np.zeros(0, np.int64), *[np.zeros(0)] * 7)]
    for kept in clusters(usable):
        joint = join(kept, block_lengths(kept), rng, REPLICAS)
        pulls = np.abs(joint.pulls(kept)[0])
        if (off := float(pulls.max())) > largest_pull:
            worst = kept[int(pulls.argmax())]
            raise SpecError(
                f"run at {worst.coordinate:g}: <E> = {worst.energy.mean():.6g} is {off:.1f} standard errors off "
                "all runs together\nhint: E must be the action divided by its coupling (6 V (1 - P) for Wilson's), "
                "not a density, from a thermalised chain"
            )
        margin = BEYOND / joint.spread
        inside = wanted[(wanted >= joint.coordinates[0] - margin) & (wanted <= joint.coordinates[-1] + margin)]
        inside = inside[joint.n_effective(inside) >= MIN_EFFECTIVE] if inside.size else inside
        if inside.size:
            parts.append(curve_of(joint, inside, kept[0].point.volume, len(parts) - 1))
    return TransitionCurve(*map(np.concatenate, zip(*parts, strict=True)))


def curve_of(joint: Joint, coordinates: Floats, volume: float, segment: int = 0) -> TransitionCurve:
    """Return the curves of chains that are joined; the replicas' spread gives the errors."""
    moments = joint.moments(coordinates)
    scale = np.array([joint.spread_to_error(float(at)) for at in coordinates])
    columns = []
    for values in (joint.centre + moments[1], volume * variance(moments), kurtosis(moments[1:])):
        columns += [values[0], scale * np.std(values[1:], axis=0, ddof=1)]
    return TransitionCurve(np.full(coordinates.size, segment), coordinates, *columns)
