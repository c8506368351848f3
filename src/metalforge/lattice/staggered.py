"""Colour fields, three complex numbers per site of one parity, and the one-link staggered Dirac operator on them.

Even-odd, D = m + H on a gauge field, antiperiodic in time:

    (H psi)(x) = 1/2 sum_mu eta_mu(x) [U_mu(x) psi(x + mu) - U_mu(x - mu)^dagger psi(x - mu)]

with eta_x = 1, eta_y = (-1)^x, eta_z = (-1)^(x+y), eta_t = (-1)^(x+y+z). H is anti-Hermitian and joins sites of
opposite parity, so D^dagger D = m^2 - H H acts on each parity alone and has the same determinant on both.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError
from metalforge.native import Buffer, Precision, Solver

from .field import GaugeField, Momenta, OnGrid, grid_of


class ColourField(OnGrid):
    """A field psi(x) of three complex components on even (`parity` 0) or odd (1) sites, x + y + z + t modulo 2.

    On the lattice and the engine of `geometry`: a gauge field, an operator or another colour field.
    """

    def __init__(self, geometry: OnGrid, parity: int, precision: Precision = "f64") -> None:
        if parity not in (0, 1):
            raise SpecError(f"`parity` must be 0 (even sites) or 1 (odd sites). Got {parity!r}")
        super().__init__(grid_of(geometry.engine, geometry.dims, precision))
        self.parity = parity
        self.values: Buffer = self.grid.new("colours")

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


class StaggeredOperator(OnGrid):
    """D of one mass on the links of `gauge`, in single or double precision.

    The links are copied, phases and boundary folded in: call `refresh` after they changed.
    """

    def __init__(self, gauge: GaugeField, mass: float, *, precision: Precision = "f64") -> None:
        super().__init__(grid_of(gauge.engine, gauge.dims, precision))
        if not (np.isfinite(mass) and mass > 0):
            raise SpecError(f"`mass` must be a finite number > 0. Got {mass}")
        self.mass = float(mass)
        self.gauge = gauge
        self._hopping = self.grid.staggered()
        self._scratch: list[ColourField] = []
        self._solvers: dict[int, Solver] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take up the links that the gauge field has now."""
        self._hopping.refresh(self.gauge.links, self.gauge.precision)

    def hop(self, out: ColourField, source: ColourField) -> None:
        """Set out = H source; the fields are on opposite parities."""
        self.require_fits(out, "out")
        self.require_fits(source, "source")
        if out.parity == source.parity:
            raise SpecError(f"`out` must be on parity {1 - source.parity}, since H changes it. Got {out.parity}")
        self._hopping.hop(out.values, source.values, out.parity)

    def normal(self, out: ColourField, source: ColourField, *, shift: float = 0.0) -> None:
        """Set out = (D^dagger D + shift) source = (m^2 + shift) source - H H source, on one parity."""
        self._normal(out, None, source, shift)

    def residual(self, out: ColourField, source: ColourField, x: ColourField, *, shift: float = 0.0) -> float:
        """Set out = source - (D^dagger D + shift) x; returns |out|^2."""
        self.require_fits(source, "source")
        x.require_like(source, "source")
        return self._normal(out, source.values, x, shift)

    def _normal(self, out: ColourField, source: Buffer | None, x: ColourField, shift: float) -> float:
        self.require_fits(out, "out")
        self.require_fits(x, "x")
        out.require_like(x, "x")
        with self.borrowed(1) as (scratch,):
            return self._hopping.normal(out.values, source, x.values, scratch.values, self.mass**2 + shift, x.parity)

    def force(self, momenta: Momenta, fields: Sequence[ColourField], coefficients: Sequence[float]) -> None:
        """Set pi_a = pi_a - sum_i c_i d/dw_a [X_i^dagger D^dagger D X_i], the X_i on even sites held fixed.

        d/dw_a is the derivative under U -> exp(i w_a T_a) U. For S = phi^dagger (D^dagger D)^-1 phi and
        X = (D^dagger D)^-1 phi, dS = -X^dagger d(D^dagger D) X: a kick by -eps dS/dw is the coefficient -eps.
        """
        if not fields or len(fields) != len(coefficients):
            raise SpecError(
                f"`fields` and `coefficients` must be as many, at least one. Got {len(fields)} and {len(coefficients)}"
            )
        if self.precision != self.gauge.precision:
            raise SpecError(f"a force has the precision of the links, {self.gauge.precision}. Got {self.precision}")
        for field in fields:
            self.require_fits(field, "fields")
            if field.parity:
                raise SpecError("`fields` of a force must be on even sites. Got one on odd sites")
        with self.borrowed(len(fields)) as scratch:
            self._hopping.force(
                momenta.values,
                [field.values for field in fields],
                [field.values for field in scratch],
                np.asarray(coefficients, np.float64),
            )

    def require_fits(self, field: ColourField, argument: str) -> None:
        """Raise when a field is of another lattice, precision or engine."""
        if not self.meets(field):
            mine, its = ((f.dims, f.precision, f.engine.name) for f in (self, field))
            raise SpecError(f"`{argument}` must be a field with (dims, precision, engine) = {mine}. Got {its}")

    @contextmanager
    def borrowed(self, n: int, parity: int = 0) -> Iterator[list[ColourField]]:
        """Lend n fields of any content, kept between calls so that none allocates."""
        lent = [self._scratch.pop() if self._scratch else ColourField(self, 0, self.precision) for _ in range(n)]
        for field in lent:
            field.parity = parity
        try:
            yield lent
        finally:
            self._scratch.extend(lent)

    def solver(self, shifts: int) -> Solver:
        """Return the workspace of solves with so many shifts, kept so that none allocates."""
        if shifts not in self._solvers:
            self._solvers[shifts] = self._hopping.solver(shifts)
        return self._solvers[shifts]
