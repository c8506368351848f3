"""The chip's integer arithmetic: programs ready to run, weights tiled once for the native product, exact everywhere."""

import numpy as np
from numpy.typing import NDArray

from metalforge.native import kernels

from .program import POTENTIAL_BITS, Activation, FullyConnected, Program, ProgramError

STEPS_PER_UNIT = 16
"""Steps are whole sixteenths."""


class CompiledLayer:
    """One layer; `run` gives exact integers, saturated to the accumulator, the same on any build level.

    `potential_bits` and `steps_per_unit` are the chip's accumulator and grid of steps; the defaults are the AKD1000's.
    """

    def __init__(
        self, layer: FullyConnected, *, potential_bits: int = POTENTIAL_BITS, steps_per_unit: int = STEPS_PER_UNIT
    ) -> None:
        self.layer = layer
        module = kernels()
        self._product = module.npu_product
        self._weights = module.NpuWeights(np.ascontiguousarray(layer.weights))
        self._potential_bits, self._steps_per_unit = potential_bits, steps_per_unit
        self._units = layer.units
        self._x_max = (1 << layer.input_bits) - 1
        self._linear = layer.activation is Activation.LINEAR

    def run(self, x: NDArray[np.uint8]) -> NDArray[np.int32] | NDArray[np.uint8]:
        """Return potentials of a linear layer, activations of a bounded ReLU, for inputs (batch, inputs)."""
        try:
            potentials = np.empty((len(x), self._units), np.int32)
            self._product(self._weights, x, potentials, self._x_max, self._potential_bits, "auto")
        except (TypeError, ValueError):
            # The kernel refuses whatever it cannot take as it is; this says why, or makes it contiguous.
            potentials = np.empty((len(check_inputs(self.layer, x)), self._units), np.int32)
            self._product(self._weights, np.ascontiguousarray(x), potentials, self._x_max, self._potential_bits, "auto")
        if self._linear:
            return potentials
        layer = self.layer
        return bounded_relu(potentials, layer.threshold, layer.act_step, layer.activation_bits, self._steps_per_unit)


class CompiledProgram:
    """A chain of compiled layers, for a chip with the given accumulator and grid of steps."""

    def __init__(
        self, program: Program, *, potential_bits: int = POTENTIAL_BITS, steps_per_unit: int = STEPS_PER_UNIT
    ) -> None:
        self.program = program
        self._layers = [
            CompiledLayer(layer, potential_bits=potential_bits, steps_per_unit=steps_per_unit)
            for layer in program.layers
        ]

    def run(self, x: NDArray[np.uint8]) -> NDArray[np.int32] | NDArray[np.uint8]:
        """Return what the last layer gives for inputs (batch, inputs)."""
        values: NDArray[np.int32] | NDArray[np.uint8] = x
        for layer in self._layers:
            values = layer.run(values)  # type: ignore[arg-type]  # all but the last layer give uint8
        return values


def run_program(program: Program, x: NDArray[np.uint8]) -> NDArray[np.int32] | NDArray[np.uint8]:
    """Return what a program gives for inputs (batch, inputs), once."""
    return CompiledProgram(program).run(x)


def bounded_relu(
    potentials: NDArray[np.int32],
    threshold: NDArray[np.int32],
    act_step: NDArray[np.float32],
    bits: int,
    steps_per_unit: int = STEPS_PER_UNIT,
) -> NDArray[np.uint8]:
    """Return ceil((p - threshold) / step) clipped to 0 .. 2^bits - 1, with steps floored to sixteenths.

    A step is the interval at 4 bits and a quarter, or an eighth, of it at 2 and 1: the quotient is
    16 (p - T) / (floor(16 step) 2^(4 - bits)), rounded up in integers. `steps_per_unit` is that 16, for other chips.
    """
    parts = np.floor(act_step.astype(np.float64) * steps_per_unit).astype(np.int64)
    numerator = steps_per_unit * (potentials.astype(np.int64) - threshold)
    quotient = -((-numerator) // (parts << (4 - bits)))
    return np.clip(quotient, 0, (1 << bits) - 1).astype(np.uint8)


def check_inputs(layer: FullyConnected, x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `x` if it is uint8 of shape (batch, inputs) within the layer's input bits; raises otherwise."""
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8:
        came = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
        raise ProgramError(f"layer `{layer.name}`: inputs must be uint8. Got {came}")
    if x.ndim != 2 or x.shape[1] != layer.inputs or x.shape[0] == 0:
        raise ProgramError(f"layer `{layer.name}`: inputs must have shape (batch, {layer.inputs}). Got {x.shape}")
    limit = (1 << layer.input_bits) - 1
    if x.max() > limit:
        raise ProgramError(
            f"layer `{layer.name}`: inputs of {layer.input_bits} bits lie in 0 .. {limit}. Got {x.max()}"
        )
    return x
