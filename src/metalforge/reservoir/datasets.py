r"""Tasks from seeds: chaotic series, NARMA, labelled sequences; time-major float64, one row per sample.

Differential equations are integrated by Runge and Kutta's fourth-order steps of `interval / substeps`, and every
`substeps`-th point is kept. A `seed` moves the start a little, which on an attractor is enough for another series;
`discard` samples are thrown away first, so that the start is forgotten. In labelled sequences only the order of what
is shown tells the classes apart.
"""

from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Doubles, SpecError, require_not_negative, require_positive

Scalar = TypeVar("Scalar", bound=np.generic)

NARMA_10 = (0.3, 0.05, 1.5, 0.1)
"""A. Atiya, A. Parlos, IEEE Transactions on Neural Networks 11, 2000."""
NARMA_30 = (0.2, 0.04, 1.5, 0.001)
"""B. Schrauwen et al., Neurocomputing 71, 2008: the coefficients of order 10 diverge at order 30."""
DIVERGED = 10.0
"""NARMA outputs stay below 1 or so; past the unstable fixed point, a little above 1, they only grow."""
ATTEMPTS = 20
NARMA_DISCARD = 200
"""Steps from the start at zero that are thrown away."""
Point: TypeAlias = tuple[float, float, float]

SPREAD = 0.1
"""How far a seed moves the start: uniform within +- this share of it."""
SHORTEST, LONGEST = 7, 29
"""Steps of a sequence, as in the recorded set."""


def narma(
    n: int,
    *,
    seed: int,
    order: int = 10,
    coefficients: tuple[float, float, float, float] | None = None,
) -> tuple[Doubles, Doubles]:
    r"""Return inputs u (n, 1), uniform in 0 .. 0.5, and the outputs y (n, 1) they drive.

        y_{t+1} = a y_t + b y_t (y_t + ... + y_{t-order+1}) + c u_{t-order+1} u_t + d

    Row t holds u_t and y_{t+1}: the target follows from the inputs up to its own row. `coefficients` are (a, b, c, d);
    by default those of the literature, one set up to order 10 and one up to order 30. Now and then the inputs make the
    recurrence diverge; then all are drawn again from the seed's next stream.
    (reservoirpy sums from y_{t-1} on and multiplies with u_{t-order}: its series are of another system.)
    """
    if n < 1 or order < 1:
        raise SpecError(f"a NARMA series wants n >= 1 and order >= 1. Got n = {n}, order = {order}")
    if coefficients is None:
        if order > 30:
            raise SpecError(f"no coefficients are known for order {order}, above 30: give `coefficients`")
        coefficients = NARMA_10 if order <= 10 else NARMA_30
    for rng in np.random.default_rng(seed).spawn(ATTEMPTS):
        u = rng.uniform(0, 0.5, order + NARMA_DISCARD + n)
        y = _narma(u.tolist(), order, coefficients)
        if y is not None:
            return u[-n:, np.newaxis], np.array(y[-n:])[:, np.newaxis]
    raise SpecError(
        f"the NARMA recurrence of order {order} diverges with coefficients {coefficients}\nhint: smaller ones"
    )


def _narma(u: list[float], order: int, coefficients: tuple[float, float, float, float]) -> list[float] | None:
    """Return y_{t+1} for every t, from zeros; None when it diverges."""
    a, b, c, d = coefficients
    y = [0.0] * order
    for t in range(order - 1, len(u)):
        now = y[t]
        after = a * now + b * now * sum(y[t - order + 1 : t + 1]) + c * u[t - order + 1] * u[t] + d
        if not abs(after) < DIVERGED:
            return None
        y.append(after)
    return y[1:]


def to_forecasting(x: NDArray[Scalar], horizon: int = 1) -> tuple[NDArray[Scalar], NDArray[Scalar]]:
    """Return inputs x_t and targets x_{t + horizon}, each shorter than x by the horizon; views, time first."""
    if x.ndim < 1 or not 1 <= horizon < len(x):
        raise SpecError(f"`horizon` must be at least 1 and shorter than the series of {x.shape}. Got {horizon}")
    return x[:-horizon], x[horizon:]


def mackey_glass(
    n: int,
    *,
    tau: float = 17.0,
    start: float = 1.2,
    interval: float = 1.0,
    substeps: int = 10,
    discard: int = 500,
    seed: int | None = None,
) -> Doubles:
    r"""Return n samples (n, 1) of the Mackey-Glass equation, `interval` apart.

        x'(t) = 0.2 x(t - tau) / (1 + x(t - tau)^10) - 0.1 x(t),    x(t) = start for t <= 0

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
    if not start > 0:
        raise SpecError(f"`start` must be above 0. Got {start}")
    x, b = float(start), 0.1
    if seed is not None:
        x *= 1 + np.random.default_rng(seed).uniform(-SPREAD, SPREAD)

    def production(value: float) -> float:
        return float(0.2 * value / (1 + value**10.0))

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
    start: Point = (1.0, 1.0, 1.0),
    interval: float = 0.03,
    substeps: int = 10,
    discard: int = 1000,
    seed: int | None = None,
) -> Doubles:
    r"""Return n samples (n, 3) of the Lorenz flow, `interval` apart.

        x' = 10 (y - x),    y' = x (28 - z) - y,    z' = x y - 8/3 z

    (E. Lorenz, Journal of the Atmospheric Sciences 20, 1963.) In plain floats, which are faster here than arrays.
    """
    _check_sampling(n, interval, substeps, discard)
    if len(start) != 3 or not np.all(np.isfinite(start)):
        raise SpecError(f"`start` must be three finite numbers. Got {start}")
    x, y, z = (float(value) for value in start)
    if seed is not None:
        moved = np.random.default_rng(seed).uniform(1 - SPREAD, 1 + SPREAD, 3)
        x, y, z = x * float(moved[0]), y * float(moved[1]), z * float(moved[2])
    h = interval / substeps
    half, sixth = h / 2, h / 6

    def slope(x: float, y: float, z: float) -> Point:
        return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8 / 3 * z

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
        raise SpecError(f"the flow left the range of numbers at steps of {h:g}\nhint: more `substeps`")
    return series


def _check_sampling(n: int, interval: float, substeps: int, discard: int) -> None:
    if n < 1 or substeps < 1 or discard < 0:
        raise SpecError(
            f"a series wants n >= 1, substeps >= 1 and discard >= 0. Got n = {n}, substeps = {substeps}, "
            f"discard = {discard}"
        )
    require_positive(interval=interval)


class LabelledSequences(NamedTuple):
    """Sequences (n, steps, inputs), float64, and their labels (n,), int64."""

    inputs: Doubles
    labels: NDArray[np.int64]


def directions(rng: np.random.Generator, n: int, inputs: int) -> Doubles:
    """Return n random vectors of rms 1."""
    drawn = rng.normal(size=(n, inputs))
    return np.asarray(drawn / np.sqrt(np.mean(drawn**2, axis=1, keepdims=True)))


def shuffled_labels(rng: np.random.Generator, n: int, classes: int) -> NDArray[np.int64]:
    """Return n labels, all classes equally often (to one), in random order."""
    return rng.permutation(np.arange(n, dtype=np.int64) % classes)


def sequence_classification(
    n: int,
    *,
    seed: int,
    inputs: int = 50,
    steps: int = 30,
    classes: int = 4,
    noise: float = 2.0,
    quiet: int = 4,
) -> LabelledSequences:
    r"""Return n noisy sequences, their classes equally many (to one) and in random order. Slice it for train and test.

    One motif, a random vector of rms 1, belongs to each class. Class c shows all motifs one after the other, beginning
    with motif c and going round, each for a random number of steps; the last `quiet` steps show none. Then

        u_t = (motif shown at t + noise * normal) / sqrt(1 + noise^2)

    The mean, the largest and the last input are distributed alike in all classes, so at the end nobody does better than
    1 / classes who has not remembered when a motif was shown. A network of 128 units (spectral radius 0.9, leak 0.3,
    input scaling 0.3) with a ridge readout of its last state, trained on 2000, gets 0.92 right at the defaults.
    """
    shown = steps - quiet
    if n < 1 or inputs < 1 or classes < 2 or quiet < 0 or shown < 2 * classes:
        raise SpecError(
            "the task wants n >= 1, inputs >= 1, classes >= 2, quiet >= 0 and at least two steps per class before the "
            f"quiet ones. Got n = {n}, inputs = {inputs}, classes = {classes}, quiet = {quiet}, steps = {steps}"
        )
    require_not_negative(noise=noise)
    # The motifs have a stream of their own: the same seed gives the same task for any n.
    for_motifs, for_labels, for_times, for_noise = np.random.default_rng(seed).spawn(4)
    motifs = directions(for_motifs, classes, inputs)
    labels = shuffled_labels(for_labels, n, classes)

    # Every motif has half of its equal share for certain; where the spare steps go is random and the same for all.
    certain = shown // (2 * classes)
    spare = shown - certain * classes
    cuts = np.sort(for_times.integers(0, spare + 1, (n, classes - 1)), axis=1) + certain * np.arange(1, classes)
    time = np.arange(steps)
    turn = np.sum(time[np.newaxis, :, np.newaxis] >= cuts[:, np.newaxis, :], axis=2)
    u = motifs[(turn + labels[:, np.newaxis]) % classes]
    u[:, shown:] = 0
    u += noise * for_noise.normal(size=u.shape)
    return LabelledSequences(u / np.sqrt(1 + noise**2), labels)
