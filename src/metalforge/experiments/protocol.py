"""What every experiment is: a name, a question in words, and a run that gives rows.

A row holds one figure with its interval, what it is compared with, and the gap. Rows are data: the table, the JSON and
the tests read the same ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from metalforge.core.errors import UnknownNameError

__all__ = ["EXPERIMENTS", "Experiment", "Progress", "Result", "Row", "Settings", "find_experiment", "register"]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an experiment is run. `quick` is a smaller one of the same kind, for a first look and for tests.

    A long one can be run in shards `i/n` that add to one `file`; by default one in the cache folder.
    """

    seed: int = 1
    quick: bool = False
    profile: str = "akd1000-published"
    shard: str = ""
    file: str = ""


class Progress(Protocol):
    """Told what is being done, and how much of it."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Part `done` of `total` begins."""
        ...


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows, what they mean in words, and checks that the question posed: (what was asked, what came, passed)."""

    rows: tuple[Row, ...]
    table: tuple[tuple[str, ...], ...] = ()
    """The rows for a reader, its first line the head; empty where the rows themselves are short enough."""
    words: tuple[str, ...] = ()
    checks: tuple[tuple[str, str, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A named, reproducible experiment."""

    name: str
    question: str
    run: Callable[[Settings, Progress], Result]


EXPERIMENTS: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Add an experiment to the list."""
    EXPERIMENTS[experiment.name] = experiment
    return experiment


def find_experiment(name: str) -> Experiment:
    """Return an experiment by name."""
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def quiet(done: int, total: int, what: str) -> None:
    """Say nothing."""


def rows_of(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """Return the rows whose fields have these values."""
    return [row for row in rows if all(getattr(row, key) == value for key, value in wanted.items())]
