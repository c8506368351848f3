"""The envelope that every payload travels in: id, parents, time stamps, header, size.

An id is (stage, chain, sequence) and is made by the producer from what it counted, never from a clock or a random
number: a stage that is replayed from a checkpoint makes the same ids again, and so repetitions can be recognised.
A chain is an ordered line of items; outputs stay in the chain of the item they were made from.
"""

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from functools import cache
from typing import Any, NamedTuple, is_typeddict


class ItemId(NamedTuple):
    """Who made an item, on which chain, and the how-many-th it was there, from 0."""

    stage: str
    chain: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.chain}/{self.sequence}"


class Emit(NamedTuple):
    """An output with more to say than its payload: a header for filters, a chain of its own, one receiver."""

    payload: Any
    header: Mapping[str, Any] | None = None
    chain: str | None = None
    to: str | None = None


class Item:
    """One payload on its way. Times are nanoseconds of the run's clock; 0 means not yet."""

    __slots__ = ("bytes", "created", "ended", "header", "id", "parents", "payload", "received", "started")

    def __init__(
        self,
        id: ItemId,
        payload: Any,
        parents: tuple[ItemId, ...] = (),
        header: Mapping[str, Any] | None = None,
        created: int = 0,
        size: int = 0,
    ) -> None:
        self.id, self.payload, self.parents, self.header = id, payload, parents, header
        self.created, self.bytes = created, size
        self.received = self.started = self.ended = 0

    def twin(self) -> "Item":
        """Return the same item for another consumer, which stamps its own times on it."""
        return Item(self.id, self.payload, self.parents, self.header, self.created, self.bytes)

    def field(self, name: str) -> Any:
        """Return a header field: from the explicit header, else from the payload by key or attribute."""
        header = self.header if self.header is not None else self.payload
        return header[name] if isinstance(header, Mapping) else getattr(header, name)

    def __repr__(self) -> str:
        return f"Item({self.id})"


@cache
def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the declared fields of a struct, dataclass, named tuple or typed dictionary; None of anything else."""
    if is_dataclass(kind):
        return tuple(f.name for f in dataclass_fields(kind))
    if is_typeddict(kind):
        return tuple(kind.__annotations__)
    names: tuple[str, ...] | None = getattr(kind, "__struct_fields__", getattr(kind, "_fields", None))
    return names


_PLAIN = {int, float, str, bool, type(None)}


def payload_bytes(payload: Any) -> int:
    """Return the bytes of the arrays and byte strings in a payload; what else it holds counts as nothing."""
    kind = type(payload)
    if kind in _PLAIN:
        return 0
    if isinstance(payload, bytes | bytearray):
        return len(payload)
    if isinstance(size := getattr(payload, "nbytes", None), int):
        return size
    if isinstance(payload, tuple | list):
        # A column of numbers is not looked at one by one.
        return 0 if set(map(type, payload)) <= _PLAIN else sum(map(payload_bytes, payload))
    if isinstance(payload, Mapping):
        return sum(map(payload_bytes, payload.values()))
    names = field_names(kind) or ()  # type: ignore[arg-type]  # a type is hashable
    return sum([payload_bytes(getattr(payload, name)) for name in names])
