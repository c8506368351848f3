"""Experiments: each has a name, a question in words, and a run that gives a table.

    @experiment("coverage", "How often does the error that a campaign quotes hold the truth?")
    def run(settings, progress): ...

The cells of a table are texts and figures; what is printed, the JSON and the tests read the same ones.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from metalforge.core.errors import find
from metalforge.core.pages import Paragraphs
from metalforge.reservoir.metrics import Interval

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C", bound=msgspec.Struct)
Check: TypeAlias = tuple[str, str, bool]
"""What was asked, what came, and whether it holds."""


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number, with its 95 % interval where it has one, and the format of its text."""

    value: float
    form: str
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, figure: Interval, form: str) -> "Figure":
        """Return a figure with its interval."""
        return cls(figure.value, form, figure.low, figure.high)

    def __str__(self) -> str:
        text = f"{self.value:{self.form}}"
        return text if self.low is None else f"{text} ({self.low:{self.form}} .. {self.high:{self.form}})"


Cell: TypeAlias = str | int | Figure


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an experiment is run. `quick` is a smaller one of the same kind, for a first look and for tests.

    A long one can be run in shards `i/n` that add to one `file`; by default one in the cache folder. `only` leaves it
    at the parts whose name has this text.
    """

    seed: int = 1
    quick: bool = False
    shard: str = ""
    file: str = ""
    only: str = ""


Progress: TypeAlias = Callable[[int, int, str], None]
"""Told that part `done` of `total` begins, and what it is."""


class Result(NamedTuple):
    """A table, whose lines have the names of their columns; what it means in words; and checks of the question."""

    table: Sequence[Mapping[str, Cell]]
    words: Sequence[str] = ()
    checks: Sequence[Check] = ()

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """The table as text, its head first."""
        if not self.table:
            return [("nothing was run yet",)]
        return [tuple(self.table[0]), *(tuple(map(str, line.values())) for line in self.table)]

    @property
    def answers(self) -> list[tuple[str, str, str]]:
        """The checks, with yes or no."""
        return [(asked, came, "yes" if holds else "no") for asked, came, holds in self.checks]


Run: TypeAlias = Callable[[Settings, Progress], Result]


class Experiment(NamedTuple):
    """A named, reproducible experiment."""

    name: str
    question: str
    run: Run


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(name: str, question: str) -> Callable[[Run], Run]:
    """Add the function below to the list of experiments."""

    def added(run: Run) -> Run:
        EXPERIMENTS[name] = Experiment(name=name, question=question, run=run)
        return run

    return added


def find_experiment(name: str) -> Experiment:
    """Return an experiment by name."""
    return find("experiment", name, EXPERIMENTS)


def read_cases(name: str, kind: type[C]) -> tuple[tuple[C, ...], tuple[C, ...]]:
    """Return the cases of `<name>_cases.toml`: those of a whole run, and those of a quick one."""
    text = Path(__file__).with_name(f"{name}_cases.toml").read_bytes()
    found = msgspec.toml.decode(text, type=dict[str, tuple[kind, ...]])  # type: ignore[valid-type]
    return found["full"], found["quick"]


words = Paragraphs(Path(__file__).with_name("words.toml"))
"""`words("faults.all", block=...)`: what the tables of an experiment do not say, with these figures."""


def quiet(done: int, total: int, what: str) -> None:
    """Say nothing."""


def aloud(done: int, total: int, what: str) -> None:
    """Say on stderr which part begins."""
    sys.stderr.write(f"[{done + 1}/{total}] {what}\n")


def in_processes(job: Callable[[A], B], given: Iterable[A], workers: int) -> Iterator[B]:
    """Give what the job makes of each, in order: made here, or in so many processes."""
    if workers <= 1:
        yield from map(job, given)
        return
    # From a fork server: a process with running threads, as the kernels have, must not be forked itself.
    with ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:
        yield from pool.map(job, given)
