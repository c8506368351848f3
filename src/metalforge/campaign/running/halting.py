"""How chains are told to stop: at the next update, in this process and in those of producers."""

from contextlib import suppress
from pathlib import Path


class StopFlag:
    """Asked before every update. Producers in other processes see it as a file, which is there while it is set."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_set, self._elsewhere = False, False
        self.clear()

    def set(self) -> None:
        """Stop; may be called from a signal handler."""
        if not self._is_set:
            self._is_set = True
            with suppress(OSError):  # of a disk that failed, which ends the campaign anyway
                self._path.touch()

    def clear(self) -> None:
        """Go on; also removes what a process that was killed has left."""
        self._path.unlink(missing_ok=True)
        self._is_set = False

    def __call__(self) -> bool:
        """Whether to stop."""
        return self._is_set or (self._elsewhere and self._path.exists())

    def __getstate__(self) -> Path:
        return self._path

    def __setstate__(self, path: Path) -> None:
        self._path, self._is_set, self._elsewhere = path, False, True
