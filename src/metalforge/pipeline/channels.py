"""Channels for threads: `send, receive = open_channel(Bounded(4))`, closed by `with`, iterated to the clean end.

One contract for every kind: `send`, `receive`, `clone` (a handle for each thread), `close`, iteration, `statistics`.
Three endings, never confused: `EndOfChannel` (all senders closed and everything was received; iteration just stops),
`ClosedError` (we closed this very handle), `BrokenError` (the other side is gone; what was queued is received first,
and `cause` is what it died of). Stages of a graph use the same lanes without these handles.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from metalforge.core import SpecError

from .errors import BrokenError, ClosedError, EndOfChannel
from .items import Item, ItemId, payload_bytes
from .kinds import Bounded, Broadcast, ChannelKind
from .lanes import CREDIT, END, Inbox, Lane


class ChannelStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts of the values a channel has carried, and of the handles that are open."""

    sent: int
    received: int
    queued: int
    filtered: int
    dropped: int
    overwritten: int
    open_senders: int
    open_receivers: int


class _Ending(NamedTuple):
    """The last message of a queue; each reader puts it back for the others."""

    broken: bool
    cause: BaseException | None = None


class _Channel:
    """What the handles of one channel share. The plain bounded one has no envelopes: its lane is two bare queues."""

    def __init__(self, kind: ChannelKind) -> None:
        self.kind = kind
        self.plain = isinstance(kind, Bounded) and kind.max_bytes is None and kind.drop is None
        self.lock, self.send_lock, self.take_lock = threading.Lock(), threading.Lock(), threading.Lock()
        self.handles: list[Send | Receive] = []
        self.lanes: list[Lane] = []
        self.gone: _Ending | None = None
        """Set when the last receiver closed: senders find it among the credits."""

    def open_lane(self) -> Lane:
        self.lanes.append(self.kind.open("sender", "receiver", SimpleQueue()))
        return self.lanes[-1]

    def n_open(self, end: type) -> int:
        return sum(type(handle) is end and not handle.closed for handle in self.handles)


class _Handle:
    """One end of a channel, for one thread: `clone` makes more."""

    def __init__(self, channel: _Channel, lane: Lane) -> None:
        self._channel, self._lane, self.closed, self.count = channel, lane, False, 0
        channel.handles.append(self)  # type: ignore[arg-type]  # of its two subclasses

    def clone(self) -> Self:
        """Return another handle on the same end; receivers share the items, but each of a `Broadcast` gets all."""
        with self._channel.lock:
            if self.closed:
                raise ClosedError("a closed handle cannot be cloned")
            alone = isinstance(self, Receive) and isinstance(self._channel.kind, Broadcast)
            return type(self)(self._channel, self._channel.open_lane() if alone else self._lane)

    def close(self, cause: BaseException | None = None) -> None:
        """Close this handle; the other side learns when it was the last one, and the `cause` if this one died."""
        with self._channel.lock:
            if not self.closed:
                self.closed = True
                self._tell(cause, last=not self._channel.n_open(type(self)))

    def _tell(self, cause: BaseException | None, last: bool) -> None:
        raise TypeError("a handle is a Send or a Receive")

    def statistics(self) -> ChannelStatistics:
        """Return counters of the whole channel."""
        channel = self._channel
        sent, received = (sum(h.count for h in channel.handles if type(h) is end) for end in (Send, Receive))
        lost = {n: sum(getattr(lane, n) for lane in channel.lanes) for n in ("filtered", "dropped", "overwritten")}
        return ChannelStatistics(
            sent=sent,
            received=received,
            queued=sent - received if channel.plain else sum(lane.queued for lane in channel.lanes),
            open_senders=channel.n_open(Send),
            open_receivers=channel.n_open(Receive),
            **lost,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)


def _no_credit() -> None:
    """What a handle takes that is closed or goes by lanes."""


class Send(_Handle):
    """The sending end; the last one closed ends the channel."""

    def __init__(self, channel: _Channel, lane: Lane) -> None:
        super().__init__(channel, lane)
        self._take: Callable[[], Any] = lane.credits.get if channel.plain else _no_credit
        self._put = lane.inbox.put

    def send(self, value: Any, timeout: float | None = None) -> None:
        """Send one value; waits while a bounded channel is full.

        Raises `ClosedError` after `close`, `BrokenError` when no receiver is left, TimeoutError after `timeout` s.
        """
        if timeout is None and self._take() is CREDIT:
            self._put(value)
        else:
            self._slow_way(value, timeout)
        self.count += 1

    def send_all(self, values: Iterable[Any]) -> None:
        """Send each of `values`, waiting as `send` does; the fast way to pour one channel, or a loop, into another."""
        take, put, credit = self._take, self._put, CREDIT
        for value in values:
            if take() is credit:
                put(value)
            else:  # broken, or by lanes
                self._slow_way(value, None)
            self.count += 1

    def _slow_way(self, value: Any, timeout: float | None) -> None:
        """Send with a time limit, by lanes, or not at all."""
        if self.closed:
            raise ClosedError("this sending end was closed; use a clone that is open")
        channel = self._channel
        if channel.plain:
            self._wait(self._lane.credits, timeout)
            self._put(value)
            return
        item = Item(ItemId("sender", "", self.count), value, size=payload_bytes(value))
        with channel.send_lock:
            if channel.gone is not None:
                raise BrokenError("no receiver is left", channel.gone.cause)
            for lane in [lane for lane in channel.lanes if lane.wants(item)]:
                while lane in channel.lanes and not lane.offer(item):
                    full = lane.space if lane.space is not None and not lane.fits(item.bytes) else lane.credits
                    if self._wait(full, timeout) and full is lane.credits:
                        lane.push(item)
                        break

    def _wait(self, queue: Inbox, timeout: float | None) -> bool:
        """Wait for room; False when this receiver, one of several, is gone. Raises when none is left."""
        try:
            word = queue.get(True, timeout) if self._channel.gone is None else self._channel.gone
        except Empty:
            raise TimeoutError(f"the channel stayed full for {timeout} s") from None
        if self._channel.gone is not None:
            queue.put(self._channel.gone)  # for the next sender that waits
            raise BrokenError("no receiver is left", self._channel.gone.cause)
        return word is CREDIT

    def _tell(self, cause: BaseException | None, last: bool) -> None:
        self._take = _no_credit
        if last or cause is not None:
            for lane in self._channel.lanes:
                lane.inbox.put(_Ending(cause is not None, cause))


class Receive(_Handle):
    """The receiving end; when the last one is closed, senders get `BrokenError`."""

    def receive(self, timeout: float | None = None) -> Any:
        """Return the next value; waits for one.

        Raises `EndOfChannel`, `BrokenError` or `ClosedError` (see the module), TimeoutError after `timeout` s.
        """
        inbox = self._lane.inbox
        if self.closed:
            raise ClosedError("this receiving end was closed")
        try:
            value = inbox.get(True, timeout)
        except Empty:
            raise TimeoutError(f"nothing came for {timeout} s") from None
        if type(value) is _Ending:
            inbox.put(value)
            if value.broken:
                raise BrokenError(f"the sender died: {value.cause!r}", value.cause)
            raise EndOfChannel("the sender closed the channel and everything was received")
        if self._channel.plain:
            self._lane.credits.put(CREDIT)
        elif value[1] is END:
            inbox.put(value)
            raise BrokenError("disconnected: this receiver was too slow")
        else:
            with self._channel.take_lock:
                value = value[0].take(value[1]).payload
        self.count += 1
        return value

    def __iter__(self) -> Iterator[Any]:
        """Yield values until the clean end; a broken channel raises."""
        get, give_back, credit, ending = self._lane.inbox.get, self._lane.credits.put, CREDIT, _Ending
        while self._channel.plain and not self.closed:  # as `receive`, without a call for each value
            value = get()
            if type(value) is ending:
                self._lane.inbox.put(value)
                break
            give_back(credit)
            self.count += 1
            yield value
        while True:
            try:
                yield self.receive()
            except EndOfChannel:
                return

    def _tell(self, cause: BaseException | None, last: bool) -> None:
        channel, ending = self._channel, _Ending(True, cause)
        if last:
            channel.gone = ending
        elif isinstance(channel.kind, Broadcast):
            channel.lanes.remove(self._lane)
        else:
            return
        while self._lane.credits.qsize():  # credits that are left must not hide that no receiver is there
            self._lane.credits.get()
        for queue in (self._lane.credits, self._lane.space):
            if queue is not None:
                queue.put(ending)


def open_channel(kind: ChannelKind) -> tuple[Send, Receive]:
    """Return the two ends of a new channel; the kind, and with it the capacity, must be said.

    >>> send, receive = open_channel(Bounded(2))
    >>> with send:
    ...     send.send("a")
    >>> list(receive)
    ['a']
    """
    if not isinstance(kind, ChannelKind):
        raise SpecError(f"`kind` must be a channel such as Bounded(4) or Latest(). Got {kind!r}")
    channel = _Channel(kind)
    lane = channel.open_lane()
    return Send(channel, lane), Receive(channel, lane)
