r"""Chaotic series from differential equations: Mackey-Glass and Lorenz. Time-major float64, one row a sample.

All are integrated by Runge and Kutta's fourth-order steps of `interval / substeps`, and every `substeps`-th point is
kept. A `seed` moves the start a little, which on an attractor is enough for another series; `discard` samples are
thrown away first, so that the start is forgotten.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

__all__ = ["lorenz", "mackey_glass"]

Point: TypeAlias = tuple[float, float, float]

SPREAD = 0.1
"""How far a seed moves the start: uniform within +- this share of it."""


def mackey_glass(
    n: int,
    *,
    tau: float = 17.0,
    a: float = 0.2,
    b: float = 0.1,
    exponent: float = 10.0,
    start: float = 1.2,
    interval: float = 1.0,
    substeps: int = 10,
    discard: int = 500,
    seed: int | None = None,
) -> NDArray[np.float64]:
    r"""Return n samples (n, 1) of the Mackey-Glass equation, `interval` apart.

        x'(t) = a x(t - tau) / (1 + x(t - tau)^exponent) - b x(t),    x(t) = start for t <= 0

    The delayed value is needed in the middle of steps too; there the cubic through both ends and their slopes is taken,
    so that the whole is of fourth order (libraries that hold it fixed over a step of 1 are of first). `tau` must be a
    whole number of steps. (M. Mackey, L. Glass, Science 197, 1977.)
    """
    _check_sampling(n, interval, substeps, discard)
    h = interval / substeps
    delay = round(tau / h)
    if delay < 1 or abs(delay * h - tau) > 1e-9 * tau:
        raise SpecError(
            f"`tau` must be a whole number of steps of interval / substeps = {h:g}. Got {tau}\nhint: change `substeps`"
        )
    if not start > 0 or not a > 0 or not b > 0:
        raise SpecError(f"`start`, `a` and `b` must be above 0. Got {start}, {a} and {b}")
    x = float(start)
    if seed is not None:
        x *= 1 + np.random.default_rng(seed).uniform(-SPREAD, SPREAD)

    def production(value: float) -> float:
        return float(a * value / (1 + value**exponent))

    # Production at points and in the middle of steps, from tau ago on: entry i is what step i must see.
    at_points = [production(x)] * (delay + 1)
    at_middles = [production(x)] * delay
    series = [x]
    for step in range((discard + n - 1) * substeps):
        begin, middle, end = at_points[step], at_middles[step], at_points[step + 1]
        k1 = begin - b * x
        k2 = middle - b * (x + h / 2 * k1)
        k3 = middle - b * (x + h / 2 * k2)
        k4 = end - b * (x + h * k3)
        after = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        slope = end - b * after
        at_points.append(production(after))
        at_middles.append(production((x + after) / 2 + h / 8 * (k1 - slope)))
        x = after
        series.append(x)
    return np.array(series[discard * substeps :: substeps])[:, np.newaxis]


def lorenz(
    n: int,
    *,
    sigma: float = 10.0,
    rho: float = 28.0,
    beta: float = 8 / 3,
    start: Point = (1.0, 1.0, 1.0),
    interval: float = 0.03,
    substeps: int = 10,
    discard: int = 1000,
    seed: int | None = None,
) -> NDArray[np.float64]:
    """Return n samples (n, 3) of x' = sigma (y - x), y' = x (rho - z) - y, z' = x y - beta z.

    (E. Lorenz, Journal of the Atmospheric Sciences 20, 1963.)
    """

    def slope(x: float, y: float, z: float) -> Point:
        return sigma * (y - x), x * (rho - z) - y, x * y - beta * z

    return _sampled(slope, start, n, interval, substeps, discard, seed)


def _sampled(
    slope: Callable[[float, float, float], Point],
    start: Point,
    n: int,
    interval: float,
    substeps: int,
    discard: int,
    seed: int | None,
) -> NDArray[np.float64]:
    """Return every `substeps`-th point of a flow. Plain floats: three numbers are too few for arrays to pay."""
    _check_sampling(n, interval, substeps, discard)
    if len(start) != 3 or not np.all(np.isfinite(start)):
        raise SpecError(f"`start` must be three finite numbers. Got {start}")
    x, y, z = (float(value) for value in start)
    if seed is not None:
        moved = np.random.default_rng(seed).uniform(1 - SPREAD, 1 + SPREAD, 3)
        x, y, z = x * float(moved[0]), y * float(moved[1]), z * float(moved[2])
    h = interval / substeps
    half, sixth = h / 2, h / 6
    points = [(x, y, z)]
    for _ in range((discard + n - 1) * substeps):
        a1, b1, c1 = slope(x, y, z)
        a2, b2, c2 = slope(x + half * a1, y + half * b1, z + half * c1)
        a3, b3, c3 = slope(x + half * a2, y + half * b2, z + half * c2)
        a4, b4, c4 = slope(x + h * a3, y + h * b3, z + h * c3)
        x += sixth * (a1 + 2 * a2 + 2 * a3 + a4)
        y += sixth * (b1 + 2 * b2 + 2 * b3 + b4)
        z += sixth * (c1 + 2 * c2 + 2 * c3 + c4)
        points.append((x, y, z))
    series = np.array(points[discard * substeps :: substeps])
    if not np.all(np.isfinite(series)):
        raise SpecError("the flow left the range of numbers: check its parameters, or take more `substeps`")
    return series


def _check_sampling(n: int, interval: float, substeps: int, discard: int) -> None:
    if n < 1 or substeps < 1 or discard < 0:
        raise SpecError(
            f"a series wants n >= 1, substeps >= 1 and discard >= 0. Got n = {n}, substeps = {substeps}, "
            f"discard = {discard}"
        )
    if not 0 < interval < np.inf:
        raise SpecError(f"`interval` must be above 0 and finite. Got {interval}")
