"""Experiments: each has a name, a question in words, and a run that gives rows.

    @experiment("parity", "Which of weights, activation and precision makes a reservoir fail on an int4 chip?")
    def run(settings, progress): ...

A row holds one figure with its interval, what it is compared with, and the gap. Rows are data: the table, the JSON and
the tests read the same ones.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from metalforge.conductor.scores import CouplingInterval, HeadScore
from metalforge.core.errors import find
from metalforge.core.pages import Paragraphs
from metalforge.reservoir.metrics import Interval, Proportion

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C", bound=msgspec.Struct)
Check = tuple[str, str, bool]
"""What was asked, what came, and whether it holds."""


class ResultRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure. `low` .. `high` is its 95 % interval; `gap` is how much worse than `reference` it is."""

    task: str
    approach: str
    precision: str
    refit: bool
    metric: str
    value: float
    low: float
    high: float
    reference: float
    gap: float


HasInterval: TypeAlias = Interval | Proportion | CouplingInterval | HeadScore | ResultRow
"""What has a value and the ends of its 95 % interval."""


def shown(figure: HasInterval, form: str) -> str:
    """Return `value (low .. high)`, each in this format."""
    return f"{figure.value:{form}} ({figure.low:{form}} .. {figure.high:{form}})"


def row_of(
    task: str,
    approach: str,
    metric: str,
    figure: HasInterval,
    reference: float = 0.0,
    *,
    precision: str = "f32",
    refit: bool = False,
    less: bool = True,
) -> ResultRow:
    """Return the row of a figure; `less`: less is better, so that what exceeds the reference is the gap."""
    return ResultRow(
        task=task,
        approach=approach,
        precision=precision,
        refit=refit,
        metric=metric,
        value=figure.value,
        low=figure.low,
        high=figure.high,
        reference=reference,
        gap=figure.value - reference if less else reference - figure.value,
    )


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an experiment is run. `quick` is a smaller one of the same kind, for a first look and for tests.

    A long one can be run in shards `i/n` that add to one `file`; by default one in the cache folder. `only` leaves it
    at the parts whose name has this text.
    """

    seed: int = 1
    quick: bool = False
    profile: str = "akd1000-published"
    shard: str = ""
    file: str = ""
    only: str = ""


Progress: TypeAlias = Callable[[int, int, str], None]
"""Told that part `done` of `total` begins, and what it is."""


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows, what they mean in words, and checks that the question posed: (what was asked, what came, passed)."""

    rows: tuple[ResultRow, ...]
    table: tuple[tuple[str, ...], ...] = ()
    """The rows for a reader, its first line the head; empty where the rows themselves are short enough."""
    words: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @classmethod
    def of(
        cls,
        rows: Iterable[ResultRow],
        table: Iterable[Mapping[str, str]] = (),
        words: Iterable[str] = (),
        checks: Iterable[Check] = (),
    ) -> "Result":
        """Return a result from whatever gives its parts; lines of the table have the names of their columns."""
        lines = list(table)
        cells = tuple(tuple(line[name] for name in lines[0]) for line in lines)
        head = (tuple(lines[0]),) if lines else ()
        return cls(rows=tuple(rows), table=head + cells, words=tuple(words), checks=tuple(checks))

    @property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        """The table, or the rows as they are where there is none."""
        if self.table:
            return self.table
        head = ("task", "approach", "precision", "metric", "value", "interval", "gap")
        cells = ((f"{r.value:.4f}", f"{r.low:.4f} .. {r.high:.4f}", f"{r.gap:+.4f}") for r in self.rows)
        named = ((r.task, r.approach, r.precision, r.metric) for r in self.rows)
        return (head, *(a + b for a, b in zip(named, cells, strict=True)))

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
"""`words("004.baseline", task=...)`: what the tables of an experiment do not say, with these figures."""


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


def rows_of(rows: Sequence[ResultRow], **wanted: object) -> list[ResultRow]:
    """Return the rows whose fields have these values."""
    return [row for row in rows if all(getattr(row, key) == value for key, value in wanted.items())]
