"""One solve of (D^dagger D + shift) x = b: checked arguments, iterations that can be watched, what they cost."""

import operator as integers
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Literal, NamedTuple, Required, TypedDict

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import MetalforgeError, SpecError, require_one_of
from metalforge.native.engine import Iterations, Solver

from .staggered import ColourField, StaggeredOperator

OnCheck = Callable[[int, float], Literal["stop"] | int | None]
"""Called with (iteration, relative residual); "stop" interrupts the solve, a number is the next check interval."""

Attempt = Callable[[float, bool], int]
"""Runs a recurrence from a residual of this norm squared, anew or in its last direction; gives the solver's state."""

RUNNING, CONVERGED, BROKEN = 0, 1, 2
"""What an engine reports: `Solver.iterate` in native/engine.py."""

MARGIN = 0.99
"""The recurrence goes this much below the tolerance, so that its rounding rarely costs a second start."""

STALLED = 0.9
"""A new start that gains less than this factor in the true residual is at the limit of the precision."""


class SolveInfo(NamedTuple):
    """What a solve did."""

    iterations: int
    """Applications of D^dagger D in the recurrence; several shifts share them."""
    residual: float
    """The true |b - (D^dagger D + shift) x| / |b|, recomputed at the end; of the worst shift."""
    converged: bool
    history: tuple[tuple[int, float], ...]
    """(iteration, relative residual of the recurrence) at every check."""
    flops: float
    bytes: float
    """Memory traffic if every pass over the lattice reads and writes each number once."""
    seconds: float
    interrupted: bool


class SolverError(MetalforgeError):
    """A solve that did not converge; `info` says how far it came."""

    def __init__(self, message: str, info: SolveInfo) -> None:
        super().__init__(message)
        self.info = info


class SolveOptions(TypedDict, total=False):
    """When a solve ends, and who is told."""

    tolerance: Required[float]
    max_iterations: Required[int]
    check_interval: int
    on_check: OnCheck | None
    on_failure: Literal["raise", "report"]


def iteration_cost(sites: int, precision: str, updates: float = 1.0) -> tuple[float, float]:
    """Return flops and bytes of one iteration on `sites` sites of one parity that updates so many solutions.

    H is 570 flop per site (eight products of 66 and seven sums of 6) and reads eight links of 18 reals
    (an engine that keeps two rows of each, a third less). The passes are
    those of staggered_solver.cpp: y = H p (reads p, writes y), r (reads y, p, r, writes r), and for each solution x and
    p (reads r once, reads and writes x and p).
    """
    flops = 2 * 570 + 12 + 24 + 12 + updates * (12 + 18) + 12
    reals = 2 * 8 * 18 + 6 * (2 + 4 + 1 + 4 * updates)
    return sites * flops, sites * reals * (8.0 if precision == "f64" else 4.0)


class Solve:
    """The state of one solve; `residual2` is |b - A x|^2 of the worst solution that is finished."""

    def __init__(
        self,
        operator: StaggeredOperator,
        source: ColourField,
        outs: Sequence[ColourField],
        shifts: Sequence[float],
        *,
        tolerance: float,
        max_iterations: int,
        check_interval: int = 10,
        on_check: OnCheck | None = None,
        on_failure: str = "raise",
    ) -> None:
        self.tolerance = tolerance
        if not (np.isfinite(tolerance) and 0 < tolerance < 1):
            raise SpecError(f"`tolerance` must be a number in (0, 1). Got {tolerance}")
        require_one_of("raise", "report", on_failure=on_failure)
        self.raises = on_failure == "raise"
        self.max_iterations = _positive(max_iterations, "max_iterations")
        self.interval = _positive(check_interval, "check_interval")
        self.on_check = on_check
        self.operator, self.source = operator, source
        self.outs, self.shifts = list(outs), [float(shift) for shift in shifts]
        self._check_fields()
        self.iterations = self._checked = 0
        self.history: list[tuple[int, float]] = []
        self.flops = self.bytes = 0.0
        self.interrupted = self.broken = False
        self.began = perf_counter()
        self.norm2 = _finite_norm2(source)
        self.limit2 = self.tolerance**2 * self.norm2
        self.target2 = MARGIN**2 * self.limit2
        self.residual2 = 0.0

    def _check_fields(self) -> None:
        if not self.outs or len(self.outs) != len(self.shifts):
            raise SpecError(
                f"`outs` and `shifts` must be as many, at least one. Got {len(self.outs)} and {len(self.shifts)}"
            )
        self.operator.require_fits(self.source, "source")
        for out in self.outs:
            self.source.require_like(out, "out")
            if out is self.source or sum(out is other for other in self.outs) > 1:
                raise SpecError("`out` must be a field of its own: not the source, nor the same for two shifts")
        for shift in self.shifts:
            if not (np.isfinite(shift) and self.operator.diagonal(shift) > 0):
                raise SpecError(
                    f"`shift` must be a finite number above -mass^2 = {-(self.operator.mass**2):g}. Got {shift}"
                )

    def start(self, guess: ColourField | None = None) -> bool:
        """Set the solutions to their start; returns False when that is the answer already."""
        if guess is not None:
            self.source.require_like(guess, "guess")
        for out in self.outs:
            if guess is None or self.norm2 == 0:
                out.zero()
            elif guess is not out:
                out.assign(guess)
        return self.norm2 > 0

    def finish_one(
        self, attempt: Attempt, out: ColourField, shift: float, residual: ColourField, *, zero: bool = False
    ) -> None:
        """Bring one solution to the tolerance: a recurrence that ends with a true residual above it goes on from there.

        Where the solution is `zero` its residual is the source.
        """
        if zero:
            residual.assign(self.source)
        residual2 = self.norm2 if zero else self.true_residual(residual, out, shift)
        keep, state = False, CONVERGED
        while residual2 > self.limit2 and state == CONVERGED:
            before = residual2
            state = attempt(residual2, keep)
            residual2 = self.true_residual(residual, out, shift)
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
        unit2: float | None = None,
    ) -> int:
        """Run the recurrence to `target2`; returns the solver's state, RUNNING when it was stopped or is out of budget.

        `shift` is the smallest one, `differences` are counted from it; `unit2` is |b|^2 in the units of the solver.
        """
        unit2 = self.norm2 if unit2 is None else unit2
        buffers, diagonal, parity = [x.values for x in solutions], operator.diagonal(shift), self.source.parity
        while True:
            budget, since = self.max_iterations - self.iterations, self.iterations - self._checked
            # Where nobody looks, the solver need not come back at every check.
            wanted = budget if self.on_check is None else min(self.interval - since, budget)
            if wanted <= 0 or self.interrupted:
                return RUNNING
            asked = Iterations(differences, diagonal, parity, target2, wanted, self.interval, since)
            did = solver.iterate(buffers, asked)
            self.iterations += did.iterations
            self.broken = did.state == BROKEN
            if did.iterations:
                cost = iteration_cost(self.source.sites, operator.precision, did.updates / did.iterations)
                self._count(did.iterations, *cost)
            for residual2 in did.checks:
                self._check(float(np.sqrt(residual2 / unit2)))
            if did.state != RUNNING:
                return did.state

    def _check(self, residual: float) -> None:
        self._checked += self.interval
        self.history.append((self._checked, residual))
        answer = self.on_check(self._checked, residual) if self.on_check else None
        if answer == "stop":
            self.interrupted = True
        elif answer is not None:
            self.interval = _positive(answer, "check_interval")

    def _count(self, times: int, flops: float, moved: float) -> None:
        self.flops += times * flops
        self.bytes += times * moved

    def true_residual(self, residual: ColourField, out: ColourField, shift: float) -> float:
        """Set residual = b - (D^dagger D + shift) out; returns its norm squared."""
        self._count(1, *iteration_cost(self.source.sites, self.operator.precision, 0.0))
        return self.operator.residual(residual, self.source, out, shift=shift)

    def add_result(self, residual2: float) -> None:
        """Take up |b - A x|^2 of a solution; the worst one counts, and one that is not a number is the worst."""
        if not residual2 <= self.residual2:
            self.residual2 = residual2

    def finish(self) -> SolveInfo:
        """Return the result, or raise when it is not one and the policy says so."""
        residual = float(np.sqrt(self.residual2 / self.norm2)) if self.norm2 > 0 else 0.0
        converged = residual <= self.tolerance
        info = SolveInfo(
            iterations=self.iterations,
            residual=residual,
            converged=converged,
            history=tuple(self.history),
            flops=self.flops,
            bytes=self.bytes,
            seconds=perf_counter() - self.began,
            interrupted=self.interrupted and not converged,
        )
        if not converged and not self.interrupted and self.raises:
            raise SolverError(self._reason(info), info)
        return info

    def _reason(self, info: SolveInfo) -> str:
        wanted = f"the solve must reach a relative residual of {self.tolerance:g}"
        if self.broken or not np.isfinite(info.residual):
            return (
                f"{wanted}, but numbers are not finite after {info.iterations} iterations: see the links and the guess"
            )
        came = f"Got {info.residual:.3g} after {info.iterations} iterations"
        if info.iterations >= self.max_iterations:
            return f"{wanted}. {came}\nhint: raise `max_iterations`, or the mass"
        return f"{wanted}. {came}, where rounding in {self.operator.precision} stops it\nhint: raise `tolerance`"


def _finite_norm2(source: ColourField) -> float:
    norm2 = source.norm2()
    if not np.isfinite(norm2):
        host = source.to_host()
        bad = np.argwhere(~np.isfinite(host))
        came = (
            f"Got {host[tuple(bad[0])]} at (t, z, y, x, colour) = {bad[0].tolist()}"
            if len(bad)
            else "Its norm overflows"
        )
        raise SpecError(f"`source` must hold finite numbers. {came}")
    return norm2


def _positive(number: Any, argument: str) -> int:
    try:
        value = integers.index(number)
        if value < 1 or isinstance(number, bool):
            raise ValueError
    except (TypeError, ValueError):
        raise SpecError(f"`{argument}` must be an integer >= 1. Got {number!r}") from None
    return value
