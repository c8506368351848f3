"""`search`: a task and bounds go in, a network within an accuracy and latency budget comes out."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metalforge.core import SpecError, naming

from .output import MOST_SEED, Json, Threads, print_json, print_table, print_text

if TYPE_CHECKING:
    from metalforge.hybrid import Finalist, SearchReport, SearchTask, StudyResult

EVERY_S = 1.0
"""Seconds between two lines of progress."""


def search(
    task: Annotated[
        str | None, typer.Option(help="narma10 (the default), mackey-glass (84 steps ahead) or lorenz.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="Your own series in place of a task: .npy, or .npz for different lengths.")
    ] = None,
    targets: Annotated[
        Path | None, typer.Option(help="What should be said of them: words or whole numbers are classes.")
    ] = None,
    washout: Annotated[int, typer.Option(min=0, help="Own series: steps at their start that do not count.")] = 0,
    trials: Annotated[int, typer.Option(min=1, help="Candidates in all, those already in the file included.")] = 1000,
    storage: Annotated[
        Path | None, typer.Option(help="SQLite file; an interrupted search goes on from it.", dir_okay=False)
    ] = None,
    profile: Annotated[str, typer.Option(help="Device profile for modelled costs.")] = "akd1000-published",
    max_latency: Annotated[
        float | None, typer.Option(min=0, help="Largest modelled seconds per step on the device.")
    ] = None,
    max_energy: Annotated[
        float | None, typer.Option(min=0, help="Largest modelled joules per step on the device.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="How much larger, by share, the int4 error may be than that in software.")
    ] = 0.1,
    finalists: Annotated[int, typer.Option(min=1, help="Candidates that are tried on the chip.")] = 8,
    fine_tune: Annotated[
        bool, typer.Option("--fine-tune", help="Go on learning on the device, from a stream.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the data, the networks and the search.")] = 1,
    threads: Threads = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for weights, program (.mfp), report and plot.", file_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Search reservoirs for a task, choose one on int4 hardware arithmetic, compile it.

    Errors are NRMSE on test data that no phase has seen. Latency and energy are modelled. Exits with 1 where no
    finalist is within the tolerance.
    """
    from metalforge.hybrid import SearchBudget, search_network

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    try:
        found = search_network(
            _task(task, inputs, targets, washout, seed),
            trials=trials,
            storage=storage,
            profile=profile,
            budget=SearchBudget(latency_s=max_latency, energy_j=max_energy),
            tolerance=tolerance,
            finalists=finalists,
            learn_on=fine_tune,
            seed=seed,
            threads=threads,
            out=out,
            progress=_Progress(trials),
            on_finalist=_finalist,
        )
    except KeyboardInterrupt:
        if storage is not None:
            sys.stderr.write(f"stopped; what was evaluated is in {storage}: the same command goes on from there\n")
        raise
    if as_json:
        report = found.report
        print_json({"candidates": report.candidates, "seconds": report.seconds.value, "best": report.best})
    else:
        _show(found.report, found.files)
    if not found.report.within_tolerance:
        sys.stderr.write(
            f"no finalist is within {tolerance:.0%} of its error in software on int4; the best one is given"
            "\nhint: a larger --tolerance or budget\n"
        )
        raise typer.Exit(1)


def _task(name: str | None, inputs: Path | None, targets: Path | None, washout: int, seed: int) -> "str | SearchTask":
    """Return what is searched for: a task by name, or the user's data."""
    if inputs is None and targets is None:
        return name or "narma10"
    if inputs is None or targets is None or name is not None:
        raise SpecError("a search is for a `--task`, or for data: `--inputs` and `--targets`, both")
    from metalforge.hybrid import data_task, loaded

    given, wanted = loaded(inputs), loaded(targets)
    with naming(f"{inputs} and {targets}"):
        return data_task(given, wanted, name=inputs.stem, washout=washout, seed=seed)


class _Progress:
    """Writes one line per second at most, and the last one."""

    def __init__(self, trials: int) -> None:
        self._trials, self._last = trials, 0.0

    def __call__(self, result: "StudyResult") -> None:
        now, done = time.monotonic(), len(result.finished)
        if now - self._last < EVERY_S and done < self._trials:
            return
        self._last = now
        best = f"{result.best.error:.4f}" if result.complete else "-"
        rate = done / result.seconds.value
        sys.stderr.write(f"[{done}/{self._trials}] best validation NRMSE {best}, {rate:.0f} candidates/s\n")


def _finalist(finalist: "Finalist") -> None:
    p = finalist.parameters
    verdict = "" if finalist.within_tolerance else ", above the tolerance"
    sys.stderr.write(
        f"on the chip: {p.units} units, {finalist.precision}: "
        f"{finalist.error:.4f} in software, {finalist.error_int4:.4f} int4{verdict}\n"
    )


def _show(report: "SearchReport", files: tuple[Path, ...]) -> None:
    best, p = report.best, report.best.params
    count = f"{report.candidates} candidates ({report.pruned} given up early)"
    print_text(f"{count} in {report.seconds}, {report.rate.value:.0f}/s")
    print_text(
        f"best: {p.units} units, {p.activation}, spectral radius {p.spectral_radius:.3f}, leak {p.leak:.3f}, "
        f"input {p.input_scaling:.3g}, bias {p.bias_scaling:.3g}, connectivity {p.connectivity:g}, "
        f"ridge {p.ridge:.2g}, heads {p.heads}"
    )
    print_text(f"per step on the device: {best.latency}, {best.energy}\n")
    rows = [
        ("searched, software f32", f"{best.error:.4f}"),
        (f"searched, int4 {report.precision}", f"{best.error_int4:.4f}"),
        ("default reservoir, 200 units", f"{report.baselines.default_reservoir:.4f}"),
        ("linear on 30 lags", f"{report.baselines.linear_on_lags:.4f}"),
    ]
    if report.fine_tuned is not None:
        tuned = report.fine_tuned
        rows.append(("readout on the chip, before the stream", f"{tuned.error_before:.4f}"))
        rows.append((f"and after {tuned.learning.steps} steps of it", f"{tuned.error_after:.4f}"))
    print_table(f"{report.task}: NRMSE on held-out data", ("model", "NRMSE"), rows)
    for path in files:
        print_text(f"wrote {path}")
