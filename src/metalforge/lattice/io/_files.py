"""Configuration files by way of `core.files`: the same care, errors of this room's kind."""

from contextlib import AbstractContextManager
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from metalforge.core import files
from metalforge.core.files import PathLike

from ._errors import ConfigurationFileError

__all__ = ["PathLike", "opened", "read_bytes", "replacing"]


def opened(path: PathLike) -> AbstractContextManager[tuple[BinaryIO, int]]:
    """An open file and its size in bytes; errors raised inside name the file."""
    return files.opened(path, ConfigurationFileError)


def replacing(path: PathLike) -> AbstractContextManager[BinaryIO]:
    """A new file that takes the place of `path` when the block ends well; otherwise `path` is as it was."""
    return files.replacing(path, ConfigurationFileError)


def read_bytes(stream: BinaryIO, count: int, what: str) -> NDArray[np.uint8]:
    """The next `count` bytes. The caller has compared `count` with the size of the file."""
    data = np.empty(count, dtype=np.uint8)
    got = stream.readinto(data.data)  # type: ignore[attr-defined]  # typing.BinaryIO does not declare it
    if got != count:
        raise ConfigurationFileError(f"{what}: wanted {count} bytes, the file ends after {got}")
    return data
