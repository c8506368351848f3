"""The one-link staggered Dirac operator, even-odd: D = m + H on a gauge field, antiperiodic in time.

    (H psi)(x) = 1/2 sum_mu eta_mu(x) [U_mu(x) psi(x + mu) - U_mu(x - mu)^dagger psi(x - mu)]

with eta_x = 1, eta_y = (-1)^x, eta_z = (-1)^(x+y), eta_t = (-1)^(x+y+z). H is anti-Hermitian and joins sites of
opposite parity, so D^dagger D = m^2 - H H acts on each parity alone and has the same determinant on both.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from metalforge.core.errors import SpecError
from metalforge.native.engine import Buffer, Precision, Solver

from .colour import ColourField
from .field import GaugeField, Momenta, OnGrid

__all__ = ["StaggeredOperator"]


class StaggeredOperator(OnGrid):
    """D of one mass on the links of `gauge`, in single or double precision.

    The links are copied, phases and boundary folded in: call `refresh` after they changed.
    """

    def __init__(self, gauge: GaugeField, mass: float, *, precision: Precision = "f64") -> None:
        super().__init__(gauge.engine, gauge.dims, precision)
        if not (np.isfinite(mass) and mass > 0):
            raise SpecError(f"`mass` must be a finite number > 0. Got {mass}")
        self.mass = float(mass)
        self.gauge = gauge
        self._hopping = self.grid.staggered()
        self._scratch: list[ColourField] = []
        self._solvers: dict[int, list[Solver]] = {}
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
            return self._hopping.normal(out.values, source, x.values, scratch.values, self.diagonal(shift), x.parity)

    def force(self, momenta: Momenta, fields: Sequence[ColourField], coefficients: Sequence[float]) -> None:
        """Set pi_a = pi_a - sum_i c_i d/dw_a [X_i^dagger D^dagger D X_i], the X_i on even sites held fixed.

        d/dw_a is the derivative under U -> exp(i w_a T_a) U. For S = phi^dagger (D^dagger D)^-1 phi and
        X = (D^dagger D)^-1 phi, dS = -X^dagger d(D^dagger D) X: a kick by -eps dS/dw is the coefficient -eps.
        """
        if self.precision != self.gauge.precision:
            raise SpecError(
                f"the force needs an operator in the precision of the links, {self.gauge.precision}. "
                f"Got {self.precision}"
            )
        if not fields or len(fields) != len(coefficients):
            raise SpecError(
                f"`fields` and `coefficients` must be as many, at least one. Got {len(fields)} and {len(coefficients)}"
            )
        for field in fields:
            self.require_fits(field, "fields")
            if field.parity != 0:
                raise SpecError("`fields` must be on even sites. Got one on odd sites")
        with self.borrowed(len(fields)) as scratch:
            self._hopping.force(
                momenta.values,
                [field.values for field in fields],
                [field.values for field in scratch],
                np.asarray(coefficients, np.float64),
            )

    def diagonal(self, shift: float) -> float:
        """Return m^2 + shift."""
        return self.mass**2 + shift

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

    @contextmanager
    def borrowed_solver(self, shifts: int) -> Iterator[Solver]:
        """Lend the workspace of a solve; a solve inside another one's callback gets one of its own."""
        kept = self._solvers.setdefault(shifts, [])
        solver = kept.pop() if kept else self._hopping.solver(shifts)
        try:
            yield solver
        finally:
            kept.append(solver)
