"""The ends of the spectrum of D^dagger D on even sites: its largest eigenvalue by Lanczos, its lowest by ARPACK.

D^dagger D = m^2 - H^2 on even sites has the eigenvalues m^2 + l^2 of D's pairs m +- i l; -H^2 <= 16 on any links, 4 on
cold ones.
"""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError

from .field import Address
from .solvers import cg
from .staggered import ColourField, StaggeredOperator

LARGEST_POSSIBLE = 16.0
"""-H^2 <= 16: H is a sum of eight unitary hops over two, so its norm is at most 4."""

ACCURACY, MAX_STEPS = 0.01, 100
"""Where Lanczos ends."""

START_DRAW = (6 << 28) + (1 << 27)
"""Draws of the vector that Lanczos starts from: among those of estimators, away from their noise."""


def largest_eigenvalue(
    operator: StaggeredOperator, *, workspace: Sequence[ColourField] | None = None, **address: Unpack[Address]
) -> float:
    """Return an upper estimate of the largest eigenvalue of -H^2, in excess by `ACCURACY` (relative) at most.

    Lanczos' largest Ritz value lies below it; the norm of its residual, added here, is as far as it can be from an
    eigenvalue. `workspace` saves the allocation of three even fields.
    """
    before, vector, image = workspace or (ColourField(operator.gauge, 0, operator.precision) for _ in range(3))
    vector.gaussian(draw=START_DRAW, **address)
    vector.scale(vector.norm2() ** -0.5)
    before.zero()
    diagonal: list[float] = []
    beside: list[float] = []
    shift = -(operator.mass**2)
    for n in range(1, MAX_STEPS + 1):
        operator.normal(image, vector, shift=shift)
        if beside:
            image.add(before, -beside[-1])
        diagonal.append(vector.dot(image).real)
        image.add(vector, -diagonal[-1])
        beside.append(image.norm2() ** 0.5)
        if n % 5 == 0 or beside[-1] < 1e-8:
            value, error = _largest_ritz(diagonal, beside)
            if error <= ACCURACY * value or beside[-1] < 1e-8:
                break
        image.scale(1 / beside[-1])
        before, vector, image = vector, image, before
    return value + error


def _largest_ritz(diagonal: list[float], beside: list[float]) -> tuple[float, float]:
    """The largest eigenvalue of Lanczos' matrix and the norm of its residual, beta_n |last component|."""
    from scipy.linalg import eigh_tridiagonal  # a fifth of a second, which chains without quarks need not wait

    last = len(diagonal) - 1
    values, vectors = eigh_tridiagonal(diagonal, beside[:-1], select="i", select_range=(last, last))
    return float(values[0]), beside[-1] * abs(float(vectors[-1, 0]))


def lowest_eigenvalues(
    operator: StaggeredOperator, n: int, *, tolerance: float = 1e-10, max_iterations: int = 10_000
) -> NDArray[np.float64]:
    """Return the n lowest eigenvalues of D^dagger D on even sites, ascending.

    ARPACK on the inverse, by CG: the lowest eigenvalues crowd, those of the inverse do not. As a check of solvers and
    spectra rather than for production: vectors travel between host and kernels. Exactly degenerate eigenvalues, which
    free fields have, are found fewer times than they occur: a Krylov space sees each once, but for rounding.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    source, found = (ColourField(operator.gauge, 0, operator.precision) for _ in range(2))
    host = source.to_host()
    n_t, n_z, n_y, n_x = host.shape[:4]
    even = np.flatnonzero(np.repeat(np.sum(np.indices((n_t, n_z, n_y, n_x)), axis=0).ravel() % 2 == 0, 3))
    if not 1 <= n < even.size - 1:
        raise SpecError(f"`n` must be between 1 and {even.size - 2} on this lattice. Got {n}")

    def inverse(vector: NDArray[np.complex128]) -> NDArray[np.complex128]:
        host.reshape(-1)[even] = vector.reshape(-1)
        source.from_host(host)
        cg(operator, source, found, tolerance=tolerance / 10, max_iterations=max_iterations)
        return found.to_host().reshape(-1)[even]

    shape = (even.size, even.size)
    matrix = LinearOperator(shape, matvec=inverse, dtype=np.complex128)
    # A fixed start: ARPACK's own is random, and the same call must give the same numbers.
    start = np.random.default_rng(1).normal(size=(even.size, 2)) @ np.array([1, 1j])
    values: Any = eigsh(matrix, k=n, which="LM", return_eigenvectors=False, tol=tolerance, v0=start)
    return np.sort(1 / np.asarray(values, np.float64))
