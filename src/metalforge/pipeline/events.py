"""What happened, as lines of JSON: one `write` a line, so that a killed process loses none that was written.

Not synced to the disk: after a power cut the last moments may be missing. `items=True` adds a line for every item that
a stage processed, with its times; without it the file has the life of the run only.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from metalforge.core import Closing, opened

from .errors import Failure
from .items import Item, ItemId


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line. `at` is seconds since the epoch; the times of an item are nanoseconds of the run's clock."""

    at: float
    event: str
    name: str
    item: ItemId | None = None
    parents: tuple[ItemId, ...] = ()
    received_ns: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    source: str | None = None
    target: str | None = None
    sha256: str | None = None
    failure: Failure | None = None


class EventLog(Closing):
    """A file of events, appended to. Any thread may write."""

    def __init__(self, path: Path | str, *, items: bool = False, wall: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._items, self._wall = items, wall
        self._encoder = msgspec.json.Encoder()
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def note(self, event: str, name: str, **fields: Any) -> None:
        """Append a line: what happened (`run.started`, `stage.ended`, `failure`, `migration.left`) to whom."""
        if self._file >= 0:
            os.write(self._file, self._encoder.encode(Event(at=self._wall(), event=event, name=name, **fields)) + b"\n")

    def item(self, stage: str, item: Item) -> None:
        """An item was processed."""
        if self._items:
            times = {"received_ns": item.received, "started_ns": item.started, "ended_ns": item.ended}
            self.note("item", stage, item=item.id, parents=item.parents, **times)

    def close(self) -> None:
        """Close the file; again is nothing."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


def read_events(path: Path | str) -> Iterator[Event]:
    """Yield the events of a file; a last line without its end, of a process that was killed, is left out."""
    decoder = msgspec.json.Decoder(Event)
    with opened(path) as (file, _):
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)
