"""Opening and replacing files so that nothing half done is ever left behind, and every error names the file.

Texts of files that others made are shown by `escaped`: a terminal would obey some of their characters.
"""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

from .errors import MetalforgeError, SpecError

PathLike: TypeAlias = str | os.PathLike[str]
GROWTH, ANYWAY = 16, 64 << 20
_SCRATCH = re.compile(r"\.[0-9a-f]{16}\.tmp")
"""What a file is called until it is whole."""


def allowance(size: int) -> int:
    """Return the bytes that may be made of a file of so many: a few bytes of a file can ask for any amount.

    16 for each are 4-bit integers as reals, 64 MiB are there for any file; copies included, that is below 512 MB.
    """
    return GROWTH * size + ANYWAY


def cache_folder() -> Path:
    """Return where made things are kept: ``METALFORGE_CACHE``, or the user's own."""
    if named := os.environ.get("METALFORGE_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "metalforge"


def new_scratch() -> str:
    """Return a name for a file until it is whole: not made of the target's, which may be long already."""
    return f".{secrets.token_hex(8)}.tmp"


def half_written(name: str) -> bool:
    """Return whether a file of this name is not whole yet, or was left so."""
    return _SCRATCH.fullmatch(name) is not None


def remove_half_written(directory: Path) -> None:
    """Remove what killed processes left of files that they were replacing; whoever calls has the directory alone."""
    for entry in directory.glob(".*.tmp"):
        if half_written(entry.name):
            entry.unlink(missing_ok=True)


@contextmanager
def naming(path: PathLike, verb: str = "read", kind: type[MetalforgeError] = SpecError) -> Iterator[None]:
    """Put the file's name before what is wrong with it, as an error of this kind; the system's and decoders' too."""
    try:
        yield
    except (MetalforgeError, ValueError) as error:
        raise kind(f"{path}: {error}") from error
    except RecursionError as error:
        raise kind(f"{path}: is nested too deeply") from error
    except OSError as error:
        raise kind(f"{path}: cannot be {verb} ({error.strerror or error})") from error


@contextmanager
def opened(path: PathLike, kind: type[MetalforgeError] = SpecError) -> Iterator[tuple[BinaryIO, int]]:
    """Give an open file and its size in bytes; errors raised inside name the file."""

    def regular(name: str, flags: int) -> int:
        # O_NONBLOCK: opening a named pipe would otherwise wait until another process writes to it.
        file = os.open(name, flags | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise kind("not a regular file")
        return file

    with naming(path, "read", kind), open(path, "rb", opener=regular) as stream:
        yield stream, os.fstat(stream.fileno()).st_size


def read_bytes(path: PathLike, kind: type[MetalforgeError] = SpecError) -> bytes:
    """Return what is in a regular file; errors name it, and nothing else is waited for."""
    with opened(path, kind) as (stream, _):
        return stream.read()


@contextmanager
def replacing(path: PathLike, kind: type[MetalforgeError] = SpecError) -> Iterator[BinaryIO]:
    """Give a new file that takes the place of `path` when the block ends well; otherwise `path` is as it was.

    Written beside the target, flushed to the disk and renamed over it, then the directory is flushed too: after a
    crash or a full disk there is either the old file or the new one. A symbolic link keeps pointing at its target, and
    what is no regular file, such as a device, is refused.
    """
    with naming(path, "written", kind):
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            raise kind("not a regular file, which alone can be replaced")
        scratch = target.with_name(new_scratch())
        try:
            with open(scratch, "xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
        directory = os.open(target.parent, os.O_RDONLY)  # the rename itself must reach the disk too
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def escaped(text: str, *, lines: bool = False) -> str:
    r"""Return a text whose characters are all printable: others as Python writes them, ``\x1b`` and the like.

    `lines`: line ends stay.
    """
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)
