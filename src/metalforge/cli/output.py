"""How the command line shows things: JSON records, tables on a terminal, aligned plain text in a pipe.

stdout and stderr may go away: a full disk, a closed descriptor, a reader that left. Work goes on without them. What was
lost is known at the end, when the exit code says so.
"""

import io
import os
import re
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TextIO

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from metalforge.core import aligned, escaped

if TYPE_CHECKING:
    from typing_extensions import Buffer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Default: all cores of this process.")]
MOST_SEED = 2**32 - 1
_HIDDEN = re.compile("[\x7f-\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]")
"""What a terminal may obey and JSON lets through."""
ANY_WIDTH = 100_000
"""Columns of a terminal on which every table fits."""


def given_options(context: typer.Context, *names: str) -> list[str]:
    """Return those options, of parameters with these names, that stand on the command line."""
    return [
        one.opts[0]
        for one in context.command.params
        if one.name in names and getattr(context.get_parameter_source(one.name), "name", "") == "COMMANDLINE"
    ]


def print_json(record: object) -> None:
    """Write one JSON document to stdout."""
    text = msgspec.json.format(msgspec.json.encode(record), indent=2).decode()
    sys.stdout.write(_HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def print_records(
    as_json: bool, record: object, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Write a record as JSON where that was asked for, and its rows as a table where not."""
    print_json(record) if as_json else print_table(title, columns, rows)


def print_text(text: str = "") -> None:
    """Write lines to stdout; what a terminal would obey is spelled."""
    sys.stdout.write(escaped(text, lines=True) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table to stdout: drawn on a terminal, aligned columns otherwise.

    No word is broken: a file name must survive copying. A table whose words do not fit the terminal is wider than it,
    and a terminal that folds a long line still copies it as one.
    """
    rows = [[escaped(str(cell)) for cell in row] for row in rows]
    title = escaped(title)
    console = Console()  # respects NO_COLOR and asks whether stdout is a terminal
    if console.is_terminal:
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold cyan")
        for i, name in enumerate(columns):
            words = [word for row in rows for word in row[i].split()]
            table.add_column(name, min_width=max(map(len, words), default=0))
        for row in rows:
            table.add_row(*row)
        needed = Measurement.get(console, console.options.update_width(ANY_WIDTH), table).minimum
        console.width = max(console.width, needed)
        console.print(table, markup=False)
        return
    print_text("\n".join([title, *(f"  {line}".rstrip() for line in aligned([columns, *rows])), ""]))


class _Lossy(io.FileIO):
    """A descriptor that takes every byte: after the first error, which is kept in `lost`, they go nowhere."""

    lost: OSError | None = None

    def write(self, data: "Buffer", /) -> int:
        if self.lost is None:
            try:
                while (written := super().write(data)) is None:
                    select.select([], [self], [])
                return written
            except OSError as error:
                self.lost = error
        return memoryview(data).nbytes


def lost(stream: TextIO) -> OSError | None:
    """Return why something that was written to this stream is lost; None where it is not known to be."""
    stream.flush()
    return getattr(getattr(getattr(stream, "buffer", None), "raw", None), "lost", None)


@contextmanager
def lossy_streams() -> Iterator[None]:
    """Have stdout and stderr take whatever is written to them; streams that somebody put in their place stay."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # A closed one must not become the number of the next file that is opened, such as a journal. It cannot be
            # written to, so that writing to it is known as a loss.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _lossy(before[0], 1), _lossy(before[1], 2)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _lossy(stream: TextIO | None, descriptor: int) -> TextIO:
    if stream is not None:
        if not isinstance(getattr(stream, "buffer", None), io.BufferedWriter | io.FileIO):
            return stream
        stream.flush()
        descriptor = stream.fileno()
    raw = _Lossy(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="backslashreplace",  # a name that the terminal has no letters for must not end the work
        line_buffering=descriptor == 2 or raw.isatty(),
    )
