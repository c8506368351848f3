"""`pipeline check|show|run`: a topology file is checked, drawn, run."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .output import MOST_SEED, Json, print_json, print_table, print_text

app = typer.Typer(help="Streaming pipelines from a topology file.", no_args_is_help=True, rich_markup_mode=None)

File = Annotated[Path, typer.Argument(help="A topology in TOML.")]


def _load(path: Path) -> Any:
    from metalforge.pipeline import read_pipeline
    from metalforge.substrates import discover

    # Stages that lie beside the file, or in the folder one works in, can be named.
    sys.path[:0] = [str(path.resolve().parent), str(Path.cwd())]
    found = {s.info.name: s for s in discover().substrates}
    return read_pipeline(path, found)


@app.command()
def check(topology: File, as_json: Json = False) -> None:
    """Say whether a topology can run: names, types, capabilities, cycles, losses."""
    from metalforge.pipeline import GraphError

    problems: tuple[str, ...] = ()
    try:
        _load(topology)
    except GraphError as error:
        problems = error.problems
    if as_json:
        print_json({"topology": str(topology), "accepted": not problems, "problems": list(problems)})
    else:
        print_text(f"{topology}: " + ("accepted" if not problems else "refused"))
        for problem in problems:
            print_text(f"- {problem}")
    if problems:
        raise typer.Exit(1)


@app.command()
def show(
    topology: File, mermaid: Annotated[bool, typer.Option("--mermaid", help="A flowchart for a page.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Draw a topology as text or Mermaid."""
    pipeline = _load(topology)
    if as_json:
        print_json({"text": pipeline.show(), "mermaid": pipeline.show("mermaid")})
    else:
        print_text(pipeline.show("mermaid" if mermaid else "text"))


@app.command()
def run(
    topology: File,
    runtime: Annotated[str, typer.Option(help="threads, ray, or inline: one thread in a seeded order.")] = "threads",
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the inline runtime.")] = 0,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Drain after so long; default: until the input ends.")
    ] = None,
    events: Annotated[Path | None, typer.Option(help="Write what happens to this file, as lines of JSON.")] = None,
    as_json: Json = False,
) -> None:
    """Run a topology to the end of its input; Ctrl-C drains it. Metrics go to stdout."""
    from metalforge.pipeline import EventLog, bottleneck

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    pipeline, log = _load(topology), None if events is None else EventLog(events)
    options: dict[str, Any] = {"seed": seed} if runtime == "inline" else {}
    # One that comes while the run is being started must wait until there is a run to drain.
    early: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: early.append(number))
    with pipeline.start(runtime, events=log, **options) as running:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if early:
            raise KeyboardInterrupt
        if not running.wait(seconds):
            running.drain(patience_s=running.patience_s)
    metrics = running.snapshot()
    if as_json:
        print_json({"status": running.status, "stages": list(metrics.values()), "edges": running.edges()})
        return
    print_table(
        f"{topology}: {running.status}",
        ("stage", "items", "per second", "p50 ms", "p99 ms", "busy", "blocked get", "blocked put", "lost", "failed"),
        [
            (
                m.stage,
                str(m.items_processed),
                f"{m.throughput_per_s:.4g}",
                "-" if m.latency_p50_ms is None else f"{m.latency_p50_ms:.3g}",
                "-" if m.latency_p99_ms is None else f"{m.latency_p99_ms:.3g}",
                f"{m.utilization:.0%}",
                f"{m.blocked_get_s:.3g} s",
                f"{m.blocked_put_s:.3g} s",
                str(m.dropped + m.overwritten),
                str(m.failed),
            )
            for m in metrics.values()
        ],
    )
    if (slowest := bottleneck(metrics.values())) is not None:
        print_text(f"the bottleneck is {slowest}")
