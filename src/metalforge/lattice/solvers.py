"""Solvers of (D^dagger D + shift) x = b: conjugate gradients (Hestenes and Stiefel 1952) whose iterations kernels run.

The residual in a result is the true one, |b - (D^dagger D + shift) x| / |b|, computed at the end; where the recurrence
has drifted away from it, the solve goes on from there. A solve that does not converge raises `SolverError`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from metalforge.core import MetalforgeError, SpecError, require_at_least
from metalforge.native import Iterations, Solver

from .field import GaugeField
from .rational import Rational
from .staggered import ColourField, StaggeredOperator

RUNNING, CONVERGED, BROKEN = 0, 1, 2
"""States that an engine reports: `Solver.iterate` in native/engine.py."""
MARGIN = 0.99
"""The recurrence goes this much below the tolerance, so that its rounding rarely costs a second start."""
STALLED = 0.9
"""A new start that gains less than this factor in the true residual is at the limit of the precision."""
RELIABLE = 0.1
"""The residual of the single-precision recurrence is replaced by the true one each time it fell by this factor."""


class SolveInfo(NamedTuple):
    """What a solve did: applications of D^dagger D, which shifts share, and the true residual of the worst shift."""

    iterations: int
    residual: float


class SolverError(MetalforgeError):
    """A solve that did not converge; `info` says how far it came."""

    def __init__(self, message: str, info: SolveInfo) -> None:
        super().__init__(message)
        self.info = info


class SolveOptions(TypedDict):
    """When a solve ends: the relative residual that is wanted, and the iterations after which it is given up."""

    tolerance: float
    max_iterations: int


class _Solve:
    """The state of one solve; `residual2` is |b - A x|^2 of the worst solution that is finished."""

    def __init__(
        self,
        operator: StaggeredOperator,
        source: ColourField,
        outs: Sequence[ColourField],
        shifts: Sequence[float],
        guess: ColourField | None = None,
        *,
        tolerance: float,
        max_iterations: int,
    ) -> None:
        if not 0 < tolerance < 1:
            raise SpecError(f"`tolerance` must be a number in (0, 1). Got {tolerance}")
        require_at_least(1, max_iterations=max_iterations)
        if not outs or len(outs) != len(shifts):
            raise SpecError(f"`outs` and `shifts` must be as many, at least one. Got {len(outs)} and {len(shifts)}")
        operator.require_fits(source, "source")
        for out in (*outs, *(() if guess is None else (guess,))):
            source.require_like(out, "guess" if out is guess else "out")
        if len({id(field) for field in (source, *outs)}) != 1 + len(outs):
            raise SpecError("`out` must be a field of its own: not the source, nor the same for two shifts")
        for shift in shifts:
            if not (np.isfinite(shift) and operator.mass**2 + shift > 0):
                raise SpecError(f"`shift` must be a finite number above -mass^2 = {-(operator.mass**2):g}. Got {shift}")
        self.operator, self.source = operator, source
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self.iterations, self.residual2, self.broken = 0, 0.0, False
        self.norm2 = source.norm2()
        if not np.isfinite(self.norm2):
            raise SpecError(f"`source` must hold finite numbers whose norm is finite. Got a norm of {self.norm2}")
        self.limit2 = tolerance**2 * self.norm2
        self.target2 = MARGIN**2 * self.limit2
        for out in outs:
            if guess is None or self.norm2 == 0:
                out.zero()
            elif guess is not out:
                out.assign(guess)

    def finish_one(
        self, out: ColourField, shift: float, *, zero: bool = False, single: StaggeredOperator | None = None
    ) -> None:
        """Bring one solution to the tolerance: a recurrence that ends with a true residual above it goes on from there.

        Where the solution is `zero` its residual is the source. With `single` iterations are in its precision: in units
        of |b|, so that no source is too small for it, and their sum is added up in double precision.
        """
        operator, iterated, parity = self.operator, single or self.operator, self.source.parity
        solver, length = iterated.solver(1), float(np.sqrt(self.norm2))
        with operator.borrowed(1, parity) as (residual,), iterated.borrowed(2 if single else 0, parity) as narrow:
            if zero:
                residual.assign(self.source)
            residual2 = self.norm2 if zero else operator.residual(residual, self.source, out, shift=shift)
            keep, state = False, CONVERGED
            while residual2 > self.limit2 and state == CONVERGED:
                before = residual2
                if single is None:
                    solver.begin(residual.values, keep)
                    state = self.iterate(operator, solver, [out], np.zeros(1), shift, self.target2)
                else:
                    rest, part = narrow
                    operator.grid.narrow_colours(rest.values, residual.values, 1 / length, parity)
                    solver.begin(rest.values, keep)
                    part.zero()
                    goal = max(self.target2, RELIABLE**2 * residual2) / self.norm2
                    state = self.iterate(single, solver, [part], np.zeros(1), shift, goal)
                    operator.grid.widen_colours(out.values, part.values, 1.0, length, parity)
                residual2 = operator.residual(residual, self.source, out, shift=shift)
                if residual2 > STALLED**2 * before:
                    break
                keep = True
        self.add_result(residual2)

    def iterate(
        self,
        operator: StaggeredOperator,
        solver: Solver,
        solutions: Sequence[ColourField],
        differences: NDArray[np.float64],
        shift: float,
        target2: float,
    ) -> int:
        """Run the recurrence to `target2`, with shifts counted from `shift`; returns RUNNING when out of budget."""
        buffers, diagonal, parity = [x.values for x in solutions], operator.mass**2 + shift, self.source.parity
        while (left := self.max_iterations - self.iterations) > 0:
            did = solver.iterate(buffers, Iterations(differences, diagonal, parity, target2, left, left, 0))
            self.iterations += did.iterations
            self.broken = did.state == BROKEN
            if did.state != RUNNING:
                return did.state
        return RUNNING

    def add_result(self, residual2: float) -> None:
        """Take up |b - A x|^2 of a solution; the worst one counts, and one that is not a number is the worst."""
        if not residual2 <= self.residual2:
            self.residual2 = residual2

    def finish(self) -> SolveInfo:
        """Return the result, or raise when it is not one."""
        residual = float(np.sqrt(self.residual2 / self.norm2)) if self.norm2 > 0 else 0.0
        info = SolveInfo(self.iterations, residual)
        if residual <= self.tolerance:
            return info
        wanted = f"the solve must reach a relative residual of {self.tolerance:g}"
        if self.broken or not np.isfinite(residual):
            reason = f", but numbers are not finite after {info.iterations} iterations: see the links and the guess"
        elif info.iterations >= self.max_iterations:
            reason = (
                f". Got {residual:.3g} after {info.iterations} iterations\nhint: raise `max_iterations`, or the mass"
            )
        else:
            reason = (
                f". Got {residual:.3g} after {info.iterations} iterations, where rounding in {self.operator.precision} "
                "stops it\nhint: raise `tolerance`"
            )
        raise SolverError(wanted + reason, info)


def cg(
    operator: StaggeredOperator,
    source: ColourField,
    out: ColourField,
    *,
    shift: float = 0.0,
    guess: ColourField | None = None,
    single: StaggeredOperator | None = None,
    **options: Unpack[SolveOptions],
) -> SolveInfo:
    """Set out = (D^dagger D + shift)^-1 source to a relative residual of `tolerance`.

    `guess` is where the search starts, zero when None. With `single`, the operator of the same gauge field and mass in
    f32, iterations are in single precision. Each time the residual has fallen by a factor of ten, the solution so far
    is added up in double precision and the true residual takes the place of the recurrence's, while the search
    direction is kept (reliable updates: Sleijpen and van der Vorst 1996; Clark et al., arXiv:0911.3191).
    """
    if single is not None:
        pair = [(one.precision, one.dims, one.mass) for one in (operator, single)]
        if pair != [("f64", operator.dims, operator.mass), ("f32", operator.dims, operator.mass)]:
            raise SpecError(f"`operator` in f64 and `single` in f32 must have one lattice and mass. Got {pair}")
    solve = _Solve(operator, source, [out], [shift], guess, **options)
    solve.finish_one(out, shift, zero=guess is None, single=single)
    return solve.finish()


def multishift_cg(
    operator: StaggeredOperator,
    source: ColourField,
    outs: Sequence[ColourField],
    shifts: Sequence[float],
    **options: Unpack[SolveOptions],
) -> SolveInfo:
    """Set outs[k] = (D^dagger D + shifts[k])^-1 source for all k in the Krylov space of the smallest shift.

    A shift that has reached the tolerance is left alone. Where rounding left a true residual above it, that shift is
    finished by conjugate gradients of its own.
    """
    solve = _Solve(operator, source, outs, shifts, **options)
    if solve.norm2 == 0:
        return solve.finish()
    order = [int(k) for k in np.argsort(shifts, kind="stable")]
    smallest = shifts[order[0]]
    solver = operator.solver(len(order))
    solver.begin(source.values, False)
    differences = np.array([shifts[k] - smallest for k in order])
    state = solve.iterate(operator, solver, [outs[k] for k in order], differences, smallest, solve.target2)
    for k in order:
        if state == CONVERGED:
            solve.finish_one(outs[k], shifts[k])
        else:
            with operator.borrowed(1, source.parity) as (residual,):
                solve.add_result(operator.residual(residual, source, outs[k], shift=shifts[k]))
    return solve.finish()


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
        self.solves = 0
        self.iterations = 0

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
        options: SolveOptions = {"tolerance": tolerance, "max_iterations": self._max_iterations}
        shift = mass**2 - self.mass**2
        self._count(cg(self.operator, source, out, shift=shift, guess=guess, single=self._single, **options))

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
        offset, most = mass**2 - self.mass**2, self._max_iterations
        shifts = [shift + offset for shift in shifts]
        self._count(multishift_cg(self.operator, source, outs, shifts, tolerance=tolerance, max_iterations=most))

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
