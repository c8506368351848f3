"""What verbs that run for long share: a bar on stderr, and stopping at a border when asked to."""

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from metalforge.core import SpecError

from .output import given_options

if TYPE_CHECKING:
    from metalforge.lattice import Job
    from metalforge.plasma import PlasmaJob

Seed = Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Names the run, with --stream.")]
Stream = Annotated[int, typer.Option(min=0, max=2**32 - 1)]
Resume = Annotated[Path | None, typer.Option(help="Continue the run of this folder or checkpoint.")]
DifferentIsa = Annotated[
    bool,
    typer.Option("--allow-different-isa", help="Resume a run of another bit family; it will not go on bit for bit."),
]


def refuse_beside_resume(context: typer.Context, *allowed: str) -> None:
    """Refuse options that a resumed run has from its checkpoint: none is left out without a word."""
    fine = {"resume", "threads", "allow_different_isa", "as_json", *allowed}
    if given := given_options(context, *(set(context.params) - fine)):
        raise SpecError(
            f"a resumed run has {', '.join(given)} from its checkpoint\nhint: leave out what it has already"
        )


def refuse_existing(job: "Job | PlasmaJob", there: Path | None = None) -> None:
    """Refuse to begin a run where its trace or checkpoint is already; `there` is where it is resumed from."""
    if job.trace is not None and Path(job.trace).exists() and os.path.getsize(job.trace):
        raise SpecError(
            f"{job.trace} exists already, and a trace is of one run\nhint: another `--trace`, or move it away"
        )
    if job.checkpoint.exists():
        where = there or job.checkpoint
        raise SpecError(f"{job.checkpoint} exists already\nhint: continue it with `--resume {where}`, or move it away")


def end_interrupted(verb: str, done: str, checkpoint: Path) -> NoReturn:
    """Say how a run that was interrupted is continued, and end."""
    sys.stderr.write(
        f"interrupted after {done}; checkpoint: {checkpoint}\n"
        f"hint: continue with `metalforge {verb} --resume {checkpoint}`\n"
    )
    raise typer.Exit(130)


def kept_trace(path: str | None, lines: int, is_own: Callable[[dict[str, Any]], bool]) -> None:
    """Take from a trace what was written after its run's checkpoint, which is of so many lines: it comes again.

    A file whose last line until then is not the run's own is left as it is: a checkpoint may name any file.
    """
    if path is None or not Path(path).exists():
        return
    with open(path, "r+b") as file:
        last, end = b"", 0
        for line in itertools.islice(file, lines):
            if line.endswith(b"\n"):
                last, end = line, end + len(line)
        try:
            found = msgspec.json.decode(last or b"null")
        except msgspec.DecodeError:
            found = None
        # Of a run that was killed before its first line there is nothing to compare, and nothing to lose.
        if os.path.getsize(path) and not (isinstance(found, dict) and is_own(found)):
            raise SpecError(
                f"{path} is not the trace of this run, and is left as it is\nhint: move it away; a new one is begun"
            )
        file.truncate(end)


@contextmanager
def progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[], bool]]]:
    """Give what advances a bar on stderr (on a terminal alone) with a text, and whether the run is to stop.

    Ctrl-C or SIGTERM stops it at the next update's border. A second Ctrl-C is the usual.
    """
    stops: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        stops.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    task = bar.add_task("warm-up", total=total)
    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        with bar:
            yield lambda text: bar.update(task, advance=1, description=text), lambda: bool(stops)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def write_line(trace: TextIO, record: object) -> None:
    """Append one line of JSON to a trace."""
    trace.write(msgspec.json.encode(record).decode() + "\n")
