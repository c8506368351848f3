"""The chip's arithmetic and the precision ladder in Python's own integers and fractions: slow, wide, and independent.

Nothing here is imported from the package. Layers are plain tuples; arrays of dtype object hold Python ints, so no sum
can overflow or round.
"""

import math
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np

LOWEST, HIGHEST = -524288, 524287  # signed 20 bits


class Layer(NamedTuple):
    """Weights (inputs, units) with the activation's bits, thresholds and steps; `bits` is None when it is linear."""

    weights: object
    bits: int | None = None
    threshold: object = ()
    act_step: object = ()


def as_ints(values):
    """The same array with Python ints for entries."""
    values = np.asarray(values)
    return np.array([int(v) for v in values.ravel()], dtype=object).reshape(values.shape)


def product_wide(x, weights):
    """x @ weights without any limit."""
    return as_ints(x) @ as_ints(weights)


def potentials(x, weights):
    """x @ weights, clamped once to the accumulator."""
    return np.vectorize(lambda p: min(max(p, LOWEST), HIGHEST), otypes=[object])(product_wide(x, weights))


def activation(potential, threshold, act_step, bits):
    """ceil((p - T) / interval) clipped to the width; the interval is the step, floored to sixteenths, at 4 bits."""
    interval = Fraction(math.floor(Fraction(float(act_step)) * 16), 16) * 2 ** (4 - bits)
    return min(max(math.ceil((Fraction(int(potential)) - int(threshold)) / interval), 0), 2**bits - 1)


def run_layer(layer, x):
    """Potentials of a linear layer, activations of the others."""
    p = potentials(x, layer.weights)
    if layer.bits is None:
        return p
    out = np.empty(p.shape, dtype=object)
    for (sample, unit), value in np.ndenumerate(p):
        out[sample, unit] = activation(value, layer.threshold[unit], layer.act_step[unit], layer.bits)
    return out


def run_chain(layers, x):
    """What the last of some layers gives."""
    for layer in layers:
        x = run_layer(layer, x)
    return x


def digit_table(digits):
    """Every balanced base-15 number of some digits: {value: (most significant, ..., least)}."""
    places = [15**k for k in reversed(range(digits))]
    return {
        sum(d * place for d, place in zip(found, places, strict=True)): found
        for found in product(range(-7, 8), repeat=digits)
    }


def nibbles(value, bits):
    """The hexadecimal digits of a number, the most significant first."""
    return [int(letter, 16) for letter in format(int(value), f"0{bits // 4}x")]


def packed(values):
    """Two's complement nibbles, two a byte, the first one low."""
    half = [int(v) % 16 for v in values] + [0] * (len(values) % 2)
    return bytes(low + 16 * high for low, high in zip(half[::2], half[1::2], strict=True))
