"""Run the studies behind the tables: `python -m experiments list | run NAME | page NAME FILE`, from this repository."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from metalforge.cli.guard import guarded
from metalforge.cli.output import MOST_SEED, Json, print_json, print_records, print_table, print_text

from . import EXPERIMENTS, Settings, find_experiment
from .heads.commands import app as heads
from .markdown import run_line, to_markdown
from .protocol import aloud

app = typer.Typer(
    help="Studies with their tables.", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)
app.add_typer(heads, name="heads")

Name = Annotated[str, typer.Argument(help="Such as coverage or faults; `list` shows all.")]
Quick = Annotated[bool, typer.Option("--quick", help="A smaller run of the same kind, in seconds.")]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="The first of the seeds.")]
Shard = Annotated[str, typer.Option(help="Part i/n of a long one; parts add to one file. `table`: only what it has.")]
File = Annotated[str, typer.Option(help="That file; by default in the cache folder.")]


@app.command(name="list")
def list_experiments(as_json: Json = False) -> None:
    """Show the experiments and the question each answers."""
    columns, rows = ("name", "question"), [(e.name, e.question) for e in EXPERIMENTS.values()]
    print_records(as_json, [dict(zip(columns, row, strict=True)) for row in rows], "Experiments", columns, rows)


@app.command()
def run(
    name: Name,
    quick: Quick = False,
    seed: Seed = 1,
    shard: Shard = "",
    file: File = "",
    only: Annotated[str, typer.Option(help="Only the cases (and arms) of a long one whose name has this text.")] = "",
    as_json: Json = False,
) -> None:
    """Run an experiment and print its table; what it means stands below."""
    experiment = find_experiment(name)
    settings = Settings(seed=seed, quick=quick, shard=shard, file=file, only=only)
    result = experiment.run(settings, aloud)
    if as_json:
        print_json(result.table)
        return
    print_text(experiment.question + "\n")
    print_table(f"Experiment {name}", result.lines[0], result.lines[1:])
    for line in result.words:
        print_text(f"- {line}")
    if result.checks:
        print_table("What was asked", ("asked", "came", "passed"), result.answers)


@app.command()
def page(
    name: Name,
    path: Annotated[Path, typer.Argument(help="The page to write, such as docs/tables/faults.md.")],
    quick: Quick = False,
    seed: Seed = 1,
    shard: Shard = "",
    file: Annotated[str, typer.Option("--from", help="The file of one that runs in shards.")] = "",
) -> None:
    """Run an experiment and write its page of Markdown."""
    experiment = find_experiment(name)
    settings = Settings(seed=seed, quick=quick, shard=shard, file=file)
    # Results that are read from a file were made on other days and machines; the file says what it knows of them.
    ran = "" if settings.shard or settings.file else run_line()
    path.write_text(to_markdown(experiment, experiment.run(settings, aloud), settings, ran), encoding="utf-8")


def _called() -> int:
    try:
        app(prog_name="python -m experiments")
    except SystemExit as ended:  # how typer returns
        return ended.code if isinstance(ended.code, int) else 0
    return 0


def main() -> NoReturn:
    """Run the command line and exit."""
    sys.exit(guarded(_called))


if __name__ == "__main__":
    main()
