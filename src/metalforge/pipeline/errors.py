"""The errors of the pipeline, and a failed item as a record: which stage, which item, what went in, where it broke.

A graph that `build` refuses is a `GraphError`, a run that failed a `PipelineError`; `EndOfChannel`, `ClosedError` and
`BrokenError` are the three endings of a channel.
"""

import traceback

import msgspec

from metalforge.core import MetalforgeError, SpecError

from .items import Item, ItemId

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


def _describe(payload: object) -> str:
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
        inputs="no input" if item is None else _describe(item.payload),
        kind=type(error).__name__,
        message=str(error),
        traceback="".join(traceback.format_exception(error)),
        attempts=attempts,
        action=action,
    )


class GraphError(SpecError):
    """A graph that cannot be run safely; `problems` has one entry for each reason."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("the graph is refused:\n- " + "\n- ".join(problems))


class EndOfChannel(MetalforgeError):  # noqa: N818 - an ending, not an error; the name is trio's
    """The sender closed and everything it sent has been received."""


class ClosedError(MetalforgeError):
    """Our own end was closed, by us."""


class BrokenError(MetalforgeError):
    """The other side is gone; `cause` is the exception it died of, or None when it closed in order."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.__cause__ = cause


class PipelineError(MetalforgeError):
    """A run that failed; `failure` has the stage, the item and the traceback when a stage raised."""

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class DeadlockError(PipelineError):
    """Every stage waits for another one."""


class StageTimeoutError(PipelineError):
    """A step ran past its stage's `timeout_s`."""


class StageCrashError(PipelineError):
    """The process of a stage died more often than its `restarts` allow."""
