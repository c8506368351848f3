r"""What another steerer would have done from a record on: read from the journal, nothing runs.

The campaign's own planner is asked again for every visit that was decided after that record, on the same silicon and
for the same volume, with another steerer; it is told a visit's outcome when that visit ended. So the decisions are the
steerer's own. Outcomes at couplings that were not run are reweighted from all chains of the journal,

    chi(x) = V (<O^2> - <O>^2)_x,     error^2 = chi^2 (B4 - 1) tau / n,

with tau_int of the chains around it and the n updates that the visits there would have had: they are modelled, and so
is every decision after the first of them. Where a peak was expected is told as it was. What complete visits are worth
is how many effective samples they would carry to the peak (`Joint.n_effective_of`); the error of the peak goes as
1 / sqrt of that. Left out: what the evidence asked for after that record, and cheap warm-ups.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from metalforge.core import Observation, SpecError, Steerer
from metalforge.statistics import BEYOND, MIN_EFFECTIVE, Joint, NotLocated, join, kurtosis, variance

from .analysis.selection import MeasuredChain, clusters, observe, prepare
from .chain_log import ChainLog, series_of
from .orderings import Assignee
from .spec import CampaignSpec
from .state import PEAK_PRIOR, CampaignState, Fold
from .steerers import find_steerer
from .store.reading import JournalFollower
from .store.records import Assigned, BlockDone, Decided, Extended, Record
from .theory import System

NOTE = (
    "nothing was run: decisions are the steerer's own, outcomes are reweighted from the chains that were run, and so "
    "modelled; what the evidence asked for and cheap warm-ups are left out"
)


class OtherVisit(msgspec.Struct, frozen=True, kw_only=True):
    """One visit as it was decided, and as the other steerer would have had it; `coordinate` None: no visit.

    `exact` says that all it was told had been measured. `chi` and `error` are modelled outcomes; None: not covered by
    the chains that were run, so that it is told nothing.
    """

    seconds: float
    system: System
    was: float
    was_by: str
    coordinate: float | None
    by: str
    chain: str
    updates: int
    reason: str
    exact: bool
    chi: float | None = None
    error: float | None = None


class OtherSystem(msgspec.Struct, frozen=True, kw_only=True):
    """What the visits of a volume are worth: effective samples at its peak, and the error of that.

    `was` and `other` are both computed from where and how long chains ran; `error` was measured, `other_error` is
    modelled.
    """

    system: System
    reason: str
    result: float | None = None
    error: float | None = None
    was: float | None = None
    other: float | None = None
    other_error: float | None = None


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True):
    """Another steerer from record `at` on, by what the journal knows after `until` records.

    `own_again` says how far modelled outcomes can be believed.
    """

    at: int
    until: int
    own: str
    own_again: int
    """Visits that the campaign's own steerer decides as it did, on modelled outcomes."""
    steerer: str
    visits: tuple[OtherVisit, ...]
    systems: tuple[OtherSystem, ...]
    note: str = NOTE


class _Stretch:
    """Chains of a volume that overlap, joined: what would have been measured between them."""

    def __init__(self, chains: list[MeasuredChain], rng: np.random.Generator) -> None:
        self.joint: Joint = join(chains, [chain.energy.size for chain in chains], rng)
        self._places = np.array([chain.coordinate for chain in chains])
        self._taus = np.array([chain.tau for chain in chains])
        self._volume = chains[0].point.volume

    def covers(self, coordinate: float) -> bool:
        margin = BEYOND / self.joint.spread
        inside = self._places[0] - margin <= coordinate <= self._places[-1] + margin
        return bool(inside and self.joint.n_effective(np.array([coordinate]))[0] >= MIN_EFFECTIVE)

    def tau(self, coordinate: float) -> float:
        return float(np.interp(coordinate, self._places, self._taus))

    def chi(self, coordinate: float, updates: int) -> tuple[float, float]:
        moments = self.joint.moments(np.array([coordinate]))
        chi = self._volume * float(variance(moments)[0, 0])
        b4 = max(float(kurtosis(moments[1:, 0])[0]), 2.0)  # as in `measured_chi`
        return chi, chi * float(np.sqrt((b4 - 1) * max(self.tau(coordinate), 1.0) / updates))


def _stretches(state: CampaignState, system: System) -> list[_Stretch]:
    try:
        usable, _ = prepare(state.points(system))
        rng = np.random.default_rng(state.spec.seed)
        return [_Stretch(chains, rng) for chains in clusters(usable)]
    except NotLocated:
        return []


class _Otherwise:
    """Plans visits with another steerer, and tells it what would have come out."""

    def __init__(self, known: CampaignState, before: CampaignState, steerer: str) -> None:
        from .running.visits import VisitPlan

        self._known, self.state = known, before
        # What the evidence lacked then would be asked for again and again: nobody looks at modelled chains.
        self.state.estimates = [msgspec.structs.replace(e, wants=()) for e in before.estimates]
        steering = msgspec.structs.replace(known.spec.steering, steerer=steerer)
        self._spec: CampaignSpec = msgspec.structs.replace(known.spec, steering=steering)
        self.state.extended.append(Extended(spec=self._spec))
        self._stretches = {system: _stretches(self._known, system) for system in self._known.spec.theory.systems}
        self._steerers = {system: self._steerer(system) for system in self._known.spec.theory.systems}
        self._plan = VisitPlan(spec=self._spec, steerers=self._steerers)
        self._open = set(before.open_visits)
        """Visits that were under way then, and end as they did."""
        self._planned: dict[int, Assigned] = {}
        """Visits here that end as they are planned, by the number of the visit that was decided at that moment."""
        self.visits: dict[int, OtherVisit] = {}
        """Every visit that was decided since, by the same number."""
        self._exact = True

    def _steerer(self, system: System) -> Steerer:
        found = find_steerer(self._spec.steering.steerer).make(self._spec.scan(system))
        for log in self.state.chains.values():
            if log.system == system and log.complete and not log.abandoned and self._spec.covers(log.coordinate):
                seen = observe(series_of(self._spec.theory, log, complete=True), id=log.id, cost=float(log.complete))
                if seen is not None:
                    found.tell([seen])
        return found

    def take(self, record: Record) -> None:
        """Go on with what happened next: visits, their ends, and where peaks were expected."""
        match record:
            case Decided() if record.what == PEAK_PRIOR:
                self.state.apply(record)
            case Assigned():
                self._decide(record)
            case BlockDone(visit=number, done=True) if number in self._open:
                self._open.remove(number)
                self._as_it_was(number, self.state.visits[number])
            case BlockDone(visit=number, done=True) if number in self._planned:
                self.visits[number] = self._modelled(self._planned.pop(number), self.visits[number])

    def _decide(self, visit: Assigned) -> None:
        """Plan what the steerer wants at the moment of a visit."""
        who = Assignee(visit.substrate, (visit.system,), sites=int(not visit.substrate.startswith("cpu")))
        pending = [self.state.visits[number] for number in self.state.open_visits]
        number = len(self.state.visits)
        found = self._plan.next(who, self.state, pending, rounds=visit.round, number=number)
        wish = found if isinstance(found, Assigned) else None
        if wish is not None:
            self.state.apply(msgspec.structs.replace(wish, at=visit.at))
            self._planned[visit.visit] = wish
        self.visits[visit.visit] = OtherVisit(
            seconds=visit.at - self._known.opened.at,
            system=visit.system,
            was=visit.coordinate,
            was_by=visit.by,
            coordinate=None if wish is None else wish.coordinate,
            by="" if wish is None else wish.by,
            chain="" if wish is None else wish.chain,
            updates=0 if wish is None else wish.updates,
            reason=found.reason or "no visit",
            exact=self._exact,
        )

    def _modelled(self, planned: Assigned, entry: OtherVisit) -> OtherVisit:
        """End a visit as it is planned; return what would have come out."""
        log = self.state.chains[planned.chain]
        if not log.rows:
            log.by_phase["warmup"] = self._warmup(planned.system)
        log.by_phase["measure"] += planned.updates
        self._end(planned, log)
        if (told := self._outcome(log)) is None:
            return entry
        self._exact = False
        self._steerers[planned.system].tell([told])
        return msgspec.structs.replace(entry, chi=told.value, error=told.error)

    def _as_it_was(self, number: int, visit: Assigned) -> None:
        """End a visit as the journal's of that number did."""
        log, known = self.state.chains[visit.chain], self._known.chains[visit.chain]
        end = known.ends.get(number, known.complete)
        measured = max(end - known.warmup, 0)
        log.by_phase.clear()
        log.by_phase.update(warmup=min(known.warmup, end), measure=measured)
        self._end(visit, log)
        told = observe(series_of(self._spec.theory, known).up_to(measured), id=log.id, cost=float(end))
        if told is not None and self._spec.covers(log.coordinate):
            self._steerers[visit.system].tell([told])

    def _end(self, visit: Assigned, log: ChainLog) -> None:
        log.step = log.complete = log.ends[visit.visit] = log.rows
        self.state.open_visits.pop(visit.visit, None)

    def _warmup(self, system: System) -> int:
        """Return how long warm-ups of a volume were."""
        found = [log.warmup for log in self._known.chains.values() if log.system == system and log.measured]
        return int(np.median(found)) if found else self._spec.warmup.longest

    def _outcome(self, log: ChainLog) -> Observation | None:
        part = self._covering(log.system, log.coordinate)
        if part is None or not log.measured:
            return None
        chi, error = part.chi(log.coordinate, log.measured)
        return Observation(coordinate=log.coordinate, value=chi, error=error, cost=float(log.complete), id=log.id)

    def _covering(self, system: System, coordinate: float) -> _Stretch | None:
        return next((part for part in self._stretches[system] if part.covers(coordinate)), None)

    def worth(self, system: System) -> OtherSystem:
        """Return what the visits of a volume are worth."""
        latest = self._known.latest(system)
        if latest is None or latest.result is None or not latest.error:
            return OtherSystem(system=system, reason="its peak is not located by what was run")
        part = self._covering(system, latest.result)
        if part is None:
            return OtherSystem(system=system, reason="no chains that were run cover its peak")
        was, other = (
            self._carried(part, system, latest.result, state.chains.values()) for state in (self._known, self.state)
        )
        return OtherSystem(
            system=system,
            reason="",
            result=latest.result,
            error=latest.error,
            was=was,
            other=other,
            other_error=latest.error * float(np.sqrt(was / other)) if other > 0 else None,
        )

    def _carried(self, part: _Stretch, system: System, coordinate: float, chains: Iterable[ChainLog]) -> float:
        here = [c for c in chains if c.system == system and not c.abandoned and part.covers(c.coordinate)]
        counts = [max(chain.complete - chain.warmup, 0) / (2 * part.tau(chain.coordinate)) for chain in here]
        return part.joint.n_effective_of(coordinate, [chain.coordinate for chain in here], counts)


def counterfactual(journal: Path, at: int, until: int | None, steerer: str) -> Counterfactual:
    """Return what another steerer would have done from record `at` on, by the first `until` records of a journal."""
    find_steerer(steerer)
    folding, count = Fold(), 0
    before: list[CampaignState] = []
    after: list[Record] = []

    def take(record: Record) -> None:
        nonlocal count
        folding(record)
        count += 1
        if count == at:
            before.extend(folding.fork().state for _ in range(2))
        elif count > at and isinstance(record, Assigned | BlockDone | Decided):
            after.append(record)

    JournalFollower(journal).poll(take, until)
    state = folding.state
    if not before:
        raise SpecError(f"`at` must be a record, from 1 to {count}. Got {at}")
    if (target := state.spec.theory.target) != "peak":
        raise SpecError(
            f"outcomes elsewhere are reweighted from chains around a peak, and this campaign looks for a {target}: "
            "what it finds cannot be reweighted"
        )
    own = before[0].spec.steering.steerer
    again, other = _Otherwise(state, before[0], own), _Otherwise(state, before[1], steerer)
    for record in after:
        again.take(record)
        other.take(record)
    return Counterfactual(
        at=at,
        until=count,
        own=own,
        own_again=sum(visit.coordinate == visit.was for visit in again.visits.values()),
        steerer=steerer,
        visits=tuple(other.visits.values()),
        systems=tuple(other.worth(system) for system in state.spec.theory.systems),
    )
