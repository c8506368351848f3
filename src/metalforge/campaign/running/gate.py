"""The gate behind every block: what no sound chain gives is thrown away and computed again from the last checkpoint.

Rules that cost next to nothing look at what a block adds, before any of it leaves the producer:

- *finite*: a row was not a number, or an update failed;
- *witness*: now and then the first update of a block is made twice, the second time by a chain that is made anew from
  what the journal says of it; the rows must agree;
- *repeated*: no row is one that was there before;
- what each physics keeps (`PointChain.unsound`). Of links, *unitarity*: at the block's end they are elements of SU(3),
  up to rounding; *band*: the plaquette stays where the chain's own measured rows have been. Of particles, *drift* and
  *energy*: at constant energy it moves and fluctuates no more than a good time step lets it; *momentum*: it is zero.

Where the anomaly head is trusted its probability counts beside them. A block that is flagged is evaluated again in
higher precision and thrown away; the chain is taken up from its file and computes the stretch since then once more.
Other bits mean that the machine was at fault: the chain goes on with what came now. The same bits again mean that the
chain is so: what the band or the head found remarkable is kept, anything else is given up. Rows that are written are
proven by the way, and a chain whose written rows do not come out again is given up.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from metalforge.campaign.store.records import BY_HEAD, THROWN_AWAY, Decided

from .ladder import PointLadder
from .lattice_point import BAND
from .point import PointChain
from .watch import ANOMALY

OF_HEAD = f"{BY_HEAD}{ANOMALY}"
AGAIN = 3
"""Times that a block may be flagged at yet another update before its chain is given up."""
WIDE_LOOK = 16
"""Of the blocks of a chain that a batch moves, one in so many has its links looked at: reading them takes a while."""

Alarm = Callable[[], float | None]
"""From which probability the anomaly head flags a block; None where its word is not taken."""


class Flag(NamedTuple):
    """What is wrong with a block: found by whom, at which update, with the figure of the rule and of the head."""

    chain: str
    update: int
    by: str
    reason: str
    rule: float | None = None
    head: float | None = None

    @property
    def certain(self) -> bool:
        """Whether no sound chain does this: what the band or the head finds may be a rare fluctuation."""
        return self.by not in (BAND, OF_HEAD)

    def known_to(self, held: PointLadder) -> bool:
        """Return whether the journal has that this was thrown away, and it may be a fluctuation."""
        known = next(point.thrown_away for point in held.points if point.id == self.chain)
        return not self.certain and (self.update, self.by, self.head, self.rule) in known

    def decided(self, done: str) -> Decided:
        """Return it as a decision."""
        by_head = self.by == OF_HEAD
        return Decided(
            what="fault",
            chain=self.chain,
            step=self.update,
            by=self.by,
            reason=self.reason,
            value=self.head,
            baseline=self.rule,
            trusted=None if self.head is None else by_head,
            head="" if self.head is None else ANOMALY,
            done=done,
        )


class _Suspect(NamedTuple):
    """A block that was thrown away: why, its rows by chain, and whether the chain begins from its start."""

    flag: Flag
    rows: tuple["_Rows", ...]
    from_start: bool
    again: int = 0
    """How often it was flagged at another update when it was computed again."""


class _Rows(NamedTuple):
    first: int
    columns: Mapping[str, Sequence[float]]

    @property
    def end(self) -> int:
        return self.first + len(next(iter(self.columns.values())))


class BlockVerdict(NamedTuple):
    """What becomes of a block: it is written with these decisions, or computed `again`; or a `fault` ends its chain."""

    decisions: tuple[Decided, ...] = ()
    again: bool = False
    from_start: bool = False
    fault: str = ""


class Gate:
    """Looks at the blocks of one producer, and remembers those it sent back."""

    def __init__(self, *, wide: bool = False, alarm: Alarm = lambda: None) -> None:
        self._wide, self._alarm = wide, alarm
        self._suspects: dict[str, _Suspect] = {}
        self._blocks = 0
        self.heard: set[str] = set()
        """Chains of the block that was judged last of which the head's word was taken, whatever it was."""

    def doubts(self, chain: str) -> bool:
        """Return whether a chain is computed again because of what it gave."""
        return chain in self._suspects

    def judge(self, held: PointLadder, fault: str = "") -> BlockVerdict:
        """Return what becomes of what an order gave; `fault` is how it failed, if it did."""
        name = held.points[0].id
        self._blocks += 1
        self.heard.clear()
        suspect, flag = self._suspects.pop(name, None), self._flag(held, fault)
        if suspect is None:
            if flag is None:
                return BlockVerdict()
            if flag.known_to(held):
                # Whoever threw it away was stopped before it came again.
                return BlockVerdict(
                    decisions=(flag.decided("kept: it was thrown away before, and came out as it was"),)
                )
            return self._send_back(held, _Suspect(flag, _rows_of(held), from_start=False))
        ends = zip(held.points, suspect.rows, strict=True)
        if not fault and any(point.rows < rows.end for point, rows in ends):
            # It was stopped on the way: what is whole of it is written.
            self._suspects[name] = suspect
            return BlockVerdict(again=flag is not None)
        return self._judge_again(held, suspect, flag)

    def _judge_again(self, held: PointLadder, suspect: _Suspect, flag: Flag | None) -> BlockVerdict:
        """Return what becomes of a block that was computed again."""
        parted = _parted(held, suspect.rows)
        began = held.points[0].taken_up_at
        kept = parted is None and not suspect.flag.certain and (flag is None or not flag.certain)
        if flag is not None and not kept:
            if flag.update != suspect.flag.update and suspect.again < AGAIN:  # another fault than the one before
                return self._send_back(held, _Suspect(flag, _rows_of(held), suspect.from_start, suspect.again + 1))
            return BlockVerdict(fault=f"{flag.reason}; computed again since {suspect.flag.by} flagged it")
        if kept:
            done = f"kept: computed again from update {began}, it has the same bits"
            return BlockVerdict(decisions=(suspect.flag.decided(done),))
        if parted is not None and parted == began > 0 and not suspect.from_start:
            # The checkpoint itself may be spoiled: only the rows from the start on say where it began.
            return self._send_back(held, suspect._replace(from_start=True))
        where = "at its end" if parted is None else f"from update {parted} on"
        done = f"replaced: computed again from update {began}, it has other bits {where}"
        return BlockVerdict(decisions=(suspect.flag.decided(done),))

    def _send_back(self, held: PointLadder, suspect: _Suspect) -> BlockVerdict:
        self._suspects[held.points[0].id] = suspect
        done = f"{THROWN_AWAY}, computed again from its {'start' if suspect.from_start else 'last checkpoint'}"
        return BlockVerdict(decisions=(suspect.flag.decided(done),), again=True, from_start=suspect.from_start)

    # -- the rules --------------------------------------------------------------------------------------------------

    def _flag(self, held: PointLadder, fault: str) -> Flag | None:
        """Return what is wrong with the rows that the journal lacks; None where nothing is."""
        if fault:
            first = held.points[0]
            return Flag(first.id, first.rows, "rule:finite", fault)
        for place, point in enumerate(held.points):
            if point.rows > point.emitted and (found := self._look(point, place)) is not None:
                head = point.anomaly() if found.head is None else found.head
                return found._replace(reason=f"{found.reason}; {point.evaluated()}", head=head)
        return None

    def _look(self, point: PointChain, place: int) -> Flag | None:
        columns = point.fresh()

        def flag(by: str, update: int, reason: str, rule: float | None = None, head: float | None = None) -> Flag:
            return Flag(point.id, update, by, reason, rule, head)

        update, differs = point.witnessed()
        if differs:
            return flag("rule:witness", update, f"an update that was made twice differs in `{differs}`")
        if (repeated := point.repeats(columns)) is not None:
            return flag("rule:repeated", point.emitted + repeated, "a row is one that was there before")
        looks = not self._wide or (self._blocks + place) % WIDE_LOOK == 0
        for found in point.unsound(columns, looks=looks):
            return flag(found.by, found.update, found.reason, found.figure)
        measured = point.fresh_measured
        alarm = self._alarm() if measured else None
        head = None if alarm is None else point.anomaly()
        if head is not None:
            self.heard.add(point.id)
        if alarm is not None and head is not None and head >= alarm:
            reason = f"the anomaly head says {head:.4g}, and {alarm:.4g} is once in 10^5 updates"
            return flag(OF_HEAD, point.rows - 1, reason, 0.0, head)
        return None


def _rows_of(held: PointLadder) -> tuple[_Rows, ...]:
    """Return the rows of each chain that the journal lacks."""
    return tuple(_Rows(point.emitted, point.fresh()) for point in held.points)


def _parted(held: PointLadder, before: Sequence[_Rows]) -> int | None:
    """Return the first update whose rows are not those that were thrown away; None where all are."""
    updates = []
    for point, rows in zip(held.points, before, strict=True):
        log = point.run.log
        updates += [
            update
            for update in range(max(rows.first, log.first), min(rows.end, log.end))
            if any(
                log.columns[n][update - log.first] != column[update - rows.first] for n, column in rows.columns.items()
            )
        ]
    return min(updates, default=None)
