"""What verbs that run for long share: a bar on stderr, and stopping at a border when asked to."""

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from metalforge.core import SpecError

Seed = Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Names the run, with --stream.")]
Stream = Annotated[int, typer.Option(min=0, max=2**32 - 1)]
Resume = Annotated[Path | None, typer.Option(help="Continue the run of this folder or checkpoint.")]
DifferentIsa = Annotated[
    bool,
    typer.Option("--allow-different-isa", help="Resume a run of another bit family; it will not go on bit for bit."),
]


def refuse_beside_resume(context: typer.Context, *allowed: str) -> None:
    """Refuse options that a resumed run has from its checkpoint: none is left out without a word."""
    given = [
        one.opts[0]
        for one in context.command.params
        if one.name not in ("resume", "threads", "allow_different_isa", "as_json", *allowed)
        and getattr(context.get_parameter_source(one.name or ""), "name", "") == "COMMANDLINE"
    ]
    if given:
        raise SpecError(
            f"a resumed run has {', '.join(given)} from its checkpoint\nhint: leave out what it has already"
        )


def refuse_existing(checkpoint: Path, there: Path) -> None:
    """Refuse to begin a run where a checkpoint is already; `there` is where it is resumed from."""
    if checkpoint.exists():
        raise SpecError(f"{checkpoint} exists already\nhint: continue it with `--resume {there}`, or move it away")


def end_interrupted(verb: str, done: str, checkpoint: Path) -> NoReturn:
    """Say how a run that was interrupted is continued, and end."""
    sys.stderr.write(
        f"interrupted after {done}; checkpoint: {checkpoint}\n"
        f"hint: continue with `metalforge {verb} --resume {checkpoint}`\n"
    )
    raise typer.Exit(130)


def new_trace(path: str | None) -> None:
    """Refuse a trace that is there already: a trace is of one run."""
    if path is not None and Path(path).exists() and os.path.getsize(path):
        raise SpecError(f"{path} exists already, and a trace is of one run\nhint: another `--trace`, or move it away")


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
def stop_flag() -> Iterator[list[int]]:
    """A list that Ctrl-C or SIGTERM fills: the run stops at the next update's border. A second Ctrl-C is the usual."""
    stops: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        stops.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def progress_bar() -> Progress:
    """Return a bar that shows on a terminal alone."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
