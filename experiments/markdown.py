"""An experiment's result as a page of Markdown: `python -m metalforge.experiments.markdown NAME FILE [--quick]`."""

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from metalforge.core.pages import markdown_table
from metalforge.core.substrate import Kind
from metalforge.substrates import discover

from .protocol import Experiment, Result, Settings, aloud, find_experiment


def to_markdown(experiment: Experiment, result: Result, settings: Settings, ran: str = "") -> str:
    """Return a page: the question, how and when it was run, the table, what its words mean, what was asked and came."""
    quick = " --quick" if settings.quick else f" --shard {settings.shard}" if settings.shard else ""
    command = f"metalforge experiment run {experiment.name} --seed {settings.seed}{quick}"
    parts = [
        f"# Experiment {experiment.name}",
        experiment.question,
        f"Made by `python -m metalforge.experiments.markdown {experiment.name} FILE{quick}`; "
        f"`{command}` prints the same.",
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run an experiment and write its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("path", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shard", default="", help="of an experiment that runs in shards; `table`: what its file has")
    parser.add_argument("--from", dest="file", default="", help="the file of such an experiment")
    given = vars(parser.parse_args(arguments))
    found, path = find_experiment(given.pop("name")), given.pop("path")
    settings = Settings(**given)
    # Results that are read from a file were made on other days and machines; the file says what it knows of them.
    ran = "" if settings.shard or settings.file else run_line()
    path.write_text(to_markdown(found, found.run(settings, aloud), settings, ran), encoding="utf-8")


if __name__ == "__main__":
    main()
