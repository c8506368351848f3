"""Chains of a campaign that a producer moves together: one, or the replicas of a ladder that exchange couplings."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile, ZipFile

from metalforge.core import Segment, SpecError, opened, replacing

from .point import Columns, Exchange, PointChain


class PointLadder:
    """Chains in order of their couplings, all at the same update; what is true of the first is true of all."""

    def __init__(self, points: Sequence[PointChain]) -> None:
        self.points = tuple(points)
        self._exchange: Exchange | None = None
        self._end = self._until = 0

    @property
    def rows(self) -> int:
        """Updates made."""
        return self.points[0].rows

    @property
    def in_step(self) -> bool:
        """Whether all are at the same update, and every replica holds one coupling."""
        replicas = {point.replica for point in self.points}
        alike = all(a.rows == b.rows and a.measured == b.measured for a, b in pairwise(self.points))
        return alike and len(replicas) == len(self.points)

    def begin(self, updates: int, until: int) -> None:
        """Take an order: at most so many updates beyond the journal, or until so many are measured."""
        points = self.points
        if any(point.measured > until for point in points):
            # A checkpoint from beyond what the journal knows (it lost its end): decisions must be taken in order.
            for point in points:
                point.begin_again()
        self._exchange = points[0].exchange(points) if len(points) > 1 else None
        self._until = until
        self._end = points[0].emitted + updates
        for point in points:
            point.begin_block()

    @property
    def room(self) -> int:
        """Updates that are left of the order, as many as may be made at once; 0 where it has arrived."""
        return max(min(self._end - self.rows, min(point.room(self._until) for point in self.points)), 0)

    @property
    def kind(self) -> tuple[object, ...] | None:
        """What it has in common with those that may move with it in a batch; None where it moves alone."""
        kinds = [point.kind for point in self.points]
        return None if kinds[0] is None or None in kinds else (*kinds[0], len(kinds))

    def energies(self) -> list[float]:
        """Return E of every replica, what is not a number where none is known; nothing for a chain alone."""
        if self._exchange is None:
            return []
        return self._exchange.energies() or [nan] * len(self.points)

    def absorb(self, columns: Sequence[Columns], replicas: Sequence[Any]) -> None:
        """Take updates that a batch made of its replicas."""
        if self._exchange is None:
            self.points[0].absorb(columns[0])
            return
        for point, (own, holders) in zip(self.points, self._exchange.sort(columns, replicas), strict=True):
            point.absorb(own, holders)

    def update(self) -> None:
        """Move all on by one update; the replicas of a ladder exchange couplings before it."""
        if self._exchange is not None:
            self._exchange.exchange()
        for point in self.points:
            point.update()

    def take_segments(self) -> list[list[Segment]]:
        """Return the rows that the journal lacks."""
        return [point.take_segments() for point in self.points]

    def save(self, path: Path) -> None:
        """Write a checkpoint; that of a ladder holds one of each chain, so that all are of the same update."""
        if len(self.points) == 1:
            self.points[0].save(path)
            return
        with replacing(path) as stream, ZipFile(stream, "w") as archive, TemporaryDirectory() as folder:
            for point in self.points:
                file = Path(folder) / f"{point.id}.h5"
                point.save(file)
                archive.write(file, file.name)


@contextmanager
def unpacked(path: Path, chains: Sequence[str]) -> Iterator[list[Path | None]]:
    """Give the checkpoint of each chain that `path` holds; None for each where there is no such file."""
    if len(chains) == 1 or not path.exists():
        yield [path if len(chains) == 1 else None] * len(chains)
        return
    with TemporaryDirectory() as folder:
        files: list[Path | None] = []
        with opened(path) as (stream, _):
            try:
                with ZipFile(stream) as archive:
                    for chain in chains:
                        file = Path(folder) / f"{chain}.h5"
                        file.write_bytes(archive.read(file.name))
                        files.append(file)
            except (BadZipFile, KeyError, EOFError) as error:
                raise SpecError(f"is not the checkpoint of a ladder of {len(chains)} chains: {error}") from error
        yield files
