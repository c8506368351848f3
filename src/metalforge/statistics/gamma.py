r"""Errors of Markov chain averages by the Gamma method, U. Wolff, Comput. Phys. Commun. 156 (2004) 143.

With the autocovariance Gamma(t) of n measurements and rho(t) = Gamma(t) / Gamma(0),

    tau_int(W) = 1/2 + sum_{t=1..W} rho(t),        error^2 = 2 tau_int(W) Gamma(0) / n.

The window W balances the neglected tail against the noise of the sum (hep-lat/0306017, section 3.3): it is the first
W at which

    g(W) = exp(-W / tau) - tau / sqrt(W n) < 0,    tau = S / ln((2 tau_int(W) + 1) / (2 tau_int(W) - 1)).

Conventions are those of pyerrors, so that numbers can be compared digit by digit: tau_int = 0.5 for uncorrelated
data, S = 2, lags up to n/2, Gamma(t) divided by the n - t pairs it has, the bias of the subtracted mean corrected by
eq. (49), and tau_int never below 0.5: anticorrelation is not used to shrink an error.

`pooled_tau` finds how long chains remember from all chains that are near in beta at once. A chain of 30 autocorrelation
times says little about its own tau_int, and says too small a one. Neighbours in beta have nearly the same, so their
autocovariances are added, weighted by how near they are on the scale on which runs overlap, sd(E)^-1 (the reach of
reweighting):

    kappa_kj = exp(-(beta_k - beta_j)^2 var(E))

    Gamma_k(t) = sum_j kappa_kj (n_j - t) C_j(t) / sum_j kappa_kj (n_j - t)

    tau_k = 1/2 + sum_{t = 1 .. W} Gamma_k(t) / Gamma_k(0),     W the first lag >= 6 tau_k(W)

(window: N. Madras and A. D. Sokal, J. Stat. Phys. 50 (1988) 109). Each chain's own mean is taken off, which lowers
C_j(t) by 2 tau var / n_j at every lag; the sum is raised by (2 W + 1) / n to make up for it (U. Wolff, Comput. Phys.
Commun. 156 (2004) 143, eq. (49)). tau counts rows and is 0.5 for uncorrelated ones.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import SpecError

from .estimate import MIN_LENGTH, Estimate, Floats, Value, as_matrix, as_series

DEFAULT_S = 2.0
"""Ratio of exponential to integrated autocorrelation time assumed by the window; the default of pyerrors.

Wolff's own program uses 1.5. A larger S sums further: less bias from slow modes, more noise.
"""

ROUNDING = 1e-12
"""A projected series smaller than this, relative to its parts, is what is left of numbers that cancel."""
POOLED_WINDOW = 6.0
"""Lags summed, in tau: exp(-6) of an exponential tail is left out."""
MOST_LAGS = 4096
"""Lags looked at: far beyond the memory of any chain that is long enough to use."""


def gamma_method(series: ArrayLike, s: float = DEFAULT_S) -> Estimate:
    """Return the mean of one chain's `series` with its error, tau_int and window.

    A constant series has error 0 and, by definition, tau_int 0.5 and window 0: nothing fluctuates, so nothing is
    correlated. ``s=0`` assumes uncorrelated data and gives the standard error of the mean.
    """
    x = as_series(series)
    if not (np.isfinite(s) and s >= 0):
        raise SpecError(
            f"`s` must be >= 0 and finite. Got {s}\nhint: 1.5 to 2.5 suits most chains; 0 means uncorrelated"
        )
    return _estimate(float(np.mean(x)), _deviations(x), float(s))


def value_of(rows: Floats, *, error: bool, fewest: int = MIN_LENGTH) -> Value | None:
    """Return the mean of the finite rows as it is quoted; with an `error`, None where there are fewer than `fewest`."""
    found = rows[np.isfinite(rows)]
    if error:
        return Value.of(gamma_method(found)) if found.size >= fewest else None
    return Value(mean=float(found.mean())) if found.size else None


def quoted(series: ArrayLike) -> Value:
    """Return the mean of a series with its Gamma-method error, or the bare mean where it is too short for one."""
    x = np.asarray(series, np.float64)
    return Value.of(gamma_method(x)) if x.size >= MIN_LENGTH else Value(mean=float(x.mean()))


def gamma_method_derived(
    series_matrix: ArrayLike | Sequence[ArrayLike], function: Callable[[Floats], float]
) -> Estimate:
    r"""Return ``function`` of several means, with the error of its linear approximation.

    The series of shape (observables, n) are projected on the gradient of f at the means a_i,

        delta_f(t) = sum_i (df / da_i) (x_i(t) - a_i),

    and the Gamma method runs on delta_f: covariances between observables and their own autocorrelation times enter
    once and correctly (hep-lat/0306017). `mean` is f(a), biased at order 1/n like every plug-in value. The function
    must be smooth on the scale of the means' errors.
    """
    x = as_matrix(series_matrix)
    means = np.mean(x, axis=1)
    deviations = np.stack([_deviations(row) for row in x])
    spreads = np.std(deviations, axis=1)
    gradient = _gradient(function, means, spreads / np.sqrt(x.shape[1]))
    projected = gradient @ deviations
    if np.std(projected) <= ROUNDING * float(np.abs(gradient) @ spreads):
        projected = np.zeros_like(projected)
    return _estimate(_value(function, means), projected, DEFAULT_S)


def autocorrelation(series: ArrayLike) -> Floats:
    """Return rho(t) for t = 0 .. n/2 - 1; its partial sums, less 0.5, are tau_int as a function of the window."""
    x = as_series(series)
    gamma = _autocovariance(_deviations(x), x.size // 2)
    if gamma[0] == 0:
        raise SpecError("`series` must fluctuate to have an autocorrelation. Got a constant series")
    return np.asarray(gamma / gamma[0], dtype=np.float64)


def _deviations(x: Floats) -> Floats:
    # The mean of n equal numbers may round, and the rounding would then be taken for a fluctuation.
    return np.zeros_like(x) if np.ptp(x) == 0 else x - np.mean(x)


def lagged_sums(deviations: Floats, n_lags: int) -> Floats:
    """Return sum_i x_i x_(i + t) for t < n_lags by the power spectrum, zero-padded so that the ends do not meet."""
    padded = 1 << (deviations.size + n_lags - 1).bit_length()
    power = np.abs(np.fft.rfft(deviations, padded)) ** 2
    return np.asarray(np.fft.irfft(power, padded)[:n_lags], dtype=np.float64)


def _autocovariance(deviations: Floats, n_lags: int) -> Floats:
    """Return Gamma(t) for t < n_lags."""
    return lagged_sums(deviations, n_lags) / (deviations.size - np.arange(n_lags))


def _estimate(value: float, deviations: Floats, s: float) -> Estimate:
    n = deviations.size
    n_lags = n // 2
    if not deviations.any():
        return Estimate(mean=value, error=0.0, error_error=0.0, tau_int=0.5, tau_int_error=0.0, window=0, n=n)
    gamma = _autocovariance(deviations, n_lags)
    variance = float(gamma[0])
    if s == 0:
        error = float(np.sqrt(variance / (n - 1)))
        rest = {"error_error": error * float(np.sqrt(0.5 / n)), "tau_int": 0.5, "tau_int_error": 0.0}
        return Estimate(mean=value, error=error, window=0, n=n, **rest)

    running = np.cumsum(np.concatenate(([0.5], gamma[1:] / variance)))
    running[running <= 0.5] = 0.5 + np.finfo(np.float64).eps
    window = _window(running, n, s)
    raw = float(running[window])
    tau_int = raw * (1 + (2 * window + 1) / n) / (1 + 1 / n)  # eq. (49)
    error = float(np.sqrt(2 * tau_int * variance * (1 + 1 / n) / n))
    return Estimate(
        mean=value,
        error=error,
        error_error=error * float(np.sqrt((window + 0.5) / n)),
        tau_int=tau_int,
        tau_int_error=raw * 2 * float(np.sqrt(abs(window + 0.5 - raw) / n)),  # eq. (42)
        window=window,
        n=n,
    )


def _window(running: Floats, n: int, s: float) -> int:
    """Return the first W with g(W) < 0, or the last lag there is."""
    lags = np.arange(1, running.size)
    tau = s / np.log((2 * running[1:] + 1) / (2 * running[1:] - 1))
    stops = np.flatnonzero(np.exp(-lags / tau) - tau / np.sqrt(lags * n) < 0)
    return int(lags[stops[0]]) if stops.size else int(lags[-1])


def _value(function: Callable[[Floats], float], means: Floats) -> float:
    value = float(function(means))
    if not np.isfinite(value):
        raise SpecError(
            f"`function` must be finite at and around the means. Got {value} at {means.tolist()}\n"
            "hint: the means may sit on a pole or outside the domain; more data or another form of the function helps"
        )
    return value


def _gradient(function: Callable[[Floats], float], means: Floats, steps: Floats) -> Floats:
    """Return df/da by four-point central differences over the naive error of each mean.

    That step is the scale on which f is assumed linear anyway; the stencil is exact for polynomials up to degree 4.
    """
    gradient = np.zeros_like(means)
    for i, h in enumerate(steps):
        if h == 0:  # an input that never changes adds nothing to the error
            continue
        offsets = np.zeros_like(means)

        def moved(factor: float, offsets: Floats = offsets, i: int = i, h: float = h) -> float:
            offsets[i] = factor * h
            return _value(function, means + offsets)

        gradient[i] = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * h)
    return gradient


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
    return np.array([_pooled(row, n) for row, n in zip(gamma, length, strict=True)])


def _pooled(gamma: Floats, length: float) -> float:
    if gamma[0] <= 0:
        return 0.5
    running = np.maximum(np.cumsum(np.concatenate([[0.5], gamma[1:] / gamma[0]])), 0.5)
    beyond = np.flatnonzero(np.arange(running.size) >= POOLED_WINDOW * running)
    window = int(beyond[0]) if beyond.size else running.size - 1
    return float(running[window] * (1 + (2 * window + 1) / length))
