"""A campaign's directory: whether files can be written in it, and a lock that the system takes back when it dies."""

import errno
import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from metalforge.core import Closing, MetalforgeError, PathLike, naming, new_scratch, read_bytes, remove_half_written

PROBE_BYTES = 4096  # a block: a full disk still has room for an empty file
JOURNAL = "journal.jsonl"
NAME = "lock"
PLACES = ("chains", "figures")
"""Directories of a campaign's directory."""


class DirectoryError(MetalforgeError):
    """A directory that a campaign cannot use."""


class DirectoryLockedError(DirectoryError):
    """Another process is writing in this directory."""


def writable_directory(path: PathLike) -> Path:
    """Give the directory, made if it was missing, after a file was written, synced and removed in it.

    Raises `DirectoryError` where that fails: read-only, full, no permission, not a directory. Permission bits alone
    would not tell (read-only mounts, quotas, the superuser).
    """
    directory = Path(path)
    with naming(directory, "written to", DirectoryError):
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / new_scratch()
        try:
            with probe.open("xb") as stream:
                stream.write(bytes(PROBE_BYTES))
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            probe.unlink(missing_ok=True)
    return directory


def sweep(directory: Path) -> None:
    """Remove what killed processes left half written; refuse links, through which files elsewhere would be replaced.

    Whoever calls holds the directory's lock.
    """
    for place in (directory, *(directory / name for name in PLACES)):
        sweep_folder(place)


def sweep_folder(folder: Path) -> None:
    """Do that in one folder, if there is one."""
    for entry in folder.glob("*") if folder.is_dir() else ():
        if entry.is_symlink() and not entry.is_dir():
            raise DirectoryError(
                f"{entry}: is a link, and a campaign replaces its files\nhint: remove it, or choose another directory"
            )
    remove_half_written(folder)


class LockHolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who took the lock, and when."""

    pid: int
    host: str
    started: datetime

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.started:%Y-%m-%d %H:%M:%S} UTC)"


class DirectoryLock(Closing):
    """Holds DIR/lock by `flock` from its making to `close`, or to the end of the process, however that comes.

    The lock is the kernel's, the file's text is only for the reader: what a killed process left in it is no obstacle.
    The file is never removed, since a second process might be waiting on the old one. Raises `DirectoryLockedError`
    where another process (or another lock in this one) holds it, `DirectoryError` where there can be no lock.
    """

    def __init__(self, directory: PathLike) -> None:
        self.path = Path(directory) / NAME
        with naming(self.path, "locked", DirectoryError):
            # Not inherited by programs started from here: a child that outlives us must not keep the lock.
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        taken = False
        try:
            self._take(directory)
            taken = True
        finally:
            if not taken:
                self.close()

    def _take(self, directory: PathLike) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = read_holder(directory)
            raise DirectoryLockedError(
                f"{directory}: is in use by {holder or 'another process'}; one process per directory\n"
                "hint: wait for it, look at it with `metalforge watch`, stop it"
                + (f" (`kill {holder.pid}`)" if holder else "")
                + ", or choose another directory"
            ) from error
        except OSError as error:
            unsupported = error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
            raise DirectoryError(
                f"{self.path}: cannot be locked ({error.strerror or error})"
                + ("\nhint: this file system has no locks; choose a local directory" if unsupported else "")
            ) from error
        holder = LockHolder(pid=os.getpid(), host=socket.gethostname(), started=datetime.now(UTC))
        with naming(self.path, "written", DirectoryError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, msgspec.json.encode(holder) + b"\n", 0)

    def close(self) -> None:
        """Give the directory back; again is nothing."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


def read_holder(directory: PathLike) -> LockHolder | None:
    """Give who took the lock last, if that can be read; whether they still hold it, only trying tells."""
    try:
        return msgspec.json.decode(read_bytes(Path(directory) / NAME), type=LockHolder)
    except (MetalforgeError, msgspec.MsgspecError):
        return None


def may_be_in_use(directory: PathLike) -> bool:
    """Return whether a process holds the directory's lock, or True if that cannot be found out from here."""
    holder = read_holder(directory)
    if holder is not None and holder.host != socket.gethostname():
        return True  # not every shared file system shows the locks of other machines
    try:
        file = os.open(Path(directory) / NAME, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno != errno.ENOENT
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
