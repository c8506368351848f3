"""A campaign on a terminal, live, or as log lines in a pipe: both drawn from the same `View`, both on stderr."""

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live

from metalforge.campaign.report.words import lattice_name
from metalforge.campaign.view import DecisionView, View

from .live_screen import left_text, render, status_text, volume_text

__all__ = ["LiveView", "plain_lines"]

PER_SECOND = 4
"""Refreshes per second."""
PROGRESS_S = 5.0
"""Seconds of the campaign between two lines of progress in a pipe."""


def plain_lines(view: View, previous: View | None) -> list[str]:
    """Return the lines of a log for what is new in `view`: decisions, estimates, progress, the end."""
    stamp = f"{view.elapsed_s:7.1f} s  "
    lines = []
    if previous is None:
        low, high = view.beta_range
        where = ", ".join(lattice_name(volume.dims) for volume in view.volumes)
        lines.append(f"{view.name}: {where}, beta {low:g} .. {high:g}, {view.algorithm}, ordering {view.ordering}")
        lines += [f"{budget.name}: at most {budget.limit:g} {budget.unit}" for budget in view.budgets]
    if view.heads and view.visits and (previous is None or not previous.visits):
        lines.append(stamp + view.heads)
    decisions, unseen = _new_decisions(view, previous)
    if unseen:
        lines.append(f"{stamp}{unseen} decisions before these")
    lines += [f"{d.seconds:7.1f} s  {d.what}, {d.by}: {_decision_text(d)}" for d in decisions]
    before = {} if previous is None else {volume.dims: volume for volume in previous.volumes}
    for volume in view.volumes:
        if volume.beta_c is not None and volume != before.get(volume.dims):
            lines.append(stamp + volume_text(volume).plain)
    due = previous is None or view.elapsed_s // PROGRESS_S > previous.elapsed_s // PROGRESS_S
    if view.status == "running" and due and view.trajectories:
        lines.append(stamp + _progress_text(view))
    if view.status != "running" and (previous is None or previous.status == "running"):
        lines.append(stamp + status_text(view))
    return lines


class LiveView:
    """Shows a campaign while the block runs: drawn over itself on a terminal, line by line in a pipe.

    With a `source` it asks it four times per second from a thread of its own; without one, `show` each view and `wait`.
    """

    def __init__(self, source: Callable[[], View] | None = None, *, stream: TextIO | None = None) -> None:
        self._source = source
        self._stream = sys.stderr if stream is None else stream
        self._console = Console(file=self._stream)  # respects NO_COLOR, asks whether it is a terminal
        self._view: View | None = None
        self._said: View | None = None
        self._live: Live | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        if self._source is not None:
            self._thread = threading.Thread(target=self._refresh, name="live-view", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if self._source is not None and error is None:
                self.show(self._source())
        finally:
            if self._live is not None:
                self._live.stop()

    def show(self, view: View) -> None:
        """Draw a view, or say what is new in it."""
        self._view = view
        if self._live is not None:
            width, height = self._console.size
            self._live.update(render(view, width=width, height=height), refresh=True)
            return
        lines = plain_lines(view, self._said)
        self._said = view
        if lines:
            self._stream.write("".join(line + "\n" for line in lines))
            self._stream.flush()

    def wait(self) -> None:
        """Return when the next view is due."""
        self._over.wait(1 / PER_SECOND)

    def _refresh(self) -> None:
        assert self._source is not None
        while not self._over.wait(1 / PER_SECOND):
            self.show(self._source())


def _progress_text(view: View) -> str:
    busy = sum(chain.busy for chain in view.chains)
    rate = f"{view.per_second:.0f} per wall second"
    return f"{view.trajectories} updates, {rate}, {busy} of {len(view.chains)} chains run{left_text(view)}"


def _decision_text(decision: DecisionView) -> str:
    """Return where something was decided and why."""
    where = f"{decision.chain} at beta {decision.beta:.5g}, " if decision.beta is not None else ""
    if decision.what == "visit":
        verb = "new chain" if decision.fresh else "continue"
        return f"{verb} {where}{decision.updates} updates: {decision.reason}"
    return f"{where}update {decision.updates}: {decision.reason}" if where else decision.reason


def _new_decisions(view: View, previous: View | None) -> tuple[list[DecisionView], int]:
    """Return the decisions since the previous view, and how many of them are no longer shown."""
    visits, decided = (0, 0) if previous is None else (previous.visits, previous.decided)
    new = [d for d in view.decisions if d.number >= (visits if d.what == "visit" else decided)]
    return new, view.visits - visits + view.decided - decided - len(new)
