r"""Solving the multi-histogram (MBAR) equations for runs at several beta with weight exp(-beta E).

From N_k independent samples at each beta_k, the free energies obey

    exp(-f_k) = sum_n exp(-beta_k E_n) / sum_j N_j exp(f_j - beta_j E_n)

over all samples n of all runs (M. R. Shirts and J. D. Chodera, J. Chem. Phys. 129 (2008) 124105, eq. (11); the
bin-free form of A. M. Ferrenberg and R. H. Swendsen, Phys. Rev. Lett. 63 (1989) 1195). They are the minimum of a
convex function. With

    p_kn = N_k exp(f_k - beta_k E_n) / sum_j N_j exp(f_j - beta_j E_n),

the probability that sample n came from run k, its gradient is sum_n c_n p_kn - N_k and its Hessian
diag(sum_n c_n p_kn) - sum_n c_n p_kn p_ln, where c_n counts sample n (as often as it was found in a bin, or as heavy as
a replica makes it). Newton steps on it settle in 3 to 6, for the data and hundreds of replicas at once.
"""

import numpy as np

from metalforge.core import SpecError

from .estimate import Floats

TOLERANCE = 1e-8
"""Largest relative mismatch of the equations; f is then known far better than any statistical error."""
STEPS = 60
"""Newton needs 3 to 6 steps from a near start; runs that need this many have no solution worth having."""
REACH = 2.0
"""Longest step in f at once: a far start walks down the convex function instead of jumping across."""

AT_ONCE = 1 << 21
"""Numbers of a table that is worked on at once, 16 MB; a dozen such tables are held."""


class NotLocated(SpecError):  # noqa: N818  # a verdict on the data, read as one: except NotLocated
    """The data do not say what was asked of them; the reason and what to measure next are in the message."""


def first_guess(betas: Floats, energy: Floats, samples: Floats, member: Floats) -> Floats:
    """Return f by thermodynamic integration, df/dbeta = <E>."""
    per_state = member.T @ samples
    means = per_state @ energy / per_state.sum(axis=1)
    return np.concatenate(([0.0], np.cumsum(np.diff(betas) * (means[1:] + means[:-1]) / 2)))


def free_energies(betas: Floats, energy: Floats, counts: Floats, samples: Floats, start: Floats) -> Floats:
    """Return f of shape (rows, betas), f_0 = 0, for rows of counts at each beta and of samples in each bin.

    Newton's method on the convex function, many rows at once, each by itself; raises `NotLocated` where it does not
    settle, as happens when runs hardly overlap.
    """
    starts = np.broadcast_to(start, counts.shape)
    if betas.size == 1:
        return starts.copy()
    found = [
        _settled(betas, energy, counts[part], samples[part], starts[part].copy())
        for part in parts(len(counts), betas.size * energy.size)
    ]
    return np.concatenate(found)


def parts(rows: int, numbers: int) -> list[slice]:
    """Return slices of rows of so many numbers each, that are worked on together: no table of them gets large."""
    most = max(1, AT_ONCE // numbers)
    return [slice(first, first + most) for first in range(0, rows, most)]


def _settled(betas: Floats, energy: Floats, counts: Floats, samples: Floats, f: Floats) -> Floats:
    log_counts = np.log(counts)
    shared = -np.outer(betas, energy)
    open_rows = np.arange(len(counts))
    for _ in range(STEPS):
        exponents = (log_counts[open_rows] + f[open_rows])[:, :, None] + shared
        p = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        weighted = p * samples[open_rows][:, None, :]
        expected = weighted.sum(axis=2)
        gradient = expected - counts[open_rows]
        wrong = np.max(np.abs(gradient) / counts[open_rows], axis=1) > TOLERANCE
        if not wrong.any():
            return f
        hessian = -np.matmul(weighted[wrong], p[wrong].transpose(0, 2, 1))
        diagonal = np.arange(betas.size)
        hessian[:, diagonal, diagonal] += expected[wrong]
        open_rows = open_rows[wrong]
        try:
            # f_0 stays put: a common shift of all f changes nothing.
            step = np.linalg.solve(hessian[:, 1:, 1:], -gradient[wrong][:, 1:, None])[..., 0]
        except np.linalg.LinAlgError:
            break
        longest = np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300)
        f[open_rows, 1:] += step * np.minimum(1.0, REACH / longest)
    raise NotLocated(
        "the multi-histogram equations did not settle: the runs hardly overlap\nhint: add runs between their betas"
    )


def pair_overlap(beta_a: float, energies_a: Floats, beta_b: float, energies_b: Floats) -> float:
    """Return the overlap of two runs' distributions, 2 int p_a p_b / (p_a + p_b): 1 if equal, 0 if disjoint.

    p_a and p_b are estimated from both runs together by the two-run equation (Bennett 1976). For equally long runs
    this is twice the off-diagonal element of the overlap matrix of Klimovich, Shirts and Mobley,
    J. Comput. Aided Mol. Des. 29 (2015) 397.
    """
    from scipy.optimize import brentq

    energies = np.concatenate([energies_a, energies_b])
    tilt = (beta_b - beta_a) * energies
    n_a, n_b = energies_a.size, energies_b.size

    def from_b(shift: float) -> Floats:
        # The logistic function through tanh, which cannot overflow.
        return np.asarray(0.5 * (1 + np.tanh(0.5 * (shift - tilt))), dtype=np.float64)

    # from_b rises with the shift from nothing to everything; 40 is where exp(-x) vanishes beside 1.
    shift = brentq(lambda x: float(np.sum(from_b(x))) - n_b, float(tilt.min()) - 40, float(tilt.max()) + 40)
    p_b = from_b(shift)
    weight_a, weight_b = (1 - p_b) / n_a, p_b / n_b
    return float(np.sum(2 * weight_a * weight_b / (weight_a + weight_b)))
