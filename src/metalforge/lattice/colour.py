"""Colour fields: three complex numbers a site on the sites of one parity."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.native.engine import Buffer, Dims, Engine, Precision

from .field import OnGrid

__all__ = ["ColourField"]


class ColourField(OnGrid):
    """A field psi(x) of three complex components on even (`parity` 0) or odd (1) sites, x + y + z + t modulo 2.

    On the lattice and the engine of `geometry`: a gauge field, an operator or another colour field.
    """

    def __init__(self, geometry: OnGrid, parity: int, precision: Precision = "f64") -> None:
        if parity not in (0, 1):
            raise SpecError(f"`parity` must be 0 (even sites) or 1 (odd sites). Got {parity!r}")
        super().__init__(geometry.engine, geometry.dims, precision)
        self.parity = parity
        self.values: Buffer = self.grid.new("colours")

    def __reduce__(self) -> tuple[Any, ...]:
        return _colour_field, (self.engine, self.dims, self.parity, self.precision, self.to_host())

    @property
    def sites(self) -> int:
        """Number of sites of this parity."""
        return self.volume // 2

    def copy(self) -> Self:
        """Return an independent copy."""
        other = type(self)(self, self.parity, self.precision)
        other.assign(self)
        return other

    def assign(self, other: "ColourField") -> None:
        """Take the values of another field on the same sites."""
        self.require_like(other, "other")
        self.grid.assign(self.values, other.values)

    def zero(self) -> None:
        """Set every component to zero."""
        self.grid.clear(self.values)

    def gaussian(self, *, seed: int, stream: int, step: int, draw: int) -> None:
        """Draw complex normals with <|psi_c(x)|^2> = 1: each real and imaginary part has variance 1/2.

        Component c of a site is draw number `draw` + c at that site's own address, so neither the layout nor the number
        of threads changes it.
        """
        self.grid.gaussian(self.values, self.parity, seed, stream, step, draw)

    def from_host(self, array: NDArray[np.complexfloating[Any, Any]]) -> None:
        """Take the values of this parity's sites from an array of shape (Nt, Nz, Ny, Nx, 3)."""
        if array.shape != (*self.dims[::-1], 3):
            raise SpecError(f"`array` must have shape {(*self.dims[::-1], 3)}. Got {array.shape}")
        self.grid.upload("colours", self.values, array.astype(np.complex128, copy=False), self.parity)

    def to_host(self) -> NDArray[np.complex128]:
        """Return the field in file order, shape (Nt, Nz, Ny, Nx, 3), with zeros on the other parity."""
        return self.grid.download("colours", self.values, self.parity)

    def dot(self, other: "ColourField") -> complex:
        """Return sum_x self(x)^dagger other(x), an ordered sum of doubles."""
        self.require_like(other, "other")
        return self.grid.dot(self.values, other.values)

    def norm2(self) -> float:
        """Return sum_x |self(x)|^2, an ordered sum of doubles."""
        return self.grid.norm2(self.values)

    def add(self, other: "ColourField", factor: complex = 1.0) -> None:
        """Add factor * other."""
        self.require_like(other, "other")
        self.grid.combine(self.values, other.values, 1.0, factor)

    def scale(self, factor: complex) -> None:
        """Multiply every component by factor."""
        self.grid.combine(self.values, self.values, 0.0, factor)

    def require_like(self, other: "ColourField", argument: str) -> None:
        """Raise when another field is not on the same sites in the same precision on the same engine."""
        if not self.meets(other) or self.parity != other.parity:
            mine, its = ((f.dims, f.parity, f.precision, f.engine.name) for f in (self, other))
            raise SpecError(f"`{argument}` must be a field with (dims, parity, precision, engine) = {mine}. Got {its}")


def _colour_field(
    engine: Engine, dims: Dims, parity: int, precision: Precision, host: NDArray[np.complex128]
) -> ColourField:
    """A field that was pickled."""
    field = ColourField(OnGrid(engine, dims, precision), parity, precision)
    field.from_host(host)
    return field
