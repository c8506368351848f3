"""Solves with D^dagger D of any mass on the links of one field: what pseudofermions and observables are made of."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from .field import GaugeField
from .rational import Rational
from .solvers import OnCheck, SolveInfo, SolveOptions, SolverError, cg, mixed_cg, multishift_cg
from .staggered import ColourField, StaggeredOperator

__all__ = ["Inverter"]


class Inverter:
    """Solves with A(m) for any mass on one set of links, and counts what they cost.

    One operator, of the lightest mass, serves all: A(M) = A(m) + M^2 - m^2.
    """

    def __init__(
        self, field: GaugeField, mass: float, *, max_iterations: int = 10_000, mixed_precision: bool = False
    ) -> None:
        self.mass = mass
        self.operator = StaggeredOperator(field, mass)
        self._single = StaggeredOperator(field, mass, precision="f32") if mixed_precision else None
        self._field = field
        self._max_iterations = max_iterations
        self._pool: list[ColourField] = []
        self._stale = True
        self.watch: OnCheck | None = None
        """Called with (iteration, relative residual) at every check of every solve; "stop" makes the solve an error."""
        self.check_interval = 10
        self.solves = 0
        self.iterations = 0

    @property
    def volume(self) -> int:
        """Number of sites, even and odd."""
        return self._field.volume

    def links_moved(self) -> None:
        """Say that the links are others now; they are taken up when they are needed."""
        self._stale = True

    def take_up(self) -> None:
        """Bring the operators up to date with the links."""
        if self._stale:
            self.operator.refresh()
            if self._single is not None:
                self._single.refresh()
            self._stale = False

    def fresh(self, parity: int = 0) -> ColourField:
        """Return a colour field of this lattice."""
        return ColourField(self._field, parity, "f64")

    def pool(self, n: int) -> Sequence[ColourField]:
        """Return n even fields that every caller shares: for results that are used at once."""
        while len(self._pool) < n:
            self._pool.append(self.fresh())
        return self._pool[:n]

    def hop(self, out: ColourField, source: ColourField) -> None:
        """Set out = H source."""
        self.take_up()
        self.operator.hop(out, source)

    def normal(self, out: ColourField, source: ColourField, mass: float) -> None:
        """Set out = A(mass) source."""
        self.take_up()
        self.operator.normal(out, source, shift=mass**2 - self.mass**2)

    def solve(
        self, source: ColourField, out: ColourField, *, mass: float, tolerance: float, guess: ColourField | None = None
    ) -> None:
        """Set out = A(mass)^-1 source, to a relative residual of `tolerance`."""
        self.take_up()
        solver = cg if self._single is None else partial(mixed_cg, single=self._single)
        info = solver(
            self.operator,
            source=source,
            out=out,
            shift=mass**2 - self.mass**2,
            guess=guess,
            **self._options(tolerance),
        )
        self._count(info)

    def solve_shifted(
        self,
        source: ColourField,
        outs: Sequence[ColourField],
        shifts: Sequence[float],
        *,
        mass: float,
        tolerance: float,
    ) -> None:
        """Set outs[k] = (A(mass) + shifts[k])^-1 source, all at the price of one solve."""
        self.take_up()
        offset = mass**2 - self.mass**2
        options = self._options(tolerance)
        self._count(multishift_cg(self.operator, source, outs, [s + offset for s in shifts], **options))

    def apply(
        self, rational: Rational, source: ColourField, out: ColourField, *, mass: float, tolerance: float
    ) -> None:
        """Set out = r(A(mass)) source."""
        parts = self.pool(len(rational.shifts))
        self.solve_shifted(source, parts, rational.shifts, mass=mass, tolerance=tolerance)
        out.assign(source)
        out.scale(rational.constant)
        for part, residue in zip(parts, rational.residues, strict=True):
            out.add(part, residue)

    def _options(self, tolerance: float) -> SolveOptions:
        return {
            "tolerance": tolerance,
            "max_iterations": self._max_iterations,
            "check_interval": self.check_interval,
            "on_check": self.watch,
        }

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leave the solves of a `with` block out of the counts."""
        counts = self.solves, self.iterations
        try:
            yield
        finally:
            self.solves, self.iterations = counts

    def _count(self, info: SolveInfo) -> None:
        self.solves += 1
        self.iterations += info.iterations
        if info.interrupted:
            # A trajectory must not go on with half a solution.
            raise SolverError(
                f"the watcher stopped a solve after {info.iterations} iterations at a relative residual of "
                f"{info.residual:.3g}",
                info,
            )
