r"""Experiment warmup: the bias that is left by the rule that ends warm-ups in campaigns, on the lattice of the presets.

The rule is `campaign.running.monitor.Monitor` itself: MSER on the plaquette and on |L| times a safety of 2, three looks
that agree, at least 80 updates and at most 400. It stands beside fixed lengths: its least, its most, and its own mean
length, which is what a rule that looks at the chain has to beat; and beside a control that measures from update 3 on,
which must be seen to be biased. How many chains there are was fixed by a power calculation before any was run;
intervals draw couplings again, not chains.

A rule says after how many updates `s` a chain is measured; a measurement is a visit, the mean x of the next `visit`
updates. At every coupling, with the chains' own late part (updates `late` .. `late + visit`) as truth:

    left  = mean over chains of sign (x - truth) / sigma      sign: + for cold starts, - for hot ones
    hot   = mean over hot chains of (x - truth) / sigma       and the same for cold ones

`sigma` is the error of one visit: the scatter between chains of the visits that begin at the longest warm-up and at
`late`. Cold starts begin with a larger plaquette and |L| than any equilibrium, hot ones with smaller ones, so what is
left of a start is positive in `left` for both, and the truth cancels in it: there are as many hot chains as cold ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.running.monitor import IN_A_ROW, Monitor
from metalforge.campaign.spec import WarmUpPolicy
from metalforge.conductor.scores import CouplingInterval
from metalforge.lattice.chain import ChainSpec

from .cache import cached_arrays
from .chains import Start, measured, sweeping
from .heads.scores import chains_to_see, least_seen, over_couplings
from .protocol import Check, Progress, Result, ResultRow, Settings, experiment, row_of, spread, words

Doubles: TypeAlias = NDArray[np.float64]
Lengths: TypeAlias = NDArray[np.int64]
OBSERVABLES = ("plaquette", "|L|")
ALLOWED = 0.3
"""The bias to be seen, in errors of a measurement: what the early stop of the conductor is held to."""


class WarmUpRecipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chains of one coupling: `stream`, `stream + 1` and so on, hot and cold in turn, all rows from update 1 on."""

    dims: tuple[int, int, int, int]
    beta: float
    chains: int
    updates: int
    stream: int
    seed: int


class WarmUpPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is run. Chains are `late + visit` updates long."""

    dims: tuple[int, int, int, int]
    betas: tuple[float, ...]
    chains: int
    """At each coupling, half of them hot."""
    visit: int
    late: int
    policy: WarmUpPolicy

    def recipes(self, seed: int) -> list[WarmUpRecipe]:
        """Return the chains of every coupling."""
        updates = self.late + self.visit
        return [
            WarmUpRecipe(dims=self.dims, beta=b, chains=self.chains, updates=updates, stream=1000 * i, seed=seed)
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


class CouplingChains(NamedTuple):
    """The chains of one coupling: plaquette and |L| (chains, updates) of each; the even ones are hot."""

    beta: float
    series: dict[str, Doubles]


class Bias(NamedTuple):
    """What a rule leaves of the start in one observable: of both starts by their sign, of hot and of cold alone."""

    left: CouplingInterval
    hot: CouplingInterval
    cold: CouplingInterval


def recorded(recipe: WarmUpRecipe) -> CouplingChains:
    """Return the chains of one coupling, from the cache if they were made before."""
    rows = cached_arrays("warmup", recipe, lambda: {"rows": _run(recipe)})["rows"]
    return CouplingChains(recipe.beta, {"plaquette": rows[:, :, 0], "|L|": np.hypot(rows[:, :, 1], rows[:, :, 2])})


def _run(r: WarmUpRecipe) -> Doubles:
    # Single precision changes the links in their seventh digit and takes 0.6 of the time; rows are rounded to it.
    starts: tuple[Start, Start] = ("hot", "cold")
    first = ChainSpec(dims=r.dims, beta=r.beta, seed=r.seed, precision="f32")
    specs = [msgspec.structs.replace(first, stream=r.stream + k, start=starts[k % 2]) for k in range(r.chains)]
    return np.stack([measured(sweeping(spec), r.updates) for spec in specs]).astype(np.float32).astype(np.float64)


def rule_length(monitor: Monitor, plaquette: Doubles, loop: Doubles) -> int:
    """Return after how many updates a campaign's monitor ends the warm-up of a chain, at `longest` whatever it says."""
    longest = monitor.policy.longest
    for n in filter(monitor.due, range(1, longest)):
        if monitor.look(plaquette[:n].tolist(), loop[:n].tolist()).ends:
            return n
    return longest


def bias_of(lengths: Sequence[Lengths], places: Sequence[CouplingChains], plan: WarmUpPlan) -> dict[str, Bias]:
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


CONTROL = 3
RULE = "the rule"
HEAD = ("measured after", "mean length", *(f"{name}: {what}" for name in OBSERVABLES for what in Bias._fields))


class JudgedRule(NamedTuple):
    """A rule's mean length, the shares of chains at its least and most, and what it leaves of the start."""

    length: float
    at_least: float
    at_most: float
    bias: Mapping[str, Bias]


@experiment(
    "warmup", "What does the rule that ends warm-ups in campaigns leave of the start, and would a fixed length do?"
)
def run(settings: Settings, progress: Progress) -> Result:
    """Return what is left of the start by the rule and by fixed lengths, in errors of one visit."""
    plan = QUICK if settings.quick else FULL
    places = []
    for i, place in enumerate(spread(recorded, plan.recipes(settings.seed), here=settings.quick)):
        progress(i, len(plan.betas) + 1, f"{plan.chains} chains at beta {place.beta:g}")
        places.append(place)
    progress(len(plan.betas), len(plan.betas) + 1, "the rules")
    found = judge(plan, places)
    return Result.of(_rows(plan, found), _table(found), _words(plan, found), _checks(found))


def judge(plan: WarmUpPlan, places: Sequence[CouplingChains]) -> dict[str, JudgedRule]:
    """Return every rule's figures by its name, the campaign's own first and the control last."""
    monitor, least, most = Monitor(plan.policy), plan.policy.shortest, plan.policy.longest
    ends = [
        np.array([rule_length(monitor, p, loop) for p, loop in zip(*place.series.values(), strict=True)])
        for place in places
    ]
    mean = round(float(np.mean(ends)))
    fixed = {_fixed(n): n for n in (least, mean, most)}
    named = {RULE: ends} | {
        name: [np.full(plan.chains, n) for _ in places]
        for name, n in (fixed | {f"update {CONTROL} (control)": CONTROL}).items()
    }

    def judged(lengths: Sequence[Lengths]) -> JudgedRule:
        every = np.concatenate(lengths)
        shortest, longest = (float(np.mean(every == end)) for end in (least, most))
        return JudgedRule(float(every.mean()), shortest, longest, bias_of(lengths, places, plan))

    return {name: judged(lengths) for name, lengths in named.items()}


def _fixed(updates: int) -> str:
    return f"{updates} updates"


def _rows(plan: WarmUpPlan, found: Mapping[str, JudgedRule]) -> Iterator[ResultRow]:
    standard = found[_fixed(plan.policy.longest)]
    for name, judged in found.items():
        for observable, bias in judged.bias.items():
            for what, interval in bias._asdict().items():
                reference = getattr(standard.bias[observable], what).value
                task = f"{observable}, {'x'.join(map(str, plan.dims))}"
                # A bias is worse the farther it is from zero, on either side.
                gap = abs(interval.value) - abs(reference)
                yield msgspec.structs.replace(row_of(task, name, f"bias_{what}", interval, reference), gap=gap)


def _table(found: Mapping[str, JudgedRule]) -> Iterator[tuple[str, ...]]:
    yield HEAD
    for name, judged in found.items():
        yield (
            name,
            f"{judged.length:.0f}",
            *(str(interval) for observable in OBSERVABLES for interval in judged.bias[observable]),
        )


def _words(plan: WarmUpPlan, found: Mapping[str, JudgedRule]) -> Iterator[str]:
    rule, chains = found[RULE], plan.chains * len(plan.betas)
    mean, longest = (found[_fixed(n)] for n in (round(rule.length), plan.policy.longest))
    yield from words(
        "warmup.setting",
        plan=plan,
        looks=IN_A_ROW,
        rule=rule,
        betas=", ".join(f"{beta:g}" for beta in plan.betas),
        dims="x".join(map(str, plan.dims)),
        end=plan.late + plan.visit,
        wanted=chains_to_see(ALLOWED),
        allowed=ALLOWED,
        chains=chains,
        seen=least_seen(1 / chains),
        seen_alone=least_seen(2 / chains + 1 / chains),
        couplings=len(plan.betas),
    )
    for name in OBSERVABLES:
        ours, same, most = (judged.bias[name].left for judged in (rule, mean, longest))
        seen = "no bias is seen" if ours.low <= 0 <= ours.high else "a bias is seen"
        yield from words("warmup.left", name=name, ours=ours, seen=seen, mean=mean, same=same, most=most)
    yield from words("warmup.caveat", allowed=ALLOWED)


def _checks(found: Mapping[str, JudgedRule]) -> Iterator[Check]:
    control = list(found.values())[-1]
    least = min(control.bias[name].left.low for name in OBSERVABLES)
    yield "the control is seen to be biased", f"at least {least:.2f}", least > 0
    for name in OBSERVABLES:
        left = found[RULE].bias[name].left
        asked = f"the rule leaves less than {ALLOWED:g} errors of a visit in {name}"
        largest = max(-left.low, left.high)
        yield asked, f"{left}", largest < ALLOWED
