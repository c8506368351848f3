"""What happened, as lines of JSON: one `write` a line, so that a killed process loses none that was written.

Not synced to the disk: after a power cut the last moments may be missing. `items=True` adds a line for every item that
a stage processed, with its times; without it the file has the life of the run only.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from metalforge.core.closing import Closing

from .errors import Failure
from .items import Item, ItemId

__all__ = ["Event", "EventLog", "read_events"]


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

    def write(self, event: Event) -> None:
        """Append one line; after `close`, nothing."""
        if self._file >= 0:
            os.write(self._file, self._encoder.encode(event) + b"\n")

    def run(self, what: str, name: str) -> None:
        """The run started, ended, failed, was rewired."""
        self.write(Event(at=self._wall(), event=f"run.{what}", name=name))

    def stage(self, name: str, what: str) -> None:
        """A stage ended or was configured."""
        self.write(Event(at=self._wall(), event=f"stage.{what}", name=name))

    def failure(self, failure: Failure) -> None:
        """An item failed."""
        self.write(Event(at=self._wall(), event="failure", name=failure.stage, failure=failure))

    def migration(self, stage: str, what: str, source: str | None, target: str | None, sha256: str) -> None:
        """A stage's state left a substrate, or arrived at one."""
        now = self._wall()
        self.write(Event(at=now, event=f"migration.{what}", name=stage, source=source, target=target, sha256=sha256))

    def item(self, stage: str, item: Item) -> None:
        """An item was processed."""
        if self._items:
            self.write(
                Event(
                    at=self._wall(),
                    event="item",
                    name=stage,
                    item=item.id,
                    parents=item.parents,
                    received_ns=item.received,
                    started_ns=item.started,
                    ended_ns=item.ended,
                )
            )

    def close(self) -> None:
        """Close the file; again is nothing."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


def read_events(path: Path | str) -> Iterator[Event]:
    """Yield the events of a file; a last line without its end, of a process that was killed, is left out."""
    decoder = msgspec.json.Decoder(Event)
    with Path(path).open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)
