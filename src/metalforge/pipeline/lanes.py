"""An edge at run time: how items get from a producer into the inbox of a consumer, and what holds the producer back.

Every stage has one inbox, a C-level `queue.SimpleQueue` that all its edges feed with (lane, item) pairs, so that a
stage waits on one thing only and order is kept per edge. What bounds an edge is a second `SimpleQueue`, of credits: the
producer takes one before it puts, the consumer gives it back when it takes. Both queues are C code that waits outside
the interpreter lock; measured, the pair is four times as fast as `asyncio.Queue`.

A `NUDGE` among credits or messages wakes a waiting thread so that it looks at its orders (pause, stop).

Counters have one writer each. Read in the order `settled`, then `sent`, they say without a lock whether anything is in
flight: both only grow and settled <= sent, so equality means that nothing was between the two reads.
"""

import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

import msgspec

from .errors import PipelineError
from .items import Item


class Word(Enum):
    """A message that carries no item."""

    CREDIT = 1
    NUDGE = 2
    END = 3
    FINISH = 4
    CLOSE = 5
    DETACH = 6


CREDIT: Final = Word.CREDIT
NUDGE: Final = Word.NUDGE
END: Final = Word.END

Inbox: TypeAlias = SimpleQueue[Any]


def taken(credits: Inbox) -> bool:
    """Whether a credit was there, which is taken."""
    try:
        return credits.get_nowait() is CREDIT
    except Empty:
        return False


class LaneStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an edge has carried so far: sent = taken + queued + lost, and `filtered` never entered."""

    edge: str
    sent: int
    taken: int
    queued: int
    queued_bytes: int
    filtered: int
    dropped: int
    overwritten: int


class Lane:
    """The common part of all lanes; a lane without a limit is complete in itself."""

    def __init__(self, source: str, target: str, inbox: Inbox) -> None:
        self.source, self.target, self.inbox = source, target, inbox
        self.edge = f"{source} -> {target}"
        self.credits: Inbox = SimpleQueue()
        self.space: Inbox | None = None
        self.predicate: Callable[[Item], bool] | None = None
        self.ended = False
        """The consumer has received END: nothing more comes."""
        self.closed = False
        """The producer has sent END."""
        # the producer writes
        self.sent = self.filtered = self.dropped = self.overwritten = self.bytes_in = 0
        # the consumer writes
        self.taken = self.done = self.bytes_out = 0

    @property
    def settled(self) -> int:
        """Items that were sent and need no more work: processed, or lost and counted. Read this before `sent`."""
        return self.done + self.dropped + self.overwritten

    @property
    def queued(self) -> int:
        """Items sent and not yet taken."""
        return max(0, self.sent - self.dropped - self.overwritten - self.taken)

    @property
    def queued_bytes(self) -> int:
        """Bytes sent and not yet taken."""
        return max(0, self.bytes_in - self.bytes_out)

    def wants(self, item: Item) -> bool:
        """Whether the item passes the predicate; False is counted as filtered."""
        predicate = self.predicate
        if predicate is None:
            return True
        try:
            passed = predicate(item)
        except Exception as error:
            raise PipelineError(
                f"the filter of edge {self.edge} fails on item {item.id}: {type(error).__name__}: {error}"
            ) from error
        if not passed:
            self.filtered += 1
        return passed

    def offer(self, item: Item) -> bool:
        """Take the item, or return False when the producer must wait for `credits` (or `space`)."""
        self.push(item)
        return True

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes may be queued."""
        return True

    def push(self, item: Item) -> None:
        """Put an item for which there is room."""
        self.sent += 1
        self.bytes_in += item.bytes
        self.inbox.put((self, item))

    def take(self, item: Item) -> Item:
        """Return the item of a message, as its consumer: room is given back."""
        self.taken += 1
        self.bytes_out += item.bytes
        return item

    def force(self, item: Item) -> None:
        """Put an item past any limit: for items that are carried over when a graph is rewired."""
        self.push(item)

    def close(self) -> None:
        """Send END after everything sent so far; again is nothing."""
        if not self.closed:
            self.closed = True
            self.inbox.put((self, END))

    def statistics(self) -> LaneStatistics:
        """Return the counters as a record."""
        return msgspec.convert(self, LaneStatistics, from_attributes=True)


class UnboundedLane(Lane):
    """Never blocks; warns once when more than `warn_at` items are queued."""

    def __init__(self, source: str, target: str, inbox: Inbox, warn_at: int) -> None:
        super().__init__(source, target, inbox)
        self._warn_at = warn_at

    def push(self, item: Item) -> None:
        """Put the item, and warn at the limit."""
        super().push(item)
        if self.queued > self._warn_at:
            queued, self._warn_at = self._warn_at, 1 << 62
            warnings.warn(f"edge {self.edge} has more than {queued} items queued", ResourceWarning, stacklevel=2)


class BoundedLane(Lane):
    """Blocks the producer by credits, and by bytes when `max_bytes` is given."""

    def __init__(self, source: str, target: str, inbox: Inbox, capacity: int, max_bytes: int | None) -> None:
        super().__init__(source, target, inbox)
        for _ in range(capacity):
            self.credits.put(CREDIT)
        self._max_bytes = max_bytes
        self._debt = 0
        self._hungry = False
        if max_bytes is not None:
            self.space = SimpleQueue()

    def offer(self, item: Item) -> bool:
        """Take a credit if there is one and the bytes fit."""
        if self._max_bytes is not None and not self.fits(item.bytes):
            return False
        if not taken(self.credits):
            return False
        self.push(item)
        return True

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes may be queued; when not, the consumer will put a word into `space`."""
        if self._max_bytes is None or self._has_room(size):
            return True
        self._hungry = True
        return self._has_room(size)  # the consumer may have taken the last item before it saw that we are hungry

    def _has_room(self, size: int) -> bool:
        queued = self.bytes_in - self.bytes_out
        return queued <= 0 or queued + size <= (self._max_bytes or 0)

    def take(self, item: Item) -> Item:
        """Give back the credit and the bytes."""
        self.taken += 1
        self.bytes_out += item.bytes
        if self._debt:
            self._debt -= 1
        else:
            self.credits.put(CREDIT)
        if self._hungry and self.space is not None:
            self._hungry = False
            self.space.put(CREDIT)
        return item

    def force(self, item: Item) -> None:
        """Put without a credit; takes one later. Only while no consumer can have taken from this lane."""
        self._debt += not taken(self.credits)
        self.push(item)


class LossyLane(Lane):
    """Full means that the newest item, the one offered, is dropped; or that the edge ends (`disconnect`)."""

    def __init__(self, source: str, target: str, inbox: Inbox, capacity: int, disconnect: bool) -> None:
        super().__init__(source, target, inbox)
        self._capacity, self._disconnect = capacity, disconnect

    def offer(self, item: Item) -> bool:
        """Put the item if there is room, else count it as dropped."""
        if self.closed or self.queued >= self._capacity:
            self.sent += 1
            self.dropped += 1
            if self._disconnect:
                self.close()
        else:
            self.push(item)
        return True


class OverwritingLane(Lane):
    """Full means that the oldest item goes: `Latest` with room for one, `Bounded(drop="oldest")` with more.

    The inbox gets a word for each item queued, never for one that replaces another; the items wait in the lane.
    """

    def __init__(self, source: str, target: str, inbox: Inbox, capacity: int, drop: bool) -> None:
        super().__init__(source, target, inbox)
        self._capacity, self._drop = capacity, drop
        self._items: deque[Item] = deque()
        self._lock = threading.Lock()

    def push(self, item: Item, capacity: int | None = None) -> None:
        """Queue the item; when the lane is full the oldest makes room."""
        with self._lock:
            self.sent += 1
            self.bytes_in += item.bytes
            full = len(self._items) >= (capacity or self._capacity)
            if full:
                self.bytes_in -= self._items.popleft().bytes
            self._items.append(item)
        if not full:
            self.inbox.put((self, NUDGE))
        elif self._drop:
            self.dropped += 1
        else:
            self.overwritten += 1

    def take(self, item: object) -> Item:
        """Return the oldest item that is still here."""
        with self._lock:
            taken = self._items.popleft()
        self.taken += 1
        self.bytes_out += taken.bytes
        return taken

    def force(self, item: Item) -> None:
        """Put past the limit: carried items are not overwritten by each other."""
        self.push(item, sys.maxsize)


class Ring:
    """Token budgets: at most n items inside a ring of stages whose edges all block.

    An item takes a token when it enters the ring (over an edge from outside, or made by a source inside) and keeps it
    while each stage turns it into exactly one item for the next; the token comes back when a stage sends nothing on
    around the ring: the item left, was filtered, or was skipped. Because n is at most what the ring's queues hold, they
    are never all full with every stage holding one more, so one of them can always send.
    """

    def __init__(self, members: frozenset[str], n_tokens: int, wake_sources: Callable[[frozenset[str]], None]) -> None:
        self.members, self.n_tokens = members, n_tokens
        self.tokens: Inbox = SimpleQueue()
        self._wake_sources = wake_sources
        for _ in range(n_tokens):
            self.tokens.put(CREDIT)

    def inside(self, lane: Lane) -> bool:
        """Whether a lane is part of the ring, not a way into it or out of it."""
        return lane.source in self.members and lane.target in self.members

    def enter(self) -> bool:
        """Take a token without waiting; False when there is none."""
        return taken(self.tokens)

    def leave(self) -> None:
        """Give a token back."""
        self.tokens.put(CREDIT)
        self._wake_sources(self.members)

    def check(self, stage: str, before: int, lanes: list[Lane]) -> int:
        """Return how many of a step's deliveries stay inside: those `before` and these; raises above 1."""
        n = before + sum(self.inside(lane) for lane in lanes)
        if n > 1:
            raise PipelineError(
                f"stage `{stage}` sent {n} items around a cycle with a token budget for one: a budget of tokens holds "
                "only where each item leads to at most one\nhint: make the edge that closes the cycle Latest()"
            )
        return n
