"""Whether files can be written in a directory, found out by writing one."""

import os
import secrets
from pathlib import Path

from metalforge.core.files import PathLike, naming

from .failures import DirectoryError

__all__ = ["writable_directory"]

PROBE_BYTES = 4096  # a block: a full disk still has room for an empty file


def writable_directory(path: PathLike) -> Path:
    """Give the directory, made if it was missing, after a file was written, synced and removed in it.

    Raises `DirectoryError` where that fails: read-only, full, no permission, not a directory. Permission bits alone
    would not tell (read-only mounts, quotas, the superuser).
    """
    directory = Path(path)
    with naming(directory, "written to", DirectoryError):
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".{secrets.token_hex(8)}.tmp"
        try:
            with probe.open("xb") as stream:
                stream.write(bytes(PROBE_BYTES))
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            probe.unlink(missing_ok=True)
    return directory
