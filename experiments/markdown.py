"""An experiment's result as a page of Markdown."""

import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from metalforge.core.pages import TextTable
from metalforge.core.substrate import Kind
from metalforge.substrates import discover

from .protocol import Experiment, Result, Settings


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Return a table whose first line is its head; a bar within a cell, as in |L|, would end it and is escaped."""
    head, *body = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *body])


def made_page(title: str, tables: Sequence[TextTable], command: str) -> str:
    """Return a page of Markdown with all tables; `command` is what makes it."""
    lines = [f"# {title}", "", f"Made by `{command}`. Do not edit.", ""]
    for table in tables:
        lines += [f"## {table.title}", "", table.note, "", markdown_table([table.columns, *table.rows]), ""]
    return "\n".join(lines)


def to_markdown(experiment: Experiment, result: Result, settings: Settings, ran: str = "") -> str:
    """Return a page: the question, how and when it was run, the table, what its words mean, what was asked and came."""
    quick = " --quick" if settings.quick else f" --shard {settings.shard}" if settings.shard else ""
    command = f"python -m experiments run {experiment.name} --seed {settings.seed}{quick}"
    parts = [
        f"# Experiment {experiment.name}",
        experiment.question,
        f"Made by `python -m experiments page {experiment.name} FILE{quick}`; `{command}` prints the same.",
        *([ran] if ran else []),
        markdown_table(result.lines),
        "\n".join(f"- {line}" for line in result.words),
    ]
    if result.checks:
        parts.append(markdown_table([("asked", "came", "holds"), *result.answers]))
    return "\n\n".join(parts) + "\n"


def run_line() -> str:
    """Return the day and the machine of a run that begins now; `tools/evidence.py` reads it."""
    here = [one.info for one in discover().substrates]
    cards = Counter(info.model for info in here if info.kind is Kind.GPU)
    cpu = next(info for info in here if info.kind is Kind.CPU)
    parts = [f"{os.cpu_count()} cores of {cpu.model}", *(f"{n} {model}" for model, n in cards.items())]
    return f"Ran on {datetime.now(UTC):%Y-%m-%d}, {', '.join(parts)}."
