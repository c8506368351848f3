"""`experiment list | run NAME`: reproducible experiments with their tables."""

from typing import Annotated

import typer

from .output import MOST_SEED, Json, print_json, print_records, print_table, print_text

app = typer.Typer(help="Reproducible experiments.", no_args_is_help=True, rich_markup_mode=None)


@app.command(name="list")
def list_experiments(as_json: Json = False) -> None:
    """Show the experiments and the question each answers."""
    from metalforge.experiments import EXPERIMENTS

    columns, rows = ("name", "question"), [(e.name, e.question) for e in EXPERIMENTS.values()]
    print_records(as_json, [dict(zip(columns, row, strict=True)) for row in rows], "Experiments", columns, rows)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="Such as 004 or parity; `experiment list` shows all.")],
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run of the same kind, in seconds.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="The first of the seeds.")] = 1,
    profile: Annotated[str, typer.Option(help="Device profile for modelled times.")] = "akd1000-published",
    shard: Annotated[str, typer.Option(help="Part i/n of a long experiment; parts add to one file.")] = "",
    file: Annotated[str, typer.Option(help="That file; by default in the cache folder.")] = "",
    only: Annotated[str, typer.Option(help="Only the cases (and arms) of a long one whose name has this text.")] = "",
    as_json: Json = False,
) -> None:
    """Run an experiment and print its rows; what they mean goes to the terminal beside them."""
    from metalforge.experiments import Settings, find_experiment
    from metalforge.experiments.protocol import aloud

    experiment = find_experiment(name)
    settings = Settings(seed=seed, quick=quick, profile=profile, shard=shard, file=file, only=only)
    result = experiment.run(settings, aloud)
    if as_json:
        print_json(result.rows)
        return
    print_text(experiment.question + "\n")
    head, *lines = result.lines
    print_table(f"Experiment {name}", head, lines)
    for line in result.words:
        print_text(f"- {line}")
    if result.checks:
        print_table("What was asked", ("asked", "came", "passed"), result.answers)
