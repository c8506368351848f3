"""Experiment warmup: what the rule that ends warm-ups in campaigns leaves of the start, on the presets' own lattice.

The rule is `campaign.running.monitor.Monitor` itself: MSER on the plaquette and on |L| times a safety of 2, three looks
that agree, at least 80 updates and at most 400. It stands beside fixed lengths: its least, its most, and its own mean
length, which is what a rule that looks at the chain has to beat; and beside a control that measures from update 3 on,
which must be seen to be biased. How many chains there are was fixed by a power calculation before any was run
(`warmup_chains`); intervals draw couplings again, not chains.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.campaign.running.monitor import IN_A_ROW, Monitor
from metalforge.conductor.scores import chains_to_see, least_seen

from .protocol import Check, Progress, Result, ResultRow, Settings, experiment, row_of, spread
from .warmup_chains import (
    ALLOWED,
    FULL,
    OBSERVABLES,
    QUICK,
    Bias,
    Lengths,
    Place,
    WarmUpPlan,
    bias_of,
    recorded,
    rule_length,
)

__all__ = ["judge", "run"]

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


def judge(plan: WarmUpPlan, places: Sequence[Place]) -> dict[str, JudgedRule]:
    """Return every rule's figures by its name, the campaign's own first and the control last."""
    monitor = Monitor(plan.policy)
    ends = [
        np.array([rule_length(monitor, p, loop) for p, loop in zip(*place.series.values(), strict=True)])
        for place in places
    ]
    mean = round(float(np.mean(ends)))
    fixed = {_fixed(n): n for n in (plan.policy.shortest, mean, plan.policy.longest)}
    named = {RULE: ends} | {
        name: [np.full(plan.chains, n) for _ in places]
        for name, n in (fixed | {f"update {CONTROL} (control)": CONTROL}).items()
    }
    return {name: _judged(lengths, places, plan) for name, lengths in named.items()}


def _fixed(updates: int) -> str:
    return f"{updates} updates"


def _judged(lengths: Sequence[Lengths], places: Sequence[Place], plan: WarmUpPlan) -> JudgedRule:
    every = np.concatenate(lengths)
    policy = plan.policy
    return JudgedRule(
        float(every.mean()),
        float(np.mean(every == policy.shortest)),
        float(np.mean(every == policy.longest)),
        bias_of(lengths, places, plan),
    )


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
    policy, chains = plan.policy, plan.chains * len(plan.betas)
    rule = found[RULE]
    mean, longest = (found[_fixed(n)] for n in (round(rule.length), policy.longest))
    yield (
        f"the rule: MSER times {policy.safety:g} on plaquette and |L|, {IN_A_ROW} looks that agree, at least "
        f"{policy.shortest} and at most {policy.longest} updates; {rule.at_least:.0%} of the chains end at the least, "
        f"{rule.at_most:.0%} at the most"
    )
    yield (
        f"biases are in errors of one visit of {plan.visit} updates; left: of both starts, positive where something of "
        "the start is left; hot and cold: of one start alone, with the sign that it has"
    )
    betas = ", ".join(f"{beta:g}" for beta in plan.betas)
    yield (
        f"{plan.chains} fresh chains at each of beta {betas} on {'x'.join(map(str, plan.dims))}, half of them hot; one "
        f"heat bath and four overrelaxation sweeps per update, in single precision; the truth is the mean of the same "
        f"chains' updates {plan.late} to {plan.late + plan.visit}"
    )
    yield (
        f"the number of chains was fixed before any was run: {chains_to_see(ALLOWED)} show a bias of {ALLOWED:g} in "
        f"`left` in 95 % of all studies, there are {chains}, which show {least_seen(1 / chains):.2f}; in hot or cold "
        f"chains alone {least_seen(2 / chains + 1 / chains):.2f} would be seen, and less is not established there"
    )
    yield (
        f"intervals are 95 % and draw the {len(plan.betas)} couplings again, not the chains: so few couplings make "
        "them wide, and they hold for couplings of this range on this lattice"
    )
    for name in OBSERVABLES:
        ours, same, most = (judged.bias[name].left for judged in (rule, mean, longest))
        seen = "no bias is seen" if ours.low <= 0 <= ours.high else "a bias is seen"
        yield (
            f"{name}: the rule leaves {ours}, {seen}; a fixed length of its mean, {mean.length:.0f} updates, leaves "
            f"{same}; the longest warm-up leaves {most}"
        )
    yield (
        f"that a bias is not seen does not establish that it is below {ALLOWED:g}: that holds where the whole interval "
        "is, on both sides"
    )


def _checks(found: Mapping[str, JudgedRule]) -> Iterator[Check]:
    control = list(found.values())[-1]
    least = min(control.bias[name].left.low for name in OBSERVABLES)
    yield "the control is seen to be biased", f"at least {least:.2f}", least > 0
    for name in OBSERVABLES:
        left = found[RULE].bias[name].left
        asked = f"the rule leaves less than {ALLOWED:g} errors of a visit in {name}"
        largest = max(-left.low, left.high)
        yield asked, f"{left}", largest < ALLOWED
