"""Decisions that heads took part in, beside those of the baselines: read from the journal, nothing runs.

A decision is a head's where the baseline alone would have decided otherwise:

- a visit: the planner asked its steerer without the head's answer, too, and the visit would be elsewhere
  (`running.suggestions`);
- the end of a warm-up: the rule, on the same rows, ends it after another number of updates;
- a block that the anomaly head had computed again, and no rule flagged;
- a length: the journal has the baseline's beside it.

What would have followed from the baseline's decision is not known: chains that were not run left no rows. So
differences in updates and in places are modelled, and are marked so.
"""

from collections.abc import Iterator

import msgspec

from .spec import CampaignSpec
from .state import PEAK_PRIOR, CampaignState, ChainLog
from .store.records import THROWN_AWAY, Assigned, Decided

UPDATES = "updates"
UNITS = {"warmup-ends": UPDATES, "visit-length": UPDATES, "cheap-length": UPDATES}
"""What decisions of a kind are counted in. Visits are at values of the coordinate, which is their unit by name."""
NOT_WITHIN = "not within the rows that there are"
NOTE = "nothing was run: where a baseline decides otherwise, what would have followed is modelled, not measured"
NOTED = ("head", "judged", "reader", "retrained", "trust", PEAK_PRIOR)
"""Lines about heads that are no decisions; where a peak is expected is an answer that visits follow."""


class Otherwise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decision that a head took part in, beside what the baseline alone would have decided.

    `decided` and `baseline` are in `unit`; None where it is no number. `head_said` is the head's own value. `differs`
    says whether the baseline would have decided something else; what would have followed from that is `modelled`.
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


def otherwise(state: CampaignState, *, taken: bool = False) -> list[Otherwise]:
    """Return every decision that heads took part in beside that of the baselines, in order of time.

    With `taken` only those in which a head's answer was followed.
    """
    visits = (_visit(state, visit) for visit in state.visits if visit.head)
    found = [*visits, *_about_chains(state, taken)]
    return sorted(found, key=lambda entry: entry.seconds)


def _about_chains(state: CampaignState, taken: bool) -> Iterator[Otherwise]:
    """Give those that are no visits."""
    for decision in state.decisions:
        if decision.head and decision.what not in NOTED and (decision.trusted or not taken):
            yield _warmup(state, decision) if decision.what == "warmup-ends" else _recorded(state, decision)


def rule_ends_warmup(spec: CampaignSpec, log: ChainLog) -> int | None:
    """Return the updates after which the rule ends a chain's warm-up, cheap ones too; None beyond its rows."""
    from .running.monitor import Monitor

    longest, monitor = spec.warmup.longest, Monitor(spec.warmup, early=spec.ends_warm_up_early)
    rows = slice(log.cheap, log.cheap + longest)
    columns = {name: log.column(name, measured=False)[rows].tolist() for name in log.columns}
    if not columns:  # decisions are written before the rows that they are about
        return None
    energy, order = spec.theory.warmup_columns(columns)
    # Trajectories tune their step in the first half of the longest warm-up; chains of a ladder end it together.
    least = (longest + 1) // 2 if spec.theory.tuned else 0
    # While the steps of refused trajectories were tuned on nobody could end it.
    tuned = range(min((d.step for d in log.decisions if d.what == "warmup-goes-on"), default=log.warmup), log.warmup)
    for n in () if log.ladder else range(least, min(len(order) + 1, longest)):
        if monitor.due(n) and log.cheap + n not in tuned and monitor.look(energy[:n], order[:n]).ends:
            return log.cheap + n
    return log.cheap + longest if len(order) >= longest else None


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


def _warmup(state: CampaignState, decision: Decided) -> Otherwise:
    ends = rule_ends_warmup(state.spec, state.chains[decision.chain])
    said = f"the rule ends it after {ends} updates" if ends is not None else f"the rule ends it {NOT_WITHIN}"
    return _entry(state, decision, decided=decision.step, baseline=ends, differs=ends != decision.step, text=said)


def _recorded(state: CampaignState, decision: Decided) -> Otherwise:
    """Return a decision whose baseline the journal has."""
    decided = decision.value if decision.trusted else decision.baseline
    # A block that was kept in the end would have been kept without the head, too.
    differs = decision.done.startswith(THROWN_AWAY) if decision.what == "fault" else decided != decision.baseline
    text = decision.done or decision.reason
    return _entry(state, decision, decided=decided, baseline=decision.baseline, differs=differs, text=text)


def _entry(
    state: CampaignState,
    decision: Decided,
    *,
    decided: float | None,
    baseline: float | None,
    differs: bool,
    text: str,
) -> Otherwise:
    differs = differs and bool(decision.trusted)
    return Otherwise(
        seconds=decision.at - state.opened.at,
        what=decision.what,
        by=decision.by,
        head=decision.head,
        chain=decision.chain,
        trusted=bool(decision.trusted),
        head_said=decision.value,
        decided=decided,
        baseline=baseline,
        unit=UNITS.get(decision.what, ""),
        differs=differs,
        modelled=differs,
        text=text,
    )
