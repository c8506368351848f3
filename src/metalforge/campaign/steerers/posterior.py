r"""The posterior of the place of a curve's maximum, from noisy points: many paths of a Gaussian process.

    y_i = f(x_i) + noise of variance s_i^2,     f ~ GP(0, a^2 Matern_5/2(|x - x'| / l)),     x = place in the range
    peak = argmax f

y is the logarithm of the value: a susceptibility is positive, spans decades over a scan, and its
error is a nearly constant part of its value, so that in the logarithm both the curve and its noise are tame. With a
relative error r = error / value,

    s^2 = log(1 + r^2),     y = log(value) + s^2 / 2

(the second term undoes the bias of the logarithm of a noisy mean). The mean of y, weighted by its precision, is taken
off.

The length l and the amplitude a are not chosen but averaged over: paths are drawn from the processes of a small grid
of (l, a), as many from each as its evidence deserves. (C. E. Rasmussen and C. K. I. Williams, "Gaussian processes for
machine learning", 2006, chapters 2 and 5; the update of paths by a new point is Matheron's rule.)
"""

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Observation, SpecError

Reals: TypeAlias = NDArray[np.float64]

LENGTHS = np.geomspace(0.02, 0.4, 8)
"""Length scales, in units of the range: from a peak fifty times narrower than the scan to one that fills it."""
AMPLITUDES = np.array([0.5, 1.0, 2.0])
"""Standard deviations of the curve. A susceptibility's logarithm spans 2 to 4 between background and peak."""
COMPONENTS = 4
"""Pairs (l, a) kept, by evidence: more than half of it with six points, nearly all with twenty. On a peaked test curve
two to four gave the smallest error on the peak; with eight it was a third larger, for the unlikely ones fill gaps."""
NEGLIGIBLE = 1e-3
"""Share of the evidence below which a pair would not get a path of its own."""
NOISE_FLOOR = 1e-6
"""Least noise variance: a point told with error 0 must not make the matrix singular."""
JITTERS = (1e-9, 1e-7, 1e-5)
"""Added to the diagonal of a covariance, relative to a^2, until its Cholesky factor exists."""


class Component(NamedTuple):
    """One process: its length, amplitude and share of the evidence, and what predicts from it.

    `root` is the Cholesky factor of the points' covariance, `solved` is root^-1 y.
    """

    length: float
    amplitude: float
    share: float
    root: Reals
    solved: Reals


class Processes(NamedTuple):
    """The fitted processes of one history at points x, and the noise of the points; y = log(value) - offset."""

    components: tuple[Component, ...]
    x: Reals
    noise: Reals
    offset: float


class Curves:
    """Paths of the posterior at some x in [0, 1]: the even grid comes first, where maxima are looked for."""

    def __init__(self, processes: Processes, x: Reals, n_grid: int, n_paths: int, rng: np.random.Generator) -> None:
        self.x = x
        self.grid = x[:n_grid]
        self._rng = rng
        self._means: list[Reals] = []
        self._covariances: list[Reals] = []
        self._spans: list[slice] = []
        self.paths = np.empty((len(x), n_paths))
        ends = np.floor(np.cumsum([c.share for c in processes.components]) * n_paths + 0.5).astype(int)
        for component, start, end in zip(processes.components, [0, *ends[:-1]], ends, strict=True):
            if start == end:
                continue
            mean, covariance = _predicted(component, processes.x, x)
            root = _cholesky(covariance, component.amplitude**2)
            self.paths[:, start:end] = mean[:, None] + root @ rng.normal(size=(len(x), end - start))
            self._means.append(mean)
            self._covariances.append(covariance)
            self._spans.append(slice(int(start), int(end)))

    def copy(self) -> "Curves":
        """Return the same paths, which believe and draw from here on as these would."""
        other = copy(self)
        other.paths = self.paths.copy()
        other._covariances = list(self._covariances)  # a belief replaces them, and changes none
        other._rng = deepcopy(self._rng)
        return other

    def peaks(self) -> Reals:
        """Return the place of each path's maximum."""
        return find_peaks(self.grid, self.paths[: len(self.grid)])

    def believe(self, index: int, noise: float) -> None:
        """Take a measurement at x[index] as made, with the outcome that is expected (kriging believer).

        The mean stays; the spread shrinks as it will when the point comes in: f - C_p (f_p + noise - m_p) / (C_pp +
        s^2) for every path f, and the same for the covariance C.
        """
        for position, (mean, covariance, span) in enumerate(
            zip(self._means, self._covariances, self._spans, strict=True)
        ):
            gain = covariance[:, index] / (covariance[index, index] + noise)
            drawn = self.paths[index, span] + np.sqrt(noise) * self._rng.normal(size=span.stop - span.start)
            self.paths[:, span] -= np.outer(gain, drawn - mean[index])
            self._covariances[position] = covariance - np.outer(gain, covariance[index])

    def believe_all(self, indices: NDArray[np.intp], noise: Reals) -> None:
        """Take measurements at many places as made together, each with a noise of its own."""
        for position, (mean, covariance, span) in enumerate(
            zip(self._means, self._covariances, self._spans, strict=True)
        ):
            there = covariance[indices]
            gain = np.linalg.solve(there[:, indices] + np.diag(noise), there).T
            shape = len(indices), span.stop - span.start
            drawn = self.paths[indices, span] + np.sqrt(noise)[:, None] * self._rng.normal(size=shape)
            self.paths[:, span] -= gain @ (drawn - mean[indices, None])
            self._covariances[position] = covariance - gain @ there


def find_peaks(grid: Reals, paths: Reals) -> Reals:
    """Return where each column of paths (grid, n) is highest, by a parabola through its highest three neighbours."""
    column = np.arange(paths.shape[1])
    top = np.clip(paths.argmax(axis=0), 1, len(grid) - 2)
    left, middle, right = paths[top - 1, column], paths[top, column], paths[top + 1, column]
    bend = left - 2 * middle + right
    inner = np.clip(0.5 * (left - right) / np.where(bend < 0, bend, -1.0), -1, 1)
    # A path that is highest at an end of the range points beyond it, or bends the other way.
    shift = np.where(bend < 0, inner, np.where(left > right, -1.0, 1.0))
    return np.asarray(grid[top] + shift * (grid[1] - grid[0]))


def fit_processes(observations: Sequence[Observation], x: Reals) -> Processes:
    """Return the processes that explain the observations at x best, with shares in proportion to their evidence."""
    y, noise, offset = logarithms(observations)
    pairs = [(float(length), float(amplitude)) for length in LENGTHS for amplitude in AMPLITUDES]
    correlations = {float(length): _matern(x, x, float(length)) for length in LENGTHS}
    covariances = np.stack([a * a * correlations[length] for length, a in pairs]) + np.diag(noise)
    roots = np.linalg.cholesky(covariances)
    solved = np.linalg.solve(roots, np.broadcast_to(y[:, None], (len(pairs), len(y), 1)))[..., 0]
    # ln p(y) = -y K^-1 y / 2 - ln det K / 2 + a constant (equation 2.30).
    evidence = -0.5 * np.sum(solved**2, axis=1) - np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    best = np.argsort(-evidence, kind="stable")[:COMPONENTS]
    shares = np.exp(evidence[best] - evidence[best[0]])
    best, shares = best[shares > NEGLIGIBLE], shares[shares > NEGLIGIBLE]
    components = [
        Component(pairs[pair][0], pairs[pair][1], float(share), roots[pair], solved[pair])
        for pair, share in zip(best.tolist(), shares / shares.sum(), strict=True)
    ]
    return Processes(tuple(components), x, noise, offset)


def _matern(a: Reals, b: Reals, length: float) -> Reals:
    """Return the correlation (1 + r + r^2 / 3) exp(-r), r = sqrt(5) |a - b| / l (equation 4.17)."""
    r = np.sqrt(5.0) / length * np.abs(a[:, None] - b[None, :])
    return np.asarray((1 + r * (1 + r / 3)) * np.exp(-r), dtype=np.float64)


def _predicted(component: Component, x: Reals, at: Reals) -> tuple[Reals, Reals]:
    """Return mean and covariance of the curve at some places (equations 2.25 and 2.26)."""
    variance = component.amplitude**2
    cross = np.linalg.solve(component.root, variance * _matern(x, at, component.length))
    return cross.T @ component.solved, variance * _matern(at, at, component.length) - cross.T @ cross


def logarithms(observations: Sequence[Observation]) -> tuple[Reals, Reals, float]:
    """Return y, the variances of its noise, and the offset that was taken off."""
    value = np.array([seen.value for seen in observations])
    error = np.array([seen.error for seen in observations])
    noise = np.log1p((error / value) ** 2)
    y, noise = np.log(value) + noise / 2, np.maximum(noise, NOISE_FLOOR)
    # The curve's own spread is part of how far a point is from the mean: without it one exact point would decide.
    offset = float(np.average(y, weights=1 / (noise + AMPLITUDES[0] ** 2)))
    return y - offset, noise, offset


def _cholesky(covariance: Reals, variance: float) -> Reals:
    for jitter in JITTERS:
        try:
            return np.asarray(np.linalg.cholesky(covariance + jitter * variance * np.eye(len(covariance))), np.float64)
        except np.linalg.LinAlgError:
            continue
    raise SpecError("the covariance of the curve is not positive; are the errors of the observations far too small?")
