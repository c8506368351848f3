"""A reservoir through the NPU's arithmetic without returning to Python between steps.

    q = rint(factor * [u; s]) + zero point        unsigned lines of 4, 8, 12 or 16 bits
    acc = q W                                     integers; 1 to 3 base-15 digits joined
    s' = (1 - a) s + a f(scale (acc - zero point * rowsum) + bias)

On the chip wide lines are nibble rows of one batch; their joined sum is this product, as long as nothing saturates,
which `certificate` proves for the layer. This loop models no time: `exact` has the emulator's books kept beside it.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Doubles, Reals
from metalforge.native import kernels

from .program import ProgramError

LoopPrecision: TypeAlias = Literal["f64", "f32", "mixed"]
"""All double, all single, or a single state whose host arithmetic is double (as NumPy's is, of such a state)."""


class SequenceLoop:
    """A leaky reservoir with integer weights and a host activation, any of `reservoir.activations`.

    `weights` are integers of shape (inputs + units, digits * units) in -7 .. 7, digit blocks most significant first;
    `scale` is what one joined integer is worth, a unit; `input_range` and `state_range` are the largest sizes that the
    lines can show. With `precision` f32 the host arithmetic is single, which is far finer than 8-bit lines.

    Where the host multiplies the inputs they have no lines: `w_in` is then its matrix, and `weights` are of the state.
    """

    def __init__(
        self,
        weights: NDArray[np.int8],
        scale: Doubles,
        *,
        inputs: int = 0,
        w_in: Reals | None = None,
        digits: int = 1,
        bits: int = 8,
        bias: Doubles | None = None,
        leak: float = 1.0,
        input_range: float = 1.0,
        state_range: float = 1.0,
        activation: str = "tanh",
        precision: LoopPrecision = "f64",
    ) -> None:
        weights = np.ascontiguousarray(weights)
        units = len(scale)
        if w_in is not None and (inputs or w_in.shape[0] != units):
            raise ProgramError(f"`w_in` must have {units} rows, and `inputs` no lines. Got {w_in.shape} and {inputs}")
        if weights.shape != (inputs + units, digits * units):
            raise ProgramError(
                f"`weights` must have shape (inputs + units, digits * units) = {(inputs + units, digits * units)}. "
                f"Got {weights.shape}"
            )
        if not (0 <= leak <= 1 and input_range > 0 and state_range > 0):
            raise ProgramError("`leak` must lie in 0 .. 1 and the ranges must be positive")
        self._state = np.float64 if precision == "f64" else np.float32
        real, kind = (np.float32, "f32") if precision == "f32" else (np.float64, "f64")
        module = kernels()
        on_host = None
        if w_in is not None:
            nothing = np.zeros(units, real)
            on_host = getattr(module, f"Affine_{kind}")(np.ascontiguousarray(w_in, real), nothing, w_in.shape[1])
        levels = (1 << (bits - 1)) - 1
        self._loop = getattr(module, f"NpuSequence_{precision}")(
            module.NpuWeights(np.roll(weights, -inputs, axis=0)),  # the kernel wants the state's lines first
            inputs,
            np.ascontiguousarray(scale, real),
            np.asarray(row_sums(weights, digits), real),
            np.zeros(units, real) if bias is None else np.ascontiguousarray(bias, real),
            digits,
            bits,
            levels / input_range,
            levels / state_range,
            leak,
            activation,
            "auto",
            on_host,
        )
        self.inputs, self.units = inputs if w_in is None else w_in.shape[1], units

    def step(self, u: Reals, state: Reals) -> Reals:
        """Move `state` (units,) by one step with input `u` (inputs,), in place, and return it; or a batch of both.

        For loops that must return to Python each step: both arrays must have this loop's precision already.
        """
        self._loop.step(u, state)
        return state

    def run(self, u: Reals, state: Reals | None = None, out: Reals | None = None) -> Reals:
        """Return the states after each row of `u` (steps, inputs), from `state` (which stays as it is) or from rest.

        Several sequences are (samples, steps, inputs), their states (samples, units). `out` is where the states go, if
        given. Raises OverflowError where a state leaves the finite numbers.
        """
        lines = np.ascontiguousarray(u, self._state)
        shape = (*lines.shape[:-2], self.units)
        start = np.zeros(shape, self._state) if state is None else np.array(state, self._state)
        states: Reals = np.empty((*lines.shape[:-1], self.units), self._state) if out is None else out
        self._loop.run(lines, start, states)
        return states


def row_sums(weights: NDArray[np.int8], digits: int) -> NDArray[np.int64]:
    """Return the sum of each output's joined weights, of (lines, digits * outputs) digit blocks."""
    blocks = weights.sum(axis=0, dtype=np.int64).reshape(digits, -1)
    return np.asarray(15 ** np.arange(digits - 1, -1, -1) @ blocks)
