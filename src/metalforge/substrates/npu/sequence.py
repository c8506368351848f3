"""A reservoir through the NPU's arithmetic without returning to Python between steps.

    q = rint(factor * [u; s]) + zero point        unsigned lines of 4 or 8 bits
    acc = q W                                     integers; 1 to 3 base-15 digits joined
    s' = (1 - a) s + a f(scale (acc - zero point * rowsum) + bias)

On the chip 8 bits are two nibble rows of one batch; their joined sum is this product, as long as nothing saturates,
which `certificate` proves for the layer. This loop is the emulator's fast path; it models no time.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metalforge.core.arrays import Doubles, Reals
from metalforge.native import kernels

from .program import ProgramError


class SequenceLoop:
    """A leaky reservoir with integer weights and a host activation.

    `weights` are integers of shape (inputs + units, digits * units) in -7 .. 7, digit blocks most significant first;
    `scale` is what one joined integer is worth, a unit; `input_range` and `state_range` are the largest sizes that the
    lines can show. With `precision` f32 the host arithmetic is single, which is far finer than 8-bit lines.
    """

    def __init__(
        self,
        weights: NDArray[np.int8],
        scale: Doubles,
        *,
        inputs: int,
        digits: int = 1,
        bits: int = 8,
        bias: Doubles | None = None,
        leak: float = 1.0,
        input_range: float = 1.0,
        state_range: float = 1.0,
        activation: Literal["tanh", "relu", "identity"] = "tanh",
        precision: Literal["f64", "f32"] = "f64",
    ) -> None:
        weights = np.ascontiguousarray(weights)
        units = len(scale)
        if weights.shape != (inputs + units, digits * units):
            raise ProgramError(
                f"`weights` must have shape (inputs + units, digits * units) = {(inputs + units, digits * units)}. "
                f"Got {weights.shape}"
            )
        if not (0 <= leak <= 1 and input_range > 0 and state_range > 0):
            raise ProgramError("`leak` must lie in 0 .. 1 and the ranges must be positive")
        self._real = np.float64 if precision == "f64" else np.float32
        module = kernels()
        powers = 15 ** np.arange(digits - 1, -1, -1)
        blocks = weights.astype(np.int64).sum(axis=0).reshape(digits, units)
        levels = (1 << (bits - 1)) - 1
        self._loop = getattr(module, f"NpuSequence_{precision}")(
            module.NpuWeights(np.roll(weights, -inputs, axis=0)),  # the kernel wants the state's lines first
            inputs,
            np.ascontiguousarray(scale, self._real),
            np.asarray(powers @ blocks, self._real),
            np.zeros(units, self._real) if bias is None else np.ascontiguousarray(bias, self._real),
            digits,
            bits,
            levels / input_range,
            levels / state_range,
            leak,
            activation,
            "auto",
        )
        self.inputs, self.units = inputs, units

    def step(self, u: Reals, state: Reals) -> Reals:
        """Move `state` (units,) by one step with input `u` (inputs,), in place, and return it.

        For loops that must return to Python each step: both arrays must have this loop's precision already.
        """
        self._loop.step(u, state)
        return state

    def run(self, u: Reals, state: Reals | None = None) -> Reals:
        """Return the states after each row of `u` (steps, inputs), from `state` (which stays as it is) or from rest."""
        lines = np.ascontiguousarray(u, self._real)
        start = np.zeros(self.units, self._real) if state is None else np.array(state, self._real)
        states: Reals = np.empty((len(lines), self.units), self._real)
        self._loop.run(lines, start, states)
        return states
