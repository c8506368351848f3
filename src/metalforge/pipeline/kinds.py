"""The kinds of channels: what an edge does when its consumer is slow, and what it lets through.

A kind is added by a subclass of `ChannelKind` and a line of `KINDS`; files, checks and drawings follow from there.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from metalforge.core import SpecError, find, require_at_least

from .lanes import BoundedLane, Inbox, Lane, LossyLane, OverwritingLane, UnboundedLane


class ChannelKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What all kinds have; files name a kind in the field `kind`."""

    @property
    def blocks(self) -> bool:
        """Whether a producer may have to wait: every cycle needs an edge on which it never has to."""
        return False

    @property
    def room(self) -> int:
        """How many items a channel that blocks holds."""
        return int(getattr(self, "capacity", 0))

    def __str__(self) -> str:
        """The channel as it is written, without what is so by default: `Bounded(4, drop=oldest)`."""
        words: list[str] = []
        for field in msgspec.structs.fields(self):
            if (value := getattr(self, field.name)) != field.default:
                text = "a function" if callable(value) else str(value)
                words.append(f"{field.name}={text}" if words else text)
        return type(self).__name__ + (f"({', '.join(words)})" if words else "")

    def open(self, source: str, target: str, inbox: Inbox, *, droppable: bool = False) -> Lane:
        """Return the lane that carries such a channel into `inbox`; into a droppable stage no lane blocks."""
        raise TypeError(f"{type(self).__name__} has no lane")


class Bounded(ChannelKind, frozen=True, tag="bounded"):
    """A queue of `capacity` items and, when given, of `max_bytes`; an item larger than that travels alone.

    `drop` makes it lossy on purpose: when full, the `oldest` queued item or the `newest` (the one that came) is
    dropped and counted, and the producer does not wait.
    """

    capacity: int
    max_bytes: int | None = None
    drop: Literal["oldest", "newest"] | None = None

    def __post_init__(self) -> None:
        require_at_least(1, capacity=self.capacity, max_bytes=self.max_bytes)
        if self.drop is not None and self.max_bytes is not None:
            raise SpecError("a channel that drops is limited by items; leave `max_bytes` or `drop` out")

    @property
    def blocks(self) -> bool:
        """Unless it drops."""
        return self.drop is None

    def open(self, source: str, target: str, inbox: Inbox, *, droppable: bool = False) -> Lane:
        """Return a lane that blocks, or one that drops."""
        if self.drop == "oldest":
            return OverwritingLane(source, target, inbox, self.capacity, drop=True)
        if droppable or self.drop:
            return LossyLane(source, target, inbox, self.capacity, disconnect=False)
        return BoundedLane(source, target, inbox, self.capacity, self.max_bytes)


class Unbounded(ChannelKind, frozen=True, tag="unbounded"):
    """A queue without a limit: memory is the limit, and `warn_at` queued items warn of it."""

    warn_at: int = 10_000

    def __post_init__(self) -> None:
        require_at_least(1, warn_at=self.warn_at)

    def open(self, source: str, target: str, inbox: Inbox, *, droppable: bool = False) -> Lane:
        """Return a lane without a limit."""
        return UnboundedLane(source, target, inbox, self.warn_at)


class Broadcast(ChannelKind, frozen=True, tag="broadcast"):
    """A queue of `capacity` items for one of several equal consumers; `slow` says what happens when it is full.

    `block`: the producer waits, and with it all consumers. `drop`: this consumer misses the item. `disconnect`: the
    edge ends for this consumer, which keeps what is queued.
    """

    capacity: int
    slow: Literal["block", "drop", "disconnect"] = "block"

    def __post_init__(self) -> None:
        require_at_least(1, capacity=self.capacity)

    @property
    def blocks(self) -> bool:
        """Where a slow consumer holds up all."""
        return self.slow == "block"

    def open(self, source: str, target: str, inbox: Inbox, *, droppable: bool = False) -> Lane:
        """Return a lane that blocks, drops or ends."""
        if self.slow == "block" and not droppable:
            return BoundedLane(source, target, inbox, self.capacity, None)
        return LossyLane(source, target, inbox, self.capacity, disconnect=self.slow == "disconnect")


class Latest(ChannelKind, frozen=True, tag="latest"):
    """Room for one item; a newer one overwrites it. Never blocks; what was overwritten is counted."""

    def open(self, source: str, target: str, inbox: Inbox, *, droppable: bool = False) -> Lane:
        """Return a lane with room for one."""
        return OverwritingLane(source, target, inbox, 1, drop=False)


class Filtered(ChannelKind, frozen=True, tag="filtered"):
    """Only items that meet `where` enter the channel `inside`.

    `where` is an expression over header fields, such as ``chi > 10.0 and abs(beta - 5.69) < 0.1``, or a callable that
    takes the payload; a callable cannot be written to a file.
    """

    where: Any
    inside: "Bounded | Unbounded | Broadcast | Latest | Filtered" = Bounded(4)

    def __post_init__(self) -> None:
        if not (isinstance(self.where, str) or callable(self.where)):
            raise SpecError(f"`where` must be an expression or a callable that takes the payload. Got {self.where!r}")

    @property
    def blocks(self) -> bool:
        """As the channel inside."""
        return self.inside.blocks

    @property
    def room(self) -> int:
        """As the channel inside."""
        return self.inside.room

    def open(self, source: str, target: str, inbox: Inbox, *, droppable: bool = False) -> Lane:
        """Return the lane of the channel inside, with the predicate before it."""
        lane = self.inside.open(source, target, inbox, droppable=droppable)
        where = self.where
        if isinstance(where, str):
            from .expressions import Expression

            expression = Expression(where)
            lane.predicate = lambda item: expression(item.field)
        else:
            lane.predicate = lambda item: bool(where(item.payload))
        return lane


KINDS: dict[str, type[ChannelKind]] = {
    kind.__name__.lower(): kind for kind in (Bounded, Unbounded, Broadcast, Filtered, Latest)
}
"""The kinds by the name that files give them."""


def read_channel(fields: Mapping[str, Any]) -> ChannelKind:
    """Return the channel that a table of a file describes; raises `SpecError` with what is wrong in it."""
    name = str(fields.get("kind", ""))
    kind = find("channel kind", name, KINDS)
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise SpecError(f"channel `{name}`: {error}") from error
