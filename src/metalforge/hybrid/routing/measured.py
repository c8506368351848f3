r"""The range of a value that was measured on example data, robust to outliers.

A range r maps |x| <= r to the integers of the NPU and clamps larger values. The maximum of the data is a poor range:
one faulty sample makes the steps of all others too coarse. Let S be the moduli |x| of all numbers that are not zero,
S_j those of line j (an index of the last axis) in n rows, and q_k(S) the (k + 1)-th largest of S. The range is

    r = max( q_k(S) with k = floor(0.005 |S|),  max_j q_m(S_j) with m = floor(0.005 n) )      4-bit activations
    r' = 1.25 r                                                                               8 bits and more

where j runs over the dense lines: |S_j| >= n / 2 and n >= 200. About 0.5 % of the numbers may lie beyond r. The second
term keeps a line that is larger than the others as a rule, such as one feature in another unit. Zeros do not count,
since data may be sparse. Fewer than 200 numbers have the range of the largest. With 8 bits and more there are steps to
spare, and 25 % of headroom clamps less of the data that is still to come, for 0.3 bits.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.core.arrays import Doubles

TAIL = 0.005
"""Share of the numbers that may lie beyond a range."""
ENOUGH = 200
"""Rows that make a line count by itself: the tail of fewer is none of them."""
HEADROOM = 1.25
"""Range of activations of 8 bits and more, over that of 4 bits."""


class MeasuredRange(NamedTuple):
    """A range, and what lies within it. A range of 0 is that of data without a number other than zero."""

    range: float
    rms: float
    """Root mean square of the numbers, clamped to the range."""
    beyond: int
    beyond_headroom: int
    """Numbers beyond the range, and beyond `HEADROOM` times the range."""


def widening(activation_bits: int) -> float:
    """Return the factor that an activation width puts on a measured range."""
    return 1.0 if activation_bits == 4 else HEADROOM


def measured(values: NDArray[Any]) -> MeasuredRange:
    """Return the range of numbers (rows, lines) that share one."""
    sizes = np.abs(values)
    numbers = sizes[sizes > 0]
    if not numbers.size:
        return MeasuredRange(0.0, 0.0, 0, 0)
    ranges, dense = _by_line(sizes)
    place = numbers.size - 1 - int(TAIL * numbers.size)
    own = ranges[dense] if len(sizes) >= ENOUGH else ranges[:0]
    largest = max(float(np.partition(numbers, place)[place]), float(own.max(initial=0.0)))
    return MeasuredRange(
        range=largest,
        rms=float(np.sqrt(np.mean(np.minimum(sizes, largest, dtype=np.float64) ** 2))),
        beyond=int(np.count_nonzero(sizes > largest)),
        beyond_headroom=int(np.count_nonzero(sizes > HEADROOM * largest)),
    )


def line_ranges(values: NDArray[Any], activation_bits: int) -> Doubles:
    """Return a range for every line of numbers (rows, lines); a line of zeros has the largest range of the others."""
    ranges = widening(activation_bits) * _by_line(np.abs(values))[0]
    return np.where(ranges > 0, ranges, float(ranges.max(initial=0.0)) or 1.0)


def _by_line(sizes: NDArray[Any]) -> tuple[Doubles, NDArray[np.bool_]]:
    """Return q_m(S_j) of every line, and which lines are dense; the tail of a sparse one is of its own numbers."""
    rows, counts = len(sizes), np.count_nonzero(sizes, axis=0)
    dense = 2 * counts >= rows
    top = -np.sort(-np.partition(sizes, rows - 1 - int(TAIL * rows), axis=0)[rows - 1 - int(TAIL * rows) :], axis=0)
    tails = (TAIL * np.where(dense, rows, counts)).astype(np.int64)
    return np.take_along_axis(top, tails[np.newaxis], axis=0)[0].astype(np.float64), dense
