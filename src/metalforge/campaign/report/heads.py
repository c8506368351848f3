"""Accounts of heads: whether they acted, in which decisions, and what differed by that from their baselines.

A head acts when it was trusted, in its domain, and its word was taken in a recorded decision of this run. What differs
is modelled: in this run nobody followed the baseline. Where many campaigns were run with and without, the row of the
table that has it is named.
"""

from collections import Counter
from typing import Literal

from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Decided
from metalforge.campaign.without_heads import (
    BETA,
    NOT_WITHIN,
    UPDATES,
    Otherwise,
    decided_otherwise,
    head_decisions,
    kind_of,
    was_taken,
)

from .decisions import ResultPart

MEASURED = {
    "thermalization": "docs/tables/conductor.md, Early stop of warm-up: head",
    "beta_priority": "docs/tables/steering.md: conductor",
}
"""Where effects were measured over many campaigns or chains, by head: a table and its row."""
ANSWERS = ("asked", "heads", "late", "deadline", "lost", "ahead", "ahead_ready", "rows", "rows_lost")
"""Counts of the worker that are there whether they happened or not."""


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
    """One head in one run: `decisions` counts, by kind, those in which its word was taken; `acts` if there are any.

    `skill` is that on held-out couplings. A head that does not act has no effect.
    """

    acts: bool
    skill: float | None
    decisions: dict[str, int]
    effect: HeadEffect | None


def decisions_by_head(state: CampaignState) -> dict[str, Counter[str]]:
    """Return how often each head's word was taken, by kind of decision."""
    taken: dict[str, Counter[str]] = {}
    for head, decision in head_decisions(state):
        if was_taken(decision):
            times = decision.times if isinstance(decision, Decided) else 1
            taken.setdefault(head, Counter())[kind_of(decision)] += times
    if passed := sum(chain.heard for chain in state.chains.values()):
        taken.setdefault("anomaly", Counter())["gate"] = passed
    return taken


def accounts_of(state: CampaignState) -> dict[str, HeadAccount]:
    """Return the account of every head that the journal names."""
    taken, entries = decisions_by_head(state), decided_otherwise(state, taken=True)
    return {
        name: HeadAccount(
            acts=name in taken,
            skill=state.heads[name].value if name in state.heads else None,
            decisions=dict(taken.get(name, {})),
            effect=_effect(name, taken[name], [e for e in entries if e.head == name]) if name in taken else None,
        )
        for name in (*state.heads, *(name for name in taken if name not in state.heads))
    }


def _effect(name: str, taken: Counter[str], entries: list[Otherwise]) -> HeadEffect:
    kinds = ", ".join(f"{count} x {what}" for what, count in sorted(taken.items()))
    measured = MEASURED.get(name, "")
    counted = [e for e in entries if e.unit == UPDATES and e.decided is not None and e.baseline is not None]
    if places := [e for e in entries if e.unit == BETA and e.decided is not None]:
        text = f"{kinds}; the peak was expected at beta {places[-1].decided:.5g}"
        text += f", {places[-1].baseline:.5g} without the head" if places[-1].baseline is not None else ""
        ours, theirs = places[-1].decided, places[-1].baseline
        return HeadEffect(text=text, decided=ours, baseline=theirs, unit=BETA, measured=measured)
    if not counted:
        differing = sum(entry.differs for entry in entries)
        text = f"{kinds}; the baseline would have decided otherwise in {differing}" if entries else kinds
        return HeadEffect(text=text, measured=measured)
    total = [sum(getattr(e, of) or 0.0 for e in counted) for of in ("decided", "baseline")]
    text = f"{kinds}: {total[0]:g} updates, {total[1]:g} by the baseline"
    if beyond := len(entries) - len(counted):
        text += f"; {beyond} more that the baseline ends {NOT_WITHIN}"
    return HeadEffect(text=text, decided=total[0], baseline=total[1], unit=UPDATES, measured=measured)


def answers_of(state: CampaignState) -> dict[str, int] | None:
    """Return what the worker answered, over all processes that worked on a campaign; None where it was not counted."""
    notes = [decision.counts for decision in state.decisions if decision.what == "reader" and decision.counts]
    if not notes:
        return None
    total: Counter[str] = Counter(dict.fromkeys(ANSWERS, 0))
    for counts in notes:
        total.update(counts)
    return dict(total)
