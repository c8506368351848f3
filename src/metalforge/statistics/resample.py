"""Errors of any estimator by resampling whole blocks of a chain: the block bootstrap.

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
    length in measurements.
    """

    value: float
    error: float
    bias: float
    block: int


def block_length(tau_int: float, n: int) -> int:
    """Return the block length 2 (tau_int^2 n)^(1/3), rounded up, or less where n would not hold five of them."""
    if n < MIN_TAU * tau_int:
        raise SpecError(
            f"resampling needs at least {MIN_TAU} tau_int. Got {n} measurements with tau_int = {tau_int:.3g}\n"
            f"hint: {int(np.ceil(MIN_TAU * tau_int))} measurements would do"
        )
    return max(1, min(int(np.ceil(2 * (tau_int**2 * n) ** (1.0 / 3.0))), n // MIN_BLOCKS))


def bootstrap(
    data: ArrayLike | Sequence[ArrayLike],
    estimator: Callable[[Floats], float],
    *,
    rng: np.random.Generator | int,
    n_resamples: int = 200,
    block: int | None = None,
) -> Resampled:
    """Return ``estimator(data)`` with its block bootstrap error, the spread over `n_resamples` resampled chains.

    `data` is a series of length n, or an array (observables, n) measured on the same configurations; the estimator
    takes an array of this shape and gives a number. `rng` is a generator or a seed. The block length follows from the
    largest tau_int unless `block` is given.
    """
    x = _as_data(data)
    n = x.shape[-1]
    if n_resamples < 2:
        raise SpecError(f"`n_resamples` must be at least 2. Got {n_resamples}\nhint: 200 gives the error to 5 %")
    if block is None:
        block = block_length(max(gamma_method(row).tau_int for row in np.atleast_2d(x)), n)
    elif not 1 <= block <= n // 2:
        raise SpecError(f"blocks must hold between 1 and {n // 2} of the {n} measurements. Got {block}")
    generator = np.random.default_rng(rng)
    values = np.array([_run(estimator, x[..., block_indices(n, block, generator)]) for _ in range(n_resamples)])
    value = _run(estimator, x)
    return Resampled(
        value=value,
        # Resamples scatter about a mean from the same data: a factor sqrt(B / (B - 1)) for B blocks.
        error=float(np.sqrt(n / (n - block)) * np.std(values, ddof=1)),
        bias=float(np.mean(values)) - value,
        block=block,
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


def _run(estimator: Callable[[Floats], float], sample: Floats) -> float:
    value = float(estimator(sample))
    if not np.isfinite(value):
        raise SpecError(f"`estimator` must give a finite number on every resample. Got {value}")
    return value
