r"""A smooth curve through noisy points, with its error everywhere: a Gaussian process on top of a straight line.

    y_i = f(x_i) + noise of variance s_i^2,     f = c_0 + c_1 x + g,     g ~ GP(0, a^2 Matern_5/2(|x - x'| / l)),

x the coordinate over its range, c_0 and c_1 with wide priors. Length l and amplitude a are averaged over a small grid
by their evidence (C. E. Rasmussen and C. K. I. Williams, "Gaussian processes for machine learning", 2006, sections 2.7
and 5.4).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
LENGTHS = (0.2, 0.4, 0.8, 1.6)
"""In units of the range."""
AMPLITUDES = (0.05, 0.15, 0.5)
LINE = 10.0
"""Prior deviation of the straight line's coefficients."""
NEGLIGIBLE = 1e-4
"""Share of the evidence below which a process is left out."""
FLOOR = 1e-8
"""Least noise variance."""


class _Process(NamedTuple):
    """A process with its share, which is the logarithm of its evidence while others are not known."""

    share: float
    length: float
    amplitude: float
    root: Reals
    solved: Reals


class SmoothCurve:
    """The posterior of a curve on [0, 1], given points with errors: a mixture of processes."""

    def __init__(self, x: Sequence[float] | Reals, y: Sequence[float] | Reals, error: Sequence[float] | Reals) -> None:
        self.x = np.asarray(x, np.float64)
        self.y = np.asarray(y, np.float64)
        self.noise = np.maximum(np.asarray(error, np.float64) ** 2, FLOOR)
        self.offset = float(np.average(self.y, weights=1 / self.noise))
        centred, found = self.y - self.offset, []
        for length in LENGTHS:
            for amplitude in AMPLITUDES:
                root: Reals = np.linalg.cholesky(_kernel(self.x, self.x, length, amplitude) + np.diag(self.noise))
                solved = np.asarray(np.linalg.solve(root, centred), np.float64)
                evidence = -0.5 * float(solved @ solved) - float(np.log(np.diag(root)).sum())
                found.append(_Process(evidence, length, amplitude, root, solved))
        weights = np.exp(np.array([process.share for process in found]) - max(process.share for process in found))
        weights /= weights.sum()
        self._processes = [p._replace(share=float(w)) for p, w in zip(found, weights, strict=True) if w > NEGLIGIBLE]

    def at(self, x: Reals) -> tuple[Reals, Reals]:
        """Return mean and standard deviation of the curve."""
        mean, covariance = self.posterior(x)
        return mean, np.sqrt(np.maximum(np.diag(covariance), 0.0))

    def posterior(self, x: Reals) -> tuple[Reals, Reals]:
        """Return mean and covariance of the mixture of processes."""
        total = sum(p.share for p in self._processes)
        means, covariances = [], []
        for process in self._processes:
            cross = np.linalg.solve(process.root, _kernel(self.x, x, process.length, process.amplitude))
            means.append(cross.T @ process.solved)
            covariances.append(_kernel(x, x, process.length, process.amplitude) - cross.T @ cross)
        shares = [p.share / total for p in self._processes]
        mean = sum((s * m for s, m in zip(shares, means, strict=True)), np.zeros(len(x)))
        covariance = sum(
            (s * (c + np.outer(m - mean, m - mean)) for s, m, c in zip(shares, means, covariances, strict=True)),
            np.zeros((len(x), len(x))),
        )
        return mean + self.offset, covariance

    def pulls(self) -> Reals:
        """Return by how many errors each point is off the curve."""
        return np.asarray((self.y - self.at(self.x)[0]) / np.sqrt(self.noise), np.float64)


def level_errors(x: Reals, error: Reals, work: Reals) -> Reals:
    """Return errors as their neighbours know them too: ln(error^2 work) on a straight line over x.

    An error from a few segments is itself known to a third; the luckiest point would pull a curve to itself.
    """
    logs = np.log(np.maximum(error**2 * work, FLOOR**2))
    degree = 1 if len(np.unique(x)) > 3 else 0
    line = np.polynomial.Polynomial.fit(x, logs, degree, domain=[0, 1])
    return np.asarray(np.sqrt(np.exp(line(x)) / work), np.float64)


def _kernel(a: Reals, b: Reals, length: float, amplitude: float) -> Reals:
    r = np.sqrt(5.0) / length * np.abs(a[:, None] - b[None, :])
    bend = amplitude**2 * (1 + r * (1 + r / 3)) * np.exp(-r)
    line = LINE**2 * (1 + np.outer(a - 0.5, b - 0.5))
    return np.asarray(bend + line, np.float64)
