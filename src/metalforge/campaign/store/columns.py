"""Columns that grow for as long as a campaign runs: the last rows in memory, those before them in a file.

The file has no name: it is gone with the process, however that ends, and the journal has all that is in it.
"""

import os
import struct
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 13
"""Rows that go to the file together, 64 kB; as many and fewer than twice as many stay in memory."""


class Spool:
    """A file for numbers that are not needed often, made when the first come; beside the journal, if it can be."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._file = -1
        self._end = 0

    def put(self, numbers: bytes) -> int:
        """Write numbers and return where they begin."""
        if self._file < 0:
            self._open()
        at, self._end = self._end, self._end + len(numbers)
        while numbers:
            written = os.pwrite(self._file, numbers, self._end - len(numbers))
            numbers = numbers[written:]
        return at

    def get(self, at: int, count: int) -> NDArray[np.float64]:
        """Return so many numbers."""
        return np.frombuffer(os.pread(self._file, 8 * count, at), np.float64)

    def _open(self) -> None:
        try:
            self._file, name = mkstemp(dir=self._directory)
        except OSError:  # a directory that can only be read
            self._file, name = mkstemp()
        os.unlink(name)
        weakref.finalize(self, os.close, self._file)


class Column(Sequence[float]):
    """Numbers by row; slices are lists, `array` and NumPy have them as an array."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._chunks: list[tuple[int, int, int]] = []
        """Rows in the file: the number of the first, how many, and where they begin there; `_kept` of them all."""
        self._kept = 0
        self._tail = array("d")

    def extend(self, numbers: Iterable[float]) -> None:
        """Add rows."""
        added = tuple(numbers)
        self._tail.frombytes(struct.pack(f"{len(added)}d", *added))  # a fifth of the time that `extend` takes
        while len(self._tail) >= 2 * CHUNK:
            self._keep(CHUNK)

    def fork(self) -> "Column":
        """Return a column that goes on by itself from here: what both have is in the file, once."""
        if self._tail:
            self._keep(len(self._tail))
        other = Column(self._spool)
        other._chunks, other._kept = self._chunks.copy(), self._kept
        return other

    def _keep(self, rows: int) -> None:
        self._chunks.append((self._kept, rows, self._spool.put(self._tail[:rows].tobytes())))
        self._kept += rows
        del self._tail[:rows]

    def array(self, begin: int = 0, end: int | None = None) -> NDArray[np.float64]:
        """Return the rows from `begin` to `end`, counted from 0."""
        begin, end, _ = slice(begin, end).indices(len(self))
        kept = self._kept
        parts = [
            self._spool.get(place, rows)[max(begin - first, 0) : end - first]
            for first, rows, place in self._chunks
            if begin < first + rows and first < end
        ]
        parts.append(np.array(self._tail[max(begin - kept, 0) : max(end - kept, 0)], np.float64))
        return np.concatenate(parts)

    def copy(self) -> "Column":
        """Return a column with all rows of now in memory, which can be sent to another process."""
        other = Column(Spool())
        other._tail = array("d", self.array().tobytes())
        return other

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.array(key.start or 0, key.stop)[:: key.step].tolist()
        at = range(len(self))[key]
        return self._tail[at - self._kept] if at >= self._kept else float(self.array(at, at + 1)[0])

    def __len__(self) -> int:
        return self._kept + len(self._tail)

    def __iter__(self) -> Iterator[float]:
        kept = (self._spool.get(place, rows).tolist() for _, rows, place in self._chunks)
        return chain(chain.from_iterable(kept), list(self._tail))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
