"""Channels for threads: `send, receive = open_channel(Bounded(4))`, closed by `with`, iterated to the clean end.

One contract for every kind: `send`, `receive`, `close`, iteration, `statistics`; each end is for one thread at a time.
Three endings, never confused: `EndOfChannel` (the sender closed and everything was received; iteration just stops),
`ClosedError` (we closed this very end), `BrokenError` (the other side is gone; what was queued is received first, and
`cause` is what it died of). Stages of a graph use the same lanes without these ends.
"""

from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Self

from metalforge.core import SpecError

from .errors import BrokenError, ClosedError, EndOfChannel
from .items import Item, ItemId, payload_bytes
from .kinds import Bounded, ChannelKind
from .lanes import CREDIT, END, Inbox, Lane, LaneStatistics, taken


class _Ending(NamedTuple):
    """The last message of a queue; who reads it puts it back for the next time."""

    broken: bool
    cause: BaseException | None


class _Handle:
    """One end of a channel. A plain bounded one has no envelopes: its lane is two bare queues."""

    def __init__(self, lane: Lane, plain: bool) -> None:
        self._lane, self._plain, self.closed = lane, plain, False

    def close(self, cause: BaseException | None = None) -> None:
        """Close this end; the other side learns it, with the `cause` if this one died. Again is nothing."""
        if not self.closed:
            self.closed = True
            self._tell(cause)

    def _tell(self, cause: BaseException | None) -> None:
        raise TypeError("an end is a Send or a Receive")

    def statistics(self) -> LaneStatistics:
        """Return counters of the whole channel."""
        return self._lane.statistics()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)


def _no_credit() -> None:
    """What an end takes that is closed or has envelopes."""


class Send(_Handle):
    """The sending end."""

    def __init__(self, lane: Lane, plain: bool) -> None:
        super().__init__(lane, plain)
        self._take: Callable[[], Any] = lane.credits.get if plain else _no_credit
        self._put = lane.inbox.put
        self.gone: _Ending | None = None
        """Set when the receiver closed; a sender that waits finds it among the credits."""

    def send(self, value: Any, timeout: float | None = None) -> None:
        """Send one value; waits while a bounded channel is full.

        Raises `ClosedError` after `close`, `BrokenError` when the receiver is gone, TimeoutError after `timeout` s.
        """
        if timeout is None and self._take() is CREDIT:
            self._put(value)
            self._lane.sent += 1
        else:
            self._slow_way(value, timeout)

    def send_all(self, values: Iterable[Any]) -> None:
        """Send each of `values`, waiting as `send` does; the fast way to pour one channel, or a loop, into another."""
        take, put, credit, lane = self._take, self._put, CREDIT, self._lane
        for value in values:
            if take() is credit:
                put(value)
                lane.sent += 1
            else:
                self._slow_way(value, None)

    def _slow_way(self, value: Any, timeout: float | None) -> None:
        """Send with a time limit, in an envelope, or not at all."""
        lane = self._lane
        if self.closed:
            raise ClosedError("this sending end was closed")
        if self._plain:
            self._wait(lane.credits, timeout)
            self._put(value)
            lane.sent += 1
            return
        if self.gone is not None:
            raise BrokenError("the receiver is gone", self.gone.cause)
        item = Item(ItemId("sender", "", lane.sent), value, size=payload_bytes(value))
        if not lane.wants(item):
            return
        while not lane.offer(item):
            full = lane.space if lane.space is not None and not lane.fits(item.bytes) else lane.credits
            self._wait(full, timeout)
            if full is lane.credits:
                lane.push(item)
                return

    def _wait(self, queue: Inbox, timeout: float | None) -> None:
        """Wait for room; raises when it does not come in time, or the receiver is gone."""
        if self.gone is None:
            try:
                queue.get(True, timeout)
            except Empty:
                raise TimeoutError(f"the channel stayed full for {timeout} s") from None
        if self.gone is not None:
            self._take = _no_credit  # no credit comes any more
            raise BrokenError("the receiver is gone", self.gone.cause)

    def _tell(self, cause: BaseException | None) -> None:
        self._take = _no_credit
        self._lane.inbox.put(_Ending(cause is not None, cause))


class Receive(_Handle):
    """The receiving end; when it is closed, the sender gets `BrokenError`."""

    def __init__(self, lane: Lane, plain: bool, sender: Send) -> None:
        super().__init__(lane, plain)
        self._sender = sender

    def receive(self, timeout: float | None = None) -> Any:
        """Return the next value; waits for one.

        Raises `EndOfChannel`, `BrokenError` or `ClosedError` (see the module), TimeoutError after `timeout` s.
        """
        lane = self._lane
        if self.closed:
            raise ClosedError("this receiving end was closed")
        try:
            value = lane.inbox.get(True, timeout)
        except Empty:
            raise TimeoutError(f"nothing came for {timeout} s") from None
        if type(value) is _Ending:
            lane.inbox.put(value)
            if value.broken:
                raise BrokenError(f"the sender died: {value.cause!r}", value.cause)
            raise EndOfChannel("the sender closed the channel and everything was received")
        if self._plain:
            lane.credits.put(CREDIT)
            lane.taken += 1
            return value
        if value[1] is END:
            lane.inbox.put(value)
            raise BrokenError("disconnected: this receiver was too slow")
        return lane.take(value[1]).payload

    def __iter__(self) -> Iterator[Any]:
        """Yield values until the clean end; a broken channel raises."""
        lane, credit, ending = self._lane, CREDIT, _Ending
        get, give_back = lane.inbox.get, lane.credits.put
        while self._plain and not self.closed:  # as `receive`, without a call for each value
            value = get()
            if type(value) is ending:
                lane.inbox.put(value)
                break
            give_back(credit)
            lane.taken += 1
            yield value
        while True:
            try:
                yield self.receive()
            except EndOfChannel:
                return

    def _tell(self, cause: BaseException | None) -> None:
        lane = self._lane
        self._sender.gone = ending = _Ending(True, cause)
        while taken(lane.credits):  # credits that are left must not hide that no receiver is there
            pass
        for queue in (lane.credits, lane.space):
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
    lane = kind.open("sender", "receiver", SimpleQueue())
    plain = isinstance(kind, Bounded) and kind.max_bytes is None and kind.drop is None
    send = Send(lane, plain)
    return send, Receive(lane, plain, send)
