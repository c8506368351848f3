"""Solvers of (D^dagger D + shift) x = b that can be watched: what a solve did and cost is its result.

All are conjugate gradients (Hestenes and Stiefel 1952). The iterations run in the kernels; every `check_interval` of
them `on_check` is told the relative residual and may stop the solve or change the interval, which changes no result.
The residual in a result is the true one, |b - (D^dagger D + shift) x| / |b|, computed at the end; where the recurrence
has drifted away from it, the solve goes on from there.
"""

import operator as integers
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any, Literal, NamedTuple

import numpy as np

from metalforge.core.errors import MetalforgeError, SpecError
from metalforge.native import kernels

from .colour import ColourField
from .staggered import StaggeredOperator, precision_map

__all__ = ["OnCheck", "SolveInfo", "SolverError", "cg", "iteration_cost", "mixed_cg", "multishift_cg"]

OnCheck = Callable[[int, float], Literal["stop"] | int | None]
"""Called with (iteration, relative residual); "stop" interrupts the solve, a number is the next check interval."""

RUNNING, CONVERGED, BROKEN = 0, 1, 2
"""What the kernel reports: cg_iterate in staggered_solver.cpp."""

MARGIN = 0.99
"""The recurrence goes this much below the tolerance, so that its rounding rarely costs a second start."""

STALLED = 0.5
"""A new start that gains less than this factor in the true residual is at the limit of the precision."""

RELIABLE = 0.1
"""The residual of the single-precision recurrence is replaced by the true one each time it fell by this factor."""


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


def cg(
    operator: StaggeredOperator,
    source: ColourField,
    out: ColourField,
    *,
    tolerance: float,
    max_iterations: int,
    shift: float = 0.0,
    check_interval: int = 10,
    on_check: OnCheck | None = None,
    on_failure: Literal["raise", "report"] = "raise",
    guess: ColourField | None = None,
) -> SolveInfo:
    """Set out = (D^dagger D + shift)^-1 source to a relative residual of `tolerance`.

    `guess` is where the search starts, zero when None. A solve that does not converge raises SolverError, or with
    `on_failure` "report" returns what it has; one that `on_check` stopped returns with `interrupted` set.
    """
    solve = _Solve(operator, source, [out], [shift], tolerance, max_iterations, check_interval, on_check, on_failure)
    if solve.start(guess):
        with operator.borrowed(1, source.parity) as (residual,):
            if guess is None:
                residual.assign(source)
            solve.single(out, shift, residual, solve.norm2 if guess is None else None)
    return solve.finish()


def multishift_cg(
    operator: StaggeredOperator,
    source: ColourField,
    outs: Sequence[ColourField],
    shifts: Sequence[float],
    *,
    tolerance: float,
    max_iterations: int,
    check_interval: int = 10,
    on_check: OnCheck | None = None,
    on_failure: Literal["raise", "report"] = "raise",
) -> SolveInfo:
    """Set outs[k] = (D^dagger D + shifts[k])^-1 source for all k in the Krylov space of the smallest shift.

    A shift whose residual has reached the tolerance is left alone. Where rounding left a true residual above it, that
    shift is finished by conjugate gradients of its own.
    """
    solve = _Solve(
        operator, source, list(outs), list(shifts), tolerance, max_iterations, check_interval, on_check, on_failure
    )
    if not solve.start(None):
        return solve.finish()
    order = [int(k) for k in np.argsort(solve.shifts, kind="stable")]
    base = solve.shifts[order[0]]
    for out in solve.outs:
        out.zero()
    with operator.borrowed_solver(len(order)) as solver, operator.borrowed(1, source.parity) as (residual,):
        operator.kernel("cg_begin")(operator.native, solver, source.values, False, operator.threads)
        targets = [solve.outs[k].values for k in order]
        differences = np.array([solve.shifts[k] - base for k in order])
        state = solve.iterate(operator, solver, targets, differences, base, solve.target2)
        if state == CONVERGED:
            for k in order:
                solve.single(solve.outs[k], solve.shifts[k], residual, None)
        else:
            solve.residual2 = max(
                operator.residual(residual, source, solve.outs[k], shift=solve.shifts[k]) for k in order
            )
    return solve.finish()


def mixed_cg(
    operator: StaggeredOperator,
    single: StaggeredOperator,
    source: ColourField,
    out: ColourField,
    *,
    tolerance: float,
    max_iterations: int,
    shift: float = 0.0,
    check_interval: int = 10,
    on_check: OnCheck | None = None,
    on_failure: Literal["raise", "report"] = "raise",
    guess: ColourField | None = None,
) -> SolveInfo:
    """Set out = (D^dagger D + shift)^-1 source in double precision, with nearly all iterations in single precision.

    `single` is the operator of the same gauge field and mass in f32. Each time the residual has fallen by a factor of
    ten, the solution so far is added up in double precision and the true residual takes the place of the recurrence's,
    while the search direction is kept (reliable updates: Sleijpen and van der Vorst 1996; Clark et al.,
    arXiv:0911.3191).
    """
    _require_pair(operator, single)
    solve = _Solve(operator, source, [out], [shift], tolerance, max_iterations, check_interval, on_check, on_failure)
    if not solve.start(guess):
        return solve.finish()
    module, length, parity, threads = kernels(), float(np.sqrt(solve.norm2)), source.parity, operator.threads
    bridge = precision_map(operator.dims)
    with ExitStack() as stack:
        (residual,) = stack.enter_context(operator.borrowed(1, parity))
        narrow, part = stack.enter_context(single.borrowed(2, parity))
        solver = stack.enter_context(single.borrowed_solver(1))
        if guess is None:
            residual.assign(source)
            residual2 = solve.norm2
        else:
            residual2 = solve.true_residual(residual, out, shift)
        keep, state = False, CONVERGED
        while residual2 > solve.limit2 and state == CONVERGED:
            before = residual2
            # In units of |b|, so that no source is too small for single precision.
            module.narrow_colours(bridge, narrow.values, residual.values, 1 / length, parity, threads)
            single.kernel("cg_begin")(single.native, solver, narrow.values, keep, threads)
            part.zero()
            goal = max(solve.target2 / solve.norm2, RELIABLE**2 * residual2 / solve.norm2)
            state = solve.iterate(single, solver, [part.values], np.zeros(1), shift, goal, unit2=1.0)
            module.widen_colours(bridge, out.values, part.values, 1.0, length, parity, threads)
            residual2 = solve.true_residual(residual, out, shift)
            if residual2 > STALLED**2 * before:
                break
            keep = True
        solve.residual2 = residual2
    return solve.finish()


def iteration_cost(sites: int, precision: str, updates: float = 1.0) -> tuple[float, float]:
    """Return flops and bytes of one iteration on `sites` sites of one parity that updates so many solutions.

    H is 570 flop a site (eight products of 66 and seven sums of 6) and reads eight links of 18 reals. The passes are
    those of staggered_solver.cpp: y = H p (reads p, writes y), r (reads y, p, r, writes r), and for each solution x and
    p (reads r once, reads and writes x and p).
    """
    flops = 2 * 570 + 12 + 24 + 12 + updates * (12 + 18) + 12
    reals = 2 * 8 * 18 + 6 * (2 + 4 + 1 + 4 * updates)
    return sites * flops, sites * reals * (8.0 if precision == "f64" else 4.0)


class _Solve:
    """One solve: its checked arguments, its callbacks, its costs."""

    def __init__(
        self,
        operator: StaggeredOperator,
        source: ColourField,
        outs: list[ColourField],
        shifts: list[float],
        tolerance: float,
        max_iterations: int,
        check_interval: int,
        on_check: OnCheck | None,
        on_failure: str,
    ) -> None:
        if not (np.isfinite(tolerance) and 0 < tolerance < 1):
            raise SpecError(f"`tolerance` must be a number in (0, 1). Got {tolerance}")
        if on_failure not in ("raise", "report"):
            raise SpecError(f"`on_failure` must be raise or report. Got {on_failure!r}")
        if not outs or len(outs) != len(shifts):
            raise SpecError(f"`outs` and `shifts` must be as many, at least one. Got {len(outs)} and {len(shifts)}")
        operator.require_fits(source, "source")
        for out in outs:
            out.require_like(source, "source")
            if out is source or sum(out is other for other in outs) > 1:
                raise SpecError("`outs` must be fields of their own, none of them the source or twice the same")
        for shift in shifts:
            if not (np.isfinite(shift) and operator.diagonal(shift) > 0):
                raise SpecError(f"`shift` must be a finite number above -mass^2 = {-(operator.mass**2)}. Got {shift}")
        self.operator, self.source, self.outs = operator, source, outs
        self.shifts = [float(shift) for shift in shifts]
        self.tolerance = tolerance
        self.max_iterations = _positive(max_iterations, "max_iterations")
        self.interval = _positive(check_interval, "check_interval")
        self.on_check, self.on_failure = on_check, on_failure
        self.iterations = self._checked = 0
        self.history: list[tuple[int, float]] = []
        self.flops = self.bytes = 0.0
        self.interrupted = False
        self.state = RUNNING
        self.began = perf_counter()
        self.norm2 = source.norm2()
        if not np.isfinite(self.norm2):
            bad = np.flatnonzero(~np.isfinite(source.values))
            what = f"Got {source.values.ravel()[bad[0]]} at flat index {bad[0]}" if len(bad) else "Its norm overflows"
            raise SpecError(f"`source` must hold finite numbers. {what}")
        self.limit2 = tolerance**2 * self.norm2
        self.target2 = MARGIN**2 * self.limit2
        self.residual2 = 0.0

    def start(self, guess: ColourField | None) -> bool:
        """Set the solutions to their start; returns False when they are the answer already."""
        for out in self.outs:
            if guess is None or self.norm2 == 0:
                out.zero()
            else:
                out.assign(guess)
        return self.norm2 > 0

    def single(self, out: ColourField, shift: float, residual: ColourField, residual2: float | None) -> None:
        """Finish one solution by conjugate gradients; `residual2` is |residual|^2, None where it is not known."""
        operator = self.operator
        if residual2 is None:
            residual2 = self.true_residual(residual, out, shift)
        if residual2 > self.limit2:
            with operator.borrowed_solver(1) as solver:
                keep, state = False, CONVERGED
                while residual2 > self.limit2 and state == CONVERGED:
                    before = residual2
                    operator.kernel("cg_begin")(operator.native, solver, residual.values, keep, operator.threads)
                    state = self.iterate(operator, solver, [out.values], np.zeros(1), shift, self.target2)
                    residual2 = self.true_residual(residual, out, shift)
                    if residual2 > STALLED**2 * before:
                        break
                    keep = True
        self.residual2 = max(self.residual2, residual2)

    def iterate(
        self,
        operator: StaggeredOperator,
        solver: Any,
        solutions: list[Any],
        differences: Any,
        shift: float,
        target2: float,
        unit2: float | None = None,
    ) -> int:
        """Run the recurrence to `target2`; returns the kernel's state, RUNNING when it was stopped or is out of budget.

        `unit2` is |b|^2 in the units of the solver.
        """
        unit2 = self.norm2 if unit2 is None else unit2
        while True:
            wanted = min(self._checked + self.interval, self.max_iterations) - self.iterations
            if wanted <= 0:
                return RUNNING
            done, residual2, state, updates = operator.kernel("cg_iterate")(
                operator.native, solver, solutions, differences, operator.diagonal(shift), target2, wanted,
                self.source.parity, operator.threads,
            )  # fmt: skip
            self.iterations += done
            if done:
                flops, moved = iteration_cost(self.source.sites, operator.precision, updates / done)
                self.flops += done * flops
                self.bytes += done * moved
            self.state = state
            if self.iterations == self._checked + self.interval:
                self._check(float(np.sqrt(residual2 / unit2)))
            if state != RUNNING:
                return int(state)
            if self.interrupted:
                return RUNNING

    def _check(self, residual: float) -> None:
        self._checked = self.iterations
        self.history.append((self.iterations, residual))
        answer = self.on_check(self.iterations, residual) if self.on_check else None
        if answer == "stop":
            self.interrupted = True
        elif answer is not None:
            self.interval = _positive(answer, "check_interval")

    def true_residual(self, residual: ColourField, out: ColourField, shift: float) -> float:
        """Set residual = b - (D^dagger D + shift) out; returns its norm squared."""
        flops, moved = iteration_cost(self.source.sites, self.operator.precision, 0.0)
        self.flops += flops
        self.bytes += moved
        return self.operator.residual(residual, self.source, out, shift=shift)

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
        if not converged and not self.interrupted and self.on_failure == "raise":
            raise SolverError(self._reason(info), info)
        return info

    def _reason(self, info: SolveInfo) -> str:
        wanted = f"the solve must reach a relative residual of {self.tolerance:g}"
        came = f"{info.residual:.3g} after {info.iterations} iterations"
        if self.state == BROKEN or not np.isfinite(info.residual):
            return (
                f"{wanted}, but a sum is not finite after {info.iterations} iterations; the links or the guess hold one"
            )
        if info.iterations >= self.max_iterations:
            return f"{wanted}. Got {came}\nhint: raise `max_iterations`, or the mass"
        return f"{wanted}. Got {came}, where rounding in {self.operator.precision} stops it\nhint: raise `tolerance`"


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


def _positive(number: Any, argument: str) -> int:
    try:
        value = integers.index(number)
        if value < 1 or isinstance(number, bool):
            raise ValueError
    except (TypeError, ValueError):
        raise SpecError(f"`{argument}` must be an integer >= 1. Got {number!r}") from None
    return value
