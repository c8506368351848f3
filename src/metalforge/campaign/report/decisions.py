"""Decisions counted: by whom, with which heads, and whether warm-ups were long enough.

A decision is a head's where the baseline alone would have decided otherwise. The journal has both: a visit's steerer
was asked without the head's answer, too (`running.steering`), and a length stands beside the baseline's. A head acts
where at least one decision would have been another one. What would have followed from the baseline's decision is not
known, since chains that were not run left no rows: differences are modelled, and are marked so. Where many campaigns
were run with and without a head, the row of the table that has it is named.

The check of warm-ups uses what nobody had when the decision was taken: the whole measurement. With m1 and m2 the means
of the energy E over its first fifth (n1 rows) and its last half (n2 rows), and e2 the error of m2,

    z = (m1 - m2) / (e2 sqrt(1 + n2 / n1))

is of the order of one for a chain that had forgotten its start (after J. Geweke 1992). The error of m1 is that of as
many rows in equilibrium, not its own: a drift would look like a long memory and hide itself.
"""

from collections import Counter
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.state import PEAK_PRIOR, CampaignState
from metalforge.campaign.store.records import Assigned, Decided
from metalforge.campaign.theory import Theory
from metalforge.core import PEAK_HEAD
from metalforge.statistics import gamma_method

FEWEST_ROWS = 100
"""Measured updates below which a warm-up is not judged: a fifth must hold several independent ones."""
LARGEST_Z = 4.0
"""Autoregressive chains in equilibrium exceed it in 0.4 % of cases when they are 40 tau_int long, in 3 % at 16 tau_int:
e2 itself is not known well then, and the tails are wider than a Gaussian's. Measured over 800 chains each."""

MEASURED = {PEAK_HEAD: "docs/tables/steering.md: conductor"}
"""Where effects were measured over many campaigns or chains, by head: a table and its row."""
NO_DECISION = "trusted, and no decision has differed because of it"
"""Why a trusted head does not act."""
UPDATES = "updates"
NOTE = "nothing was run: where a baseline decides otherwise, what would have followed is modelled, not measured"


class ResultPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the result."""


class Otherwise(ResultPart, frozen=True, kw_only=True):
    """One decision that a head took part in, beside what the baseline alone would have decided.

    `decided` and `baseline` are in `unit`; None is no visit. `head_said` is the head's own value. `differs` says
    whether the baseline would have decided something else; what would have followed from that is modelled.
    """

    seconds: float
    what: str
    by: str
    head: str
    chain: str
    trusted: bool
    head_said: float | None
    decided: float | None
    baseline: float | None
    unit: str
    differs: bool
    text: str


class HeadEffect(ResultPart, frozen=True, kw_only=True):
    """What a head's decisions came to beside its baseline's, in `unit`; None where they are nothing to add up.

    `measured` names the table row that has the effect over many campaigns; empty where there is none.
    """

    text: str
    source: Literal["modelled"] = "modelled"
    decided: float | None = None
    baseline: float | None = None
    unit: str = ""
    measured: str = ""


class HeadAccount(ResultPart, frozen=True, kw_only=True):
    """One head in one run: `decisions` counts, by kind, those that its baseline would have made differently.

    `acts` says whether there are any. `skill` is that on held-out couplings. A head that does not act has no effect.
    """

    acts: bool
    skill: float | None
    decisions: dict[str, int]
    effect: HeadEffect | None


class WarmUpCheck(NamedTuple):
    """Warm-ups ended by one decider: how long they were, and how many were over by the test afterwards."""

    by: str
    chains: int
    judged: int
    over: int
    mean_updates: float
    largest_z: float


def otherwise(state: CampaignState) -> list[Otherwise]:
    """Return every decision that heads took part in beside that of the baselines, in order of time."""
    entries, began = [], state.opened.at
    for visit in state.visits:
        if visit.head:
            at = "no visit" if visit.baseline is None else f"a visit at {visit.baseline:.5g}"
            entries.append(
                Otherwise(
                    **_about(visit, began),
                    what="visit",
                    trusted=True,
                    head_said=None,
                    decided=visit.coordinate,
                    unit=state.spec.theory.coordinate,
                    differs=visit.by_head,
                    text=f"{at} without the head's answer",
                )
            )
    for length in state.decisions:
        if length.head and length.what == "cheap-length":
            decided = length.value if length.trusted else length.baseline
            entries.append(
                Otherwise(
                    **_about(length, began),
                    what=length.what,
                    trusted=bool(length.trusted),
                    head_said=length.value,
                    decided=decided,
                    unit=UPDATES,
                    differs=decided != length.baseline,
                    text=length.done or length.reason,
                )
            )
    return sorted(entries, key=lambda entry: entry.seconds)


def _about(taken: Assigned | Decided, began: float) -> dict[str, Any]:
    names = ("by", "head", "chain", "baseline")
    return {"seconds": taken.at - began} | {name: getattr(taken, name) for name in names}


def decision_counts(state: CampaignState) -> list[tuple[str, str, int, int]]:
    """Return what was decided, by whom, how often, and how often a head decided it."""
    counts = Counter((d.what, d.by) for d in state.other_decisions)
    counts.update(("visit", visit.by) for visit in state.visits)
    by_heads = Counter((entry.what, entry.by) for entry in otherwise(state) if entry.differs)
    return [(*decided, count, by_heads[decided]) for decided, count in sorted(counts.items())]


def decisions_by_head(state: CampaignState) -> dict[str, Counter[str]]:
    """Return how many decisions each head made that its baseline would not have made, by kind."""
    made: dict[str, Counter[str]] = {}
    for entry in otherwise(state):
        if entry.differs:
            made.setdefault(entry.head, Counter())[entry.what] += 1
    return made


def accounts_of(state: CampaignState) -> dict[str, HeadAccount]:
    """Return the account of every head that the journal names."""
    made = decisions_by_head(state)
    return {
        name: HeadAccount(
            acts=name in made,
            skill=state.heads[name].value if name in state.heads else None,
            decisions=dict(made.get(name, {})),
            effect=_effect(state, name, made[name]) if name in made else None,
        )
        for name in dict.fromkeys((*state.heads, *made))
    }


def _effect(state: CampaignState, name: str, made: Counter[str]) -> HeadEffect:
    text = ", ".join(f"{count} x {what}" for what, count in sorted(made.items()))
    measured = MEASURED.get(name, "")
    if made["visit"]:
        said = next(d for d in reversed(state.decisions) if d.what == PEAK_PRIOR and d.head == name)
        if said.value is not None and said.baseline is not None:
            text += f"; the head moved the expected peak by {said.value - said.baseline:+.2g} to {said.value:.5g}"
        unit = state.spec.theory.coordinate
        return HeadEffect(text=text, decided=said.value, baseline=said.baseline, unit=unit, measured=measured)
    taken = [d for d in state.decisions if d.head == name and d.trusted and d.what in made]
    decided, baseline = (sum(getattr(d, of) or 0.0 for d in taken) for of in ("value", "baseline"))
    text += f": {decided:g} updates, {baseline:g} by the baseline"
    return HeadEffect(text=text, decided=decided, baseline=baseline, unit=UPDATES, measured=measured)


def why_not(said: Decided) -> str:
    """Return why a head that decided nothing does not act, from what the journal says of it."""
    return NO_DECISION if said.trusted else said.reason


def faults_of(state: CampaignState) -> tuple[Decided, ...]:
    """Return what was decided of blocks that were not as a chain should give them, each with what was done."""
    return tuple(decision for decision in state.decisions if decision.what == "fault")


def warmup_checks(state: CampaignState) -> list[WarmUpCheck]:
    """Return how warm-ups look afterwards, by who ended them."""
    by: dict[str, list[ChainLog]] = {}
    for decision in state.decisions:
        if decision.what == "warmup-ends" and decision.chain in state.chains:
            by.setdefault(decision.by, []).append(state.chains[decision.chain])
    checks = []
    for name, chains in sorted(by.items()):
        z = [abs(shift) for chain in chains if (shift := _shift(state.spec.theory, chain)) is not None]
        checks.append(
            WarmUpCheck(
                by=name,
                chains=len(chains),
                judged=len(z),
                over=sum(value <= LARGEST_Z for value in z),
                mean_updates=float(np.mean([chain.warmup for chain in chains])),
                largest_z=max(z, default=0.0),
            )
        )
    return checks


def _shift(theory: Theory, chain: ChainLog) -> float | None:
    """Return z of one chain; None where it is too short or does not move."""
    x = theory.energy_of(chain)
    if x.size < FEWEST_ROWS:
        return None
    first, last = x[: x.size // 5], x[x.size // 2 :]
    later = gamma_method(last)
    error = later.error * float(np.sqrt(1 + last.size / first.size))
    return (float(first.mean()) - later.mean) / error if error > 0 else None
