"""What verbs that run for long share: a bar on stderr, and stopping at a border when asked to."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


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
