"""What a campaign writes about itself: how its engines compute and what it spent."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from metalforge.campaign.store.records import (
    EMULATED_NPU,
    Decided,
    Energy,
    JoulesSample,
)
from metalforge.core import Advisor, EnergyMeter, Measured, MeterUnavailableError, RecentMeter
from metalforge.native import Engine

from .book import Book

if TYPE_CHECKING:  # a campaign without a board loads nothing of one
    from metalforge.substrates import BoardEnergy


def note_engines(book: Book, engines: Mapping[str, Engine]) -> None:
    """Write how engines compute, where they have something to say of it."""
    for name, engine in engines.items():
        if remark := getattr(engine, "remark", ""):  # of engines of which there are variants
            book.write(Decided(what="lane", by=name, reason=remark))


class EnergyNotes:
    """The ledger by (substrate, source), over all processes that worked on a campaign; sources are never added up."""

    def __init__(self, book: Book, meters: Mapping[str, EnergyMeter]) -> None:
        self._book, self._meters = book, meters
        self._before = dict(book.state.energy)
        self._board: Energy | None = None
        self._emulation_s = 0.0
        self._advisor: Advisor | None = None
        self._since = 0.0

    def hold(self, advisor: Advisor | None) -> None:
        """Charge the device of an advisor from now on."""
        self._advisor, self._since = advisor, time.monotonic()

    def samples(self) -> list[JoulesSample]:
        """Return what can be read now without waiting; what cannot be is not there."""
        found = []
        for name, meter in self._meters.items():
            try:
                total = meter.recent() if isinstance(meter, RecentMeter) else meter.total()
            except MeterUnavailableError:
                continue
            source = "measured" if isinstance(total, Measured) else "modelled"
            found.append(JoulesSample(substrate=name, source=source, joules=round(total.value, 6)))
        if (spent := self._spent(time.monotonic() - self._since)) is not None:
            known = [spent.above_idle, spent.idle, *((self._board.energy, self._board.idle) if self._board else ())]
            joules = sum(one.value for one in known if one is not None)
            found.append(JoulesSample(substrate=EMULATED_NPU, source="modelled", joules=round(joules, 6)))
        return found

    def device(self) -> None:
        """Take what an emulated board spent while it was held, and the processor time that its emulation took."""
        held_s = time.monotonic() - self._since  # read once: time goes on
        if self._advisor is None or (spent := self._spent(held_s)) is None:
            return
        device = self._advisor.device
        self._emulation_s += self._advisor.emulation_s
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

    def _spent(self, held_s: float) -> "BoardEnergy | None":
        """Return what an emulated board held for `held_s` would have drawn; None where there is none, or no figure."""
        if self._advisor is None or (device := self._advisor.device) is None:
            return None
        from metalforge.substrates import board_energy

        return board_energy(device.statistics(), held_s, device.profile)

    def _write(self, spent: Energy) -> None:
        """Write a line with what earlier processes spent."""
        known = self._before.get((spent.substrate, spent.source))
        self._book.write(spent if known is None else _both(known, spent))


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
