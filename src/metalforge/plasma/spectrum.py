r"""The integral of a current's autocorrelation from its power spectrum at zero frequency: the cepstral method.

The periodogram of a stationary current is its spectrum times noise. Averaged over `averaged` independent ones, its
logarithm is the spectrum's plus a bias psi(l) - ln l and noise of variance psi'(l), both known (l = averaged; at zero
frequency, where the transform is real, l/2). A cosine series

    ln S(omega) = sum_{j < K} c_j cos(pi j omega / omega_c),    0 <= omega <= omega_c,

is fitted to it by least squares; ln S(0) = sum c_j. Few terms are biased, many are noisy: each K has the weight
w_K ~ exp(-AIC_K / 2), AIC_K = chi^2_K + 2 K, and the variance counts how the K differ (K. P. Burnham, D. R. Anderson,
Model Selection and Multimodel Inference, 2002, section 4.3). The criterion looks at the whole curve, while a peak at
zero is what matters here and what is rounded off first, so each weight goes to the fit with two terms more:

    ln S(0) = sum_K w_K y_(K+2),    error = sum_K w_K sqrt(var_(K+2) + (y_(K+2) - mean)^2).

Errors of this kind cover the truth as they should (tests/statistical/test_transport_coverage.py). Those of the best K
alone, as in L. Ercole, A. Marcolongo, S. Baroni, Sci. Rep. 7 (2017) 15835, do in 40 to 60 of 100 cases instead of 68:
the choice has noise of its own. The estimate is positive by construction.

A segment of time T sees correlations up to T, with weight 1 - t/T. To first order in 1/T this takes from S(0)

    (1/T) int |t| C(t) dt = (2 / (pi T)) int_0^infinity (S(0) - S(omega)) / omega^2 domega,

which is computed from the fit (beyond omega_c the spectrum is taken as nothing) and given back.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma, psi

Floats = NDArray[np.float64]
MORE = 2
"""Terms beyond those that the criterion weighs."""


class Plateau(NamedTuple):
    """ln S(0), its error, and how many terms the fit has on the mean."""

    log: float
    error: float
    terms: float


@lru_cache(maxsize=64)
def _fits(bins: int, zero: float) -> tuple[Floats, Floats, Floats]:
    """Return all fits of so many bins as matrices, which are the same for any data: the curves of y are curves @ y.

    With the curves (K, bins, bins) come the variance (K,) of ln S(0), in units of psi'(l), and the weight of each bin.
    """
    x = np.arange(bins) / (bins - 1)
    weight = np.ones(bins)
    weight[0] = zero
    curves, variance = [], []
    for terms in range(1, max(2 + MORE, bins * 3 // 4) + 1):
        basis = np.cos(math.pi * np.outer(x, np.arange(terms)))
        covariance = np.linalg.inv(basis.T @ (weight[:, None] * basis))
        curves.append(basis @ covariance @ (basis.T * weight))
        variance.append(basis[0] @ covariance @ basis[0])
    return np.array(curves), np.array(variance), weight


def plateau(power: Floats, averaged: float, spacing: float, time: float) -> Plateau:
    """Return ln S(0) from a periodogram at frequencies 0, spacing, 2 spacing, ... (angular), averaged over so many.

    `time` is the length of the segments that it is of.
    """
    log, error, terms = _fitted(power, averaged)
    zero = float(log[0])
    lost = _lost(np.exp(log - zero), spacing, time)
    return Plateau(zero - math.log1p(-min(0.5, lost)), error, terms)


def _fitted(power: Floats, averaged: float) -> tuple[Floats, float, float]:
    """Return ln S at each frequency, the error of the first, and how many terms the fit has on the mean."""
    noise = float(polygamma(1, averaged))
    zero_noise = float(polygamma(1, averaged / 2))
    y = np.log(power) - (psi(averaged) - math.log(averaged))
    y[0] = math.log(power[0]) - (psi(averaged / 2) - math.log(averaged / 2))
    hats, variance, of_bins = _fits(len(power), noise / zero_noise)
    curves = hats @ y
    aic = (((y - curves) ** 2 @ of_bins) / noise + 2 * np.arange(1, len(curves) + 1))[:-MORE]
    weight = np.exp((aic.min() - aic) / 2)
    weight /= weight.sum()
    curves, variance = curves[MORE:], noise * variance[MORE:]
    log = weight @ curves
    error = float(weight @ np.sqrt(variance + (curves[:, 0] - log[0]) ** 2))
    return log, error, float(weight @ np.arange(1 + MORE, len(weight) + 1 + MORE))


def _lost(shape: Floats, spacing: float, time: float) -> float:
    """Return which part of S(0) a segment does not see, for S(omega) / S(0) at each bin."""
    frequency = spacing * np.arange(1, len(shape))
    weight = np.full(len(frequency), spacing)
    weight[0] *= 1.5  # down to 0, where the integrand is level
    weight[-1] *= 0.5
    inside = float(weight @ ((1 - shape[1:]) / frequency**2))
    return max(0.0, 2 / (math.pi * time) * (inside + 1 / float(frequency[-1])))
