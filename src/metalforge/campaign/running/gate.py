"""Fault checks of every block: a block that no sound chain can give is recomputed before any of it is written.

The rules flag only what no sound chain can do. A rare fluctuation, such as a tunnelling event, is physics, not a fault.

- *finite*: a row is not finite, or an update failed;
- *journal*: a row that was recorded before is computed again with other bits;
- *witness*: now and then the first update of a block is made twice, the second time by a chain that is built anew from
  the spec; the rows must have the same bits;
- *repeated*: a row equals an earlier one;
- whatever the theory knows of sound configurations (`PointChain.unsound`): that matrices are elements of their group,
  for example, or that energy is conserved.

A flagged block is evaluated in higher precision and discarded; the chain is loaded from its checkpoint, or begins from
its start, and recomputes the discarded updates.

- Other bits: the machine was at fault, and the chain goes on with the new rows.
- The same bits, flagged by a rule again: the chain is abandoned.

A chain whose recorded rows cannot be reproduced from its start is abandoned as well.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from metalforge.campaign.store.records import THROWN_AWAY, Decided
from metalforge.core import ChainFaultError, IrreproducibleError

from .ladder import PointLadder
from .point import PointChain

WITNESS = "rule:witness"
"""The check that makes an update twice."""
AGAIN = 3
"""Times that a block may be flagged at yet another update before its chain is given up."""
WIDE_LOOK = 16
"""Of the blocks of a chain that a batch moves, one in so many has its configuration looked at, which takes a while."""


class Flag(NamedTuple):
    """What is wrong with a block: found by which rule, at which update, with the figure of the rule."""

    chain: str
    update: int
    by: str
    reason: str
    rule: float | None = None

    def decided(self, done: str) -> Decided:
        """Return it as a decision."""
        return Decided(
            what="fault",
            chain=self.chain,
            step=self.update,
            by=self.by,
            reason=self.reason,
            baseline=self.rule,
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

    def __init__(self, *, wide: bool = False) -> None:
        self._wide = wide
        self._suspects: dict[str, _Suspect] = {}
        self._blocks = 0

    def judge(self, held: PointLadder, fault: ChainFaultError | None = None) -> BlockVerdict:
        """Return the verdict on the updates of an order; `fault` is the error that ended them, if one did."""
        name = held.points[0].id
        self._blocks += 1
        suspect, flag = self._suspects.pop(name, None), self._flag(held, fault)
        if suspect is None:
            if flag is None:
                return BlockVerdict()
            return self._send_back(held, _Suspect(flag, _rows_of(held), from_start=flag.by == IrreproducibleError.rule))
        ends = zip(held.points, suspect.rows, strict=True)
        if fault is None and any(point.rows < rows.end for point, rows in ends):
            # It was stopped on the way: what is whole of it is written.
            self._suspects[name] = suspect
            return BlockVerdict(again=flag is not None)
        return self._judge_again(held, suspect, flag)

    def _judge_again(self, held: PointLadder, suspect: _Suspect, flag: Flag | None) -> BlockVerdict:
        """Return what becomes of a block that was computed again."""
        parted = _parted(held, suspect.rows)
        began = held.points[0].taken_up_at
        if flag is not None:
            from_start = suspect.from_start or flag.by == IrreproducibleError.rule
            # In a ladder two chains may fail one after the other while the first one is at the same update.
            same = (flag.update, flag.reason) == (suspect.flag.update, suspect.flag.reason)
            another = not same or from_start != suspect.from_start
            if another and suspect.again < AGAIN:
                return self._send_back(held, _Suspect(flag, _rows_of(held), from_start, suspect.again + 1))
            return BlockVerdict(fault=f"{flag.reason}; recomputed because {suspect.flag.by} flagged it")
        # Rows that come out again as they were are right: it was the second computation that was wrong.
        if parted is None and suspect.flag.by == WITNESS:
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

    def _flag(self, held: PointLadder, fault: ChainFaultError | None) -> Flag | None:
        """Return what is wrong with the rows that the journal lacks; None where nothing is."""
        if fault is not None:
            first = held.points[0]
            return Flag(first.id, first.rows, fault.rule, str(fault))
        for place, point in enumerate(held.points):
            if point.rows > point.emitted and (found := self._look(point, place)) is not None:
                return found._replace(reason=f"{found.reason}; {point.evaluated()}")
        return None

    def _look(self, point: PointChain, place: int) -> Flag | None:
        columns = point.fresh()

        def flag(by: str, update: int, reason: str, rule: float | None = None) -> Flag:
            return Flag(point.id, update, by, reason, rule)

        update, differs = point.witnessed()
        if differs:
            return flag(WITNESS, update, f"an update that was made twice differs in `{differs}`")
        if (repeated := point.repeats(columns)) is not None:
            return flag("rule:repeated", point.emitted + repeated, "a row is one that was there before")
        looks = not self._wide or (self._blocks + place) % WIDE_LOOK == 0
        for found in point.unsound(columns, looks=looks):
            return flag(found.by, found.update, found.reason, found.figure)
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
