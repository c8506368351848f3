"""Strict tables of a spec, and the records with which a theory describes itself."""

from collections.abc import Callable
from math import isfinite
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError

System: TypeAlias = tuple[int, ...]
"""Names a system."""
Start: TypeAlias = str
"""Where a chain begins: a word of its theory, such as hot or cold."""
Floats: TypeAlias = NDArray[np.float64]


class SpecTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; `LEAST` bounds its numbers from below."""

    LEAST: ClassVar[dict[str, float]] = {}

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if isinstance(value := getattr(self, name), float) and not isfinite(value):
                raise SpecError(f"`{name}` must be a finite number. Got {value}")
        for path, least in self.LEAST.items():
            value = getattr(self, path.rpartition(".")[2])
            if value is not None and not (isfinite(value) and value >= least):
                raise SpecError(f"`{path}` must be at least {least:g}. Got {value}")


class TheoryWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a campaign is spoken of, on pages and in figures; symbols as text."""

    coordinate: str
    axis: str
    """The coordinate as the label of an axis."""
    coupling: str
    """What people give instead of the coordinate, and `coupling_like` some."""
    coupling_like: str
    system: str
    system_like: str
    found: str
    """What a campaign finds, and `missing` that it has not."""
    missing: str
    error_of: str
    """What a target error is the error of, after a number."""
    figure: str
    """The title of the main figure, and what its two halves show: "" for none."""
    shows: tuple[str, str]
    columns: tuple[str, str, str]
    """The coordinate and what is shown, as names of columns in files."""
    chain: str = "chain"
    chains: str = "Chains"
    update: str = "update"


class WideWork(NamedTuple):
    """Updates of an order at least and at most, and how many times longer visits are than elsewhere."""

    least: int
    most: int
    visit: int


class OrderParameter(NamedTuple):
    """An order parameter as text and figures write it, its square, and what times its variance is chi."""

    text: str
    math: str
    square: str
    volume: str = "V"


class Described(NamedTuple):
    """How a column of rows is shown: the heading of its mean, empty for none, and whether that has an error."""

    name: str
    label: str = ""
    error: bool = True
    transform: Callable[[Floats], Floats] = np.asarray
    """What is averaged: the column itself, or something of every row."""
    text: Callable[[float, float], str] | None = None
    """The mean and its error in a table; None: as numbers with errors are written."""


class Place(NamedTuple):
    """Where a chain is: its system, its value of the coordinate, and where it began."""

    system: System
    at: float
    start: Start
