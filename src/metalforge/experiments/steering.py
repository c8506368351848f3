"""Experiment steering: how many trajectories a steerer saves at equal error on beta_c, against an even scan.

(a) On tape: long chains on a dense grid of beta, from which every campaign draws its own blocks (`virtual_campaign`).
The same warm-up, block lengths and final analysis for all; the range is shifted at random by up to 0.02 for each seed,
so that no even grid is lucky. `uniform` spreads its budget over a grid whose neighbours overlap, 2.5 reaches of
reweighting apart, as few warm-ups as can be joined. (b) Live: real chains on demand, by the same rules.

Where the conductor's priority head is not trusted, its steerer hands every decision to the Gaussian process, and the
two are one algorithm: they are run once and stand under one name (`compared`).

The tape is made in the cache folder if it is not there: 20 minutes of one core.
"""

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from metalforge.campaign.physics.transition import locate
from metalforge.campaign.steerers import Gaps, GaussianProcess, Uniform, even_points, reweighting_reach
from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.scaling import transition_of
from metalforge.conductor.shipped import default_scores
from metalforge.conductor.trust import Standing, mark_scores, trust_of
from metalforge.core.errors import SpecError
from metalforge.core.steering import Steerer
from metalforge.core.threads import one_thread

from .protocol import Progress, Result, Settings, experiment, spread
from .steering_rows import Range, SteeringFindings, TapeReference, summarise
from .virtual_campaign import LiveSource, Rules, Tape, TapeSource, TapeSpec, VirtualOutcome, run_campaign, tape_of

TAPE, TAPE_UPDATES = "steering-tape", 300_000
STEERERS = ("conductor", "gaussian-process", "gaps", "uniform")
POOLED = "gaussian-process (also what `conductor` does)"
"""The name of both where the priority head is not trusted: the conductor is then the process, point for point."""
SHIFT = 0.02
"""Largest random shift of a range, in beta: half the distance of uniform's points on 8^3 x 4."""


def full_tape(updates: int) -> TapeSpec:
    """Return the tape of the experiment: 8^3 x 4, dense at the transition, and down to 5.0 and up to 6.5.

    Shares of the updates: 3/7 at 5.66 .. 5.72 in steps of 0.005, 3/7 in the rest of 5.6 .. 5.8 in the same steps, 1/7
    outside in steps of 0.02 and 0.025.
    """
    inner = {round(5.66 + 0.005 * i, 4) for i in range(13)}
    dense = {round(5.60 + 0.005 * i, 4) for i in range(41)} - inner
    outer = {round(5.5 + 0.02 * i, 4) for i in range(5)} | {round(5.82 + 0.02 * i, 4) for i in range(5)}
    outer |= {round(5.0 + 0.025 * i, 4) for i in range(20)} | {round(5.925 + 0.025 * i, 4) for i in range(24)}
    share = {beta: part / (7 * len(group)) for group, part in ((inner, 3), (dense, 3), (outer, 1)) for beta in group}
    betas = tuple(sorted(share))
    return TapeSpec(dims=(8, 8, 8, 4), betas=betas, updates=tuple(max(1, round(updates * share[b])) for b in betas))


class SteeringPlan(NamedTuple):
    """What is run: a tape, ranges and seeds on it, and the seeds of live campaigns."""

    tape: TapeSpec
    ranges: tuple[Range, ...]
    seeds: int
    live_seeds: int
    warmup: int


FULL = SteeringPlan(
    tape=full_tape(TAPE_UPDATES),
    ranges=(Range("5.6-5.8", 5.6, 5.8, (6000, 12000, 24000)), Range("5.0-6.5", 5.0, 6.5, (16000, 24000, 32000))),
    seeds=200,
    live_seeds=8,
    warmup=150,
)
QUICK = SteeringPlan(
    tape=TapeSpec(
        dims=(4, 4, 4, 2), betas=tuple(round(4.76 + 0.04 * i, 4) for i in range(18)), updates=(600,) * 18, warmup=60
    ),
    ranges=(Range("4.8-5.4", 4.8, 5.4, (1500, 2500)),),
    seeds=5,
    live_seeds=2,
    warmup=60,
)


def standing() -> Standing:
    """Return whether the shipped priority head may steer, and why; it does not depend on range, lattice or budget."""
    trust = trust_of(CONDUCTOR_11)
    mark_scores(trust, default_scores().heads)
    return trust.standing("beta_priority")


def compared() -> tuple[str, ...]:
    """Return the algorithms that are compared, first what the conductor does and last `uniform`.

    Where its head is not trusted the conductor and the Gaussian process are one algorithm, run once as `POOLED`.
    """
    return STEERERS if standing().trusted else (POOLED, *STEERERS[2:])


def build(name: str, low: float, high: float, dims: tuple[int, int, int, int], rules: Rules) -> Steerer:
    """Return a steerer as a campaign on this lattice would make it."""
    reach = reweighting_reach(dims)
    if name == "uniform":
        return Uniform(low, high, points=max(4, even_points(low, high, reach)))
    if name == "gaps":
        return Gaps(low, high)
    if name not in (*STEERERS, POOLED):
        raise SpecError(f"`steerer` must be one of {', '.join(STEERERS)}. Got {name}")
    prior = None
    if name == "conductor" and standing().trusted:
        there = transition_of(dims[3], dims[0])
        prior = there.mean, max(there.error, there.width)
    return GaussianProcess(low, high, fresh_cost=rules.fresh_cost, reach=reach, grid=151, paths=256, prior=prior)


class _Task(NamedTuple):
    steerer: str
    where: Range
    level: int
    seed: int
    live: bool = False


def _run_task(task: _Task, plan: SteeringPlan) -> VirtualOutcome:
    tape = tape_of(TAPE, plan.tape, True)
    dims = tape.spec.dims
    # Every cell has rows of its own; the same seed of two steerers has the same range.
    algorithm = "gaussian-process" if task.steerer == POOLED else task.steerer
    key = [task.seed, STEERERS.index(algorithm), task.level, int(task.live)]
    shift = np.random.default_rng([task.seed, 5]).uniform(-SHIFT, SHIFT)
    number = int(np.random.SeedSequence(key).generate_state(1)[0])
    rules = Rules(budget=task.level, warmup=plan.warmup, near=_near(dims))
    source = LiveSource(dims, number, warmup=rules.warmup) if task.live else TapeSource(tape, number)
    steerer = build(task.steerer, task.where.low + shift, task.where.high + shift, dims, rules)
    with one_thread():  # the campaigns fill the cores
        return run_campaign(steerer, source, rules, number)


@experiment("steering", "How many trajectories does steering save at equal error on beta_c, against an even scan?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return the rows of every steerer, range and level, and the live campaigns beside them."""
    plan, names = QUICK if settings.quick else FULL, compared()
    cells = [(s, where, level) for where in plan.ranges for level in where.levels for s in names]
    total = len(cells) + 3
    progress(0, total, "the tape")
    tape = tape_of(TAPE, plan.tape, settings.quick)
    progress(1, total, "the reference, from the whole tape")
    references = {where.name: _reference(tape, where) for where in plan.ranges}
    first = settings.seed * 100_000
    tasks = [_Task(*cell, first + s) for cell in cells for s in range(plan.seeds)]
    where = plan.ranges[0]
    tasks += [_Task(names[0], where, where.levels[0], first + s, True) for s in range(plan.live_seeds)]
    outcomes = spread(partial(_run_task, plan=plan), tasks, here=settings.quick, chunk=2)
    found = {}
    for i, (steerer, here, level) in enumerate(cells):
        progress(2 + i, total, f"{steerer}, {here.name}, {level} updates")
        done = list(islice(outcomes, plan.seeds))
        found[steerer, here.name, level] = summarise(done, references[here.name], settings.seed)
    progress(total - 1, total, f"live: {plan.live_seeds} campaigns of real chains")
    alone = references[where.name]._replace(near=float("inf"))  # every live chain is its own
    live = summarise(list(outcomes), alone, settings.seed)
    return SteeringFindings(names, plan.ranges, found, live, references, tape, standing()).result()


def _reference(tape: Tape, where: Range) -> TapeReference:
    inside = [one for one in tape.series if where.low - SHIFT <= one.beta <= where.high + SHIFT]
    with one_thread():
        peak = locate(inside, seed=0, n_bootstrap=200)
    near = sum(one.plaquette.size for one in inside if abs(one.beta - peak.beta_c) <= _near(tape.spec.dims))
    return TapeReference(peak.beta_c, peak.error, near)


def _near(dims: Sequence[int]) -> float:
    """Return the distance from the peak within which rows decide beta_c, one and a half reaches."""
    return 1.5 * reweighting_reach(dims)
