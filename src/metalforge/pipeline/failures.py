"""A failed item as a record: which stage, which item, what went in, and where it broke."""

import traceback

import msgspec

from .items import Item, ItemId

__all__ = ["Failure", "describe", "failure_of"]

_WORDS = 200  # characters of an input shown in a failure; enough for scalars and shapes


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One item that a stage could not process, after all its attempts."""

    stage: str
    item: ItemId | None
    inputs: str
    kind: str
    message: str
    traceback: str
    attempts: int
    action: str
    """What was done: `skip` (the item is a dead letter, the run goes on) or `stop`."""

    def __str__(self) -> str:
        return f"stage `{self.stage}` failed on item {self.item} ({self.inputs}): {self.kind}: {self.message}"


def describe(payload: object) -> str:
    """Return a short summary of a payload: arrays by shape and type, the rest by its repr, cut."""
    shape, dtype = getattr(payload, "shape", None), getattr(payload, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{type(payload).__name__}{tuple(shape)} of {dtype}"
    try:
        text = repr(payload)
    except Exception as error:  # a broken repr must not hide the failure that is being reported
        text = f"{type(payload).__name__} whose repr raises {type(error).__name__}"
    return text if len(text) <= _WORDS else text[: _WORDS - 3] + "..."


def failure_of(stage: str, item: Item | None, error: BaseException, *, attempts: int, action: str) -> Failure:
    """Return the record of `error`, raised by `stage` on `item`."""
    return Failure(
        stage=stage,
        item=None if item is None else item.id,
        inputs="no input" if item is None else describe(item.payload),
        kind=type(error).__name__,
        message=str(error),
        traceback="".join(traceback.format_exception(error)),
        attempts=attempts,
        action=action,
    )
