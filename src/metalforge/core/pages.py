"""Text for readers: paragraphs that are kept beside the code, with places for figures, and tables."""

from collections.abc import Sequence
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

import msgspec


class _Filled(Formatter):
    """Format strings in which a figure with a format stands with its interval."""

    def format_field(self, value: Any, form: str) -> str:
        if form and hasattr(value, "low"):
            return f"{value.value:{form}} ({value.low:{form}} .. {value.high:{form}})"
        return str(super().format_field(value, form))


class Paragraphs:
    """The groups of paragraphs of a TOML file, each by `table.key`."""

    def __init__(self, path: Path) -> None:
        self._groups = msgspec.toml.decode(path.read_bytes(), type=dict[str, dict[str, tuple[str, ...]]])

    def __call__(self, group: str, **figures: Any) -> list[str]:
        """Return the paragraphs of a group with these figures in them."""
        table, _, key = group.partition(".")
        return [_Filled().format(text, **figures) for text in self._groups[table][key]]

    def say(self, group: str, **figures: Any) -> str:
        """Return the paragraphs of a group as one."""
        return " ".join(self(group, **figures))


class TextTable(NamedTuple):
    """A title, names of columns, rows of text, and what is to be known to read them."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    @classmethod
    def of(cls, title: str, notes: Sequence[str], rows: Sequence[dict[str, str]]) -> "TextTable":
        """Return the table of rows with the same keys, which are the names of its columns."""
        return cls(title, tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows], "".join(notes))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in plain text."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
