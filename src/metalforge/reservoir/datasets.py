r"""Tasks from seeds: chaotic flows, NARMA, labelled sequences; time-major float64, one row per sample.

Flows are integrated by Runge and Kutta's fourth-order steps of `interval / substeps`, and every `substeps`-th point is
kept. A `seed` moves the start a little, which on an attractor is enough for another series; `discard` samples are
thrown away first, so that the start is forgotten. In labelled sequences only the order of what is shown tells the
classes apart (`sequence_classification`), or most of it (`vowel_like`, made in the likeness of the Japanese vowels; no
recording is behind it).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError, require_not_negative, require_positive

Scalar = TypeVar("Scalar", bound=np.generic)

MSO_FREQUENCIES = (0.2, 0.311, 0.42, 0.51, 0.63, 0.74, 0.85, 0.97)
"""H. Jaeger's two, and six more by B. Roeschies and C. Igel (Logic Journal of the IGPL 18, 2010)."""
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
BLEND = 0.7
"""How far noise at one step is that of the step before: neighbouring frames of speech overlap."""


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


def mso(n: int, frequencies: int | Sequence[float] = 8) -> Doubles:
    """Return x_t = sum of sin(f t) over frequencies f, (n, 1), from t = 0 on; a number k takes the first k of eight."""
    if isinstance(frequencies, int):
        if not 1 <= frequencies <= len(MSO_FREQUENCIES):
            raise SpecError(
                f"{len(MSO_FREQUENCIES)} frequencies have names in the literature. Got {frequencies}"
                "\nhint: give them as a list"
            )
        frequencies = MSO_FREQUENCIES[:frequencies]
    if n < 1 or len(frequencies) == 0 or not np.all(np.isfinite(frequencies)):
        raise SpecError(f"oscillators want n >= 1 and finite frequencies. Got n = {n}, {list(frequencies)}")
    waves = np.sin(np.outer(np.arange(n), frequencies))
    return np.asarray(waves.sum(axis=1, keepdims=True))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A flow of three numbers by its slope; called, it gives n samples (n, 3) from a start, `interval` apart."""

    slope: Callable[[float, float, float], Point]
    start: Point
    interval: float

    def __call__(
        self,
        n: int,
        *,
        start: Point | None = None,
        interval: float | None = None,
        substeps: int = 10,
        discard: int = 1000,
        seed: int | None = None,
    ) -> Doubles:
        """Return every `substeps`-th point. Plain floats: three numbers are too few for arrays to pay."""
        spacing = self.interval if interval is None else interval
        begin = self.start if start is None else start
        _check_sampling(n, spacing, substeps, discard)
        if len(begin) != 3 or not np.all(np.isfinite(begin)):
            raise SpecError(f"`start` must be three finite numbers. Got {begin}")
        x, y, z = (float(value) for value in begin)
        if seed is not None:
            moved = np.random.default_rng(seed).uniform(1 - SPREAD, 1 + SPREAD, 3)
            x, y, z = x * float(moved[0]), y * float(moved[1]), z * float(moved[2])
        slope, h = self.slope, spacing / substeps
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
            raise SpecError("the flow left the range of numbers: check its slope, or take more `substeps`")
        return series


lorenz = Flow(
    slope=lambda x, y, z: (10.0 * (y - x), x * (28.0 - z) - y, x * y - 8 / 3 * z), start=(1.0, 1.0, 1.0), interval=0.03
)
"""E. Lorenz, Journal of the Atmospheric Sciences 20, 1963."""
rossler = Flow(slope=lambda x, y, z: (-y - z, x + 0.2 * y, 0.2 + z * (x - 5.7)), start=(-0.1, 0.0, 0.02), interval=0.1)
"""O. Rossler, Physics Letters A 57, 1976."""


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


def _directions(rng: np.random.Generator, n: int, inputs: int) -> Doubles:
    """Return n random vectors of rms 1."""
    drawn = rng.normal(size=(n, inputs))
    return np.asarray(drawn / np.sqrt(np.mean(drawn**2, axis=1, keepdims=True)))


def _labels(rng: np.random.Generator, n: int, classes: int) -> NDArray[np.int64]:
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
    motifs = _directions(for_motifs, classes, inputs)
    labels = _labels(for_labels, n, classes)

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


def vowel_like(
    n: int,
    *,
    seed: int,
    speakers: int = 9,
    inputs: int = 12,
    voice: float = 0.2,
    bend: float = 0.6,
    mood: float = 0.35,
    noise: float = 0.4,
) -> LabelledSequences:
    r"""Return n sequences (n, 29, inputs), speakers equally many (to one) and in random order; rest comes before.

    The recorded set (M. Kudo, J. Toyama, M. Shimbo, Pattern Recognition Letters 20, 1999) has nine speakers who say two
    vowels one after the other, twelve cepstral coefficients a frame, 7 to 29 frames. Here, with random vectors A, E of
    the two vowels and V_c, B_c of speaker c, all of rms 1 (times the scale before them),

        u(x) = (1 - x) A + x E + voice V_c + bend sin(2 pi x) B_c + mood M + noise N

    where x goes from 0 to 1 along the sequence, M is drawn anew for every sequence and N for every step, blended with
    the step before. V_c tells a speaker at any time and in the mean; B_c only by the order, since it averages to
    nothing. Sequences of 7 to 29 steps have zeros before them, which leave a network without bias at rest; all are
    divided by one number that makes the rms of the frames about 1. Slice it for train and test.
    """
    if n < 1 or speakers < 2 or inputs < 1:
        raise SpecError(
            f"the task wants n >= 1, speakers >= 2 and inputs >= 1. Got n = {n}, speakers = {speakers}, "
            f"inputs = {inputs}"
        )
    require_not_negative(voice=voice, bend=bend, mood=mood, noise=noise)
    # The speakers have a stream of their own: the same seed gives the same task for any n.
    for_speakers, for_labels, for_lengths, for_noise = np.random.default_rng(seed).spawn(4)
    first, second, *rest = _directions(for_speakers, 2 + 2 * speakers, inputs)
    voices, bends = np.array(rest[:speakers]), np.array(rest[speakers:])
    labels = _labels(for_labels, n, speakers)
    lengths = for_lengths.integers(SHORTEST, LONGEST + 1, n)

    x = 1 - np.arange(LONGEST - 1, -1, -1) / (lengths[:, np.newaxis] - 1)  # below 0 before a sequence begins
    spoken = x > -1e-9
    x = np.clip(x, 0, 1)[..., np.newaxis]
    frames = for_noise.normal(size=(n, LONGEST, inputs))
    for t in range(1, LONGEST):
        frames[:, t] = BLEND * frames[:, t - 1] + np.sqrt(1 - BLEND**2) * frames[:, t]
    mean = (1 - x) * first + x * second
    own = voice * voices[labels][:, np.newaxis] + bend * np.sin(2 * np.pi * x) * bends[labels][:, np.newaxis]
    u = mean + own + mood * for_noise.normal(size=(n, 1, inputs)) + noise * frames
    # What the formula gives on average, not what was drawn: sets of other sizes have the same unit.
    rms = np.sqrt(2 / 3 + voice**2 + bend**2 / 2 + mood**2 + noise**2)
    return LabelledSequences(np.where(spoken[..., np.newaxis], u / rms, 0.0), labels)
