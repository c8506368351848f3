"""How the command line shows things: JSON records, tables on a terminal, aligned plain text in a pipe."""

import sys
from collections.abc import Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["print_json", "print_table", "print_text"]


def print_json(record: object) -> None:
    """Write one JSON document to stdout."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n")


def print_text(text: str = "") -> None:
    """Write one line to stdout, as it is."""
    sys.stdout.write(text + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table to stdout: drawn on a terminal, aligned columns otherwise."""
    console = Console()  # respects NO_COLOR and asks whether stdout is a terminal
    if console.is_terminal:
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold cyan")
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*row)
        console.print(table, markup=False)
        return
    widths = [max(len(str(line[i])) for line in (columns, *rows)) for i in range(len(columns))]
    print_text(title)
    for line in (columns, *rows):
        print_text("  " + "  ".join(str(cell).ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip())
    print_text()
