"""`experiment list | run NAME`: reproducible experiments with their tables."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .machine import Json
from .output import print_json, print_table, print_text

if TYPE_CHECKING:
    from metalforge.experiments import Row

__all__ = ["app"]

app = typer.Typer(help="Reproducible experiments.", no_args_is_help=True, rich_markup_mode=None)


@app.command(name="list")
def list_experiments(as_json: Json = False) -> None:
    """Show the experiments and the question each answers."""
    from metalforge.experiments import EXPERIMENTS

    if as_json:
        print_json([{"name": e.name, "question": e.question} for e in EXPERIMENTS.values()])
    else:
        print_table("Experiments", ("name", "question"), [(e.name, e.question) for e in EXPERIMENTS.values()])


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="Such as 004 or parity; `experiment list` shows all.")],
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run of the same kind, in seconds.")] = False,
    seed: Annotated[int, typer.Option(help="The first of the seeds.")] = 1,
    profile: Annotated[str, typer.Option(help="Device profile for modelled times.")] = "akd1000-published",
    shard: Annotated[str, typer.Option(help="Part i/n of a long experiment; parts add to one file.")] = "",
    file: Annotated[str, typer.Option(help="That file; by default in the cache folder.")] = "",
    as_json: Json = False,
) -> None:
    """Run an experiment and print its rows; what they mean goes to the terminal beside them."""
    from metalforge.experiments import Settings, find_experiment

    experiment = find_experiment(name)
    result = experiment.run(Settings(seed=seed, quick=quick, profile=profile, shard=shard, file=file), _progress)
    if as_json:
        print_json(result.rows)
        return
    print_text(experiment.question + "\n")
    table = result.table or _plain(result.rows)
    print_table(f"Experiment {name}", table[0], table[1:])
    for line in result.words:
        print_text(f"- {line}")
    if result.checks:
        checks = [(asked, came, "yes" if passed else "no") for asked, came, passed in result.checks]
        print_table("What was asked", ("asked", "came", "passed"), checks)


def _plain(rows: "Sequence[Row]") -> tuple[tuple[str, ...], ...]:
    """Return the rows as they are, for a reader."""
    head = ("task", "approach", "precision", "metric", "value", "interval", "gap")
    lines = [
        (r.task, r.approach, r.precision, r.metric, f"{r.value:.4f}", f"{r.low:.4f} .. {r.high:.4f}", f"{r.gap:+.4f}")
        for r in rows
    ]
    return (head, *lines)


def _progress(done: int, total: int, what: str) -> None:
    sys.stderr.write(f"[{done + 1}/{total}] {what}\n")
