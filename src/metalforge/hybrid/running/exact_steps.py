"""Steps of a network whose product is on a device that can be spared its calls: one native call for one or for many.

A step by way of the device is encoding, a call for every program, decoding, and the host's activation and leak. Where
all programs are on an emulated chip and no call of theirs can go wrong, `SequenceLoop` does the same arithmetic without
returning to Python; the device's books are kept as if it had been called (`DevicePrograms.compute`).
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from metalforge.core.arrays import Doubles, Reals
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.compile import CompiledLinear
from metalforge.substrates.npu.exact import ExactMatrix, exact_loop
from metalforge.substrates.npu.program import Program
from metalforge.substrates.npu.sequence import SequenceLoop

from .device_matrix import DeviceMatrix

T = TypeVar("T")


def rows_of_slots(matrices: Sequence[DeviceMatrix]) -> tuple[int, ...]:
    """Return the chip rows that a sample takes, program by program."""
    return tuple(p.encoding.rows for matrix in matrices for p in matrix.compiled.programs)


class ExactReadout:
    """A matrix of states and, where it has lines for them, inputs, on the device of the steps that lead to it.

    To its outputs the host adds `bias`; a native `decoder` of heads then makes their values of them.
    """

    def __init__(self, matrix: DeviceMatrix, units: int, bias: Reals, decoder: Any) -> None:
        self.slots, self.programs = matrix.slots, matrix.programs
        self.rows = rows_of_slots([matrix])
        self._matrix, self._units, self._bias, self._decoder = matrix, units, bias, decoder
        self._sees_inputs = matrix.compiled.inputs > units
        self._held: tuple[Program, ...] = ()
        self._compiled = matrix.compiled
        self._exact: ExactMatrix | None = None

    def __call__(self, states: Reals, u: Reals, held: tuple[Program, ...]) -> Doubles | None:
        """Return the values of heads; None where the device must be called. The last programs are its own."""
        matrix = self._matrix
        if held is not self._held or matrix.compiled is not self._compiled:
            self._held, self._compiled = held, matrix.compiled
            mine = held[-len(self.slots) :]
            self._exact = ExactMatrix.of(matrix.compiled, mine, states.dtype, self._units, self._bias)
        exact = self._exact
        if exact is None or matrix.stale:
            return None
        made = np.empty(exact.outputs if states.ndim == 1 else (len(states), exact.outputs))
        exact.values(states, u if self._sees_inputs else None, self._decoder, made)
        return made


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
        self._rows = rows_of_slots(matrices)
        there, back = self._slots, self._slots[::-1]
        self._orders = (there, back, there) if by_turns else ()
        self._both: dict[tuple[ExactReadout, int], tuple[tuple[str, ...], tuple[int, ...]]] = {}
        self._held: tuple[Program, ...] = ()
        self._mine: tuple[Program, ...] = ()
        self._compiled: tuple[CompiledLinear, ...] = ()
        self._loop: SequenceLoop | None = None
        self._before_s = 0.0

    def step(self, u: Reals, states: Reals, *, backwards: bool = False) -> Reals | None:
        """Return the states after one step, both (units,) or both a batch; None where the device must be called."""
        new, lines = states.copy(), np.ascontiguousarray(u)

        def work(held: tuple[Program, ...]) -> Reals | None:
            loop = self._present_loop(held)
            return None if loop is None else loop.step(lines, new)

        rows = self._rows if new.ndim == 1 else self._rows_of(len(new))
        return self._finite(self._slots, rows, work, 1, self._orders[backwards : backwards + 1])

    def run(self, u: Reals, states: Reals, out: Reals, *, backwards: bool = False) -> Reals | None:
        """Return `out`, filled with the states after every step, (samples, steps, units); None as `step`.

        `backwards` says so of the first step's calls.
        """

        def work(held: tuple[Program, ...]) -> Reals | None:
            loop = self._present_loop(held)
            return None if loop is None else loop.run(u, states, out)

        samples, steps, _ = u.shape
        return self._finite(self._slots, self._rows_of(samples), work, steps, self._orders[backwards : backwards + 2])

    def step_then(self, u: Reals, states: Reals, then: ExactReadout) -> tuple[Reals, Doubles] | None:
        """Return the states after one step and what a readout makes of them and the inputs; None as `step`."""
        new = states.copy()
        samples = 1 if new.ndim == 1 else len(new)
        if (both := self._both.get((then, samples))) is None:
            rows = tuple(samples * rows for rows in self._rows + then.rows)
            both = self._both[then, samples] = self._slots + then.slots, rows

        def work(held: tuple[Program, ...]) -> tuple[Reals, Doubles] | None:
            loop = self._present_loop(held)
            if loop is None:
                return None
            made = then(loop.step(u, new), u, held)
            return None if made is None else (new, made)

        try:
            return self._programs.compute(both[0], work, both[1], beside=then.programs)
        except (TypeError, ValueError, OverflowError):  # other arrays than it takes: the calls say what is wrong
            return None

    @property
    def loop(self) -> SequenceLoop | None:
        """The loop of the last steps; None before the first, and where the device is called."""
        return self._loop

    @property
    def activation_s(self) -> float:
        """Seconds that activations and leaks took in these steps."""
        return self._before_s + (self._loop.activation_s if self._loop is not None else 0.0)

    def _rows_of(self, samples: int) -> tuple[int, ...]:
        return tuple([samples * rows for rows in self._rows])

    def _finite(
        self,
        slots: tuple[str, ...],
        rows: tuple[int, ...],
        work: Callable[[tuple[Program, ...]], T | None],
        rounds: int,
        orders: Sequence[tuple[str, ...]],
    ) -> T | None:
        try:
            return self._programs.compute(slots, work, rows, rounds, orders)
        except (ValueError, OverflowError):  # numbers that are not finite: the calls say what is wrong with them
            return None

    def _present_loop(self, held: tuple[Program, ...]) -> SequenceLoop | None:
        """Return the loop of what the chip holds now; None where there is none, or a matrix has to be restored.

        The first programs that are held are this network's.
        """
        if held is not self._held:  # the tuple of other slots, or of other programs
            self._held, mine = held, held[: len(self._slots)]
            if mine != self._mine:  # as objects: programs are never changed in place
                self._mine, self._compiled = mine, ()
        compiled = tuple([matrix.compiled for matrix in self._matrices])
        if compiled != self._compiled:
            self._before_s = self.activation_s
            self._compiled, self._loop = compiled, self._loop_of(self._mine)
        for matrix in self._matrices:
            if matrix.stale:
                return None
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
