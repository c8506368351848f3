r"""Recursive least squares for several rows at once: the same readout as row by row, by products of matrices.

With P the inverse of the weighted normal matrix, l the forgetting, and k new rows X, Y, row i of weight l^(k-i):

    Z = D X,  E = D (Y - X W^T),  D = diag(l^((k-i)/2))
    L L^T = l^k 1 + Z P Z^T,      V = L^-1 Z P            Cholesky's root (k, k)
    W <- W + (L^-1 E)^T V,        P <- (P - V^T V) / l^k

the matrix inversion lemma with k rows. Row by row, P is read and written k times; so once, and weights that are wanted
every k steps only cost far less. `online.Rls` and the rules of `hybrid.learning` are made of it.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtrs

from metalforge.core import Doubles, cores_for

from .series import DivergenceError


class LeastSquares(NamedTuple):
    """A readout (outputs, width), the inverse (width, width), and the rows learned.

    With an inverse of 1 / alpha it begins drawn to its readout with penalty alpha |W - W_0|^2.
    """

    w_out: Doubles
    inverse: Doubles
    rows: int


def absorb(state: LeastSquares, x: Doubles, y: Doubles, forgetting: float) -> LeastSquares:
    """Return the state after rows x (rows, width), y (rows, outputs), the oldest first."""
    rows = len(x)
    kept = forgetting**rows
    with cores_for(x.shape[1]), np.errstate(all="ignore"):
        z, left = x, y - x @ state.w_out.T
        if forgetting < 1 and rows > 1:
            ages = forgetting ** (np.arange(rows - 1, -1, -1) / 2)[:, np.newaxis]
            z, left = x * ages, left * ages
        spread = z @ state.inverse  # the inverse is symmetric
        inner = spread @ z.T
        inner.flat[:: rows + 1] += kept
        root, failed = dpotrf(inner, lower=1)
        if failed:
            raise _lost(state.rows + rows)
        # v^T v is symmetric to the last bit, which P Z^T (...)^-1 Z P would not be: rounding would grow in P.
        v, _ = dtrtrs(root, spread, lower=1)
        w_out = state.w_out + dtrtrs(root, left, lower=1)[0].T @ v
        inverse = v.T @ v
        np.subtract(state.inverse, inverse, out=inverse)
        if kept != 1:
            inverse /= kept
    if not (np.isfinite(w_out).all() and np.isfinite(np.diagonal(inverse)).all()):
        raise _lost(state.rows + rows)
    return LeastSquares(w_out, inverse, state.rows + rows)


def _lost(rows: int) -> DivergenceError:
    return DivergenceError(
        f"recursive least squares diverged at row {rows}: the weights are lost"
        "\nhint: a forgetting nearer to 1, or a larger alpha"
    )
