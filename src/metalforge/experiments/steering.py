"""Experiment steering: how many trajectories a steerer saves at equal error on beta_c, against an even scan.

(a) On tape: long chains on a dense grid of beta, from which every campaign draws its own blocks (`drawing`,
`virtual_campaign`). The same warm-up, block lengths and final analysis for all; the range is shifted at random by up to
0.02 for each seed, so that no even grid is lucky. `uniform` spreads its budget over a grid whose neighbours overlap,
2.5 reaches of reweighting apart, as few warm-ups as can be joined. (b) Live: real chains on demand, by the same rules.

Where the conductor's priority head is not trusted, its steerer hands every decision to the Gaussian process, and the
two are one algorithm: they are run once and stand under one name (`steering_plan.compared`).

The tape is looked for in the cache folder (`steering-tape.npz`) and made there if it is not: 20 minutes of one core.
"""

import os
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from metalforge.campaign.physics.transition import locate
from metalforge.campaign.steerers import reweighting_reach
from metalforge.core.errors import SpecError
from metalforge.core.threads import one_thread

from .cache import cache_folder
from .drawing import LiveSource, RowSource, TapeSource, as_series
from .protocol import Progress, Result, Settings, experiment, spread
from .steering_plan import POOLED, QUICK_TAPE, SHIFT, STEERERS, Range, SteeringPlan, build, compared, plan_of
from .steering_rows import TapeReference, summarise
from .steering_words import GOAL, Cells, mean_ratio, result_of
from .tape import Tape, build_tape, full_spec, load_tape, save_tape
from .virtual_campaign import Rules, VirtualOutcome, run_campaign

__all__ = ["GOAL", "mean_ratio", "run"]

FILE = "steering-tape.npz"
TAPE_UPDATES = 300_000


class _Task(NamedTuple):
    steerer: str
    where: Range
    level: int
    seed: int
    plan: SteeringPlan
    live: bool = False


_tape_at = lru_cache(maxsize=1)(load_tape)
"""A process reads its tape once."""


def _run_task(task: _Task, path: Path) -> VirtualOutcome:
    tape = _tape_at(path)
    dims = tape.spec.dims
    # Every cell has rows of its own; the same seed of two steerers has the same range.
    algorithm = "gaussian-process" if task.steerer == POOLED else task.steerer
    key = [task.seed, STEERERS.index(algorithm), task.level, int(task.live)]
    shift = np.random.default_rng([task.seed, 5]).uniform(-task.plan.shift, task.plan.shift)
    number = int(np.random.SeedSequence(key).generate_state(1)[0])
    rules = Rules(budget=task.level, warmup=task.plan.warmup, near=_near(dims))
    source: RowSource = LiveSource(dims, number, warmup=rules.warmup) if task.live else TapeSource(tape, number)
    steerer = build(task.steerer, task.where.low + shift, task.where.high + shift, dims, rules)
    with one_thread():  # the campaigns fill the cores
        return run_campaign(steerer, source, rules, number)


@experiment("steering", "How many trajectories does steering save at equal error on beta_c, against an even scan?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return the rows of every steerer, range and level, and the live campaigns beside them."""
    plan, names = plan_of(settings), compared()
    cells = [(s, where, level) for where in plan.ranges for level in where.levels for s in names]
    total = len(cells) + 3
    progress(0, total, "the tape")
    path, tape = _tape_of(settings)
    progress(1, total, "the reference, from the whole tape")
    references = {where.name: _reference(tape, where) for where in plan.ranges}
    first = settings.seed * 100_000
    found: Cells = {}
    tasks = [_Task(*cell, first + s, plan) for cell in cells for s in range(plan.seeds)]
    where = plan.ranges[0]
    tasks += [_Task(names[0], where, where.levels[0], first + s, plan, True) for s in range(plan.live_seeds)]
    outcomes = spread(partial(_run_task, path=path), tasks, here=settings.quick, chunk=2)
    for i, (steerer, here, level) in enumerate(cells):
        progress(2 + i, total, f"{steerer}, {here.name}, {level} updates")
        done = list(islice(outcomes, plan.seeds))
        found[steerer, here.name, level] = summarise(done, references[here.name], settings.seed)
    progress(total - 1, total, f"live: {plan.live_seeds} campaigns of real chains")
    alone = references[where.name]._replace(near=float("inf"))  # every live chain is its own
    live = summarise(list(outcomes), alone, settings.seed)
    return result_of(plan, names, found, live, references, tape)


def _tape_of(settings: Settings) -> tuple[Path, Tape]:
    """Return the tape and its file, made if it is not there."""
    path = cache_folder() / (f"quick-{FILE}" if settings.quick else FILE)
    wanted = QUICK_TAPE if settings.quick else full_spec(TAPE_UPDATES)
    try:
        tape = load_tape(path)
        if tape.spec.dims == wanted.dims:
            return path, tape
    except SpecError:
        pass  # not there, or damaged: made again
    tape = build_tape(wanted, 1 if settings.quick else os.cpu_count() or 1)
    save_tape(path, tape)
    return path, tape


def _reference(tape: Tape, where: Range) -> TapeReference:
    chains = zip(tape.spec.betas, tape.rows, strict=True)
    inside = [as_series(b, tape.spec.dims, rows) for b, rows in chains if where.low - SHIFT <= b <= where.high + SHIFT]
    with one_thread():
        peak = locate(inside, seed=0, n_bootstrap=200)
    near = sum(one.plaquette.size for one in inside if abs(one.beta - peak.beta_c) <= _near(tape.spec.dims))
    return TapeReference(peak.beta_c, peak.error, near)


def _near(dims: Sequence[int]) -> float:
    """Return the distance from the peak within which rows decide beta_c, one and a half reaches."""
    return 1.5 * reweighting_reach(dims)
