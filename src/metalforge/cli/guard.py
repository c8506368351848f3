"""One guard around every verb: whatever fails is one line on stderr and a documented exit code, never a traceback."""

import errno
import sys
import traceback
from collections.abc import Callable, Iterator

import msgspec

from metalforge import __version__
from metalforge.core import (
    ClusterLostError,
    InternalError,
    KernelError,
    MetalforgeError,
    MeterUnavailableError,
    PlacementError,
    PluginError,
    escaped,
)

from .output import lost

WRONG, CANNOT, FAULT, AGAIN, INTERRUPTED = 2, 3, 70, 75, 130
"""Wrong usage or input; this machine cannot do it; an internal error; resume it or do it again; interrupted."""
EXIT_CODES = (
    "Exit codes: 0 done, 1 a check failed, 2 wrong usage or input, 3 this machine cannot do it, 70 an internal error "
    "of metalforge, 75 interrupted, or a disk, stream or process failed: resume it or do it again, 130 interrupted"
)
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EPIPE, errno.ESTALE}
_MACHINE = {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN}
_INPUT = (MetalforgeError, OSError, msgspec.MsgspecError, UnicodeError)
"""Errors about arguments and files. Any other ValueError comes from a library and was not foreseen."""
_CANNOT = (KernelError, PlacementError, MeterUnavailableError, PluginError, MemoryError, ImportError)


def guarded(
    verb: Callable[[], int], *, debug: bool = False, say: Callable[[str], object] = lambda text: sys.stderr.write(text)
) -> int:
    """Return the exit code of a verb, after a line that says what failed; `debug` shows where as well."""

    def said(line: str, code: int) -> int:
        say(escaped(line, lines=True) + "\n" * bool(line))
        return code

    try:
        code = verb()
    except KeyboardInterrupt:
        return said("interrupted", INTERRUPTED)
    except Exception as error:
        if debug:
            failure = getattr(error, "failure", None)  # of a stage, perhaps in another process
            shown = "".join(traceback.format_exception(error)) + getattr(failure, "traceback", "")
            sys.stderr.write(escaped(shown, lines=True))
        return said(f"error: {_text(error)}", _code(error))
    if code == 0 and (gone := lost(sys.stdout)) is not None:
        # A reader that left has what it wanted, and talk about it would be its shell's noise.
        problem = "" if gone.errno == errno.EPIPE else f"error: stdout cannot be written ({gone.strerror})"
        return said(problem, AGAIN)
    return code


def _code(error: BaseException) -> int:
    from metalforge.pipeline import StageCrashError
    from metalforge.substrates import NpuError

    causes = list(_causes(error))
    numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
    if numbers & _DISK or isinstance(error, ClusterLostError | StageCrashError):
        return AGAIN
    if any(isinstance(cause, InternalError) for cause in causes):
        return FAULT
    if (
        isinstance(error, (*_CANNOT, NpuError))
        or numbers & _MACHINE
        or any(isinstance(cause, MemoryError) for cause in causes)
    ):
        return CANNOT
    return WRONG if isinstance(error, _INPUT) else FAULT


def is_fault(error: BaseException) -> bool:
    """Return whether an error is internal to metalforge."""
    return _code(error) == FAULT


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _text(error: Exception) -> str:
    """Return what is wrong, on one line, and below it the hints there are."""
    if isinstance(error, MetalforgeError):
        said = str(error)
    elif isinstance(error, OSError) and error.filename is not None:
        said = f"{error.filename}: {error.strerror}"
    elif isinstance(error, MemoryError):
        said = f"not enough memory: {error}".removesuffix(": ")
    else:
        first = str(error).partition("\n")[0]
        said = first if isinstance(error, _INPUT) and first else f"{type(error).__name__}: {first}"
    hints = [note for note in getattr(error, "__notes__", ()) if note.startswith("hint:")]
    if is_fault(error):
        hints.insert(
            0, f"hint: this is an internal error of metalforge {__version__}; report it with what --debug shows"
        )
    return "\n".join([said, *hints])
