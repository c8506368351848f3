r"""The published two-loop curve of asymptotic scaling, a lambda = f(beta), through one known point.

    f(beta) = (6 b_0 / beta)^(-b_1 / 2 b_0^2) exp(-beta / 12 b_0),    b_0 = 11 / 16 pi^2,  b_1 = 102 / (16 pi^2)^2

so that a peak at beta_1 on N_1 means f(beta_2) = f(beta_1) N_1 / N_2 on N_2.
"""

from math import log, pi

from scipy.optimize import brentq

B_0, B_1 = 11 / (16 * pi**2), 102 / (16 * pi**2) ** 2


def two_loop(beta: float) -> float:
    """Return log(a lambda) of asymptotic scaling."""
    return -B_1 / (2 * B_0**2) * log(6 * B_0 / beta) - beta / (12 * B_0)


def two_loop_peak(n_t: int, known: tuple[int, float]) -> float:
    """Return the coupling of the peak on N_t that asymptotic scaling gives from a `known` (N_t, coupling)."""
    n_known, beta = known
    wanted = two_loop(beta) + log(n_known / n_t)
    return float(brentq(lambda b: two_loop(b) - wanted, 1.0, 50.0))
