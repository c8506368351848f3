"""Chains of a campaign that a producer moves together: one, or the replicas of a ladder that exchange couplings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from metalforge.core.errors import SpecError
from metalforge.core.files import naming, replacing
from metalforge.lattice.exchange import ReplicaLadder
from metalforge.lattice.run import Segment

from .point import PointChain


class PointLadder:
    """Chains in order of their couplings, all at the same update; what is true of the first is true of all."""

    def __init__(self, points: Sequence[PointChain]) -> None:
        self.points = tuple(points)

    @property
    def rows(self) -> int:
        """Updates made."""
        return self.points[0].rows

    @property
    def in_step(self) -> bool:
        """Whether all are at the same update, and every replica holds one coupling."""
        replicas = {point.run.chain.spec.stream for point in self.points}
        alike = all(a.rows == b.rows and a.measured == b.measured for a, b in pairwise(self.points))
        return alike and len(replicas) == len(self.points)

    def begin_block(self) -> None:
        """Say that a block begins: checkpoints keep the rows of the last few."""
        for point in self.points:
            point.begin_block()

    def advance(self, updates: int, until: int, stopping: Callable[[], bool]) -> list[list[Segment]]:
        """Move all on by at most `updates`, or until so many are measured; return the rows that the journal lacks.

        The replicas of a ladder exchange couplings before every update. Updates that only lead back to where the
        journal is do not count.
        """
        points, first = self.points, self.points[0]
        if any(point.measured > until for point in points):
            # A checkpoint from beyond what the journal knows (it lost its end): decisions must be taken in order.
            for point in points:
                point.begin_again()
        ladder = ReplicaLadder([point.run for point in points]) if len(points) > 1 else None
        end = max(max(point.rows, point.emitted) for point in points) + updates
        while first.rows < end and first.measured < until and not stopping():
            if ladder is not None:
                ladder.exchange()
            for point in points:
                point.update()
        return [point.take_segments() for point in points]

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
        with naming(path):
            try:
                with ZipFile(path) as archive:
                    for chain in chains:
                        file = Path(folder) / f"{chain}.h5"
                        file.write_bytes(archive.read(file.name))
                        files.append(file)
            except (BadZipFile, KeyError, EOFError) as error:
                raise SpecError(f"is not the checkpoint of a ladder of {len(chains)} chains: {error}") from error
        yield files
