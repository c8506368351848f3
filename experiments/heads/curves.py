"""A label as a curve over one feature: the baseline of most heads, which are residuals to it.

The curve is piecewise linear between knots at equal shares of the values that occur, a least squares fit that is
smoothed by its second differences. Beyond its ends it is constant.
"""

import numpy as np

from metalforge.conductor.features import SCHEMA
from metalforge.core.arrays import Doubles
from metalforge.core.schema import HeadBase

KNOTS = 16
SMOOTH = 1e-3
"""Weight of squared second differences, for every row."""


def in_own_unit(feature: str, inputs: Doubles) -> Doubles:
    """Return a feature of inputs (rows, features) in its own unit."""
    place = [f.name for f in SCHEMA.features].index(feature)
    return np.asarray(inputs[:, place] * SCHEMA.features[place].scale + SCHEMA.features[place].offset)


def curve_at(curve: HeadBase, inputs: Doubles) -> Doubles:
    """Return a curve's values for inputs (rows, features)."""
    at, values = zip(*curve.knots, strict=True)
    return np.asarray(np.interp(in_own_unit(curve.feature, inputs), at, values))


def fit_curve_over(feature: str, inputs: Doubles, labels: Doubles, *, knots: int = KNOTS) -> HeadBase:
    """Return the curve over a feature that is nearest to labels of rows of inputs."""
    x = in_own_unit(feature, inputs)
    at = np.unique(np.quantile(np.unique(x), np.linspace(0, 1, knots)))
    if len(at) < 2:
        return HeadBase(feature=feature, knots=((float(at[0]), float(labels.mean())),))
    i = np.clip(np.searchsorted(at, x, side="right") - 1, 0, len(at) - 2)
    share = np.clip((x - at[i]) / (at[i + 1] - at[i]), 0.0, 1.0)
    matrix, right = np.zeros((len(at), len(at))), np.zeros(len(at))
    for a, wa in ((i, 1 - share), (i + 1, share)):
        np.add.at(right, a, wa * labels)
        for b, wb in ((i, 1 - share), (i + 1, share)):
            np.add.at(matrix, (a, b), wa * wb)
    bend = np.diff(np.eye(len(at)), 2, axis=0)
    values = np.linalg.solve(matrix + SMOOTH * len(x) * bend.T @ bend + 1e-9 * np.eye(len(at)), right)
    return HeadBase(feature=feature, knots=tuple((float(a), float(v)) for a, v in zip(at, values, strict=True)))
