r"""Fresh chains from hot and cold starts, recorded whole, and what is left of the start when a measurement begins.

A rule says after how many updates `s` a chain is measured; a measurement is a visit, the mean x of the next `visit`
updates. At every coupling, with the chains' own late part (updates `late` .. `late + visit`) as truth:

    left  = mean over chains of sign (x - truth) / sigma      sign: + for cold starts, - for hot ones
    hot   = mean over hot chains of (x - truth) / sigma       and the same for cold ones

`sigma` is the error of one visit: the scatter between chains of the visits that begin at the longest warm-up and at
`late`. Cold starts begin with a larger plaquette and |L| than any equilibrium, hot ones with smaller ones, so what is
left of a start is positive in `left` for both, and the truth cancels in it: there are as many hot chains as cold ones.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.running.monitor import Monitor
from metalforge.campaign.spec import WarmUpPolicy
from metalforge.conductor.scores import CouplingInterval, chains_to_see, over_couplings
from metalforge.lattice.chain import HeatbathSpec

from .cache import cached_arrays
from .tape import sweeping

__all__ = ["FULL", "QUICK", "Bias", "Place", "Recipe", "WarmUpPlan", "bias_of", "recorded", "rule_length"]

Doubles: TypeAlias = NDArray[np.float64]
Lengths: TypeAlias = NDArray[np.int64]
OBSERVABLES = ("plaquette", "|L|")
ALLOWED = 0.3
"""The bias to be seen, in errors of a measurement: what the early stop of the conductor is held to."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chains of one coupling: `stream`, `stream + 1` and so on, hot and cold in turn, all rows from update 1 on."""

    dims: tuple[int, int, int, int]
    beta: float
    chains: int
    updates: int
    stream: int
    seed: int
    precision: Literal["f32", "f64"] = "f32"
    """Single precision changes the links in their seventh digit and takes 0.6 of the time."""
    sweeps: HeatbathSpec = HeatbathSpec(heatbath=1, overrelax=4)


class WarmUpPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is run. Chains are `late + visit` updates long."""

    dims: tuple[int, int, int, int]
    betas: tuple[float, ...]
    chains: int
    """At each coupling, half of them hot."""
    visit: int
    late: int
    policy: WarmUpPolicy

    def recipes(self, seed: int) -> list[Recipe]:
        """Return the chains of every coupling."""
        updates = self.late + self.visit
        return [
            Recipe(dims=self.dims, beta=b, chains=self.chains, updates=updates, stream=1000 * i, seed=seed)
            for i, b in enumerate(self.betas)
        ]


COUPLINGS = (5.6, 5.63, 5.66, 5.68, 5.7, 5.72, 5.76, 5.8)
"""Across the presets' range, closer at the transition (5.69)."""
FULL = WarmUpPlan(
    dims=(8, 8, 8, 4),
    betas=COUPLINGS,
    # 121 chains show 0.3 errors of a measurement; the next even number at each of eight couplings gives 128.
    chains=2 * -(-chains_to_see(ALLOWED) // (2 * len(COUPLINGS))),
    visit=600,
    late=1000,
    policy=WarmUpPolicy(),
)
QUICK = WarmUpPlan(
    dims=(4, 4, 4, 2),
    betas=(4.8, 5.0, 5.2),
    chains=4,
    visit=100,
    late=150,
    policy=WarmUpPolicy(shortest=40, longest=100),
)


class Place(NamedTuple):
    """The chains of one coupling: plaquette and |L| (chains, updates) of each; the even ones are hot."""

    beta: float
    series: dict[str, Doubles]


class Bias(NamedTuple):
    """What a rule leaves of the start in one observable: of both starts by their sign, of hot and of cold alone."""

    left: CouplingInterval
    hot: CouplingInterval
    cold: CouplingInterval


def recorded(recipe: Recipe) -> Place:
    """Return the chains of one coupling, from the cache if they were made before."""
    rows = cached_arrays("warmup", recipe, lambda: {"rows": _run(recipe)})["rows"]
    return Place(recipe.beta, {"plaquette": rows[:, :, 0], "|L|": np.hypot(rows[:, :, 1], rows[:, :, 2])})


def _run(recipe: Recipe) -> Doubles:
    chains = [
        sweeping(
            recipe.dims,
            recipe.beta,
            seed=recipe.seed,
            stream=recipe.stream + k,
            start="cold" if k % 2 else "hot",
            sweeps=recipe.sweeps,
            precision=recipe.precision,
        )
        for k in range(recipe.chains)
    ]
    # Kept in single precision as on a tape.
    return np.stack([chain.measure(recipe.updates) for chain in chains]).astype(np.float32).astype(np.float64)


def rule_length(monitor: Monitor, plaquette: Doubles, loop: Doubles) -> int:
    """Return after how many updates a campaign's monitor ends the warm-up of a chain, at `longest` whatever it says."""
    longest = monitor.policy.longest
    for n in filter(monitor.due, range(1, longest)):
        if monitor.look(plaquette[:n].tolist(), loop[:n].tolist()).ends:
            return n
    return longest


def bias_of(lengths: Sequence[Lengths], places: Sequence[Place], plan: WarmUpPlan) -> dict[str, Bias]:
    """Return what is left of the start, by observable, when the chains of each place are measured after `lengths`."""
    found = {}
    for name in OBSERVABLES:
        by_place = [_left(where, place.series[name], plan) for where, place in zip(lengths, places, strict=True)]
        found[name] = Bias(*(over_couplings(values) for values in zip(*by_place, strict=True)))
    return found


def _left(lengths: Lengths, series: Doubles, plan: WarmUpPlan) -> tuple[float, float, float]:
    def visits(starts: Lengths) -> Doubles:
        return np.array([x[s : s + plan.visit].mean() for x, s in zip(series, starts, strict=True)])

    late, standard = (visits(np.full(len(series), s)) for s in (plan.late, plan.policy.longest))
    sigma = float(np.sqrt((late.var(ddof=1) + standard.var(ddof=1)) / 2))
    away = (visits(lengths) - late.mean()) / sigma
    hot, cold = float(away[0::2].mean()), float(away[1::2].mean())
    return (cold - hot) / 2, hot, cold
