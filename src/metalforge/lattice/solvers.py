"""Solvers of (D^dagger D + shift) x = b that can be watched: what a solve did and cost is its result.

All are conjugate gradients (Hestenes and Stiefel 1952). The iterations run in the kernels; every `check_interval` of
them `on_check` is told the relative residual and may stop the solve or change the interval, which changes no result.
The residual in a result is the true one, |b - (D^dagger D + shift) x| / |b|, computed at the end; where the recurrence
has drifted away from it, the solve goes on from there.

A solve that does not converge raises SolverError, or with `on_failure` "report" returns what it has; one that
`on_check` stopped returns with `interrupted` set.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Unpack

import numpy as np

from metalforge.core.errors import SpecError

from .field import GaugeField
from .rational import Rational
from .solving import CONVERGED, Solve, SolveInfo, SolveOptions
from .staggered import ColourField, StaggeredOperator

RELIABLE = 0.1
"""The residual of the single-precision recurrence is replaced by the true one each time it fell by this factor."""


def cg(
    operator: StaggeredOperator,
    source: ColourField,
    out: ColourField,
    *,
    shift: float = 0.0,
    guess: ColourField | None = None,
    **options: Unpack[SolveOptions],
) -> SolveInfo:
    """Set out = (D^dagger D + shift)^-1 source to a relative residual of `tolerance`.

    `guess` is where the search starts, zero when None.
    """
    solve = Solve(operator, source, [out], [shift], **options)
    if solve.start(guess):
        _finish_in_double(solve, 0, zero=guess is None)
    return solve.finish()


def _finish_in_double(solve: Solve, number: int, *, zero: bool = False) -> None:
    """Bring one solution of a solve to its tolerance by conjugate gradients of its own."""
    operator, out, shift = solve.operator, solve.outs[number], solve.shifts[number]
    with operator.borrowed_solver(1) as solver, operator.borrowed(1, solve.source.parity) as (residual,):

        def attempt(residual2: float, keep: bool) -> int:
            solver.begin(residual.values, keep)
            return solve.iterate(operator, solver, [out], np.zeros(1), shift, solve.target2)

        solve.finish_one(attempt, out, shift, residual, zero=zero)


def multishift_cg(
    operator: StaggeredOperator,
    source: ColourField,
    outs: Sequence[ColourField],
    shifts: Sequence[float],
    **options: Unpack[SolveOptions],
) -> SolveInfo:
    """Set outs[k] = (D^dagger D + shifts[k])^-1 source for all k in the Krylov space of the smallest shift.

    The residual at a check is that of the smallest shift. A shift that has reached the tolerance is left alone. Where
    rounding left a true residual above it, that shift is finished by conjugate gradients of its own.
    """
    solve = Solve(operator, source, outs, shifts, **options)
    if not solve.start():
        return solve.finish()
    order = [int(k) for k in np.argsort(solve.shifts, kind="stable")]
    smallest = solve.shifts[order[0]]
    with operator.borrowed_solver(len(order)) as solver:
        solver.begin(source.values, False)
        solutions = [solve.outs[k] for k in order]
        differences = np.array([solve.shifts[k] - smallest for k in order])
        state = solve.iterate(operator, solver, solutions, differences, smallest, solve.target2)
    for k in order:
        if state == CONVERGED:
            _finish_in_double(solve, k)
        else:
            with operator.borrowed(1, source.parity) as (residual,):
                solve.add_result(solve.true_residual(residual, solve.outs[k], solve.shifts[k]))
    return solve.finish()


def mixed_cg(
    operator: StaggeredOperator,
    single: StaggeredOperator,
    source: ColourField,
    out: ColourField,
    *,
    shift: float = 0.0,
    guess: ColourField | None = None,
    **options: Unpack[SolveOptions],
) -> SolveInfo:
    """Set out = (D^dagger D + shift)^-1 source in double precision, with its iterations in single precision.

    `single` is the operator of the same gauge field and mass in f32. Each time the residual has fallen by a factor of
    ten, the solution so far is added up in double precision and the true residual takes the place of the recurrence's,
    while the search direction is kept (reliable updates: Sleijpen and van der Vorst 1996; Clark et al.,
    arXiv:0911.3191).
    """
    _require_pair(operator, single)
    solve = Solve(operator, source, [out], [shift], **options)
    if not solve.start(guess):
        return solve.finish()
    grid, length, parity = operator.grid, float(np.sqrt(solve.norm2)), source.parity
    with ExitStack() as stack:
        (residual,) = stack.enter_context(operator.borrowed(1, parity))
        narrow, part = stack.enter_context(single.borrowed(2, parity))
        solver = stack.enter_context(single.borrowed_solver(1))

        def attempt(residual2: float, keep: bool) -> int:
            # In units of |b|, so that no source is too small for single precision.
            grid.narrow_colours(narrow.values, residual.values, 1 / length, parity)
            solver.begin(narrow.values, keep)
            part.zero()
            goal = max(solve.target2, RELIABLE**2 * residual2) / solve.norm2
            state = solve.iterate(single, solver, [part], np.zeros(1), shift, goal, unit2=1.0)
            grid.widen_colours(out.values, part.values, 1.0, length, parity)
            return state

        solve.finish_one(attempt, out, shift, residual, zero=guess is None)
    return solve.finish()


def _require_pair(operator: StaggeredOperator, single: StaggeredOperator) -> None:
    if (operator.precision, single.precision) != ("f64", "f32"):
        raise SpecError(
            f"`operator` must be in f64 and `single` in f32. Got {operator.precision} and {single.precision}"
        )
    if operator.dims != single.dims or operator.mass != single.mass:
        raise SpecError(
            f"`single` must have the lattice and mass of `operator`, {operator.dims} and {operator.mass}. "
            f"Got {single.dims} and {single.mass}"
        )


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
        return {"tolerance": tolerance, "max_iterations": self._max_iterations}

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
