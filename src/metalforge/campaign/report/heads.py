"""Accounts of heads: in which decisions they took part, and what differed by that from their baselines.

A decision is a head's where the baseline alone would have decided otherwise. The journal has both: a visit's steerer
was asked without the head's answer, too (`running.suggestions`), and a length stands beside the baseline's. A head acts
where at least one decision would have been another one. What would have followed from the baseline's decision is not
known, since chains that were not run left no rows: differences are modelled, and are marked so. Where many campaigns
were run with and without a head, the row of the table that has it is named.
"""

from collections import Counter
from typing import Literal

import msgspec

from metalforge.campaign.state import PEAK_PRIOR, CampaignState
from metalforge.campaign.store.records import Assigned, Decided
from metalforge.core import PEAK_HEAD

from .decisions import ResultPart

MEASURED = {PEAK_HEAD: "docs/tables/steering.md: conductor"}
"""Where effects were measured over many campaigns or chains, by head: a table and its row."""
NO_DECISION = "trusted, and no decision has differed because of it"
"""Why a trusted head does not act."""
UPDATES = "updates"
NOTE = "nothing was run: where a baseline decides otherwise, what would have followed is modelled, not measured"


class Otherwise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decision that a head took part in, beside what the baseline alone would have decided.

    `decided` and `baseline` are in `unit`; None is no visit. `head_said` is the head's own value. `differs` says
    whether the baseline would have decided something else; what would have followed from that is `modelled`.
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
    modelled: bool
    text: str


def otherwise(state: CampaignState) -> list[Otherwise]:
    """Return every decision that heads took part in beside that of the baselines, in order of time."""
    visits = [_visit(state, visit) for visit in state.visits if visit.head]
    lengths = [_length(state, d) for d in state.decisions if d.head and d.what == "cheap-length"]
    return sorted([*visits, *lengths], key=lambda entry: entry.seconds)


def _visit(state: CampaignState, visit: Assigned) -> Otherwise:
    at = "no visit" if visit.baseline is None else f"a visit at {visit.baseline:.5g}"
    return Otherwise(
        seconds=visit.at - state.opened.at,
        what="visit",
        by=visit.by,
        head=visit.head,
        chain=visit.chain,
        trusted=True,
        head_said=None,
        decided=visit.coordinate,
        baseline=visit.baseline,
        unit=state.spec.theory.coordinate,
        differs=visit.by_head,
        modelled=visit.by_head,
        text=f"{at} without the head's answer",
    )


def _length(state: CampaignState, decision: Decided) -> Otherwise:
    decided = decision.value if decision.trusted else decision.baseline
    differs = decided != decision.baseline
    return Otherwise(
        seconds=decision.at - state.opened.at,
        what=decision.what,
        by=decision.by,
        head=decision.head,
        chain=decision.chain,
        trusted=bool(decision.trusted),
        head_said=decision.value,
        decided=decided,
        baseline=decision.baseline,
        unit=UPDATES,
        differs=differs,
        modelled=differs,
        text=decision.done or decision.reason,
    )


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
