"""Proof that a layer cannot saturate, and the fewest column chunks for which each has that proof.

Inputs are unsigned, so the potentials of a unit with weights w lie between

    lowest = m * sum_j min(w_j, 0)    and    highest = m * sum_j max(w_j, 0),    m = 2^input_bits - 1

and so does every partial sum, in whatever order products are added: a certified layer is exact whether the
accumulator clamps once at the end or on the way. Chunks of certified columns are added as integers on the host.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Array

from .program import MAX_INPUTS, POTENTIAL_BITS, FullyConnected, ProgramError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Certificate:
    """The extreme potentials of each unit, against a signed accumulator of `bits`."""

    layer: str
    lowest: NDArray[np.int64]
    highest: NDArray[np.int64]
    bits: int = POTENTIAL_BITS

    @property
    def margin(self) -> NDArray[np.int64]:
        """Distance of each unit from saturation; negative when some input saturates it."""
        floor, ceiling = _accumulator(self.bits)
        return np.minimum(ceiling - self.highest, self.lowest - floor)

    @property
    def safe(self) -> bool:
        """Whether no input can saturate any unit."""
        return bool(np.all(self.margin >= 0))


def overflow_certificate(layer: FullyConnected, *, bits: int = POTENTIAL_BITS) -> Certificate:
    """Return the extreme potentials of every unit of a layer; the extremes are reached by some input."""
    largest = (1 << layer.input_bits) - 1
    w = layer.weights
    return Certificate(
        layer=layer.name,
        lowest=largest * np.minimum(w, 0).sum(axis=0, dtype=np.int64),
        highest=largest * np.maximum(w, 0).sum(axis=0, dtype=np.int64),
        bits=bits,
    )


def split_lines(weights: Array, *, bits: int = POTENTIAL_BITS, max_lines: int = MAX_INPUTS) -> list[slice]:
    """Return the fewest runs of at most `max_lines` rows of (lines, units) weights that cannot saturate.

    Each run is as long as it can be. Part of a run that cannot saturate cannot either, so no other division into
    runs has fewer.
    """
    # What the weights of a run may add up to, for inputs of 4 bits at their largest.
    floor, ceiling = (limit / 15 for limit in _accumulator(bits))
    if weights.min() < floor or weights.max() > ceiling:
        raise ProgramError(f"a single input line saturates an accumulator of {bits} bits")
    fall, rise = np.minimum(weights, 0), np.maximum(weights, 0)

    def fits(below: Array, above: Array) -> bool:
        return bool(below.min() >= floor and above.max() <= ceiling)

    if len(weights) <= max_lines and fits(fall.sum(axis=0), rise.sum(axis=0)):
        return [slice(0, len(weights))]
    runs: list[slice] = []
    start, lowest, highest = 0, np.zeros(weights.shape[1], np.int64), np.zeros(weights.shape[1], np.int64)
    for line in range(len(weights)):
        lowest += fall[line]
        highest += rise[line]
        if line - start == max_lines or not fits(lowest, highest):
            runs.append(slice(start, line))
            start, lowest, highest = line, fall[line].astype(np.int64), rise[line].astype(np.int64)
    return [*runs, slice(start, len(weights))]


def _accumulator(bits: int) -> tuple[int, int]:
    """Return the smallest and largest value of a signed accumulator."""
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
