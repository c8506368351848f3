"""`npu evaluate`: a model and data go in; whether it fits, what it costs and what accuracy it loses come out."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from .output import Json, print_json, print_table, print_text


def evaluate(
    model: Annotated[
        Path, typer.Argument(help=".onnx, a reservoir (.safetensors, .json), .mfp, or what was deployed.")
    ],
    inputs: Annotated[
        Path, typer.Option(help="Data that the model was not trained on: .npy, or .npz for several or for series.")
    ],
    targets: Annotated[Path, typer.Option(help="What it should say: words or whole numbers are classes, else reals.")],
    precision: Annotated[
        str, typer.Option(help="all, auto (up to the first within the tolerance), or names: W4A4,W8A8.")
    ] = "all",
    profile: Annotated[list[str] | None, typer.Option(help="Device profiles; default: all.")] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Accuracy, or NRMSE, that may be lost.")] = 0.01,
    held_out: Annotated[float, typer.Option(help="Share of the data that scores come from.")] = 0.5,
    washout: Annotated[int, typer.Option(min=0, help="Steps at the start of a series that do not count.")] = 0,
    labels: Annotated[str | None, typer.Option(help="Names of the classes in the order of outputs: a,b,c.")] = None,
    output: Annotated[str | None, typer.Option(help="The output to score, where there are several.")] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Inputs to measure ranges on; all of --inputs is then held out.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether a model fits the NPU, what it costs on every profile, and what accuracy each precision loses.

    Ranges are measured, and new readouts of a reservoir fitted, on one part of the data; scores and what is lost, with
    95 % intervals, come from the other. Costs are modelled. Exits with 1 where no precision is within the tolerance.
    """
    from metalforge.hybrid import evaluate as run_evaluation

    found = run_evaluation(
        model,
        inputs,
        targets,
        precision=precision,
        profiles=profile or None,
        tolerance=tolerance,
        held_out=held_out,
        washout=washout,
        labels=None if labels is None else labels.split(","),
        output=output,
        calibration=calibration,
    )
    if as_json:
        print_json(found)
    else:
        print_text(found.head() + "\n")
        for table in found.tables():
            print_table(table.title, table.columns, table.rows)
        for line in found.lines():
            print_text(line)
    if found.chosen is None:
        sys.stderr.write(f"{found.verdict()}\nhint: a larger --tolerance, or more bits: --precision W12A16\n")
        raise typer.Exit(1)
