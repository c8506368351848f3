r"""How long chains remember, from all chains that are near in beta at once.

A chain of 30 autocorrelation times says little about its own tau_int, and says too small a one. Neighbours in beta
have nearly the same, so their autocovariances are added, weighted by how near they are on the scale on which runs
overlap, sd(E)^-1 (the reach of reweighting):

    kappa_kj = exp(-(beta_k - beta_j)^2 var(E))

    Gamma_k(t) = sum_j kappa_kj (n_j - t) C_j(t) / sum_j kappa_kj (n_j - t)

    tau_k = 1/2 + sum_{t = 1 .. W} Gamma_k(t) / Gamma_k(0),     W the first lag >= 6 tau_k(W)

(window: N. Madras and A. D. Sokal, J. Stat. Phys. 50 (1988) 109). Each chain's own mean is taken off, which lowers
C_j(t) by 2 tau var / n_j at every lag; the sum is raised by (2 W + 1) / n to make up for it (U. Wolff, Comput. Phys.
Commun. 156 (2004) 143, eq. (49)). tau counts rows and is 0.5 for uncorrelated ones.
"""

from collections.abc import Sequence

import numpy as np

from .estimate import Floats
from .gamma import lagged_sums

WINDOW = 6.0
"""Lags summed, in tau: exp(-6) of an exponential tail is left out."""
MOST_LAGS = 4096
"""Lags looked at: far beyond the memory of any chain that is long enough to use."""


def pooled_tau(betas: Floats, series: Sequence[Floats], spread: float) -> Floats:
    """Return tau_int of each chain's series; `spread` is the standard deviation of E."""
    lengths = np.array([x.size for x in series])
    n_lags = max(2, min(int(lengths.max()) // 2, MOST_LAGS))
    covariances = np.zeros((len(series), n_lags))
    pairs = np.zeros((len(series), n_lags))
    for row, count, x in zip(covariances, pairs, series, strict=True):
        lags = max(1, min(x.size // 2, n_lags))
        row[:lags] = lagged_sums(x - x.mean(), lags)
        count[:lags] = x.size - np.arange(lags)
    near = np.exp(-((np.subtract.outer(betas, betas) * spread) ** 2))
    total, weight = near @ covariances, near @ pairs
    gamma = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
    length = near @ (lengths * lengths.astype(float)) / (near @ lengths.astype(float))
    return np.array([_tau(row, n) for row, n in zip(gamma, length, strict=True)])


def _tau(gamma: Floats, length: float) -> float:
    if gamma[0] <= 0:
        return 0.5
    running = np.maximum(np.cumsum(np.concatenate([[0.5], gamma[1:] / gamma[0]])), 0.5)
    beyond = np.flatnonzero(np.arange(running.size) >= WINDOW * running)
    window = int(beyond[0]) if beyond.size else running.size - 1
    return float(running[window] * (1 + (2 * window + 1) / length))
