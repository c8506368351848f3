"""What a person watches: a campaign's state at one moment, as plain data for a terminal, a pipe or a page.

Everything comes from the journal, so that a run, another process' run and a finished one look alike. The rate is
updates per second of wall time, by the journal's clock; the time left is that of the budget that ends first, where the
error on the result falls as n^(-1/2).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import median
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from metalforge.core import NOT_ACTED_ON

from .analysis.evidence import Evidence
from .calling import FIELDS, What
from .chain_log import ChainLog
from .findings import target_looks
from .report.decisions import decisions_by_head
from .report.words import ENDINGS, PHASES, one_line, substrate_text
from .state import CampaignState
from .store.records import Assigned, Commanded, Decided, Silicon
from .theory import System, Target, Theory, TheoryWords

SILENT_S, SILENT_SAMPLED_S = 30.0, 10.0
"""Silence after which a campaign is taken for one whose process is gone: blocks come every second or so, samples every
two seconds where a journal has them."""
LAST_ESTIMATES = 5
"""Estimates from which the fall of the error is extrapolated; a single one is known to 10 %."""
RECENT = 500
"""Updates over which columns of a chain are averaged: a look four times per second must stay cheap."""

Status: TypeAlias = Literal["running", "paused", "silent", "interrupted", "finished"]


class _Shown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the view."""


class RecentMean(_Shown, frozen=True, kw_only=True):
    """The mean of a column of a chain over its last 500 updates of this phase: its label, the number, and its text."""

    name: str
    label: str
    value: float
    text: str


class ChainView(_Shown, frozen=True, kw_only=True):
    """One chain: `per_second` counts updates per second of its producer's processor time, measured.

    `recent` has the columns that the theory shows beside a chain that runs (`Theory.live_columns`).
    """

    id: str
    system: System
    coordinate: float
    phase: str
    busy: bool
    substrate: str
    updates: int
    measured: int
    per_second: float | None
    recent: tuple[RecentMean, ...]


class SystemView(_Shown, frozen=True, kw_only=True):
    """What is found of one system so far, with its evidence: result, or where it crosses; `reason` says why it is not.

    Of a curve there is an error, and `reason` says it in words.
    """

    system: System
    result: float | None = None
    error: float | None = None
    located: float | None = None
    """The coordinate of the result."""
    height: float | None = None
    reason: str = ""
    established: bool = False
    evidence: tuple[Evidence, ...] = ()
    after: int | None = None
    """The updates of which this is, where it was not estimated again before the campaign's process was gone."""


class DecisionView(_Shown, frozen=True, kw_only=True):
    """One decision or command: `number` counts those of its kind (visits, others), `seconds` since the campaign began.

    `updates` is the length of a visit, or the update of the chain at which something else was decided. `head` took
    part in it; of a visit, it decided where. `baseline` is what the rule beside a head said.
    """

    number: int
    seconds: float
    what: str
    by: str
    reason: str
    chain: str = ""
    coordinate: float | None = None
    fresh: bool = False
    updates: int = 0
    trusted: bool | None = None
    head: str = ""
    value: float | None = None
    baseline: float | None = None


class BudgetView(_Shown, frozen=True, kw_only=True):
    """How much of one budget is used; for the target error `used` is the error so far."""

    name: str
    unit: str
    used: float | None
    limit: float
    share: float
    left_s: float | None


class View(_Shown, frozen=True, kw_only=True):
    """A campaign at one moment."""

    name: str
    ordering: str
    steerer: str
    algorithm: str
    coordinate: str
    """What points differ in."""
    result_name: str
    target: Target
    words: TheoryWords
    commands: tuple[What, ...]
    """What it may be told while it runs."""
    range: tuple[float, float]
    status: Status
    ending: str
    elapsed_s: float
    silent_s: float
    trajectories: int
    per_second: float
    chains: tuple[ChainView, ...]
    systems: tuple[SystemView, ...]
    decisions: tuple[DecisionView, ...]
    visits: int
    decided: int
    heads: str
    budgets: tuple[BudgetView, ...]
    ends_by: str
    left_s: float | None
    substrates: tuple[str, ...]

    def after_text(self, volume: SystemView) -> str:
        """Return after which of the updates something was found, where there are more; nothing otherwise."""
        of = f" of {self.trajectories:,} {self.words.update}s"
        return "" if volume.after is None else f", after {volume.after:,}{of}"


def view_of(state: CampaignState, now: float, *, last_decisions: int = 20) -> View:
    """Return what there is to see of a campaign at `now`, seconds since the epoch."""
    status, ending = _status(state, now)
    silent = 0.0 if status == "finished" else max(now - state.last_at, 0.0)
    # A process that is gone does no work: its time ended with its last record.
    elapsed = state.seconds if status in ("finished", "interrupted") else state.elapsed(
        now if status == "running" else state.last_at
    )  # fmt: skip
    trajectories = state.trajectories
    rate = trajectories / elapsed if elapsed > 0 else 0.0
    budgets = _budgets(state, elapsed, trajectories, rate)
    first = min((b for b in budgets if b.left_s is not None), key=lambda b: b.left_s or 0.0, default=None)
    others = state.other_decisions
    spec = state.spec
    busy = {visit.chain for visit in state.visits if visit.visit in state.open_visits} if status == "running" else set()
    return View(
        name=spec.name,
        ordering=state.ordering + (" (auto)" if state.chosen else ""),
        steerer=spec.steering.steerer,
        algorithm=spec.theory.update_is,
        coordinate=spec.theory.coordinate,
        result_name=spec.theory.result_name,
        target=spec.theory.target,
        words=spec.theory.words,
        commands=tuple(what for what in FIELDS if what != "rewire" or spec.theory.screened),
        range=(spec.theory.low, spec.theory.high),
        status=status,
        ending=ending,
        elapsed_s=elapsed,
        silent_s=silent,
        trajectories=trajectories,
        per_second=rate,
        chains=tuple(_chain(spec.theory, chain, chain.id in busy) for chain in state.chains.values()),
        systems=tuple(_volume(state, system, status) for system in spec.theory.systems),
        decisions=_decisions(state, others, last_decisions),
        visits=len(state.visits),
        decided=len(others),
        heads=_heads(state),
        budgets=budgets,
        ends_by="" if first is None or status != "running" else first.name,
        left_s=None if first is None or status != "running" else first.left_s,
        substrates=_substrates(state.opened.silicon),
    )


def _status(state: CampaignState, now: float) -> tuple[Status, str]:
    if state.finished is not None:
        return "finished", ENDINGS[state.finished.stopped_by]
    if state.interruption is not None:
        return "interrupted", state.interruption.reason
    if now - state.last_at > (SILENT_SAMPLED_S if state.samples else SILENT_S):
        return "silent", "its process may be gone"
    if state.pause is not None:
        return "paused", f"by {state.pause.by}"
    return "running", ""


def _chain(theory: Theory, chain: ChainLog, busy: bool) -> ChainView:
    phase = "measured" if chain.measured and not busy else PHASES[chain.phase]
    return ChainView(
        id=chain.id,
        system=chain.system,
        coordinate=chain.coordinate,
        phase="abandoned" if chain.abandoned else phase,
        busy=busy,
        substrate=chain.substrate,
        updates=chain.rows,
        measured=chain.measured,
        per_second=chain.rows / chain.seconds if chain.seconds > 0 else None,
        recent=tuple(_recent(theory, chain)),
    )


def _recent(theory: Theory, chain: ChainLog) -> Iterator[RecentMean]:
    """Give the means of the columns that the theory shows, as far as the chain has rows of them."""
    for name in theory.live_columns:
        column = chain.columns.get(name, ())
        rows = column[max(chain.warmup if chain.measured else chain.cheap, len(column) - RECENT) :]
        if not rows:
            continue
        shown = theory.described(name)
        mean = float(np.mean(shown.transform(np.array(rows))))
        text = f"{mean:.3g}" if shown.text is None else shown.text(mean, 0.0)
        yield RecentMean(name=name, label=shown.label or name, value=mean, text=text)


def _volume(state: CampaignState, system: System, status: Status) -> SystemView:
    last = state.last_look(system)
    if last is None:
        return SystemView(system=system, reason="nothing has been estimated yet")
    after = (
        last.trajectories if status in ("silent", "interrupted") and last.trajectories < state.trajectories else None
    )
    theory = state.spec.theory
    located = theory.target != "curve" and last.result is not None
    value, error = theory.quoted(last.result or 0.0, last.error or 0.0) if located else (None, None)
    return SystemView(
        system=system,
        result=value,
        error=last.error if theory.target == "curve" else error,
        located=last.result if located else None,
        height=last.height if located else None,
        reason="" if located and theory.target == "peak" else one_line(last.reason),
        established=last.established,
        evidence=last.evidence,
        after=after,
    )


def _decisions(state: CampaignState, others: list[Decided], last: int) -> tuple[DecisionView, ...]:
    """Return the last visits and decisions in order of time; what was said about heads is in `heads`."""
    numbered: list[tuple[int, Assigned | Decided]] = [*enumerate(state.visits), *enumerate(others)]
    numbered.sort(key=lambda pair: pair[1].at)
    return tuple(decision_view(record, state, number) for number, record in (numbered[-last:] if last else ()))


def decision_view(record: Assigned | Commanded | Decided, state: CampaignState, number: int = 0) -> DecisionView:
    """Return a decision as it is shown."""
    shown: dict[str, Any] = {"number": number, "seconds": record.at - state.opened.at, "by": record.by}
    if isinstance(record, Commanded):
        asked = "".join(f" {name} {value}" for name, value in record.asked.items())
        said = "accepted" if record.accepted else f"refused: {record.reason}"
        return DecisionView(what="command", reason=one_line(f"{record.what}{asked}, {said}"), **shown)
    at = state.chains[record.chain].coordinate if record.chain in state.chains else None
    shown |= {"reason": one_line(record.reason), "chain": record.chain, "coordinate": at, "baseline": record.baseline}
    if isinstance(record, Assigned):
        head = record.head if record.by_head else ""
        return DecisionView(what="visit", fresh=record.fresh, updates=record.updates, head=head, **shown)
    return DecisionView(
        what=record.what, updates=record.step, trusted=record.trusted, head=record.head, value=record.value, **shown
    )


def _heads(state: CampaignState) -> str:
    """Return which heads act, which are trusted and have decided nothing yet, and most often why others do not act."""
    heads, taken = state.heads, decisions_by_head(state)
    acting = [name for name in heads if name in taken]
    ready = [name for name, said in heads.items() if name not in taken and said.trusted]
    others = [said.reason for name, said in heads.items() if name not in taken and not said.trusted]
    parts = []
    if acting:
        parts.append(f"{', '.join(acting)} act{'s' * (len(acting) == 1)}")
    if ready:
        verb = "is" if len(ready) == 1 else "are"
        parts.append(f"{', '.join(ready)} {verb} trusted, no decision yet")
    if others:
        why, _ = Counter(one_line(reason.removeprefix(NOT_ACTED_ON)) for reason in others).most_common(1)[0]
        none = len(others) == len(heads)
        parts.append(
            f"none of {len(heads)} heads acts: {why}"
            if none
            else f"{len(others)} of {len(heads)} heads do not act: {why}"
        )
    return "; ".join(parts)


def _substrates(silicon: Sequence[Silicon]) -> tuple[str, ...]:
    """Return what the substrates do, those with one role together: ``cpu:0, cpu:1 (produces)``."""
    roles: dict[str, list[str]] = {}
    for entry in silicon:
        roles.setdefault(entry.role, []).append(substrate_text(entry.name))
    return tuple(
        f"{', '.join(names) if len(names) < 4 else f'{names[0]} to {names[-1]}'} ({role})"
        for role, names in roles.items()
    )


def _budgets(state: CampaignState, elapsed: float, trajectories: int, rate: float) -> tuple[BudgetView, ...]:
    budget = state.spec.budget
    shown = []
    if budget.target_error is not None:
        shown.append(_target(state, budget.target_error, trajectories, rate))
    joules = sum(e.energy.value for e in state.energy.values() if e.energy is not None and e.source == "measured")
    per_second = joules / elapsed if elapsed else 0.0
    spending = (
        ("seconds", "s", elapsed, 1.0),
        ("trajectories", f"{state.spec.theory.words.update}s", trajectories, rate),
    )
    for name, unit, used, speed in (*spending, ("joules", "J", joules, per_second)):
        if (limit := getattr(budget, name)) is not None:
            left = max(limit - used, 0) / speed if speed else None
            share = min(used / limit, 1.0)
            shown.append(BudgetView(name=name, unit=unit, used=used, limit=limit, share=share, left_s=left))
    return tuple(shown)


def _target(state: CampaignState, target: float, trajectories: int, rate: float) -> BudgetView:
    """Return how far the error is from its target: error = k n^(-1/2), k the median of the last estimates."""
    located = [(seen.error, seen.trajectories) for seen in target_looks(state) if seen.error]
    on = state.spec.theory.words.error_of
    if not located:
        return BudgetView(name="target error", unit=on, used=None, limit=target, share=0.0, left_s=None)
    error = located[-1][0]
    k = median(e * sqrt(n) for e, n in located[-LAST_ESTIMATES:])
    needed = (k / target) ** 2
    left = max(needed - trajectories, 0.0) / rate if rate else None
    share = 1.0 if error <= target else min(trajectories / needed, 0.99)
    return BudgetView(name="target error", unit=on, used=error, limit=target, share=share, left_s=left)
