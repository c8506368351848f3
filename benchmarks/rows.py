"""Benchmarks as rows: a measured rate, a peer in the same run, and the ceiling it is held against.

Machines are shared and noisy, so absolute times mean little; a row always carries its ratio to a peer or a ceiling
that was measured seconds before, in the same process.
"""

import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean, median, stdev
from types import ModuleType
from typing import NamedTuple

import msgspec

from metalforge.core import Measured, SpecError, strangers_code

STUDENT = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Two-sided 95 % of Student's t, by the number of pairs."""


class BenchRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a benchmark.

    `ratio` is value / peer; `fraction` is value / ceiling; either may be absent, not both. A name of a peer without its
    rate says that the peer is not installed here.
    """

    name: str
    value: Measured
    peer_name: str = ""
    peer: Measured | None = None
    ceiling_name: str = ""
    ceiling: Measured | None = None
    turns: tuple[float, ...] = ()
    """The ratio in each round, where both took turns; `ratio` is then their geometric mean."""

    def __post_init__(self) -> None:
        if self.peer is None and self.ceiling is None:
            raise ValueError(f"benchmark row `{self.name}` needs a peer or a ceiling from the same run")

    @property
    def ratio(self) -> float | None:
        """How many times the peer's rate."""
        if self.peer is None:
            return None
        return geometric_mean(self.turns) if self.turns else self.value.ratio(self.peer)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the ratio, where it was measured in turns: Student's t of the ratios' logarithms."""
        if not self.turns:
            return None
        _, low, high = mean_interval([math.log(ratio) for ratio in self.turns])
        return math.exp(low), math.exp(high)

    @property
    def fraction(self) -> float | None:
        """Which part of the ceiling."""
        return None if self.ceiling is None else self.value.ratio(self.ceiling)


def best_of(work: Callable[[], object], *, repeats: int = 5, minimum_s: float = 0.05) -> float:
    """Return the shortest seconds that one call of `work` took, over `repeats` rounds of at least `minimum_s` each.

    The first call, which pays for page faults and caches, is not counted.
    """
    work()
    return min(seconds_of(work, minimum_s) for _ in range(repeats))


def seconds_of(work: Callable[[], object], minimum_s: float) -> float:
    """Return the seconds of one call of `work`, over as many as fill `minimum_s`."""
    calls, elapsed, start = 0, 0.0, time.perf_counter()
    while not calls or elapsed < minimum_s:
        work()
        calls += 1
        elapsed = time.perf_counter() - start
    return elapsed / calls


Turn = Callable[[], float]
"""Does a piece of work and returns the seconds that it took."""


def timed(work: Callable[[], object], minimum_s: float = 0.1) -> Turn:
    """Return a turn that calls `work` until `minimum_s` have passed, and gives the seconds of one call."""
    return lambda: seconds_of(work, minimum_s)


def rows_in_turns(
    name: str,
    ours: Turn,
    peers: Mapping[str, Turn | None],
    floor: tuple[str, Turn],
    *,
    amount: float,
    unit: str,
    rounds: int,
) -> Iterator[BenchRow]:
    """Yield a row for each peer: in every round ours, all peers and the floor have a turn, and ratios are of a round.

    All do `amount` of `unit` in a turn. Rates are of the median round, the ceiling is of the shortest one. A peer that
    is None is not installed; its row says so and has the ceiling alone.
    """
    floor_name, fastest_possible = floor
    here = {peer: turn for peer, turn in peers.items() if turn is not None}
    turns = (ours, fastest_possible, *here.values())
    for turn in turns:  # the first call pays for page faults and caches
        turn()
    mine, least, *theirs = zip(*([turn() for turn in turns] for _ in range(rounds)), strict=True)
    seconds = dict(zip(here, theirs, strict=True))

    def rate(of_one: float, how: str) -> Measured:
        return Measured(value=amount / of_one, unit=unit, how=how)

    for peer in peers:
        beside = seconds.get(peer)
        yield BenchRow(
            name=name,
            value=rate(median(mine), f"median of {rounds} rounds in turns"),
            peer_name=peer,
            peer=None if beside is None else rate(median(beside), f"median of {rounds} rounds in turns"),
            ceiling_name=floor_name,
            ceiling=rate(min(least), f"shortest of {rounds} rounds in turns"),
            turns=() if beside is None else tuple(b / a for a, b in zip(mine, beside, strict=True)),
        )


def processor_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes, with those of their children that have ended; those that are gone have none.

    From /proc, in ticks of the kernel: 10 ms on most systems.
    """
    tick_s, total = 1.0 / os.sysconf("SC_CLK_TCK"), 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15]) * tick_s
    return total


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of a few values and its 95 % interval by Student's t."""
    mean, half = fmean(values), STUDENT[len(values)] * stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def interval_text(ratios: Sequence[float]) -> str:
    """Return the mean of a few ratios with its 95 % interval, in words."""
    mean, low, high = mean_interval(ratios)
    return f"ratio {mean:.3f}, 95 % interval {low:.3f} to {high:.3f}"


def load_benchmark(file: Path) -> ModuleType:
    """Return a benchmark file as a module: suites take works from one another by it."""
    spec = importlib.util.spec_from_file_location(f"metalforge_benchmarks_{file.parent.name}_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise SpecError(f"{file} cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Suite(NamedTuple):
    """A folder of benchmark files; each file has a function ``rows()`` that yields `BenchRow`."""

    name: str
    files: tuple[Path, ...]

    def rows(self) -> Iterator[BenchRow]:
        """Run the files in order and yield the rows of each when it is done."""
        for file in self.files:
            with strangers_code(f"{file} failed"):
                rows = list(load_benchmark(file).rows())
            yield from rows


def find_suites(start: Path) -> dict[str, Suite]:
    """Return the suites of the nearest ``benchmarks/`` folder at or above `start`, by name.

    Benchmarks are part of the source tree, not of the installed package: they need peers that users do not.
    """
    for folder in (start, *start.parents):
        root = folder / "benchmarks"
        if root.is_dir() and (folder / "pyproject.toml").is_file():
            found = [Suite(path.name, tuple(sorted(path.glob("bench_*.py")))) for path in sorted(root.iterdir())]
            return {suite.name: suite for suite in found if suite.files}
    raise SpecError(
        f"no benchmarks/ folder at or above {start}; they live in the source tree\n"
        "hint: run this from a clone of the repository"
    )
