"""Channels for threads: `send, receive = open_channel(Bounded(4))`, closed by `with`, iterated to the clean end.

One contract for every kind: `send`, `receive`, `clone` (a handle for each thread), `close`, iteration, `statistics`.
Three endings, never confused: `EndOfChannel` (all senders closed and everything was received; iteration just stops),
`ClosedError` (we closed this very handle), `BrokenError` (the other side is gone; what was queued is received first,
and `cause` is what it died of). Stages of a graph use the same lanes without these handles.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import msgspec

from metalforge.core.errors import SpecError

from .errors import BrokenError, ClosedError, EndOfChannel
from .items import Item, ItemId, payload_bytes
from .kinds import Bounded, Broadcast, ChannelKind
from .lanes import CREDIT, BoundedLane, Lane, open_lane

__all__ = ["ChannelStatistics", "Receive", "Send", "open_channel"]

T = TypeVar("T")


class ChannelStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a channel has carried, and who still holds it."""

    sent: int
    received: int
    queued: int
    filtered: int = 0
    dropped: int = 0
    overwritten: int = 0
    open_senders: int
    open_receivers: int


class _Ending:
    """The last word on a queue: clean when `cause` is None; put back by whoever reads it, for the others."""

    __slots__ = ("broken", "cause")

    def __init__(self, broken: bool, cause: BaseException | None) -> None:
        self.broken, self.cause = broken, cause

    def error(self) -> EndOfChannel | BrokenError:
        if self.broken:
            return BrokenError(f"the sender died: {self.cause!r}", self.cause)
        return EndOfChannel("the sender closed the channel and everything was received")


class _Core:
    """What the handles of one channel share: who is open, and the lock for opening and closing."""

    def __init__(self, kind: ChannelKind) -> None:
        self.kind = kind
        self.lock = threading.Lock()
        self.senders: list[Send[Any]] = []
        self.receivers: list[Receive[Any]] = []
        self.gone: _Ending | None = None
        """Set when the last receiver closed: senders find it among the credits."""

    def open_lane(self) -> Lane:
        return open_lane("sender", "receiver", self.kind, SimpleQueue())


def _is_plain(kind: ChannelKind) -> bool:
    return isinstance(kind, Bounded) and kind.max_bytes is None and kind.drop is None


def _no_credit() -> None:
    """What a handle takes that is closed or goes by lanes."""


class Send(Generic[T]):
    """The sending end. One handle for each thread: `clone` makes more; the last one closed ends the channel."""

    def __init__(self, core: _Core, lanes: list[Lane]) -> None:
        self._core, self._lanes = core, lanes
        self._closed = False
        self._sent = 0
        self._fast = _is_plain(core.kind)
        # The plain bounded channel has no envelopes: a credit is taken and the value put, two calls into C.
        self._take: Callable[[], Any] = lanes[0].credits.get if self._fast else _no_credit
        self._put = lanes[0].inbox.put
        core.senders.append(self)

    def send(self, value: T, timeout: float | None = None) -> None:
        """Send one value; waits while a bounded channel is full.

        Raises `ClosedError` after `close`, `BrokenError` when no receiver is left, TimeoutError after `timeout` s.
        """
        if timeout is not None or self._take() is not CREDIT:
            self._slow_way(value, timeout)
        else:
            self._put(value)

    def send_all(self, values: Iterable[T]) -> None:
        """Send each of `values`, waiting as `send` does; the fast way to pour one channel, or a loop, into another."""
        take, put, credit = self._take, self._put, CREDIT
        for value in values:
            if take() is credit:
                put(value)
            else:  # broken, or by lanes
                self._slow_way(value, None)

    def _slow_way(self, value: T, timeout: float | None) -> None:
        """Send with a time limit, by lanes, or not at all."""
        if self._closed:
            raise ClosedError("this sending end was closed; use a clone that is open")
        if not self._fast:
            self._send_by_lanes(value, timeout)
            return
        if self._core.gone is not None:
            self._lanes[0].credits.put(self._core.gone)  # for the next sender that waits
            raise BrokenError("no receiver is left", self._core.gone.cause)
        try:
            _credit(self._lanes[0].credits, timeout)
        except Empty:
            raise TimeoutError(f"the channel stayed full for {timeout} s") from None
        self._put(value)

    def _send_by_lanes(self, value: T, timeout: float | None) -> None:
        with self._core.lock:
            if self._core.gone is not None:
                raise BrokenError("no receiver is left", self._core.gone.cause)
            lanes = list(self._lanes)
        item = Item(ItemId("sender", "", self._sent), value, size=payload_bytes(value))
        for lane in lanes:
            if not lane.wants(item):
                continue
            with lane.send_lock:
                _put(lane, item, timeout)
        self._sent += 1

    def clone(self) -> "Send[T]":
        """Return another handle on the same channel, for another thread."""
        with self._core.lock:
            if self._closed:
                raise ClosedError("a closed handle cannot be cloned")
            return Send(self._core, self._lanes)

    def close(self, cause: BaseException | None = None) -> None:
        """Close this handle; with a `cause` the receivers learn that the sender died of it."""
        with self._core.lock:
            if self._closed:
                return
            self._closed = True
            self._take = _no_credit
            still_open = any(not s._closed for s in self._core.senders)
            lanes = list(self._lanes)
        if cause is not None or not still_open:
            for lane in lanes:
                lane.inbox.put(_Ending(cause is not None, cause))

    def statistics(self) -> ChannelStatistics:
        """Return counters of the whole channel."""
        return _statistics(self._core)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)


def _put(lane: Lane, item: Item, timeout: float | None) -> None:
    try:
        while isinstance(lane, BoundedLane) and not lane.fits(item.bytes) and lane.space is not None:
            _credit(lane.space, timeout)
        if isinstance(lane, BoundedLane):
            _credit(lane.credits, timeout)
            lane.push(item)
        else:
            lane.offer(item)
    except Empty:
        raise TimeoutError(f"the channel stayed full for {timeout} s") from None


def _credit(queue: "SimpleQueue[Any]", timeout: float | None) -> None:
    credit = queue.get(True, timeout)
    if credit is not CREDIT:
        queue.put(credit)
        raise BrokenError("no receiver is left", credit.cause)


class Receive(Generic[T]):
    """The receiving end. Clones share the items, each item going to one; of a `Broadcast`, each clone gets all."""

    def __init__(self, core: _Core, lane: Lane) -> None:
        self._core, self._lane = core, lane
        self._closed = False
        self._received = 0
        self._fast = _is_plain(core.kind)
        self._inbox = lane.inbox
        core.receivers.append(self)

    def receive(self, timeout: float | None = None) -> T:
        """Return the next value; waits for one.

        Raises `EndOfChannel`, `BrokenError` or `ClosedError` (see the module), TimeoutError after `timeout` s.
        """
        if self._closed:
            raise ClosedError("this receiving end was closed")
        try:
            value = self._inbox.get(True, timeout)
        except Empty:
            raise TimeoutError(f"nothing came for {timeout} s") from None
        if type(value) is _Ending:
            self._inbox.put(value)
            raise value.error()
        self._received += 1
        if self._fast:
            self._lane.credits.put(CREDIT)
            return cast(T, value)
        lane, message = value
        if type(message) is not Item and not hasattr(lane, "_items"):  # END of a disconnected lane
            self._inbox.put(value)
            raise BrokenError("disconnected: this receiver was too slow")
        with lane.take_lock:
            item = lane.take(message)
        return cast(T, item.payload)

    def __iter__(self) -> Iterator[T]:
        """Yield values until the clean end; a broken channel raises."""
        get, give_back, credit, ending = self._inbox.get, self._lane.credits.put, CREDIT, _Ending
        while self._fast and not self._closed:  # as `receive`, without a call for each value
            value = get()
            if type(value) is ending:
                self._inbox.put(value)
                break
            give_back(credit)
            self._received += 1
            yield value
        while True:
            try:
                yield self.receive()
            except EndOfChannel:
                return

    def clone(self) -> "Receive[T]":
        """Return another receiving handle; see the class for who gets what."""
        with self._core.lock:
            if self._closed:
                raise ClosedError("a closed handle cannot be cloned")
            lane = self._lane
            if isinstance(self._core.kind, Broadcast):
                lane = self._core.open_lane()
                self._core.senders[0]._lanes.append(lane)
            return Receive(self._core, lane)

    def close(self, cause: BaseException | None = None) -> None:
        """Close this handle; when it was the last, senders get `BrokenError` with `cause`."""
        with self._core.lock:
            if self._closed:
                return
            self._closed = True
            if any(not r._closed for r in self._core.receivers):
                if isinstance(self._core.kind, Broadcast):
                    self._core.senders[0]._lanes.remove(self._lane)
                    self._lane.credits.put(_Ending(True, cause))
                return
            self._core.gone = _Ending(True, cause)
        with suppress(Empty):  # what credits are left must not hide that nobody receives
            while True:
                self._lane.credits.get_nowait()
        self._lane.credits.put(self._core.gone)
        if self._lane.space is not None:
            self._lane.space.put(self._core.gone)

    def statistics(self) -> ChannelStatistics:
        """Return counters of the whole channel."""
        return _statistics(self._core)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)


def _statistics(core: _Core) -> ChannelStatistics:
    received = sum(r._received for r in core.receivers)
    lanes = list({id(r._lane): r._lane for r in core.receivers}.values())
    fast = _is_plain(core.kind)
    # The fast way does not count what it sends: what was sent is what was received and what is still there.
    queued = core.kind.capacity - min(core.kind.capacity, lanes[0].credits.qsize()) if fast else 0  # type: ignore[union-attr]
    if fast and core.gone is not None:
        queued = lanes[0].inbox.qsize()
    sent = received + queued if fast else sum(s._sent for s in core.senders)
    return ChannelStatistics(
        sent=sent,
        received=received,
        queued=queued if fast else sum(lane.queued for lane in lanes),
        filtered=sum(lane.filtered for lane in lanes),
        dropped=sum(lane.dropped for lane in lanes),
        overwritten=sum(lane.overwritten for lane in lanes),
        open_senders=sum(not s._closed for s in core.senders),
        open_receivers=sum(not r._closed for r in core.receivers),
    )


def open_channel(kind: ChannelKind) -> tuple[Send[Any], Receive[Any]]:
    """Return the two ends of a new channel; the kind, and with it the capacity, must be said.

    >>> send, receive = open_channel(Bounded(2))
    >>> with send:
    ...     send.send("a")
    >>> list(receive)
    ['a']
    """
    if isinstance(kind, type) or not hasattr(kind, "__struct_fields__"):
        raise SpecError(f"`kind` must be a channel such as Bounded(4) or Latest(). Got {kind!r}")
    core = _Core(kind)
    lane = core.open_lane()
    return Send(core, [lane]), Receive(core, lane)
