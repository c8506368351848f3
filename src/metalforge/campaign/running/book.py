"""The journal and its fold, kept together: what is written is known at once, and nothing else is known."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import Record


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
