"""What a campaign writes: its journal and the fold of it, kept together; estimates while it runs; what it spent.

What is written is known at once, and nothing else is known.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec

from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import EMULATED_NPU, Energy, JoulesSample, Record
from metalforge.core import Advisor, Closing, EnergyMeter, Measured, MeterUnavailableError, RecentMeter

SHARE = 0.05
"""Part of the run time that estimates may take."""
GROWTH = 1.5
"""Factor by which the updates must have grown for an estimate whatever its share: where chains are fast, waiting for
the share would be most of the time, and there are few such estimates."""


class Book:
    """Takes records from any thread: each is dated, appended to the journal, then applied to the state."""

    def __init__(self, journal: Journal, state: CampaignState, clock: Callable[[], float] = time.time) -> None:
        self.journal, self.state, self.clock = journal, state, steady(clock, after=state.last_at)
        self._lock = threading.RLock()

    def write(self, *records: Record) -> None:
        """Write records in this order, as one line of the journal: after a kill all of them are there, or none."""
        if not records:
            return
        with self._lock:
            dated = [msgspec.structs.replace(record, at=self.clock()) for record in records]
            self.journal.append(*dated)
            for record in dated:
                self.state.apply(record)

    def dated(self, wall: float) -> float:
        """Return when something was, by the clock that dates records; `wall` is `time.time()` of then."""
        return self.clock() - max(time.time() - wall, 0.0)

    @contextmanager
    def reading(self) -> Iterator[CampaignState]:
        """Give the state, which stands still meanwhile."""
        with self._lock:
            yield self.state


def steady(clock: Callable[[], float], *, after: float) -> Callable[[], float]:
    """Return dates that begin with the clock's, but not before `after`, and go on by monotonic time.

    A clock that is set while a campaign runs neither ends its budget of seconds nor makes it longer.
    """
    began, since = max(clock(), after), time.monotonic()
    return lambda: began + time.monotonic() - since


class Estimator(Closing):
    """Writes an estimate for every system with new measurements."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._ended, self._cost, self._made = -1e9, 0.0, 0
        self._thread = ThreadPoolExecutor(1, "estimate")
        self._running: Future[None] | None = None

    def __call__(self) -> None:
        """Estimate if it is due, beside what else runs; a deterministic campaign estimates every time, and waits."""
        if self._book.state.spec.running.deterministic:
            self._estimate()
            return
        made = self._book.state.trajectories
        due = time.monotonic() - self._ended >= self._cost / SHARE or made >= GROWTH * self._made
        if due and (self._running is None or self._running.done()):
            self._wait()
            self._made = made
            self._running = self._thread.submit(self._estimate)

    def now(self) -> None:
        """Estimate from everything that was measured, and wait for it."""
        self._wait()
        self._estimate()

    def _wait(self) -> None:
        """Wait for the estimate that is made, and raise what went wrong with it."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """End, after the estimate that is made."""
        with self._thread:
            self._wait()

    def _estimate(self) -> None:
        began = time.monotonic()
        write_estimates(self._book)
        self._ended = time.monotonic()
        self._cost = self._ended - began


def write_estimates(book: Book) -> None:
    """Write an estimate for every system that has been updated since its last one."""
    for system in book.state.spec.theory.systems:
        with book.reading() as state:
            complete = state.spec.running.deterministic
            made = sum(c.complete for c in state.chains.values()) if complete else state.trajectories
            known = state.last_look(system)
            if known is not None and known.trajectories == made:
                continue
            estimate = state.spec.theory.analysis.estimator(state, system)
        if estimate is not None:
            book.write(estimate(made))


class EnergyNotes:
    """Reads meters and an emulated board, and writes what they spent; sources are never added up."""

    def __init__(self, book: Book, meters: Mapping[str, EnergyMeter]) -> None:
        self._book, self._meters = book, meters
        self._before = dict(book.state.energy)
        self._returned: Energy | None = None
        """What boards spent that this process held before."""
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
        board = self._board()
        if (total_of := self._returned if board is None else _both(self._returned, board)) is not None:
            joules = sum(one.value for one in (total_of.energy, total_of.idle) if one is not None)
            found.append(JoulesSample(substrate=EMULATED_NPU, source="modelled", joules=round(joules, 6)))
        return found

    def settle(self) -> None:
        """Write every line as it stands, and give the device back: what its emulation took counts, too."""
        if self._advisor is not None and (board := self._board()) is not None:
            self._returned = _both(self._returned, board)
            self._emulation_s += self._advisor.emulation_s
        self._advisor = None
        for name, meter in self._meters.items():
            try:
                self._write(Energy(substrate=name, source="measured", energy=meter.total()))
            except MeterUnavailableError as error:
                reason = str(error).splitlines()[0]
                self._book.write(Energy(substrate=name, source="unknown", reason=reason))
        if self._returned is not None:
            self._write(self._returned)
        if self._emulation_s:
            self._write(Energy(substrate="host", source="emulation", emulation_s=self._emulation_s))

    def _board(self) -> Energy | None:
        """Return what the board that is held has drawn; None where there is none, or no figure."""
        if self._advisor is None or (device := self._advisor.device) is None:
            return None
        from metalforge.substrates import board_energy  # a campaign without a board loads nothing of one

        held_s, seen = time.monotonic() - self._since, device.statistics()
        if (spent := board_energy(seen, held_s, device.profile)) is None:
            return None
        return Energy(
            substrate=EMULATED_NPU,
            source="modelled",
            energy=spent.above_idle,
            idle=spent.idle,
            busy=seen.busy,
            held_s=held_s,
            reason="" if spent.idle is not None else f"{device.profile.name} states no idle power",
        )

    def _write(self, spent: Energy) -> None:
        """Write a line with what earlier processes spent."""
        self._book.write(_both(self._before.get((spent.substrate, spent.source)), spent))


def _both(one: Energy | None, other: Energy) -> Energy:
    """Return two entries of one substrate and source as one."""
    if one is None:
        return other
    sums = {
        name: _sum(getattr(one, name), getattr(other, name))
        for name in ("energy", "idle", "busy", "held_s", "emulation_s")
    }
    return msgspec.structs.replace(other, **sums)


def _sum(one: Any, other: Any) -> Any:
    """Return the sum of two seconds, or of two quantities of one kind; None counts nothing."""
    if one is None or other is None:
        return other if one is None else one
    return one + other
