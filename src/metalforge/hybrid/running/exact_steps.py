"""Steps of a network whose product is on a device that can be spared its calls: one native call for one or for many.

A step by way of the device is encoding, a call for every program, decoding, and the host's activation and leak. Where
all programs are on an emulated chip and no call of theirs can go wrong, `SequenceLoop` does the same arithmetic without
returning to Python; the device's books are kept as if it had been called (`DevicePrograms.compute`).
"""

from collections.abc import Callable, Sequence

import numpy as np

from metalforge.core.arrays import Reals
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.exact import exact_loop
from metalforge.substrates.npu.program import Program
from metalforge.substrates.npu.sequence import SequenceLoop

from .device_matrix import DeviceMatrix


class ExactSteps:
    """The steps of a network whose rows are these matrices, one below the other, of lines [u; s], or s alone.

    `on_host` says that the host multiplies the inputs, and `by_turns` that the programs are called forwards in one step
    and backwards in the next.
    """

    def __init__(
        self, weights: EsnWeights, matrices: Sequence[DeviceMatrix], *, on_host: bool, by_turns: bool = False
    ) -> None:
        self._weights, self._matrices = weights, tuple(matrices)
        self._on_host = on_host
        self._slots = tuple(slot for matrix in matrices for slot in matrix.slots)
        self._programs = matrices[0].programs
        self._nibbles = matrices[0].compiled.programs[0].encoding.activation_bits // 4
        there, back = self._slots, self._slots[::-1]
        self._orders = (there, back, there) if by_turns else ()
        self._held: tuple[Program, ...] = ()
        self._compiled = tuple(matrix.compiled for matrix in matrices)
        self._loop: SequenceLoop | None = None
        self._before_s = 0.0

    def step(self, u: Reals, states: Reals, *, backwards: bool = False) -> Reals | None:
        """Return the states after one step, both (units,) or both a batch; None where the device must be called."""
        new = states.copy()

        def work(held: tuple[Program, ...]) -> Reals | None:
            loop = self._present_loop(held)
            return None if loop is None else loop.step(u, new)

        samples = 1 if new.ndim == 1 else len(new)
        orders = self._orders[backwards : backwards + 1]
        return self._finite(work, self._nibbles * samples, 1, orders)

    def run(self, u: Reals, states: Reals, out: Reals, *, backwards: bool = False) -> Reals | None:
        """Return `out`, filled with the states after every step, (samples, steps, units); None as `step`.

        `backwards` says so of the first step's calls.
        """

        def work(held: tuple[Program, ...]) -> Reals | None:
            loop = self._present_loop(held)
            return None if loop is None else loop.run(u, states, out)

        samples, steps, _ = u.shape
        orders = self._orders[backwards : backwards + 2]
        return self._finite(work, self._nibbles * samples, steps, orders)

    @property
    def activation_s(self) -> float:
        """Seconds that activations and leaks took in these steps."""
        return self._before_s + (self._loop.activation_s if self._loop is not None else 0.0)

    def _finite(
        self,
        work: Callable[[tuple[Program, ...]], Reals | None],
        rows: int,
        rounds: int,
        orders: Sequence[tuple[str, ...]],
    ) -> Reals | None:
        try:
            return self._programs.compute(self._slots, work, rows, rounds, orders)
        except (ValueError, OverflowError):  # numbers that are not finite: the calls say what is wrong with them
            return None

    def _present_loop(self, held: tuple[Program, ...]) -> SequenceLoop | None:
        """Return the loop of what the chip holds now; None where there is none, or a matrix has to be restored."""
        same = held is self._held
        for matrix, compiled in zip(self._matrices, self._compiled, strict=True):
            if matrix.stale:
                return None
            same = same and matrix.compiled is compiled
        if not same:
            self._before_s = self.activation_s
            self._held, self._compiled = held, tuple(matrix.compiled for matrix in self._matrices)
            self._loop = self._loop_of(held)
        return self._loop

    def _loop_of(self, held: Sequence[Program]) -> SequenceLoop | None:
        w = self._weights
        return exact_loop(
            [matrix.compiled for matrix in self._matrices],
            held,
            inputs=0 if self._on_host else w.w_driven.shape[1],
            w_in=w.w_driven if self._on_host else None,
            bias=w.bias,
            leak=w.leak,
            activation=w.activation,
            precision="f64" if w.dtype == np.float64 else "mixed",
        )
