"""What the baselines alone would have decided, beside what was decided with heads: read from the journal, nothing runs.

A warm-up is looked at again by the rule on the rows that are there; a visit is planned again by the steerer without the
head's word, from what was known when it was decided; of other decisions the journal has what the baseline said. Where
both agree the campaign went on as it would have. Where they differ, what would have followed is not known: chains that
were not run left no rows. So differences in updates and in beta are modelled, and say so.
"""

from collections.abc import Callable, Iterator
from math import hypot
from pathlib import Path

import msgspec

from metalforge.core.steering import Steerer

from .orderings import Assignee
from .physics.selection import observe
from .spec import CampaignSpec, Dims
from .state import PEAK_PRIOR, CampaignState, ChainLog, Fold
from .steerers import GaussianProcess
from .store.reading import read_journal
from .store.records import Assigned, Decided, Record, head_of

UPDATES, BETA = "updates", "beta"
UNITS = {"warmup-ends": UPDATES, "visit-length": UPDATES, "quenched-length": UPDATES, PEAK_PRIOR: BETA}
"""What decisions of a kind are counted in; others have no unit that could be added up."""
NOT_WITHIN = "not within the rows that there are"
NOTE = "nothing was run: where a baseline decides otherwise, what would have followed is modelled, not measured"
NOTED = ("head", "judged", "reader", "retrained", "trust")
"""Lines about heads that are no decisions."""


class Otherwise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decision that a head took part in, beside what the baseline alone would have decided.

    `decided` and `baseline` are in `unit`; None where it is no number. `head_said` is the head's own value. `differs`
    says whether the baseline would have decided something else; what would have followed from that is `modelled`.
    """

    seconds: float
    what: str
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


def head_decisions(state: CampaignState) -> Iterator[tuple[str, Assigned | Decided]]:
    """Give the decisions in which a head took part, its word taken or not, with the head's name."""
    yield from ((head, state.visits[visit]) for visit, head in placed_by_heads(state).items())
    yield from ((head_of(d), d) for d in _with_heads(state))


def _with_heads(state: CampaignState) -> Iterator[Decided]:
    """Give those of them that are no visits."""
    return (d for d in state.decisions if d.what not in NOTED and head_of(d))


def placed_by_heads(state: CampaignState) -> dict[int, str]:
    """Return the visits that heads placed: by themselves, or by where a volume's peak was expected because of one."""
    placed: dict[int, str] = {}
    expected: dict[Dims, str] = {}
    priors = [d for d in state.decisions if d.what == PEAK_PRIOR and d.dims is not None]
    for visit in state.visits:
        while priors and priors[0].at <= visit.at:
            said = priors.pop(0)
            assert said.dims is not None
            expected[said.dims] = said.head if said.trusted else ""
        by_process = expected.get(visit.dims, "") if visit.by == GaussianProcess.name else ""
        if head := head_of(visit) or by_process:
            placed[visit.visit] = head
    return placed


def was_taken(decision: Assigned | Decided) -> bool:
    """Return whether a head's word was taken: a visit that names a head was placed by it."""
    return isinstance(decision, Assigned) or bool(decision.trusted)


def kind_of(decision: Assigned | Decided) -> str:
    """Return what was decided, as it is counted."""
    return "visit" if isinstance(decision, Assigned) else decision.what


def decided_otherwise(state: CampaignState, *, taken: bool = False) -> list[Otherwise]:
    """Return the decisions about chains and the campaign that heads took part in; `taken`: those that followed one."""
    found = (d for d in _with_heads(state) if d.trusted or not taken)
    return [_warmup(state, d) if d.what == "warmup-ends" else _recorded(state, d) for d in found]


def rule_ends_warmup(spec: CampaignSpec, log: ChainLog) -> int | None:
    """Return the updates after which the rule ends a chain's warm-up, quenched ones too; None beyond its rows."""
    from .running.monitor import Monitor

    longest, monitor = spec.warmup.longest, Monitor(spec.warmup, early=spec.ends_warm_up_early)
    rows = slice(log.quenched, log.quenched + longest)
    plaquette, re, im = (
        log.column(name, measured=False)[rows].tolist() for name in ("plaquette", "polyakov_re", "polyakov_im")
    )
    loop = list(map(hypot, re, im))
    # Trajectories tune their step in the first half of the longest warm-up; chains of a ladder end it together.
    least = (longest + 1) // 2 if spec.gauge.algorithm == "hmc" else 0
    # While the steps of refused trajectories were tuned on nobody could end it.
    tuned = range(min((d.step for d in log.decisions if d.what == "warmup-goes-on"), default=log.warmup), log.warmup)
    for n in () if log.ladder else range(least, min(len(loop) + 1, longest)):
        if monitor.due(n) and log.quenched + n not in tuned and monitor.look(plaquette[:n], loop[:n]).ends:
            return log.quenched + n
    return log.quenched + longest if len(loop) >= longest else None


def _warmup(state: CampaignState, decision: Decided) -> Otherwise:
    ends = rule_ends_warmup(state.spec, state.chains[decision.chain])
    said = f"the rule ends it after {ends} updates" if ends is not None else f"the rule ends it {NOT_WITHIN}"
    differs, head = ends != decision.step, head_of(decision)
    return _entry(state, decision, head, decided=decision.step, baseline=ends, differs=differs, text=said)


def _recorded(state: CampaignState, decision: Decided) -> Otherwise:
    """Return a decision whose baseline the journal has."""
    taken = bool(decision.trusted)
    decided = decision.value if taken else decision.baseline
    differs = taken and decided != decision.baseline
    text = decision.done or decision.reason
    head, baseline = head_of(decision), decision.baseline
    return _entry(state, decision, head, decided=decided, baseline=baseline, differs=differs, text=text)


def _entry(
    state: CampaignState,
    decision: Assigned | Decided,
    head: str,
    *,
    decided: float | None,
    baseline: float | None,
    differs: bool,
    text: str,
) -> Otherwise:
    what = kind_of(decision)
    return Otherwise(
        seconds=decision.at - state.opened.at,
        what=what,
        head=head,
        chain=decision.chain,
        trusted=was_taken(decision),
        head_said=decision.value if isinstance(decision, Decided) else None,
        decided=decided,
        baseline=baseline,
        unit=BETA if isinstance(decision, Assigned) else UNITS.get(what, ""),
        differs=differs,
        modelled=differs,
        text=text,
    )


class VisitsAgain:
    """Folds a journal, and before each visit plans it again without heads, from what was known then.

    A visit under way when its process died, and one of several that were decided together on a card, were decided with
    a little more or less known than the journal says in this order.
    """

    def __init__(self, directory: Path | None, wanted: Callable[[CampaignState, Assigned], bool]) -> None:
        self._fold, self._wanted = Fold(directory), wanted
        self._steerers: dict[Dims, tuple[CampaignSpec, Steerer, dict[str, int]]] = {}
        """Of each volume, with the updates of every chain that it was told of."""
        self.found: list[tuple[Assigned, Assigned | None]] = []
        """Visits as they were decided, with what would have been decided without heads; None: nothing."""

    def __call__(self, record: Record) -> None:
        """Take the next record."""
        if isinstance(record, Assigned) and self._wanted(self.state, record):
            self.found.append((record, self._again(record)))
        self._fold(record)

    @property
    def state(self) -> CampaignState:
        """What the records so far say."""
        return self._fold.state

    def _again(self, visit: Assigned) -> Assigned | None:
        from .running.visits import VisitPlan

        state, spec = self.state, self.state.spec
        who = Assignee(visit.substrate, (visit.dims,), sites=int(not visit.substrate.startswith("cpu")))
        pending = [other for other in state.visits if other.visit in state.open_visits]
        plan = VisitPlan(spec=spec, steerers={visit.dims: self._steerer(visit.dims)}, heads=False)
        found = plan.next(who, state, pending, rounds=visit.round, number=visit.visit)
        return found if isinstance(found, Assigned) else None

    def _steerer(self, dims: Dims) -> Steerer:
        """Return the steerer of a volume, which knows what its chains have measured in their complete visits."""
        from .running.equipment import steerer_of

        spec = self.state.spec
        there = [
            log
            for log in self.state.chains.values()
            if log.complete and not log.abandoned and log.dims == dims and spec.covers(log.beta)
        ]
        known = self._steerers.get(dims)
        # Made anew for another spec, or where a chain that it knows was given up.
        if known is None or known[0] != spec or not known[2].keys() <= {log.id for log in there}:
            known = self._steerers[dims] = spec, steerer_of(spec, dims), {}
        _, steerer, told = known
        for log in there:
            if told.get(log.id) != log.complete:
                told[log.id] = log.complete
                if (seen := observe(log.series(complete=True), id=log.id, cost=float(log.complete))) is not None:
                    steerer.tell([seen])
        return steerer


def otherwise(state: CampaignState, journal: Path) -> list[Otherwise]:
    """Return every decision that heads took part in beside that of the baselines, in order of time."""
    placed = placed_by_heads(state)
    visits = []
    if placed:
        again = VisitsAgain(journal.parent, lambda _, visit: visit.visit in placed)
        read_journal(journal, Record, take=again)
        visits = [
            _entry(
                state,
                visit,
                placed[visit.visit],
                decided=visit.beta,
                baseline=None if other is None else other.beta,
                differs=other is None or other.beta != visit.beta,
                text="no visit" if other is None else f"{other.by}: {other.reason}",
            )
            for visit, other in again.found
        ]
    return sorted([*visits, *decided_otherwise(state)], key=lambda entry: entry.seconds)
