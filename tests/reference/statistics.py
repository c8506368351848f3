"""Gates for statistical tests: agreement within k sigma, and the precision without which agreement means nothing."""

import math

import numpy as np


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
