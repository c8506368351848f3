"""The one-link staggered Dirac operator, even-odd: D = m + H on a gauge field, antiperiodic in time.

    (H psi)(x) = 1/2 sum_mu eta_mu(x) [U_mu(x) psi(x + mu) - U_mu(x - mu)^dagger psi(x - mu)]

with eta_x = 1, eta_y = (-1)^x, eta_z = (-1)^(x+y), eta_t = (-1)^(x+y+z). H is anti-Hermitian and joins sites of
opposite parity, so D^dagger D = m^2 - H H acts on each parity alone and has the same determinant on both.
"""

import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.native import kernels
from metalforge.native._threads import thread_count

from .colour import ColourField, layout_of
from .field import DTYPES, GaugeField, Momenta, Precision

__all__ = ["StaggeredOperator"]


class StaggeredOperator:
    """D of one mass on the links of `gauge`, in single or double precision.

    The links are copied, phases and boundary folded in: call `refresh` after they changed. `threads` None means those
    of the gauge field.
    """

    def __init__(
        self, gauge: GaugeField, mass: float, *, precision: Precision = "f64", threads: int | None = None
    ) -> None:
        if precision not in DTYPES:
            raise SpecError(f"`precision` must be f64 or f32. Got `{precision}`")
        self.mass = _checked_mass(mass)
        self.gauge = gauge
        self.precision: Precision = precision
        self.threads = gauge.threads if threads is None else thread_count(threads)
        self.module = kernels()
        self.native = self.kernel("staggered")(layout_of(self.module, gauge.dims, precision))
        self._map = None if precision == gauge.precision else precision_map(self.module, gauge.dims)
        self._scratch: list[ColourField] = []
        self._solvers: dict[int, list[Any]] = {}
        self.refresh()

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """(Nx, Ny, Nz, Nt)."""
        return self.gauge.dims

    def kernel(self, name: str) -> Any:
        """Return a kernel for this operator's precision."""
        return getattr(self.module, f"{name}_{self.precision}")

    def with_mass(self, mass: float) -> Self:
        """Return the operator of another mass on the same copy of the links: one `refresh` serves both."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.mass = _checked_mass(mass)
        return other

    def refresh(self) -> None:
        """Take up the links that the gauge field has now."""
        if self._map is None:
            self.kernel("staggered_refresh")(self.native, self.gauge.links, self.threads)
        else:
            change = "staggered_narrow" if self.precision == "f32" else "staggered_widen"
            getattr(self.module, change)(self.native, self._map, self.gauge.links, self.threads)

    def hop(self, out: ColourField, source: ColourField) -> None:
        """Set out = H source; the fields are on opposite parities."""
        self.require_fits(out, "out")
        self.require_fits(source, "source")
        if out.parity == source.parity:
            raise SpecError(f"`out` must be on parity {1 - source.parity}, since H changes it. Got {out.parity}")
        self.kernel("staggered_hop")(self.native, out.values, source.values, out.parity, self.threads)

    def normal(self, out: ColourField, source: ColourField, *, shift: float = 0.0) -> None:
        """Set out = (D^dagger D + shift) source = (m^2 + shift) source - H H source, on one parity."""
        self._normal(out, None, source, shift)

    def residual(self, out: ColourField, source: ColourField, x: ColourField, *, shift: float = 0.0) -> float:
        """Set out = source - (D^dagger D + shift) x; returns |out|^2."""
        self.require_fits(source, "source")
        x.require_like(source, "source")
        return self._normal(out, source.values, x, shift)

    def _normal(self, out: ColourField, source: NDArray[Any] | None, x: ColourField, shift: float) -> float:
        self.require_fits(out, "out")
        self.require_fits(x, "x")
        out.require_like(x, "x")
        with self.borrowed(1) as (scratch,):
            return float(
                self.kernel("staggered_normal")(
                    self.native, out.values, source, x.values, scratch.values, self.diagonal(shift), x.parity,
                    self.threads,
                )
            )  # fmt: skip

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
            self.kernel("staggered_force")(
                self.native,
                momenta.values,
                [field.values for field in fields],
                [field.values for field in scratch],
                np.asarray(coefficients, np.float64),
                self.threads,
            )

    def diagonal(self, shift: float) -> float:
        """Return m^2 + shift."""
        return self.mass**2 + shift

    def require_fits(self, field: ColourField, argument: str) -> None:
        """Raise when a field is of another lattice or precision."""
        if field.dims != self.gauge.dims or field.precision != self.precision:
            raise SpecError(
                f"`{argument}` must be a field with (dims, precision) = {(self.dims, self.precision)}. "
                f"Got {(field.dims, field.precision)}"
            )

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
    def borrowed_solver(self, shifts: int) -> Iterator[Any]:
        """Lend the workspace of a solve; a solve inside another one's callback gets one of its own."""
        kept = self._solvers.setdefault(shifts, [])
        solver = kept.pop() if kept else self.kernel("cg")(self.native, shifts)
        try:
            yield solver
        finally:
            kept.append(solver)


@lru_cache(maxsize=8)
def precision_map(module: ModuleType, dims: tuple[int, int, int, int]) -> Any:
    """Return the map between the single and the double precision layout of a lattice."""
    return module.precision_map(layout_of(module, dims, "f64"))


# As that of layouts: what the cache holds must not outlive the extension.
atexit.register(precision_map.cache_clear)


def _checked_mass(mass: float) -> float:
    if not (np.isfinite(mass) and mass > 0):
        raise SpecError(f"`mass` must be a finite number > 0. Got {mass}")
    return float(mass)
