"""Opening, reading and replacing files so that nothing half done is ever left behind."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ._errors import ConfigurationFileError

__all__ = ["PathLike", "naming", "opened", "read_bytes", "replacing"]

PathLike = str | os.PathLike[str]


@contextmanager
def naming(path: PathLike, verb: str = "read") -> Iterator[None]:
    """Put the file's name before what is wrong with it, and turn the system's errors into ours."""
    try:
        yield
    except ConfigurationFileError as error:
        raise ConfigurationFileError(f"{path}: {error}") from error
    except OSError as error:
        raise ConfigurationFileError(f"{path}: cannot be {verb} ({error.strerror or error})") from error


@contextmanager
def opened(path: PathLike) -> Iterator[tuple[BinaryIO, int]]:
    """An open file and its size in bytes; errors raised inside name the file."""
    with naming(path):
        # A named pipe would block in open(), a device has no size: neither can be checked against a header.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ConfigurationFileError("not a regular file")
        with open(path, "rb") as stream:
            yield stream, os.fstat(stream.fileno()).st_size


def read_bytes(stream: BinaryIO, count: int, what: str) -> NDArray[np.uint8]:
    """The next `count` bytes. The caller has compared `count` with the size of the file."""
    data = np.empty(count, dtype=np.uint8)
    got = stream.readinto(data.data)  # type: ignore[attr-defined]  # typing.BinaryIO does not declare it
    if got != count:
        raise ConfigurationFileError(f"{what}: wanted {count} bytes, the file ends after {got}")
    return data


@contextmanager
def replacing(path: PathLike) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends well; otherwise `path` is as it was.

    Written beside the target, flushed to the disk and renamed over it, then the directory is flushed too: after a
    crash or a full disk there is either the old file or the new one. A symbolic link keeps pointing at its target.
    """
    with naming(path, "written"):
        target = Path(os.path.realpath(path))
        scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            with open(scratch, "xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
