"""What runs on the NPU, as data: fully connected layers in chip integers, and what their outputs mean to the host.

A `Program` is a chain of layers. Every layer but the last has a bounded ReLU; the last may be linear and then returns
signed potentials, which is all the hybrid executor needs. Records are validated when they are made, so a program that
exists can be run. Bytes on the wire are another module's business.
"""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from metalforge.core import BriefRepr, Doubles, MetalforgeError

MAX_INPUTS = 57334
"""Documented limit of a fully connected layer (cnn2snn, Apache-2.0: hardware constraints)."""
POTENTIAL_BITS = 20
"""Width of the signed accumulator; potentials and thresholds saturate at it."""


class ProgramError(MetalforgeError, ValueError):
    """A program breaks a rule of the chip; the message names the layer and the variable."""


class Activation(StrEnum):
    """What a layer does with its potentials."""

    LINEAR = "linear"
    """Nothing: signed potentials come out. For the last layer only."""
    BOUNDED_RELU = "bounded_relu"
    """ceil((potential - threshold) / step), clipped to 0 .. 2^bits - 1."""


def weight_limits(bits: int) -> tuple[int, int]:
    """Return the smallest and largest weight at a width: symmetric, and 0 or 1 for one bit."""
    limits = {1: (0, 1), 2: (-1, 1), 4: (-7, 7)}
    if bits not in limits:
        raise ProgramError(f"weight bits must be 1, 2 or 4. Got {bits}")
    return limits[bits]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FullyConnected(BriefRepr):
    """One layer: potentials = inputs @ weights, in integers.

    `weights` is int8 of shape (inputs, units) within `weight_limits(weight_bits)`; inputs are unsigned integers of
    `input_bits`. `threshold` (int32) and `act_step` (float32, used in sixteenths) have one entry per unit and act only
    when the activation is a bounded ReLU of `activation_bits`.
    """

    name: str
    weights: NDArray[np.int8]
    weight_bits: int = 4
    input_bits: int = 4
    activation: Activation = Activation.LINEAR
    activation_bits: int = 4
    threshold: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    act_step: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    def __post_init__(self) -> None:
        where = f"layer `{self.name}`"
        w = self.weights
        if not self.name or len(self.name) > 100 or not self.name.isprintable():
            raise ProgramError(f"a layer's name must be 1 to 100 printable characters. Got {self.name!r}")
        if not isinstance(w, np.ndarray) or w.dtype != np.int8 or w.ndim != 2 or 0 in w.shape:
            came = f"{w.dtype} of shape {w.shape}" if isinstance(w, np.ndarray) else type(w).__name__
            raise ProgramError(f"{where}: `weights` must be int8 of shape (inputs, units), not empty. Got {came}")
        if w.shape[0] > MAX_INPUTS:
            raise ProgramError(f"{where}: at most {MAX_INPUTS} inputs. Got {w.shape[0]}")
        low, high = weight_limits(self.weight_bits)
        if w.min() < low or w.max() > high:
            bad = int(w.min() if w.min() < low else w.max())
            raise ProgramError(f"{where}: weights of {self.weight_bits} bits lie in {low} .. {high}. Got {bad}")
        for what, bits in (("input", self.input_bits), ("activation", self.activation_bits)):
            if bits not in (1, 2, 4):
                raise ProgramError(f"{where}: {what} bits must be 1, 2 or 4. Got {bits}")
        object.__setattr__(self, "threshold", self._per_unit("threshold", np.int32, 0))
        object.__setattr__(self, "act_step", self._per_unit("act_step", np.float32, 1))
        limit = 1 << (POTENTIAL_BITS - 1)
        if np.any(self.threshold < -limit) or np.any(self.threshold >= limit):
            raise ProgramError(f"{where}: thresholds are signed {POTENTIAL_BITS}-bit integers")
        if not np.all((self.act_step >= 1 / 16) & (self.act_step <= 65535)):
            raise ProgramError(f"{where}: steps must be finite numbers in 1/16 .. 65535")

    def _per_unit(self, name: str, dtype: type, default: float) -> NDArray[np.generic]:
        """Return a variable with one entry per unit; an empty one stands for the default."""
        values = getattr(self, name)
        if not isinstance(values, np.ndarray) or values.dtype != dtype or values.ndim != 1:
            raise ProgramError(f"layer `{self.name}`: `{name}` must be a one-dimensional {np.dtype(dtype)} array")
        if values.size == 0:
            return np.full(self.units, default, dtype)
        if values.size != self.units:
            raise ProgramError(f"layer `{self.name}`: `{name}` must have {self.units} entries. Got {values.size}")
        return values

    @property
    def inputs(self) -> int:
        """Number of input lines."""
        return int(self.weights.shape[0])

    @property
    def units(self) -> int:
        """Number of outputs."""
        return int(self.weights.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A named range of outputs of the last layer: units start .. start + width - 1 of each digit block."""

    name: str
    start: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How the host makes chip inputs of real numbers and real numbers of potentials; see `ladder`.

    `activation_bits` of 4, 8, 12 or 16 are 1 to 4 nibble rows; `digits` of 1 to 3 are base-15 weight digits, so the
    last layer has digits * outputs units: block k holds digit k, the most significant first. `signed` is "unsigned",
    "zero_point" or "two_rail".
    """

    activation_bits: int = 4
    digits: int = 1
    signed: str = "unsigned"

    @property
    def rows(self) -> int:
        """Chip rows that one vector takes: a nibble of its activations in each."""
        return self.activation_bits // 4

    def __post_init__(self) -> None:
        if self.activation_bits not in (4, 8, 12, 16):
            raise ProgramError(f"activations have 4, 8, 12 or 16 bits. Got {self.activation_bits}")
        if self.digits not in (1, 2, 3):
            raise ProgramError(f"weights have 1, 2 or 3 digits. Got {self.digits}")
        if self.signed not in ("unsigned", "zero_point", "two_rail"):
            raise ProgramError(f"`signed` must be unsigned, zero_point or two_rail. Got `{self.signed}`")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Program(BriefRepr):
    """A chain of layers with what the host needs to use them.

    `scales` has one float64 an output (after digits are joined): what one unit of the joined integer is worth.
    `ranges` has the largest |x| of each real input, or is empty where nobody said: chip integers alone then mean
    something. `schema` names the feature and head schema, `provenance` is free text by key; both travel with the
    program.
    """

    name: str
    layers: tuple[FullyConnected, ...]
    encoding: Encoding = Encoding()
    heads: tuple[Head, ...] = ()
    scales: Doubles = field(default_factory=lambda: np.zeros(0))
    schema: str = ""
    provenance: tuple[tuple[str, str], ...] = ()
    ranges: Doubles = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not self.layers:
            raise ProgramError("a program must have at least one layer")
        names = [layer.name for layer in self.layers]
        if len(set(names)) != len(names):
            raise ProgramError(f"layers must have different names. Got {', '.join(names)}")
        for before, after in zip(self.layers, self.layers[1:], strict=False):
            if before.activation is not Activation.BOUNDED_RELU:
                raise ProgramError(
                    f"layer `{before.name}` is not the last and must have a bounded ReLU: its potentials have more "
                    f"bits than `{after.name}` can take"
                )
            if before.units != after.inputs or before.activation_bits != after.input_bits:
                raise ProgramError(
                    f"layer `{before.name}` gives {before.units} lines of {before.activation_bits} bits, "
                    f"`{after.name}` wants {after.inputs} of {after.input_bits}"
                )
        if self.layers[-1].units % self.encoding.digits:
            raise ProgramError(f"the last layer's {self.layers[-1].units} units are not {self.encoding.digits} digits")
        if self.scales.size == 0:
            object.__setattr__(self, "scales", np.ones(self.outputs))
        s = self.scales
        if s.shape != (self.outputs,) or s.dtype != np.float64 or not np.all(np.isfinite(s)):
            raise ProgramError(f"`scales` must be {self.outputs} finite float64, one per output")
        real, r = self.inputs // (2 if self.encoding.signed == "two_rail" else 1), self.ranges
        if r.dtype != np.float64 or r.shape not in ((0,), (real,)) or not np.all((r > 0) & np.isfinite(r)):
            raise ProgramError(f"`ranges` must be {real} finite float64 above 0, one per real input, or none")
        used: set[int] = set()
        for head in self.heads:
            span = range(head.start, head.start + head.width)
            if head.width < 1 or head.start < 0 or span.stop > self.outputs or used & set(span):
                raise ProgramError(f"head `{head.name}` at {head.start}+{head.width} overlaps or leaves {self.outputs}")
            used |= set(span)
        if len({head.name for head in self.heads}) != len(self.heads):
            raise ProgramError("heads must have different names")

    @property
    def inputs(self) -> int:
        """Lines of the first layer."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Outputs of the last layer after its digits are joined."""
        return self.layers[-1].units // self.encoding.digits

    def layer(self, name: str) -> FullyConnected:
        """Return a layer by name."""
        layers = {layer.name: layer for layer in self.layers}
        if name not in layers:
            raise ProgramError(f"no layer `{name}`; there are {', '.join(layers)}")
        return layers[name]

    def fingerprint(self) -> str:
        """Return the SHA-256 of everything the chip computes with: equal programs, equal integers."""
        digest = hashlib.sha256()
        for layer in self.layers:
            bits = layer.weight_bits, layer.input_bits, layer.activation, layer.activation_bits
            digest.update(repr((layer.inputs, layer.units, *bits)).encode())
            for values in (layer.weights, layer.threshold, layer.act_step):
                digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()
