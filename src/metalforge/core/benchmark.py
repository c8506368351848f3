"""Benchmarks as rows: a measured rate, a peer in the same run, and the ceiling it is held against.

Machines are shared and noisy, so absolute times mean little; a row always carries its ratio to a peer or a ceiling
that was measured seconds before, in the same process.
"""

import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import msgspec

from .errors import SpecError
from .plugins import strangers_code
from .quantities import Measured

STUDENT = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Two-sided 95 % of Student's t, by the number of pairs."""


class BenchRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a benchmark.

    `ratio` is value / peer; `fraction` is value / ceiling; either may be absent, not both.
    """

    name: str
    value: Measured
    peer_name: str = ""
    peer: Measured | None = None
    ceiling_name: str = ""
    ceiling: Measured | None = None

    def __post_init__(self) -> None:
        if self.peer is None and self.ceiling is None:
            raise ValueError(f"benchmark row `{self.name}` needs a peer or a ceiling from the same run")

    @property
    def ratio(self) -> float | None:
        """How many times the peer's rate."""
        return None if self.peer is None else self.value.ratio(self.peer)

    @property
    def fraction(self) -> float | None:
        """Which part of the ceiling."""
        return None if self.ceiling is None else self.value.ratio(self.ceiling)


def best_of(work: Callable[[], object], *, repeats: int = 5, minimum_s: float = 0.05) -> float:
    """Return the shortest seconds that one call of `work` took, over `repeats` rounds of at least `minimum_s` each.

    The first call, which pays for page faults and caches, is not counted.
    """
    work()
    best = float("inf")
    for _ in range(repeats):
        calls, elapsed, start = 0, 0.0, time.perf_counter()
        while not calls or elapsed < minimum_s:
            work()
            calls += 1
            elapsed = time.perf_counter() - start
        best = min(best, elapsed / calls)
    return best


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


def interval_text(ratios: Sequence[float]) -> str:
    """Return the mean of a few ratios with its 95 % interval by Student's t, in words."""
    mean, half = fmean(ratios), STUDENT[len(ratios)] * stdev(ratios) / len(ratios) ** 0.5
    return f"ratio {mean:.3f}, 95 % interval {mean - half:.3f} to {mean + half:.3f}"


class Suite(NamedTuple):
    """A folder of benchmark files; each file has a function ``rows()`` that yields `BenchRow`."""

    name: str
    files: tuple[Path, ...]

    def rows(self) -> Iterator[BenchRow]:
        """Run the files in order and yield the rows of each when it is done."""
        for file in self.files:
            spec = importlib.util.spec_from_file_location(f"metalforge_benchmarks_{self.name}_{file.stem}", file)
            if spec is None or spec.loader is None:
                raise SpecError(f"{file} cannot be loaded as a Python module")
            module = importlib.util.module_from_spec(spec)
            with strangers_code(f"{file} failed"):
                spec.loader.exec_module(module)
                rows = list(module.rows())
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
