"""The interface between the commands and a theory whose chains or runs heads are trained on."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from experiments.corpora import RecordedCorpus
from metalforge.core.pages import TextTable
from metalforge.core.schema import HeadLayout
from metalforge.native.engine import Engine
from metalforge.reservoir.weights import EsnWeights

C = TypeVar("C", bound=RecordedCorpus[Any])
E = TypeVar("E")


class FittedHeads(NamedTuple):
    """Trained weights, with how each head was fitted: as records, and as a table (columns, lines)."""

    weights: EsnWeights
    heads: Sequence[Mapping[str, object]]
    table: tuple[Sequence[str], Sequence[Sequence[str]]]
    note: str = ""


class JudgedHeads(NamedTuple):
    """The scores of heads, as a record and as tables."""

    found: object
    tables: Sequence[TextTable]


class HeadTheory(NamedTuple, Generic[C, E]):
    """How the chains of a theory are recorded, and how its heads are trained and judged."""

    title: str
    """Of the page of scores."""
    kind: type[C]
    layouts: Collection[str]
    grids: Collection[str]
    entries: Callable[[str, int, str], dict[str, list[E]]]
    """(grid, seed, part) to what is recorded, by the end of its file's name."""
    record: Callable[[Sequence[E], Engine, int], Iterator[Any]]
    """(entries, engine, processes) to records, in the order of entries."""
    corpus: Callable[[str, int, Iterable[Any]], C]
    """(grid, seed, records) to a corpus."""
    label: Callable[[E], str]
    unit: str
    work: Callable[[E], float]
    """Work of an entry, in `unit`."""
    train: Callable[[C, HeadLayout, int], FittedHeads]
    judge: Callable[[C, HeadLayout, EsnWeights | None, int], JudgedHeads]
    """(corpus, layout, weights or None to train some, seed of the reservoir)"""
