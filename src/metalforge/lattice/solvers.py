"""Solvers of (D^dagger D + shift) x = b that can be watched: what a solve did and cost is its result.

All are conjugate gradients (Hestenes and Stiefel 1952). The iterations run in the kernels; every `check_interval` of
them `on_check` is told the relative residual and may stop the solve or change the interval, which changes no result.
The residual in a result is the true one, |b - (D^dagger D + shift) x| / |b|, computed at the end; where the recurrence
has drifted away from it, the solve goes on from there.

A solve that does not converge raises SolverError, or with `on_failure` "report" returns what it has; one that
`on_check` stopped returns with `interrupted` set.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Unpack

import numpy as np

from metalforge.core.errors import SpecError

from .solving import CONVERGED, STALLED, OnCheck, Solve, SolveInfo, SolveOptions, SolverError, iteration_cost
from .staggered import ColourField, StaggeredOperator

__all__ = ["OnCheck", "SolveInfo", "SolveOptions", "SolverError", "cg", "iteration_cost", "mixed_cg", "multishift_cg"]

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
        with operator.borrowed(1, source.parity) as (residual,):
            if guess is None:
                residual.assign(source)
            solve.finish_one(out, shift, residual, solve.norm2 if guess is None else None)
    return solve.finish()


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
    if not solve.start(None):
        return solve.finish()
    order = [int(k) for k in np.argsort(solve.shifts, kind="stable")]
    smallest = solve.shifts[order[0]]
    with operator.borrowed_solver(len(order)) as solver, operator.borrowed(1, source.parity) as (residual,):
        solver.begin(source.values, False)
        solutions = [solve.outs[k] for k in order]
        differences = np.array([solve.shifts[k] - smallest for k in order])
        state = solve.iterate(operator, solver, solutions, differences, smallest, solve.target2)
        for k in order:
            if state == CONVERGED:
                solve.finish_one(solve.outs[k], solve.shifts[k], residual)
            else:
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
        if guess is None:
            residual.assign(source)
            residual2 = solve.norm2
        else:
            residual2 = solve.true_residual(residual, out, shift)
        keep, state = False, CONVERGED
        while residual2 > solve.limit2 and state == CONVERGED:
            before = residual2
            # In units of |b|, so that no source is too small for single precision.
            grid.narrow_colours(narrow.values, residual.values, 1 / length, parity)
            solver.begin(narrow.values, keep)
            part.zero()
            goal = max(solve.target2, RELIABLE**2 * residual2) / solve.norm2
            state = solve.iterate(single, solver, [part], np.zeros(1), shift, goal, unit2=1.0)
            grid.widen_colours(out.values, part.values, 1.0, length, parity)
            residual2 = solve.true_residual(residual, out, shift)
            if residual2 > STALLED**2 * before:
                break
            keep = True
        solve.add_result(residual2)
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
