"""Programs ready to run: weights checked and tiled once for the native integer product, then run many times."""

import numpy as np
from numpy.typing import NDArray

from metalforge.native import kernels

from .arithmetic import STEPS_PER_UNIT, bounded_relu, check_inputs
from .program import POTENTIAL_BITS, Activation, FullyConnected, Program

__all__ = ["CompiledLayer", "CompiledProgram"]


class CompiledLayer:
    """One layer; `run` gives the integers of `arithmetic.run_layer`, on any build level.

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
