"""What the steering experiment runs: ranges and budgets, and the steerers as a campaign would make them."""

from typing import NamedTuple

import msgspec

from metalforge.campaign.steerers import Gaps, GaussianProcess, Uniform, even_points, reweighting_reach
from metalforge.conductor.features import ChainContext
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.shipped import default_scores, default_weights
from metalforge.conductor.steerer import ConductorSteerer
from metalforge.conductor.trust import Standing, mark_scores
from metalforge.conductor.worker import Worker
from metalforge.core.errors import SpecError
from metalforge.core.steering import Steerer

from .protocol import Settings
from .tape import TapeSpec
from .virtual_campaign import Rules

__all__ = [
    "POOLED",
    "QUICK_TAPE",
    "SHIFT",
    "STEERERS",
    "Range",
    "SteeringPlan",
    "build",
    "compared",
    "plan_of",
    "standing",
]

STEERERS = ("conductor", "gaussian-process", "gaps", "uniform")
POOLED = "gaussian-process (also what `conductor` does)"
"""The name of both where the priority head is not trusted: the conductor then asks the process, point for point."""
SHIFT = 0.02
"""Largest random shift of a range, in beta: half the distance of uniform's points on 8^3 x 4."""


class Range(NamedTuple):
    """A range of beta to scan, its name, and the budgets it is scanned with, in updates."""

    name: str
    low: float
    high: float
    levels: tuple[int, ...]


class SteeringPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is run: ranges, seeds, and the seeds of live campaigns with their budget."""

    ranges: tuple[Range, ...]
    seeds: int
    live_seeds: int
    warmup: int
    shift: float = SHIFT


FULL = SteeringPlan(
    ranges=(Range("5.6-5.8", 5.6, 5.8, (6000, 12000, 24000)), Range("5.0-6.5", 5.0, 6.5, (16000, 24000, 32000))),
    seeds=200,
    live_seeds=8,
    warmup=150,
)
QUICK = SteeringPlan(ranges=(Range("4.8-5.4", 4.8, 5.4, (1500, 2500)),), seeds=5, live_seeds=2, warmup=60)
QUICK_TAPE = TapeSpec(
    dims=(4, 4, 4, 2),
    betas=tuple(round(4.76 + 0.04 * i, 4) for i in range(18)),
    updates=(600,) * 18,
    warmup=60,
)


def plan_of(settings: Settings) -> SteeringPlan:
    """Return what is run with these settings."""
    return QUICK if settings.quick else FULL


def standing() -> Standing:
    """Return whether the shipped priority head may steer, and why; it does not depend on range, lattice or budget."""
    steerer = build("conductor", 5.6, 5.8, (8, 8, 8, 4), Rules(budget=6000))
    assert isinstance(steerer, ConductorSteerer)
    return steerer.standing


def compared() -> tuple[str, ...]:
    """Return the algorithms that are compared, first what the conductor does and last `uniform`.

    Where its head is not trusted the conductor and the Gaussian process are one algorithm, run once as `POOLED`.
    """
    return STEERERS if standing().trusted else (POOLED, *STEERERS[2:])


def build(name: str, low: float, high: float, dims: tuple[int, int, int, int], rules: Rules) -> Steerer:
    """Return a steerer as a campaign on this lattice would make it."""
    reach = reweighting_reach(dims)
    fresh = (rules.warmup + rules.block) / rules.block
    if name == "uniform":
        return Uniform(low, high, points=max(4, even_points(low, high, reach)))
    if name == "gaps":
        return Gaps(low, high)
    process = GaussianProcess(low, high, fresh_cost=fresh, reach=reach, grid=151, paths=256)
    if name in ("gaussian-process", POOLED):
        return process
    if name != "conductor":
        raise SpecError(f"`steerer` must be one of {', '.join(STEERERS)}. Got {name}")
    conductor = NetworkConductor(default_weights())
    worker = Worker(conductor, threaded=False)
    mark_scores(worker.trust, default_scores().heads)
    return ConductorSteerer(low, high, worker=worker, context=ChainContext(beta=low, dims=dims), fallback=process)
