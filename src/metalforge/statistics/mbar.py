r"""Solving the multi-histogram (MBAR) equations for runs at several beta with weight exp(-beta E).

From N_k independent samples at each beta_k, the free energies obey

    exp(-f_k) = sum_n exp(-beta_k E_n) / sum_j N_j exp(f_j - beta_j E_n)

over all samples n of all runs (M. R. Shirts and J. D. Chodera, J. Chem. Phys. 129 (2008) 124105, eq. (11); the
bin-free form of A. M. Ferrenberg and R. H. Swendsen, Phys. Rev. Lett. 63 (1989) 1195). They are the minimum of a
convex function. With

    p_kn = N_k exp(f_k - beta_k E_n) / sum_j N_j exp(f_j - beta_j E_n),

the probability that sample n came from run k, its gradient is sum_n c_n p_kn - N_k and its Hessian
diag(sum_n c_n p_kn) - sum_n c_n p_kn p_ln, where c_n counts how often sample n is drawn (1 in the data themselves).

pymbar finds the first solution. The bootstrap then solves hundreds of equations close by: there Newton steps on p,
which need no exponentials of energies, do the same in milliseconds.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from metalforge.core.errors import SpecError

from .estimate import Floats

__all__ = ["free_energies", "membership", "newton_shift", "pair_overlap"]

NEWTON_TOLERANCE = 1e-10
"""Largest |sum_n c_n p_kn - N_k| / N_k accepted: far below any statistical error, above the rounding of the sums."""
NEWTON_STEPS = 50
"""Newton needs 3 to 6 steps from a warm start; a run that needs this many has no solution worth having."""
NEWTON_REACH = 2.0
"""Longest step in f taken at once, so that a far start walks down the convex function instead of jumping across."""


def free_energies(betas: Floats, counts: Floats, energies: Floats) -> Floats:
    """Return f_k, with f_0 = 0, for samples `energies` of which the first ``counts[0]`` come from ``betas[0]``, ..."""
    if betas.size == 1:
        return np.zeros(1)
    ends = np.cumsum(counts).astype(int)
    means = np.array([np.mean(run) for run in np.split(energies, ends[:-1])])
    # df/dbeta = <E>: thermodynamic integration by trapezia is already close.
    guess = np.concatenate(([0.0], np.cumsum(np.diff(betas) * (means[1:] + means[:-1]) / 2)))
    # pymbar's own choice of solver first hands scipy options that scipy warns about; `adaptive` is its second choice.
    protocol = [{"method": "adaptive", "options": {"min_sc_iter": 0}}]
    # The constructor of MBAR seeds numpy's global generator; give it back as it was.
    state = np.random.get_state()
    try:
        with _pymbar() as pymbar:
            reduced = np.outer(betas, energies)
            solved = pymbar.MBAR(reduced, counts.astype(np.int64), initial_f_k=guess, solver_protocol=protocol)
    finally:
        np.random.set_state(state)
    f = np.asarray(solved.f_k)
    return np.asarray(f - f[0], dtype=np.float64)


def membership(betas: Floats, counts: Floats, f: Floats, energies: Floats) -> tuple[Floats, Floats]:
    """Return p_kn, of shape (runs, samples), and ln sum_j N_j exp(f_j - beta_j E_n) for each sample."""
    exponents = (np.log(counts) + f)[:, None] - np.outer(betas, energies)
    top = exponents.max(axis=0)
    p = np.exp(exponents - top)
    total = p.sum(axis=0)
    return p / total, top + np.log(total)


def newton_shift(p: Floats, counts: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """Return the shifts of f_k that solve the equations for samples drawn `draws` times, and the mixture's factor.

    `p` holds p_kn at the starting f. The factor is sum_k p_kn exp(shift_k): what the denominator of sample n is
    multiplied by.

    Raises
    ------
    SpecError
        Newton does not settle, as happens when runs hardly overlap.
    """
    shift = np.zeros(counts.size)
    for _ in range(NEWTON_STEPS):
        grown = np.exp(shift)[:, None] * p
        factor = grown.sum(axis=0)
        now = grown / factor
        expected = now @ draws
        gradient = expected - counts
        if np.max(np.abs(gradient) / counts) < NEWTON_TOLERANCE:
            return shift, factor
        hessian = np.diag(expected) - (now * draws) @ now.T
        try:
            # f_0 stays put: a common shift of all f changes nothing.
            step = np.linalg.solve(hessian[1:, 1:], -gradient[1:])
        except np.linalg.LinAlgError:
            break
        shift[1:] += step * min(1.0, NEWTON_REACH / max(float(np.max(np.abs(step))), 1e-300))
    raise SpecError(
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


@contextmanager
def _pymbar() -> Iterator[Any]:
    """Give pymbar with its notices (no JAX, a caution about time series) off; convergence is checked by Newton."""
    log = logging.getLogger("pymbar")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        import pymbar  # type: ignore[import-untyped]

        yield pymbar
    finally:
        log.setLevel(before)
