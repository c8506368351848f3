"""The kinds of channels, as records: what an edge does when its consumer is slow, and what it lets through.

======================  ==========================================================================================
`Bounded(capacity)`     the producer waits when `capacity` items (or `max_bytes`) are queued: backpressure
`Unbounded()`           the producer never waits; a warning past `warn_at` items
`Broadcast(capacity)`   one of several consumers that each get every item; `slow` says what a slow one does to it
`Filtered(where)`       only items whose header meets `where` enter the channel inside
`Latest()`              room for one item that a newer one overwrites, and counts: for control and feedback
======================  ==========================================================================================
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from metalforge.core.errors import SpecError

from .expressions import Expression

__all__ = ["Bounded", "Broadcast", "ChannelKind", "Filtered", "Latest", "Unbounded", "never_blocks", "predicate_of"]


class _Kind(msgspec.Struct, frozen=True, kw_only=False, forbid_unknown_fields=True, tag_field="kind"):
    """A channel kind; files name it in the field `kind`."""


def _at_least_one(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise SpecError(f"`{name}` must be at least 1. Got {value}")


class Bounded(_Kind, frozen=True, tag="bounded"):
    """A queue of `capacity` items and, when given, of `max_bytes`; an item larger than that travels alone.

    `drop` makes it lossy on purpose: when full, the `oldest` queued item or the `newest` (the one that came) is
    dropped and counted, and the producer does not wait.
    """

    capacity: int
    max_bytes: int | None = None
    drop: Literal["oldest", "newest"] | None = None

    def __post_init__(self) -> None:
        _at_least_one("capacity", self.capacity)
        _at_least_one("max_bytes", self.max_bytes)
        if self.drop is not None and self.max_bytes is not None:
            raise SpecError("a channel that drops is limited by items; leave `max_bytes` or `drop` out")


class Unbounded(_Kind, frozen=True, tag="unbounded"):
    """A queue without a limit: memory is the limit, and `warn_at` queued items warn of it."""

    warn_at: int = 10_000

    def __post_init__(self) -> None:
        _at_least_one("warn_at", self.warn_at)


class Broadcast(_Kind, frozen=True, tag="broadcast"):
    """A queue of `capacity` items for one of several equal consumers; `slow` says what happens when it is full.

    `block`: the producer waits, and with it all consumers. `drop`: this consumer misses the item. `disconnect`: the
    edge ends for this consumer, which keeps what is queued.
    """

    capacity: int
    slow: Literal["block", "drop", "disconnect"] = "block"

    def __post_init__(self) -> None:
        _at_least_one("capacity", self.capacity)


class Latest(_Kind, frozen=True, tag="latest"):
    """Room for one item; a newer one overwrites it. Never blocks; what was overwritten is counted."""


Carrier: TypeAlias = Bounded | Unbounded | Broadcast | Latest


class Filtered(_Kind, frozen=True, tag="filtered"):
    """Only items that meet `where` enter the channel `inside`.

    `where` is an expression over header fields, such as ``chi > 10.0 and abs(beta - 5.69) < 0.1``, or a callable that
    takes the payload; a callable cannot be written to a file.
    """

    where: str | Callable[[Any], bool]
    inside: Carrier = Bounded(4)


ChannelKind: TypeAlias = Carrier | Filtered


def predicate_of(kind: ChannelKind) -> Expression | Callable[[Any], bool] | None:
    """Return what a kind lets through: a parsed expression, a callable over the payload, or None for everything."""
    if not isinstance(kind, Filtered):
        return None
    return Expression(kind.where) if isinstance(kind.where, str) else kind.where


def never_blocks(kind: ChannelKind) -> bool:
    """Whether a producer can always go on after sending: what a cycle needs on one of its edges."""
    carrier = kind.inside if isinstance(kind, Filtered) else kind
    match carrier:
        case Latest() | Unbounded():
            return True
        case Bounded(drop=drop):
            return drop is not None
        case Broadcast(slow=slow):
            return slow != "block"
