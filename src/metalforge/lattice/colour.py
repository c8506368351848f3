"""Colour fields: three complex numbers a site on the sites of one parity, in the kernels' own layout."""

import atexit
from functools import lru_cache
from types import ModuleType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.native import kernels

from .field import DTYPES, Precision, aligned_zeros

__all__ = ["ColourField", "Geometry"]


class Geometry(Protocol):
    """What a field must know of its lattice: a GaugeField, an operator or another ColourField will do."""

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """(Nx, Ny, Nz, Nt)."""

    @property
    def threads(self) -> int:
        """Threads of every kernel call."""


class ColourField:
    """A field psi(x) of three complex components on even (`parity` 0) or odd (1) sites, x + y + z + t modulo 2."""

    def __init__(self, geometry: Geometry, parity: int, precision: Precision = "f64") -> None:
        if precision not in DTYPES:
            raise SpecError(f"`precision` must be f64 or f32. Got `{precision}`")
        if parity not in (0, 1):
            raise SpecError(f"`parity` must be 0 (even sites) or 1 (odd sites). Got {parity!r}")
        self.dims = geometry.dims
        self.threads = geometry.threads
        self.parity = parity
        self.precision: Precision = precision
        self._module = kernels()
        self.layout = layout_of(self._module, self.dims, precision)
        self.values: NDArray[Any] = aligned_zeros((self.layout.vectors // 2, 6, self.layout.lanes), DTYPES[precision])

    @property
    def sites(self) -> int:
        """Number of sites of this parity."""
        return int(np.prod(self.dims)) // 2

    def copy(self) -> Self:
        """Return an independent copy."""
        other = type(self)(self, self.parity, self.precision)
        other.values[...] = self.values
        return other

    def assign(self, other: "ColourField") -> None:
        """Take the values of another field on the same sites."""
        self.require_like(other, "other")
        self.values[...] = other.values

    def zero(self) -> None:
        """Set every component to zero."""
        self.values.fill(0)

    def gaussian(self, *, seed: int, stream: int, step: int, draw: int) -> None:
        """Draw complex normals with <|psi_c(x)|^2> = 1: each real and imaginary part has variance 1/2.

        Component c of a site is draw number `draw` + c at that site's own address, so neither the layout nor the number
        of threads changes it.
        """
        self._call("gaussian", self.values, self.parity, seed, stream, step, draw, self.threads)

    def from_host(self, array: NDArray[np.complexfloating[Any, Any]]) -> None:
        """Take the values of this parity's sites from an array of shape (Nt, Nz, Ny, Nx, 3)."""
        host = np.ascontiguousarray(array, dtype=np.complex128)
        if host.shape != (*self.dims[::-1], 3):
            raise SpecError(f"`array` must have shape {(*self.dims[::-1], 3)}. Got {host.shape}")
        self._call("pack", host.view(np.float64).reshape(*host.shape, 2), self.values, self.parity, self.threads)

    def to_host(self) -> NDArray[np.complex128]:
        """Return the field in file order, shape (Nt, Nz, Ny, Nx, 3), with zeros on the other parity."""
        host = np.zeros((*self.dims[::-1], 3), np.complex128)
        self._call("unpack", self.values, host.view(np.float64).reshape(*host.shape, 2), self.parity, self.threads)
        return host

    def dot(self, other: "ColourField") -> complex:
        """Return sum_x self(x)^dagger other(x), an ordered sum of doubles."""
        self.require_like(other, "other")
        return complex(self._call("dot", self.values, other.values, self.threads))

    def norm2(self) -> float:
        """Return sum_x |self(x)|^2, an ordered sum of doubles."""
        return float(self._call("norm2", self.values, self.threads))

    def add(self, other: "ColourField", factor: complex = 1.0) -> None:
        """Add factor * other."""
        self.require_like(other, "other")
        self._call("combine", self.values, other.values, 1.0, factor, self.threads)

    def scale(self, factor: complex) -> None:
        """Multiply every component by factor."""
        self._call("combine", self.values, self.values, 0.0, factor, self.threads)

    def require_like(self, other: "ColourField", argument: str) -> None:
        """Raise when another field is not on the same sites in the same precision."""
        mine, its = (self.dims, self.parity, self.precision), (other.dims, other.parity, other.precision)
        if mine != its or self.layout is not other.layout:
            raise SpecError(f"`{argument}` must be a field with (dims, parity, precision) = {mine}. Got {its}")

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._module, f"colour_{name}_{self.precision}")(self.layout, *arguments)


@lru_cache(maxsize=32)
def layout_of(module: ModuleType, dims: tuple[int, int, int, int], precision: Precision) -> Any:
    """Return the layout of a lattice, the same object every time: it takes longer to make than a small field."""
    return getattr(module, f"layout_{precision}")(dims)


# At the end of the process the extension goes before this module: what the cache holds must not outlive it.
atexit.register(layout_of.cache_clear)
