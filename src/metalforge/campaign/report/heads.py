"""Accounts of heads: whether they acted, in which decisions, and what differed by that from their baselines.

A head acts where it decided something in this run: at least one decision would have been another one by its baseline
(`campaign.without_heads`). Effects are modelled: in this run nobody followed the baseline. Where many campaigns were
run with and without, the row of the table that has it is named.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from metalforge.campaign.state import PEAK_PRIOR, CampaignState
from metalforge.campaign.store.records import Decided
from metalforge.campaign.without_heads import NOT_WITHIN, UPDATES, Otherwise, otherwise
from metalforge.core.schema import PEAK_HEAD

from .decisions import ResultPart

MEASURED = {
    "thermalization": "docs/tables/conductor.md, Early stop of warm-up: head",
    PEAK_HEAD: "docs/tables/steering.md: conductor",
}
"""Where effects were measured over many campaigns or chains, by head: a table and its row."""
NO_DECISION = "trusted, and no decision has differed because of it"
"""Why a trusted head does not act."""
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
    """One head in one run: `decisions` counts, by kind, those that its baseline would have made differently.

    `acts` says whether there are any. `skill` is that on held-out couplings. A head that does not act has no effect.
    """

    acts: bool
    skill: float | None
    decisions: dict[str, int]
    effect: HeadEffect | None


def decisions_by_head(state: CampaignState) -> dict[str, Counter[str]]:
    """Return how many decisions each head made that its baseline would not have made, by kind."""
    return _counted(otherwise(state, taken=True))


def _counted(entries: Iterable[Otherwise]) -> dict[str, Counter[str]]:
    made: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry.differs:
            made.setdefault(entry.head, Counter())[entry.what] += 1
    return made


def accounts_of(state: CampaignState) -> dict[str, HeadAccount]:
    """Return the account of every head that the journal names."""
    entries = otherwise(state, taken=True)
    made = _counted(entries)
    return {
        name: HeadAccount(
            acts=name in made,
            skill=state.heads[name].value if name in state.heads else None,
            decisions=dict(made.get(name, {})),
            effect=_effect(state, name, made[name], [e for e in entries if e.head == name]) if name in made else None,
        )
        for name in dict.fromkeys((*state.heads, *made))
    }


def _effect(state: CampaignState, name: str, made: Counter[str], entries: list[Otherwise]) -> HeadEffect:
    kinds = ", ".join(f"{count} x {what}" for what, count in sorted(made.items()))
    measured = MEASURED.get(name, "")
    if made["visit"]:
        said = next(d for d in reversed(state.decisions) if d.what == PEAK_PRIOR and d.head == name)
        text = kinds
        if said.value is not None and said.baseline is not None:
            text += f"; the head moved the expected peak by {said.value - said.baseline:+.2g} to {said.value:.5g}"
        unit = state.spec.theory.coordinate
        return HeadEffect(text=text, decided=said.value, baseline=said.baseline, unit=unit, measured=measured)
    counted = [e for e in entries if e.unit == UPDATES and e.decided is not None and e.baseline is not None]
    if not counted:
        return HeadEffect(text=kinds, measured=measured)
    total = [sum(getattr(e, of) or 0.0 for e in counted) for of in ("decided", "baseline")]
    text = f"{kinds}: {total[0]:g} updates, {total[1]:g} by the baseline"
    if beyond := len(entries) - len(counted):
        text += f"; {beyond} more that the baseline ends {NOT_WITHIN}"
    return HeadEffect(text=text, decided=total[0], baseline=total[1], unit=UPDATES, measured=measured)


def why_not(said: Decided) -> str:
    """Return why a head that decided nothing does not act, from what the journal says of it."""
    return NO_DECISION if said.trusted else said.reason


def answers_of(state: CampaignState) -> dict[str, int] | None:
    """Return what the worker answered, over all processes that worked on a campaign; None where it was not counted."""
    notes = [decision.counts for decision in state.decisions if decision.what == "reader" and decision.counts]
    if not notes:
        return None
    total: Counter[str] = Counter(dict.fromkeys(ANSWERS, 0))
    for counts in notes:
        total.update(counts)
    return dict(total)
