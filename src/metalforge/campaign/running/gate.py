"""Fault checks of every block: a block that no sound chain can give is recomputed before any of it is written.

The rules flag only what no sound chain can do. A rare fluctuation, such as a tunnelling event, is physics, not a fault.

- *finite*: a row is not finite, or an update failed;
- *journal*: a row that was recorded before is computed again with other bits;
- *witness*: now and then the first update of a block is made twice, the second time by a chain that is built anew from
  the spec; the rows must have the same bits;
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

import msgspec

from metalforge.campaign.store.records import THROWN_AWAY, Decided
from metalforge.core import ChainFaultError, IrreproducibleError

from .point import PointChain, Unsound

JOURNAL, WITNESS = IrreproducibleError.rule, "rule:witness"
AGAIN = 3
"""Times that a block may be flagged at yet another update before its chain is given up."""
WIDE_LOOK = 16
"""Of the blocks of a chain that a batch moves, one in so many has its configuration looked at, which takes a while."""


class _Suspect(NamedTuple):
    """A block that was thrown away: why, its rows, and how it is computed again."""

    flag: Decided
    first: int
    columns: Mapping[str, Sequence[float]]
    """Its rows from update `first` on."""
    from_start: bool
    again: int = 0
    """How often it was flagged at another update when it was computed again."""

    @property
    def end(self) -> int:
        """The update after its last row."""
        return self.first + len(next(iter(self.columns.values())))


class BlockVerdict(NamedTuple):
    """The outcome for a block: write it with these decisions, compute it `again`, or end its chain by a `fault`."""

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

    def judge(self, held: PointChain, fault: ChainFaultError | None = None) -> BlockVerdict:
        """Return the verdict on the updates of an order; `fault` is the error that ended them, if one did."""
        self._blocks += 1
        suspect, flag = self._suspects.pop(held.id, None), self._flag(held, fault)
        if suspect is None:
            return BlockVerdict() if flag is None else self._send_back(held, flag)
        if fault is None and held.rows < suspect.end:
            # It was stopped on the way: what is whole of it is written.
            self._suspects[held.id] = suspect
            return BlockVerdict(again=flag is not None)
        if flag is not None:
            same = (flag.step, flag.reason) == (suspect.flag.step, suspect.flag.reason)
            another = not same or (flag.by == JOURNAL and not suspect.from_start)
            if another and suspect.again < AGAIN:
                return self._send_back(held, flag, suspect.from_start, suspect.again + 1)
            return BlockVerdict(fault=f"{flag.reason}; recomputed because {suspect.flag.by} flagged it")
        began, parted = held.taken_up_at, _parted(held, suspect)
        if parted is None and suspect.flag.by == WITNESS:
            # Rows that come out again as they were are right: it was the second computation that was wrong.
            done = f"kept: computed again from update {began}, it has the same bits"
        elif parted is not None and parted == began > 0 and not suspect.from_start:
            # The checkpoint itself may be spoiled: only the rows from the start on say where it began.
            return self._again(held, suspect._replace(from_start=True))
        else:
            where = "at its end" if parted is None else f"from update {parted} on"
            done = f"replaced: computed again from update {began}, it has other bits {where}"
        return BlockVerdict(decisions=(msgspec.structs.replace(suspect.flag, done=done),))

    def _send_back(self, held: PointChain, flag: Decided, from_start: bool = False, again: int = 0) -> BlockVerdict:
        from_start = from_start or flag.by == JOURNAL
        return self._again(held, _Suspect(flag, held.emitted, held.fresh(), from_start, again))

    def _again(self, held: PointChain, suspect: _Suspect) -> BlockVerdict:
        self._suspects[held.id] = suspect
        done = f"{THROWN_AWAY}, computed again from its {'start' if suspect.from_start else 'last checkpoint'}"
        decided = msgspec.structs.replace(suspect.flag, done=done)
        return BlockVerdict(decisions=(decided,), again=True, from_start=suspect.from_start)

    def _flag(self, held: PointChain, fault: ChainFaultError | None) -> Decided | None:
        """Return what is wrong with the rows that the journal lacks; None where nothing is."""
        if fault is not None:
            return Decided(what="fault", chain=held.id, step=held.rows, by=fault.rule, reason=str(fault))
        if held.rows <= held.emitted:
            return None
        update, differs = held.witnessed()
        looks = not self._wide or self._blocks % WIDE_LOOK == 0
        if differs:
            found = Unsound(WITNESS, update, f"an update that was made twice differs in `{differs}`")
        elif (unsound := next(held.unsound(held.fresh(), looks=looks), None)) is not None:
            found = unsound
        else:
            return None
        reason = f"{found.reason}; {held.evaluated()}"
        return Decided(
            what="fault", chain=held.id, step=found.update, by=found.by, reason=reason, baseline=found.figure
        )


def _parted(held: PointChain, before: _Suspect) -> int | None:
    """Return the first update whose row is not the one that was thrown away; None where all are."""
    log, begin = held.run.log, before.first
    for update in range(max(begin, log.first), min(before.end, log.end)):
        if any(log.columns[n][update - log.first] != values[update - begin] for n, values in before.columns.items()):
            return update
    return None
