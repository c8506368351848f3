"""What a campaign writes about itself: which heads it uses, how they did, how busy its stages were, what it spent."""

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from metalforge.campaign.store.records import (
    EMULATED_NPU,
    NOT_ACTED_ON,
    Decided,
    Energy,
    JoulesSample,
    StageUse,
    Utilisation,
)
from metalforge.conductor.worker import Worker
from metalforge.core.errors import MeterUnavailableError
from metalforge.core.quantities import EnergyMeter, Measured, RecentMeter
from metalforge.native.engine import Engine
from metalforge.pipeline import Run

from .book import Book
from .equipment import HeadReader
from .heads import Heads, context_of
from .learning import Learning

if TYPE_CHECKING:  # a campaign without a board loads nothing of one
    from metalforge.substrates.npu.costs import BoardEnergy


def note_heads(book: Book, heads: Heads) -> None:
    """Write once, for every head, whether its answers are acted on, and why not.

    Nothing is written where no head was trained on chains of the campaign's theory.
    """
    state, theory = book.state, book.state.spec.theory
    if any(decision.what == "head" for decision in state.decisions) or heads.weights.heads is None:
        return
    if all(context_of(state.spec, theory.low, system) is None for system in theory.systems):
        return
    for name in heads.weights.heads.names:
        if name in heads.unused:
            reason, used = f"does not apply: {heads.unused[name]}", False
        elif heads.domain is not None:
            reason, used = f"{NOT_ACTED_ON}{heads.domain}", False
        elif not heads.trusted.get(name, False):
            reason, used = f"{NOT_ACTED_ON}{heads.why(name)}", False
        else:
            reason, used = heads.why(name), True
        skill = heads.skill.get(name)
        book.write(Decided(what="head", by=name, reason=reason, value=skill, trusted=used))


def note_engines(book: Book, engines: Mapping[str, Engine]) -> None:
    """Write how engines compute, where they have something to say of it."""
    for name, engine in engines.items():
        if remark := getattr(engine, "remark", ""):  # of engines of which there are variants
            book.write(Decided(what="lane", by=name, reason=remark))


def note_judged(book: Book, worker: Worker, learning: Learning) -> None:
    """Write how the heads that were judged while it ran did against their baselines, and who answered how often."""
    book.write(*learning.notes())
    done = worker.statistics()
    if done.asked:
        book.write(Decided(what="reader", by="worker", reason=str(done), counts=done.counts))
    for name in (head.name for head in worker.layout.heads):
        standing = worker.trust.standing(name)
        if standing.pairs:
            reason = f"{standing.why}, judged while the campaign ran"
            # Against a baseline that was never off there is no skill that a journal could hold.
            skill = standing.skill if standing.skill is not None and isfinite(standing.skill) else None
            book.write(Decided(what="judged", by=name, reason=reason, value=skill, trusted=standing.trusted))


def note_use(book: Book, run: Run, window_s: float) -> None:
    """Write how busy every stage was."""
    stages = tuple(
        StageUse(
            stage=name,
            substrate=seen.substrate,
            items=seen.items_processed,
            utilisation=seen.utilization,
            waited_s=seen.blocked_get_s,
        )
        for name, seen in run.snapshot().items()
    )
    book.write(Utilisation(window_s=window_s, stages=stages))


class EnergyNotes:
    """The ledger by (substrate, source), over all processes that worked on a campaign; sources are never added up."""

    def __init__(self, book: Book, meters: Mapping[str, EnergyMeter]) -> None:
        self._book, self._meters = book, meters
        self._before = dict(book.state.energy)
        self._board: Energy | None = None
        self._emulation_s = 0.0

    def samples(self, reader: HeadReader) -> list[JoulesSample]:
        """Return what can be read now without waiting; what cannot be is not there."""
        found = []
        for name, meter in self._meters.items():
            try:
                total = meter.recent() if isinstance(meter, RecentMeter) else meter.total()
            except MeterUnavailableError:
                continue
            source = "measured" if isinstance(total, Measured) else "modelled"
            found.append(JoulesSample(substrate=name, source=source, joules=round(total.value, 6)))
        if (spent := _spent(reader, reader.held_s)) is not None:
            known = [spent.above_idle, spent.idle, *((self._board.energy, self._board.idle) if self._board else ())]
            joules = sum(one.value for one in known if one is not None)
            found.append(JoulesSample(substrate=EMULATED_NPU, source="modelled", joules=round(joules, 6)))
        return found

    def device(self, reader: HeadReader) -> None:
        """Take what an emulated board spent while it was held, and the processor time that its emulation took."""
        device = reader.device
        if device is None:
            return
        self._emulation_s += reader.emulation_s
        held_s = reader.held_s  # read once: time goes on
        if (spent := _spent(reader, held_s)) is None:
            return
        new = Energy(
            substrate=EMULATED_NPU,
            source="modelled",
            energy=spent.above_idle,
            idle=spent.idle,
            busy=device.statistics().busy,
            held_s=held_s,
            reason="" if spent.idle is not None else f"{device.profile.name} states no idle power",
        )
        self._board = new if self._board is None else _both(self._board, new)

    def write(self) -> None:
        """Write every line as it stands."""
        for name, meter in self._meters.items():
            try:
                self._write(Energy(substrate=name, source="measured", energy=meter.total()))
            except MeterUnavailableError as error:
                reason = str(error).splitlines()[0]
                self._book.write(Energy(substrate=name, source="unknown", reason=reason))
        if self._board is not None:
            self._write(self._board)
        if self._emulation_s:
            self._write(Energy(substrate="host", source="emulation", emulation_s=self._emulation_s))

    def _write(self, spent: Energy) -> None:
        """Write a line with what earlier processes spent."""
        known = self._before.get((spent.substrate, spent.source))
        self._book.write(spent if known is None else _both(known, spent))


def _spent(reader: HeadReader, held_s: float) -> "BoardEnergy | None":
    """Return what an emulated board held for `held_s` would have drawn; None where there is none, or no figure."""
    if reader.device is None:
        return None
    from metalforge.substrates.npu.costs import board_energy

    return board_energy(reader.device.statistics(), held_s, reader.device.profile)


def _both(one: Energy, other: Energy) -> Energy:
    """Return two entries of one substrate and source as one."""
    return msgspec.structs.replace(
        other,
        energy=_sum(one.energy, other.energy),
        idle=_sum(one.idle, other.idle),
        busy=_sum(one.busy, other.busy),
        held_s=_sum(one.held_s, other.held_s),
        emulation_s=_sum(one.emulation_s, other.emulation_s),
    )


def _sum(one: Any, other: Any) -> Any:
    """Return the sum of two seconds, or of two quantities of one kind; None counts nothing."""
    if one is None or other is None:
        return other if one is None else one
    return one + other
