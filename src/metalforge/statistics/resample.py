"""Errors of any estimator by resampling whole blocks: the binned jackknife and the block bootstrap.

Use them where the Gamma method's linear approximation is in doubt (ratios with a noisy denominator, medians, fits,
positions of maxima). Blocks stand in for independent measurements, so their length decides the error. Blocks of
length b miss the correlations across their borders and make the variance too small by the fraction tau_int / b (for
an exponential autocorrelation), while n/b of them leave it uncertain by sqrt(2 b / n). The sum of the squares is
least at b = (tau_int^2 n)^(1/3), the growth with n^(1/3) known from H. R. Kuensch, Ann. Stat. 17 (1989) 1217. An
error that is too small misleads more than one that is uncertain, so twice that is used,

    b = 2 (tau_int^2 n)^(1/3),

which is the criterion of R. M. Lee et al., Phys. Rev. E 83 (2011) 066706. For n = 1000 tau_int it is 20 tau_int, and
errors come out 2.5 % low; blocks of only 2 tau_int would make them a quarter too small whatever the statistics.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import SpecError

from .estimate import Floats, as_matrix, as_series
from .gamma import gamma_method

MIN_BLOCKS = 5
"""Fewest blocks cut from a short chain: the error itself is then known to a third."""
MIN_TAU = 15
"""Shortest chain resampled, in tau_int: its five blocks of 3 tau_int make the error a sixth too small, and no more."""


class Resampled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An estimator's value on all the data, with its resampling error.

    `bias` is the resampling estimate of E[value] - truth; `value` is not corrected for it. `block` is the block
    length in measurements, `n_blocks` how many the series holds, `n_resamples` how often the estimator ran.
    """

    value: float
    error: float
    bias: float
    method: str
    block: int
    n_blocks: int
    n_resamples: int


def block_length(tau_int: float, n: int) -> int:
    """Return the block length 2 (tau_int^2 n)^(1/3), rounded up, or less where n would not hold five of them.

    Raises
    ------
    SpecError
        The series is shorter than 15 tau_int.
    """
    if n < MIN_TAU * tau_int:
        raise SpecError(
            f"resampling needs at least {MIN_TAU} tau_int. Got {n} measurements with tau_int = {tau_int:.3g}\n"
            f"hint: {int(np.ceil(MIN_TAU * tau_int))} measurements would do"
        )
    return max(1, min(int(np.ceil(2 * (tau_int**2 * n) ** (1.0 / 3.0))), n // MIN_BLOCKS))


def jackknife(
    data: ArrayLike | Sequence[ArrayLike], estimator: Callable[[Floats], float], *, bin_size: int | None = None
) -> Resampled:
    r"""Return ``estimator(data)`` with its binned jackknife error.

    With theta_i the estimator on all but bin i of B bins,

        error^2 = (B - 1)/B sum_i (theta_i - mean theta)^2,      bias = (B - 1)(mean theta - theta)

    (B. Efron, The Jackknife, the Bootstrap and Other Resampling Plans, SIAM 1982). The oldest measurements that do
    not fill a bin are left out of the bins; `value` uses all.

    Parameters
    ----------
    data
        A series of length n, or an array (observables, n) measured on the same configurations.
    estimator
        Takes an array like `data` with fewer measurements along the last axis, gives one number.
    bin_size
        Measurements in a bin; from the largest tau_int among the series unless told.
    """
    x = _as_data(data)
    n = x.shape[-1]
    size = _checked_block(bin_size, x)
    n_bins = n // size
    kept = x[..., n - n_bins * size :]
    labels = np.repeat(np.arange(n_bins), size)
    leave_one_out = np.array([_run(estimator, kept[..., labels != i]) for i in range(n_bins)])
    centre = float(np.mean(leave_one_out))
    return Resampled(
        value=_run(estimator, x),
        error=float(np.sqrt((n_bins - 1) / n_bins * np.sum((leave_one_out - centre) ** 2))),
        bias=(n_bins - 1) * (centre - _run(estimator, kept)),
        method="jackknife",
        block=size,
        n_blocks=n_bins,
        n_resamples=n_bins,
    )


def bootstrap(
    data: ArrayLike | Sequence[ArrayLike],
    estimator: Callable[[Floats], float],
    *,
    rng: np.random.Generator | int,
    n_resamples: int = 200,
    block: int | None = None,
) -> Resampled:
    """Return ``estimator(data)`` with its block bootstrap error, the spread over `n_resamples` resampled chains.

    Parameters
    ----------
    data, estimator
        As for `jackknife`; the resampled arrays have the shape of `data`.
    rng
        A generator, or a seed for one: the same seed gives the same error.
    block
        Block length; from the largest tau_int unless told.
    """
    x = _as_data(data)
    n = x.shape[-1]
    if n_resamples < 2:
        raise SpecError(f"`n_resamples` must be at least 2. Got {n_resamples}\nhint: 200 gives the error to 5 %")
    length = _checked_block(block, x)
    generator = np.random.default_rng(rng)
    values = np.array([_run(estimator, x[..., block_indices(n, length, generator)]) for _ in range(n_resamples)])
    value = _run(estimator, x)
    return Resampled(
        value=value,
        # Resamples scatter about a mean from the same data: a factor sqrt(B / (B - 1)) for B blocks.
        error=float(np.sqrt(n / (n - length)) * np.std(values, ddof=1)),
        bias=float(np.mean(values)) - value,
        method="bootstrap",
        block=length,
        n_blocks=n // length,
        n_resamples=n_resamples,
    )


def block_indices(n: int, block: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return n indices into a chain of length n: one resampled chain.

    Blocks start anywhere and wrap around the end, so that every measurement is equally likely (the circular bootstrap,
    Politis and Romano 1992).
    """
    starts = rng.integers(n, size=-(-n // block))
    place = np.arange(n)
    indices: NDArray[np.intp] = (starts[place // block] + place % block) % n
    return indices


def _as_data(data: ArrayLike | Sequence[ArrayLike]) -> Floats:
    several = isinstance(data, list | tuple) and len(data) > 0 and np.ndim(data[0]) > 0
    return as_matrix(data, "data") if several or np.ndim(data) == 2 else as_series(data, "data")  # type: ignore[arg-type]


def _checked_block(block: int | None, x: Floats) -> int:
    n = x.shape[-1]
    if block is None:
        return block_length(max(gamma_method(row).tau_int for row in np.atleast_2d(x)), n)
    if not 1 <= block <= n // 2:
        raise SpecError(f"blocks must hold between 1 and {n // 2} of the {n} measurements. Got {block}")
    return int(block)


def _run(estimator: Callable[[Floats], float], sample: Floats) -> float:
    value = float(estimator(sample))
    if not np.isfinite(value):
        raise SpecError(f"`estimator` must give a finite number on every resample. Got {value}")
    return value
