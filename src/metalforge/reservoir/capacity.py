r"""Linear memory of a reservoir: how well its states remember inputs of the past, on data the readout has not seen.

    C_k = corr(u_{t-k}, y_k(t))^2,   y_k the best linear readout of s_t for u_{t-k};   C = C_1 + C_2 + ...

C is at most the number of units (H. Jaeger, "Short term memory in echo state networks", GMD Report 152, 2001).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError

from .readout import ridge as ridge_readout


class MemoryCapacity(NamedTuple):
    """`per_delay[k - 1]` is C_k, `total` their sum, `floor` what C_k of pure noise is on average: 1 / test times."""

    per_delay: Doubles
    total: float
    floor: float


def memory_capacity(
    states: ArrayLike,
    inputs: ArrayLike,
    max_delay: int,
    *,
    washout: int = 100,
    test_share: float = 0.3,
    ridge: float = 1e-8,
) -> MemoryCapacity:
    """Return the memory of states (T, units) driven by one independent, identically distributed input (T,).

    The first `washout` times are left out, or the first `max_delay` if that is more. The readouts, one per delay, are
    fitted by ridge regression on what follows but for the last `test_share`, where the correlations are taken. `ridge`
    is in units of the largest squared singular value of the centred states: below it, directions of the state are
    treated as rounding.
    """
    s, u = np.asarray(states, np.float64), np.asarray(inputs, np.float64)
    if u.ndim == 2 and u.shape[1] == 1:
        u = u[:, 0]
    if s.ndim != 2 or u.ndim != 1 or len(s) != len(u) or s.size == 0:
        raise SpecError(
            f"`states` must be (T, units) and `inputs` (T,) or (T, 1), not empty. Got {s.shape} and {u.shape}"
        )
    if not (np.all(np.isfinite(s)) and np.all(np.isfinite(u))):
        raise SpecError("`states` and `inputs` must be finite")
    if max_delay < 1 or washout < 0 or not 0 < test_share < 1 or not ridge > 0:
        raise SpecError(
            "wanted max_delay >= 1, washout >= 0, test_share between 0 and 1, ridge above 0. "
            f"Got {max_delay}, {washout}, {test_share}, {ridge}"
        )
    first = max(washout, max_delay)
    times = np.arange(first, len(u))
    test = int(test_share * len(times))
    train = len(times) - test
    if train <= s.shape[1] or test < 10:
        raise SpecError(
            f"{len(u)} times are too few: after the first {first}, more than {s.shape[1]} (the units) are wanted to "
            f"fit and 10 to test. Got {train} and {test}"
        )
    targets = u[times[:, np.newaxis] - np.arange(1, max_delay + 1)]
    kept = s[first:]
    largest = float(np.linalg.norm(kept[:train] - kept[:train].mean(axis=0), ord=2))
    if not largest > 0:
        raise SpecError("the states do not change: a constant remembers nothing")
    readout = ridge_readout(kept[:train], targets[:train], ridge * largest**2)
    per_delay = _squared_correlation(targets[train:], readout(kept[train:]))
    return MemoryCapacity(per_delay, float(per_delay.sum()), 1 / test)


def _squared_correlation(a: Doubles, b: Doubles) -> Doubles:
    """Return corr^2 column by column; 0 where a column does not vary."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    sizes = np.sum(a * a, axis=0) * np.sum(b * b, axis=0)
    together = np.sum(a * b, axis=0) ** 2
    return np.asarray(np.divide(together, sizes, out=np.zeros_like(sizes), where=sizes > 0))
