"""stdout and stderr that may go away: a full disk, a closed descriptor, a reader that left.

Work goes on without them. What was lost is known at the end, when the exit code says so.
"""

import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _Lossy(io.FileIO):
    """A descriptor that takes every byte: after the first error, which is kept in `lost`, they go nowhere."""

    lost: OSError | None = None

    def write(self, data: "Buffer", /) -> int:
        if self.lost is None:
            try:
                while (written := super().write(data)) is None:
                    select.select([], [self], [])
                return written
            except OSError as error:
                self.lost = error
        return memoryview(data).nbytes


def lost(stream: TextIO) -> OSError | None:
    """Return why something that was written to this stream is lost; None where it is not known to be."""
    stream.flush()
    return getattr(getattr(getattr(stream, "buffer", None), "raw", None), "lost", None)


@contextmanager
def lossy_streams() -> Iterator[None]:
    """Have stdout and stderr take whatever is written to them; streams that somebody put in their place stay."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # A closed one must not become the number of the next file that is opened, such as a journal. It cannot be
            # written to, so that writing to it is known as a loss.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _lossy(before[0], 1), _lossy(before[1], 2)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _lossy(stream: TextIO | None, descriptor: int) -> TextIO:
    if stream is not None:
        if not isinstance(getattr(stream, "buffer", None), io.BufferedWriter | io.FileIO):
            return stream
        stream.flush()
        descriptor = stream.fileno()
    raw = _Lossy(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="backslashreplace",  # a name that the terminal has no letters for must not end the work
        line_buffering=descriptor == 2 or raw.isatty(),
    )
