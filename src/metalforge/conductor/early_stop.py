"""When the thermalisation head's word ends a warm-up: some time after it was sure for some frames in a row."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SURE = 0.9
IN_A_ROW = 3


def first_yes(yes: NDArray[np.bool_]) -> int:
    """Return the first index that says yes; the length where none does."""
    return int(np.argmax(yes)) if yes.any() else len(yes)


def first_sure(probability: NDArray[np.float64], sure: float = SURE, in_a_row: int = IN_A_ROW) -> int:
    """Return after how many frames the head has been sure for some in a row; one more than all if it was not."""
    run = np.convolve(probability > sure, np.ones(in_a_row), mode="full")[: len(probability)] > in_a_row - 0.5
    return first_yes(run) + 1


class EarlyStop(NamedTuple):
    """The rule: `factor` times the frames until the head was above `sure` for `in_a_row` of them."""

    sure: float
    in_a_row: int
    factor: float

    def ends(self, said: Sequence[float]) -> bool:
        """Return whether a warm-up of which the head said this may end."""
        return len(said) >= self.factor * first_sure(np.array(said), self.sure, self.in_a_row)
