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
        self._programs = matrices[0].programs
        there = tuple(slot for matrix in matrices for slot in matrix.slots)
        self._slots, self._orders = there, (there, there[::-1], there) if by_turns else ()
        self._rows = tuple(p.encoding.rows for matrix in matrices for p in matrix.compiled.programs)
        self._made_of: tuple[object, ...] = ()
        self._before_s = 0.0
        self.loop: SequenceLoop | None = None
        """The loop of the last steps; None before the first, and where the device is called."""

    def step(self, u: Reals, states: Reals, *, backwards: bool = False) -> Reals | None:
        """Return the states after one step, both (units,) or both a batch; None where the device must be called."""
        new, lines = states.copy(), np.ascontiguousarray(u)
        samples = 1 if new.ndim == 1 else len(new)
        return self._spared(lambda loop: loop.step(lines, new), samples, 1, backwards)

    def run(self, u: Reals, states: Reals, out: Reals, *, backwards: bool = False) -> Reals | None:
        """Return `out`, filled with the states after every step, (samples, steps, units); None as `step`.

        `backwards` says so of the first step's calls.
        """
        return self._spared(lambda loop: loop.run(u, states, out), u.shape[0], u.shape[1], backwards)

    @property
    def activation_s(self) -> float:
        """Seconds that activations and leaks took in these steps."""
        return self._before_s + (self.loop.activation_s if self.loop is not None else 0.0)

    def _spared(self, work: Callable[[SequenceLoop], Reals], samples: int, steps: int, backwards: bool) -> Reals | None:
        def with_loop(held: tuple[Program, ...]) -> Reals | None:
            loop = self._present_loop(held)
            return None if loop is None else work(loop)

        rows = tuple([samples * rows for rows in self._rows])
        orders = self._orders[backwards : backwards + min(steps, 2)]
        try:
            return self._programs.compute(self._slots, with_loop, rows, steps, orders)
        except (ValueError, OverflowError):  # numbers that are not finite: the calls say what is wrong with them
            return None

    def _present_loop(self, held: tuple[Program, ...]) -> SequenceLoop | None:
        """Return the loop of what the chip holds now; None where there is none, or a matrix has to be restored."""
        compiled = [matrix.compiled for matrix in self._matrices]
        if (made_of := (*held, *compiled)) != self._made_of:  # as objects: none is ever changed in place
            self._before_s, self._made_of = self.activation_s, made_of
            w, on_host = self._weights, self._on_host
            self.loop = exact_loop(
                compiled,
                held,
                inputs=0 if on_host else w.w_driven.shape[1],
                w_in=w.w_driven if on_host else None,
                bias=w.bias,
                leak=w.leak,
                activation=w.activation,
                precision="f64" if w.dtype == np.float64 else "mixed",
            )
        return None if any(matrix.stale for matrix in self._matrices) else self.loop
