"""What a substrate can do, as typed values that compare by meaning.

A substrate *has* capabilities, a workload *needs* them, and `have.meets(need)` decides: a chip that infers in 4 and
8 bits meets a need for either, a batch of 8 meets a need for 4. Labels (`f64`, `quant4`, `batch8`) are how they are
written in files and on the command line.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from .errors import UnknownNameError


class Trait(StrEnum):
    """Capabilities without a parameter; the value is the label."""

    F64 = "f64"
    """Native double precision."""
    F32 = "f32"
    """Native single precision."""
    DF64 = "df64"
    """Double-float arithmetic (pairs of floats, at least 44 bits)."""
    WEIGHT_MUTATION = "weight-mut"
    """Weights of a loaded program can be replaced in place."""
    SCALAR_REDUCE = "reduce"
    """Sums of large arrays to one number."""
    SPARSE_MATVEC = "spmv"
    """Sparse matrix times vector."""
    EIGENSOLVE = "eigen"
    """Eigenvalues of dense matrices."""
    CONJUGATE_GRADIENT = "cg"
    """Iterative solution of sparse positive systems."""
    KERNEL_DISPATCH = "kernel"
    """Runs compiled kernels (shaders, in the published design's words) handed to it."""
    SIMD = "simd"
    """Vector instructions of at least 256 bits."""
    TIMESTAMPS = "timestamps"
    """Device-side clocks around a piece of work."""
    PCIE_TRANSFER = "pcie"
    """Sits behind PCIe: data must be moved to it."""
    STREAMING_STAGE = "streaming"
    """Can be a stage of a streaming pipeline."""

    @property
    def label(self) -> str:
        """The short name used in files and tables."""
        return self.value

    def meets(self, need: "Capability") -> bool:
        """Whether having this is enough for `need`."""
        return need is self


GENERAL_PURPOSE = (
    Trait.F64,
    Trait.F32,
    Trait.DF64,
    Trait.SCALAR_REDUCE,
    Trait.SPARSE_MATVEC,
    Trait.EIGENSOLVE,
    Trait.CONJUGATE_GRADIENT,
    Trait.KERNEL_DISPATCH,
    Trait.TIMESTAMPS,
    Trait.STREAMING_STAGE,
)
"""What every processor that runs our compiled kernels can do: any device with a roofline."""


class QuantizedInference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Integer inference at one of several widths."""

    bits: frozenset[int]

    def __post_init__(self) -> None:
        if not self.bits or not all(1 <= b <= 16 for b in self.bits):
            raise ValueError(f"`bits` must be a non-empty set of widths in 1..16. Got {sorted(self.bits)}")

    @property
    def label(self) -> str:
        """``quant4`` or, for several widths, ``quant4/8``."""
        return "quant" + "/".join(str(b) for b in sorted(self.bits))

    def meets(self, need: "Capability") -> bool:
        """Every width that is needed must be among those on offer."""
        return isinstance(need, QuantizedInference) and need.bits <= self.bits


class BatchInference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several inputs in one call, up to `max_batch`."""

    max_batch: int

    def __post_init__(self) -> None:
        if self.max_batch < 1:
            raise ValueError(f"`max_batch` must be at least 1. Got {self.max_batch}")

    @property
    def label(self) -> str:
        """For example ``batch8``."""
        return f"batch{self.max_batch}"

    def meets(self, need: "Capability") -> bool:
        """A larger batch does for a smaller one."""
        return isinstance(need, BatchInference) and need.max_batch <= self.max_batch


Capability: TypeAlias = Trait | QuantizedInference | BatchInference


def capability_from_label(label: str) -> Capability:
    """Return the capability that a label such as ``f64``, ``quant4``, ``quant4/8`` or ``batch8`` stands for."""
    if match := re.fullmatch(r"quant(\d+(?:/\d+)*)", label):
        return QuantizedInference(bits=frozenset(int(b) for b in match[1].split("/")))
    if match := re.fullmatch(r"batch(\d+)", label):
        return BatchInference(max_batch=int(match[1]))
    try:
        return Trait(label)
    except ValueError:
        raise UnknownNameError("capability", label, [*Trait, "quantN", "batchN"]) from None


def missing_capabilities(have: Iterable[Capability], need: Iterable[Capability]) -> tuple[Capability, ...]:
    """Return the needs that nothing in `have` meets, in the order asked."""
    offered = tuple(have)
    return tuple(n for n in need if not any(h.meets(n) for h in offered))
