"""The errors of the pipeline.

::

    MetalforgeError
    |-- core.SpecError
    |   `-- GraphError          a graph that `build` refuses: every problem it found, in words
    |-- BrokenError             the stage that was asked is gone; `cause` says why
    `-- PipelineError           a run that failed; `failure` says where and on what
        |-- DeadlockError       every stage waits for another; the message draws who waits for whom
        |-- StageTimeoutError   a step ran past its stage's timeout
        `-- StageCrashError     the process of a stage died more often than allowed
"""

from typing import TYPE_CHECKING

from metalforge.core.errors import MetalforgeError, SpecError

if TYPE_CHECKING:
    from .failures import Failure

__all__ = [
    "BrokenError",
    "DeadlockError",
    "GraphError",
    "PipelineError",
    "StageCrashError",
    "StageTimeoutError",
]


class GraphError(SpecError):
    """A graph that cannot be run safely; `problems` has one entry for each reason."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("the graph is refused:\n- " + "\n- ".join(problems))


class BrokenError(MetalforgeError):
    """The other side is gone; `cause` is the exception it died of, or None when it closed in order."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.__cause__ = cause


class PipelineError(MetalforgeError):
    """A run that failed; `failure` has the stage, the item and the traceback when a stage raised."""

    def __init__(self, message: str, failure: "Failure | None" = None) -> None:
        super().__init__(message)
        self.failure = failure


class DeadlockError(PipelineError):
    """Every stage waits for another one."""


class StageTimeoutError(PipelineError):
    """A step ran past its stage's `timeout_s`."""


class StageCrashError(PipelineError):
    """The process of a stage died more often than its `restarts` allow."""
