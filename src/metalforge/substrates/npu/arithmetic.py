"""The chip's integer arithmetic: products, saturation and the bounded ReLU, exact on every build level."""

import numpy as np
from numpy.typing import NDArray

from .program import POTENTIAL_BITS, Activation, FullyConnected, Program, ProgramError

__all__ = ["bounded_relu", "run_layer", "run_program", "saturate"]

STEPS_PER_UNIT = 16
"""Steps are whole sixteenths."""
POTENTIAL_MAX = (1 << (POTENTIAL_BITS - 1)) - 1
POTENTIAL_MIN = -(1 << (POTENTIAL_BITS - 1))


def saturate(sums: NDArray[np.int64] | NDArray[np.int32] | NDArray[np.float32]) -> NDArray[np.int32]:
    """Return sums clamped to the accumulator's signed 20 bits."""
    return np.clip(sums, POTENTIAL_MIN, POTENTIAL_MAX).astype(np.int32)


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


def run_layer(layer: FullyConnected, x: NDArray[np.uint8]) -> NDArray[np.int32] | NDArray[np.uint8]:
    """Return potentials (int32) of a linear layer, activations (uint8) of a bounded ReLU; `x` is (batch, inputs)."""
    x = check_inputs(layer, x)
    # Sums of up to 57334 products of 15 * 7 stay below 2^23: exact in int32, and in float32.
    potentials = saturate(x.astype(np.float32) @ layer.weights.astype(np.float32))
    if layer.activation is Activation.LINEAR:
        return potentials
    return bounded_relu(potentials, layer.threshold, layer.act_step, layer.activation_bits)


def run_program(program: Program, x: NDArray[np.uint8]) -> NDArray[np.int32] | NDArray[np.uint8]:
    """Return what the last layer gives for inputs (batch, inputs)."""
    values: NDArray[np.int32] | NDArray[np.uint8] = x
    for layer in program.layers:
        values = run_layer(layer, values)  # type: ignore[arg-type]  # all but the last layer give uint8
    return values


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
