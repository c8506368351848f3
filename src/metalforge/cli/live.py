"""A campaign on a terminal, live, or as log lines in a pipe: both drawn from the same `View`, both on stderr."""

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from metalforge.campaign.report.words import beta_text, duration, lattice_name
from metalforge.campaign.view import BudgetView, ChainView, DecisionView, View, VolumeView

__all__ = ["LiveView", "plain_lines", "render"]

PER_SECOND = 4
"""Refreshes a second."""
PROGRESS_S = 5.0
"""Seconds of the campaign between two lines of progress in a pipe."""
MOST_CHAINS = 12
"""Chains on a terminal: those that run, then those that ran last."""
MOST_DECISIONS = 6
"""Decisions on a terminal."""
STYLES = {"warm-up": "yellow", "quenched warm-up": "yellow", "measuring": "green", "abandoned": "red"}


def render(view: View) -> RenderableType:
    """Return the view as something rich can draw. All text is taken as it is: a name may hold brackets."""
    parts: list[RenderableType] = [_headline(view), _budget_bars(view)]
    if view.chains:
        parts += [Text(), _chain_table(view)]
    if view.decisions:
        parts += [Text(), _decision_table(view)]
    foot = [view.heads, "on " + ", ".join(view.substrates) if view.substrates else ""]
    if any(foot):
        parts.append(Text("\n" + "\n".join(line for line in foot if line), style="dim"))
    title = Text(f" {view.name} ", style="bold")
    return Panel(Group(*parts), title=title, title_align="left", box=box.ROUNDED, border_style="cyan", padding=(0, 1))


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
    lines += [f"{d.seconds:7.1f} s  {d.what}, {d.by}: {d.text}" for d in decisions]
    before = {} if previous is None else {volume.dims: volume for volume in previous.volumes}
    for volume in view.volumes:
        if volume.beta_c is not None and volume != before.get(volume.dims):
            lines.append(stamp + _volume_text(volume).plain)
    due = previous is None or view.elapsed_s // PROGRESS_S > previous.elapsed_s // PROGRESS_S
    if view.status == "running" and due and view.trajectories:
        lines.append(stamp + _progress_text(view))
    if view.status != "running" and (previous is None or previous.status == "running"):
        lines.append(stamp + _status_text(view))
    return lines


class LiveView:
    """Shows a campaign while the block runs: drawn over itself on a terminal, line by line in a pipe.

    With a `source` it asks it four times a second from a thread of its own; without one, `show` each view and `wait`.
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
            self._live.update(render(view), refresh=True)
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


def _headline(view: View) -> RenderableType:
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    status = Text(_status_text(view), style={"finished": "green", "running": "cyan"}.get(view.status, "yellow"))
    for i, volume in enumerate(view.volumes):
        grid.add_row(_volume_text(volume), status if i == 0 else Text())
    left = f", about {duration(view.left_s)} left ({view.ends_by})" if view.left_s is not None else ""
    ran = f"{duration(view.elapsed_s)}{left}"
    grid.add_row(Text(f"{view.trajectories} updates, {view.per_second:.0f} /s, ordering {view.ordering}"), Text(ran))
    return grid


def _volume_text(volume: VolumeView) -> Text:
    text = Text(f"{lattice_name(volume.dims)}  ")
    if volume.beta_c is None:
        return text.append(f"beta_c not located: {volume.reason}", style="yellow")
    text.append(f"beta_c = {beta_text(volume.beta_c, volume.error)}", style="bold green")
    return text.append("" if volume.height is None else f"  chi peak {volume.height:.3g}")


def _status_text(view: View) -> str:
    if view.status == "finished":
        return f"finished: {view.ending}"
    if view.status == "interrupted":
        return f"interrupted ({view.ending}); metalforge resume goes on"
    if view.status == "silent":
        return f"no news for {duration(view.silent_s)}: {view.ending}"
    return "running"


def _progress_text(view: View) -> str:
    busy = sum(chain.busy for chain in view.chains)
    left = "" if view.left_s is None else f", about {duration(view.left_s)} left ({view.ends_by})"
    return f"{view.trajectories} updates, {view.per_second:.0f} /s, {busy} of {len(view.chains)} chains run{left}"


def _budget_bars(view: View) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    for budget in view.budgets:
        grid.add_row(
            Text(budget.name, style="dim"),
            ProgressBar(total=1.0, completed=budget.share, width=32),
            Text(_budget_text(budget)),
        )
    return grid


def _budget_text(budget: BudgetView) -> str:
    if budget.used is None:
        return f"- / {budget.limit:g} {budget.unit}"
    used = f"{budget.used:.0f}" if budget.limit >= 10 else f"{budget.used:.2g}"
    return f"{used} / {budget.limit:g} {budget.unit}"


def _chain_table(view: View) -> RenderableType:
    busy = [chain for chain in view.chains if chain.busy]
    rest = [chain for chain in view.chains if not chain.busy]
    shown = [*busy, *reversed(rest)][:MOST_CHAINS]
    volumes = len(view.volumes) > 1
    hmc = any(chain.acceptance is not None for chain in shown)
    sea = any(chain.cg_iterations is not None for chain in shown)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", padding=(0, 1), show_edge=False)
    names = ["chain", "beta", "phase", "on", "updates", "measured", "updates/s"]
    names += ["lattice"] * volumes + ["accepted"] * hmc + ["CG"] * sea
    for name in names:
        table.add_column(name, justify="left" if name in ("chain", "phase", "on", "lattice") else "right", no_wrap=True)
    for chain in sorted(shown, key=lambda c: (c.dims, c.beta, c.id)):
        table.add_row(*_chain_cells(chain, volumes, hmc, sea), style="" if chain.busy else "dim")
    if len(view.chains) > len(shown):
        table.caption = Text(f"and {len(view.chains) - len(shown)} more")
        table.caption_justify = "left"
    return table


def _chain_cells(chain: ChainView, volumes: bool, hmc: bool, sea: bool) -> list[RenderableType]:
    cells: list[RenderableType] = [
        Text(("> " if chain.busy else "  ") + chain.id),
        f"{chain.beta:.4f}",
        Text(chain.phase, style=STYLES.get(chain.phase, "")),
        Text(chain.substrate),
        str(chain.updates),
        str(chain.measured),
        "-" if chain.per_second is None else f"{chain.per_second:.0f}",
    ]
    cells += [lattice_name(chain.dims)] * volumes
    cells += ["-" if chain.acceptance is None else f"{chain.acceptance:.0%}"] * hmc
    return cells + ["-" if chain.cg_iterations is None else f"{chain.cg_iterations:.0f}"] * sea


def _decision_table(view: View) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", padding=(0, 1), show_edge=False, expand=True)
    table.add_column("s", justify="right", no_wrap=True)
    table.add_column("decided", no_wrap=True)
    table.add_column("by", no_wrap=True)
    table.add_column("what and why", ratio=1)
    for decision in view.decisions[-MOST_DECISIONS:]:
        table.add_row(f"{decision.seconds:.0f}", Text(decision.what), Text(decision.by), Text(decision.text))
    return table


def _new_decisions(view: View, previous: View | None) -> tuple[list[DecisionView], int]:
    """Return the decisions since the previous view, and how many of them are no longer shown."""
    visits, decided = (0, 0) if previous is None else (previous.visits, previous.decided)
    new = [d for d in view.decisions if d.number >= (visits if d.what == "visit" else decided)]
    return new, view.visits - visits + view.decided - decided - len(new)
