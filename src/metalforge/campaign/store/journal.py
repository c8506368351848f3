"""A file of records that survives its process: one checked line per append, never changed."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

from metalforge.core import Closing, PathLike, naming

from .reading import JournalError, JournalFollower, LineBorder, TornTail, body_of, line_of
from .records import Record

SYNC_INTERVAL_S = 1.0

# What to do about a write that failed, by the system's reason.
_HINTS = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "your disk quota is used up: free some space",
    errno.EFBIG: "the file size limit of this process is reached: raise it (`ulimit -f`)",
    errno.EROFS: "the file system has become read-only: mount it writable",
    errno.EIO: "the disk reports an error: look at the system's log, and copy the directory before anything else",
}


class Journal(Closing):
    """Appends records to a file. Any thread may append, one process only (see `DirectoryLock`).

    Two promises. Records whose `append` has returned are in the file even if the process is killed (kill -9) at once:
    they went to the system in one `write`, and none of them is there without the others. After a power cut at most the
    records since the last `fsync` are missing: `append` and `tick` make one as soon as a second has passed since the
    last, `sync` and `close` always. A program that may be silent for longer than a second calls `tick` meanwhile.

    `message` says what was cut from the file when it was opened, if anything.

    Not for signal handlers: one that interrupts an `append` would wait for itself.
    """

    def __init__(
        self,
        path: Path,
        file: int,
        end: LineBorder,
        message: str | None,
        *,
        clock: Callable[[], float],
        write: Callable[[int, bytes], int],
        sync: Callable[[int], None],
    ) -> None:
        self.path, self.message = path, message
        self._file, self._end = file, end
        self._clock, self._write, self._sync = clock, write, sync
        self._lock = threading.Lock()
        self._half_written = False  # there may be bytes of ours after the end
        self._unsynced = False
        self._lost: str | None = None  # why nothing may be appended any more
        self._synced_at, self._interval_s = clock(), SYNC_INTERVAL_S

    @classmethod
    def open(
        cls,
        path: PathLike,
        *,
        mode: Literal["create", "resume"],
        take: Callable[[Record], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[int, bytes], int] = os.write,
        sync: Callable[[int], None] = os.fsync,
    ) -> Self:
        """Give a journal to append to.

        "create" makes a new file and refuses one that holds a record. "resume" verifies every line of an existing one.
        Both cut a torn tail off after copying it to ``NAME.torn-N`` beside it; `message` then says so.
        Records that are there are handed over to `take` one by one. `clock` (seconds), `write` and `sync` stand for the
        system's in tests.
        """
        path = Path(path)
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        message, found = None, JournalFollower(path)
        if mode == "create" and not os.path.lexists(path):
            with naming(path, "created", JournalError):
                file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
                _sync_directory(path.parent)
        else:
            found.read(take)
            if mode == "create" and found.end.records:
                raise JournalError(f"{path}: must not exist yet\nhint: resume it, or choose another directory")
            with naming(path, "opened for appending", JournalError):
                if found.torn is not None:
                    message = _cut(path, found.torn)
                file = os.open(path, flags)
        return cls(path, file, found.end, message, clock=clock, write=write, sync=sync)

    @property
    def count(self) -> int:
        """How many records the journal holds: the number of the next one."""
        return self._end.records

    def append(self, *records: Record) -> int:
        """Write records, all or none of them, and give the number of the first; numbers count from 0 without gaps.

        Raises `JournalError`: a record does not read back as itself, or the system refuses. Then the file is as it
        was before, and a later `append` may succeed (when space has been freed). After a failed `fsync` the records are
        in the file, perhaps not on the disk, and no later `append` succeeds: close and resume.
        """
        body = body_of(*records)
        with self._lock:
            self._check()
            before = self._end
            line = line_of(before.link, body)
            end = before.beyond(line, len(records))
            self._half_written = True
            try:
                self._write_all(line)
                # No call in this statement, so no signal between its parts: they always agree.
                self._end, self._unsynced, self._half_written = end, True, False
            except OSError as error:
                raise self._refused(error) from error
            finally:
                # Also when a signal's exception (control-C) comes between two parts of a line.
                if self._half_written:
                    self._cut_back()
            self._sync_if_due()
        return before.records

    def tick(self) -> None:
        """Make the records safe from a power cut if a second has passed; for times when nothing is appended."""
        with self._lock:
            if self._file >= 0 and self._lost is None:
                self._sync_if_due()

    def sync(self) -> None:
        """Make every record safe from a power cut, now: at a checkpoint, before a decision takes effect."""
        with self._lock:
            self._check()
            self._flush()

    def sync_within(self, seconds: float) -> None:
        """Make every record safe from a power cut no later than that after the last sync, at an `append` or a `tick`.

        All that ask in this time share one: a disk takes milliseconds for each.
        """
        with self._lock:
            self._check()
            self._interval_s = min(self._interval_s, seconds)
            self._sync_if_due()

    def close(self) -> None:
        """Sync and close the file; again is nothing."""
        with self._lock:
            if self._file < 0:
                return
            try:
                if self._lost is None:
                    self._flush()
            finally:
                file, self._file = self._file, -1
                os.close(file)

    def _check(self) -> None:
        """Raise unless the file is ours, whole and where it was."""
        if self._file < 0:
            raise JournalError(f"{self.path}: is closed")
        if self._lost is not None:
            raise JournalError(f"{self.path}: {self._lost}")
        if self._half_written:
            self._cut_back()
            if self._half_written:
                raise JournalError(f"{self.path}: a half-written line cannot be removed\nhint: close, then resume")
        now = os.fstat(self._file)
        if now.st_nlink == 0:
            raise JournalError(
                f"{self.path}: was deleted, with all {self.count} records\nhint: begin again, or put back a copy of it"
            ) from OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        if now.st_size != self._end.offset:
            raise JournalError(
                f"{self.path}: must have {self._end.offset} bytes. Got {now.st_size}: somebody else writes to it\n"
                "hint: stop the other program, then resume"
            )

    def _write_all(self, line: bytes) -> None:
        """Write the line: one call, unless the system takes only a part of it."""
        left = line
        while left:
            written = self._write(self._file, left)
            if written <= 0:
                raise OSError(errno.EIO, "nothing was written")
            left = left[written:]

    def _cut_back(self) -> None:
        """Remove the beginning of a line that was not written whole; if that fails, the next append tries again."""
        try:
            os.ftruncate(self._file, self._end.offset)
        except OSError:
            return
        self._half_written = False

    def _refused(self, error: OSError) -> JournalError:
        reason, hint = error.strerror or error, _HINTS.get(error.errno or 0, "see the reason above")
        if not self.count:
            return JournalError(f"{self.path}: no record can be written ({reason})\nhint: {hint}, then begin again")
        return JournalError(
            f"{self.path}: record {self.count} cannot be written ({reason}); "
            f"nothing before it is lost: {self.count} records are whole\nhint: {hint}, then resume"
        )

    def _sync_if_due(self) -> None:
        if self._unsynced and self._clock() - self._synced_at >= self._interval_s:
            self._flush()

    def _flush(self) -> None:
        """Have the system write everything to the disk."""
        if self._unsynced:
            try:
                self._sync(self._file)
            except OSError as error:
                # The system may have dropped the data that it could not write, and a second fsync would not say so.
                self._lost = (
                    f"records since the last sync may not be on the disk ({error.strerror or error}); "
                    f"nothing more is written to it\nhint: {_HINTS.get(error.errno or 0, 'close')}, then resume"
                )
                raise JournalError(f"{self.path}: {self._lost}") from error
            self._unsynced = False
        self._synced_at, self._interval_s = self._clock(), SYNC_INTERVAL_S


def _cut(path: Path, torn: TornTail) -> str:
    """Cut a torn tail off, after keeping its bytes beside the journal; give the message for the user."""
    kept = _keep(path, torn.data)
    with path.open("r+b") as stream:
        stream.truncate(torn.begin.offset)
        os.fsync(stream.fileno())
    return f"{path}: {torn}; cut off, its bytes are kept in {kept.name}"


def _keep(path: Path, data: bytes) -> Path:
    """Write the bytes to the first free ``NAME.torn-N``, through to the disk."""
    number = 0
    while os.path.lexists(kept := path.with_name(f"{path.stem}.torn-{number}")):
        number += 1
    with kept.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    _sync_directory(path.parent)
    return kept


def _sync_directory(directory: Path) -> None:
    """Have the names of new files reach the disk too."""
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
