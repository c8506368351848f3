"""Faults on purpose: what goes wrong, and at which call, so that drivers can be tested and drills held.

A plan is data; the same plan and the same calls fail in the same way every time. Time-outs, a vanished device and a
broken update are errors the driver sees; a bit flip is silent, and only a fingerprint shows it.
"""

from dataclasses import replace

import msgspec
import numpy as np

from metalforge.core.arrays import Array

from .program import FullyConnected, Program


class _Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Something that goes wrong at call or update number `at`, counted from 1 since the device was opened."""

    at: int

    def __post_init__(self) -> None:
        if self.at < 1:
            raise ValueError(f"calls and updates are counted from 1. Got {self.at}")


class Timeout(_Fault, frozen=True, kw_only=True, tag="timeout"):
    """Inference call `at` gets no answer; the program is unharmed."""


class Vanish(_Fault, frozen=True, kw_only=True, tag="vanish"):
    """The device leaves the bus at inference call `at`, and takes its programs with it."""


class BitFlip(_Fault, frozen=True, kw_only=True, tag="bit_flip"):
    """Just before inference call `at`, weight memory loses `bits` bits, anywhere in the programs on the device."""

    bits: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits < 1:
            raise ValueError(f"`bits` must be at least 1. Got {self.bits}")


class PartialUpdate(_Fault, frozen=True, kw_only=True, tag="partial_update"):
    """Variable update `at` stops after this fraction of the entries."""

    fraction: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.fraction < 1:
            raise ValueError(f"`fraction` must be at least 0 and below 1. Got {self.fraction}")


Fault = Timeout | Vanish | BitFlip | PartialUpdate


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The faults to come and the seed of what is random in them."""

    faults: tuple[Fault, ...] = ()
    seed: int = 0

    def at_call(self, number: int) -> tuple[Fault, ...]:
        """Return what happens at an inference call."""
        return tuple(f for f in self.faults if f.at == number and not isinstance(f, PartialUpdate))

    def at_update(self, number: int) -> PartialUpdate | None:
        """Return how a variable update fails, or None."""
        return next((f for f in self.faults if isinstance(f, PartialUpdate) and f.at == number), None)

    def generator(self, number: int) -> np.random.Generator:
        """Return the random numbers of the faults at a call: the same for the same seed and call."""
        return np.random.default_rng([self.seed, number])


def flip_bits(program: Program, bits: int, rng: np.random.Generator) -> Program:
    """Return the program with bits of its weight memory flipped, each in another weight of a random layer.

    How the chip stores weights is not public; here a weight is a sign and a magnitude, so that every pattern is a legal
    weight. A flip that would change nothing (the sign of zero) is drawn again.
    """
    layers = list(program.layers)
    sizes = np.array([layer.weights.size for layer in layers])
    for flat in rng.choice(int(sizes.sum()), size=min(bits, int(sizes.sum())), replace=False):
        which = int(np.searchsorted(np.cumsum(sizes), flat, side="right"))
        position = int(flat - sizes[:which].sum())
        layers[which] = _flip(layers[which], position, rng)
    return replace(program, layers=tuple(layers))


def partly(old: Array, new: Array, fraction: float) -> Array:
    """Return `old` with its first entries taken from `new`."""
    mixed = old.copy()
    count = int(fraction * old.size)
    mixed.reshape(-1)[:count] = np.ascontiguousarray(new).reshape(-1)[:count]
    return mixed


def _flip(layer: FullyConnected, position: int, rng: np.random.Generator) -> FullyConnected:
    weights = np.ascontiguousarray(layer.weights).copy()
    value = int(weights.flat[position])
    if layer.weight_bits == 1:
        flipped = 1 - value
    else:
        patterns = [-value] + [
            (abs(value) ^ 1 << bit) * (-1 if value < 0 else 1) for bit in range(layer.weight_bits - 1)
        ]
        flipped = int(rng.choice([pattern for pattern in patterns if pattern != value]))
    weights.flat[position] = flipped
    return replace(layer, weights=weights)
