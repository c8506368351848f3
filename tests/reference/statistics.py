"""For statistical tests: a chain whose memory is known, and gates: agreement within k sigma, and enough precision."""

import math

import numpy as np
from scipy.signal import lfilter


def ar1(a, n, seed):
    """A stationary Gaussian chain with variance 1, rho(t) = a^t and tau_int = (1 + a) / (2 (1 - a)).

    `seed` may be a generator, too.
    """
    noise = np.random.default_rng(seed).standard_normal(n)
    noise[1:] *= math.sqrt(1 - a * a)
    return lfilter([1.0], [1.0, -a], noise)


class Mean:
    """Independent numbers: their mean and its standard error."""

    def __init__(self, values):
        self.mean, self.error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def sigmas(estimate, reference, reference_error=0.0):
    """How many combined standard errors apart two values are."""
    return abs(estimate.mean - reference) / math.hypot(estimate.error, reference_error)


def agrees(estimate, reference, reference_error=0.0, *, gate=4.0, precision=math.inf):
    """Within `gate` combined errors, with an error no larger than `precision`; an error of zero proves nothing."""
    assert 0 < estimate.error <= precision, f"error {estimate.error:.2e} must be in (0, {precision:.2e}]"
    return sigmas(estimate, reference, reference_error) < gate
