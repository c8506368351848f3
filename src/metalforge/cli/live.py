"""A campaign on a terminal, live, or as log lines in a pipe: both drawn from the same `View`, both on stderr.

On a terminal every line is one line, and all of them fit its height and width. From the top: how it stands and the time
left, the result by system, the rate, the budgets, the chains, the last decisions, the heads and the substrates. What is
always there comes first; chains and decisions share the lines that are left.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from metalforge.campaign import (
    BudgetView,
    ChainView,
    DecisionView,
    Evidence,
    SystemView,
    View,
    duration,
    number_text,
    system_name,
)

WIDTH, HEIGHT = 80, 24
"""The terminal that everything fits: the size of a VT100, and still what terminals open with."""
FRAME = 4
"""Columns of the frame and its padding."""
MOST_CHAINS = 12
"""Chains on a terminal: those that run, then those that ran last."""
MOST_DECISIONS = 6
"""Decisions on a terminal."""
MOST_VOLUMES = 4
STYLES = {"warm-up": "yellow", "cheap": "yellow", "measuring": "green", "abandoned": "red"}
SHORT = {"cheap warm-up": "cheap", "warmup-ends": "warm-up"}
"""Words for narrow columns."""
GOES_FIRST = ("on", "updates", "measured")
"""Columns that a narrow terminal can do without, the least important first."""


def render(view: View, *, width: int = WIDTH, height: int = HEIGHT) -> RenderableType:
    """Return the view as something rich can draw. All text is taken as it is: a name may hold brackets."""
    rate = f"{view.trajectories} updates, {view.per_second:.0f} per wall second, ordering {view.ordering}"
    above = [_headline(view), *map(_one_line, _volumes(view)), _one_line(Text(rate)), *_budget_bars(view)]
    where = "on " + ", ".join(view.substrates) if view.substrates else ""
    below = [_one_line(Text(line, style="dim")) for line in (view.heads, where) if line]
    # Two lines are the frame, two the titles of the tables, one says how many chains are not shown.
    chains, decisions = _share(view, height - len(above) - len(below) - 5)
    tables = [
        *([_chain_table(view, chains, width - FRAME)] if chains else []),
        *([_decision_table(view, decisions)] if decisions else []),
    ]
    title = Text(view.name, style="bold")
    frame = {"box": box.ROUNDED, "border_style": "cyan", "padding": (0, 1)}
    return Panel(Group(*above, *tables, *below), title=title, title_align="left", **frame)  # type: ignore[arg-type]


def _status_text(view: View) -> str:
    """Return whether it runs, and how it ended where it does not."""
    if view.status == "finished":
        return f"finished: {view.ending}"
    if view.status == "interrupted":
        return f"interrupted ({view.ending}); metalforge resume goes on"
    if view.status == "paused":
        return f"paused {view.ending}; metalforge control DIR resume goes on"
    if view.status == "silent":
        return f"no news for {duration(view.silent_s)}: {view.ending}"
    return "running"


def _left_text(view: View) -> str:
    """Return the time left with what ends it, after a comma; nothing where it is not known."""
    return "" if view.left_s is None else f", about {duration(view.left_s)} left ({view.ends_by})"


def _volume_text(view: View, volume: SystemView) -> Text:
    """Return what is found of a volume, or why there is nothing."""
    text, style = Text(f"{system_name(volume.system)}  "), "bold green" if volume.established else "yellow"
    if view.target != "peak":  # what there is, is in words
        text.append(volume.reason, style=style)
    elif volume.result is None:
        return text.append(f"{view.result_name} not located: {volume.reason}", style="yellow")
    else:
        text.append(f"{view.result_name} = {number_text(volume.result, volume.error)}", style=style)
    text.append(view.after_text(volume), style="yellow")
    if volume.established:
        return text.append(f", established: all {len(volume.evidence)} items of evidence hold")
    lacking = [item for item in volume.evidence if not item.holds]
    if not lacking:
        return text
    held = len(volume.evidence) - len(lacking)
    return text.append(f", not established: {held} of {len(volume.evidence)} hold; {_lacking_text(lacking)}")


def _lacking_text(items: Sequence[Evidence]) -> str:
    """Return what is lacking and how much of it there is, shortly."""
    return ", ".join(
        f"{item.name} {item.value if isinstance(item.value, str) else f'{item.value:.3g}'} of {item.needed:.3g}"
        if item.needed is not None
        else item.name
        for item in items
    )


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _share(view: View, lines: int) -> tuple[int, int]:
    """Return how many chains and decisions are shown on so many lines: two of three are the chains', if they want."""
    decisions = min(len(view.decisions), MOST_DECISIONS)
    chains = max(min(len(view.chains), MOST_CHAINS, lines - min(decisions, max(lines // 3, 2))), 0)
    return chains, max(min(decisions, lines - chains), 0)


def _headline(view: View) -> RenderableType:
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    style = {"finished": "green", "running": "cyan"}.get(view.status, "yellow")
    grid.add_row(Text(_status_text(view), style=style), Text(duration(view.elapsed_s) + _left_text(view)))
    return grid


def _volumes(view: View) -> list[Text]:
    lines = [_volume_text(view, volume) for volume in view.systems[:MOST_VOLUMES]]
    more = len(view.systems) - MOST_VOLUMES
    return [*lines, Text(f"and {more} more volume{'s' * (more != 1)}", style="dim")] if more > 0 else lines


def _budget_bars(view: View) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for budget in view.budgets:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=12, no_wrap=True)
        grid.add_column(width=24)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total=1.0, completed=budget.share, width=24)
        grid.add_row(Text(budget.name, style="dim"), bar, Text(_budget_text(budget)))
        lines.append(grid)
    return lines


def _budget_text(budget: BudgetView) -> str:
    if budget.used is None:
        return f"- / {budget.limit:g} {budget.unit}"
    used = f"{budget.used:.0f}" if budget.limit >= 10 else f"{budget.used:.2g}"
    return f"{used} / {budget.limit:g} {budget.unit}"


def _table(*, expand: bool = False) -> Table:
    return Table(box=None, header_style="bold cyan", padding=(0, 1, 0, 0), pad_edge=False, expand=expand)


def _chain_table(view: View, most: int, width: int) -> RenderableType:
    busy = [chain for chain in view.chains if chain.busy]
    rest = [chain for chain in view.chains if not chain.busy]
    shown = sorted([*busy, *reversed(rest)][:most], key=lambda c: (c.system, c.coordinate, c.id))
    columns = _columns(shown, view)
    for first in GOES_FIRST:
        if sum(max([len(name), *map(len, cells)]) + 1 for name, cells in columns.items()) > width:
            del columns[first]
    table = _table()
    for name in columns:
        words = name in ("chain", "phase", "on", view.words.system)
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
    for chain, *cells in zip(shown, *columns.values(), strict=True):
        table.add_row(*cells, style="" if chain.busy else "dim")
    more = len(view.chains) - len(shown)
    return Group(table, Text(f"and {more} more", style="dim")) if more else table


def _columns(shown: list[ChainView], view: View) -> dict[str, list[Text]]:
    """Return the columns of the chains, one for the system where there are several; rates are per producer second."""
    phases = [SHORT.get(chain.phase, chain.phase) for chain in shown]
    columns = {
        "chain": [Text(("> " if chain.busy else "  ") + chain.id) for chain in shown],
        view.coordinate: [Text(f"{chain.coordinate:.4f}") for chain in shown],
        "phase": [Text(phase, style=STYLES.get(phase, "")) for phase in phases],
        "on": [Text(chain.substrate) for chain in shown],
        "updates": [Text(str(chain.updates)) for chain in shown],
        "measured": [Text(str(chain.measured)) for chain in shown],
        "per CPU s": [Text(_figure(chain.per_second)) for chain in shown],
    }
    if len(view.systems) > 1 and view.words.system:
        columns[view.words.system] = [Text(system_name(chain.system)) for chain in shown]
    known = [{mean.label: mean.text for mean in chain.recent} for chain in shown]
    labels = dict.fromkeys(label for one in known for label in one)
    return columns | {label: [Text(one.get(label, "-")) for one in known] for label in labels}


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _decision_table(view: View, most: int) -> RenderableType:
    table = _table(expand=True)
    table.add_column("s", justify="right", no_wrap=True)
    for name in ("decided", "chain", view.coordinate, "by"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", ratio=1, no_wrap=True, overflow="ellipsis")
    for decision in view.decisions[len(view.decisions) - most :]:
        beta = "" if decision.coordinate is None else f"{decision.coordinate:.4f}"
        cells = (f"{decision.seconds:.0f}", _what(decision), decision.chain, beta, decision.by, decision.reason)
        table.add_row(*map(Text, cells))
    return table


def _what(decision: DecisionView) -> str:
    if decision.what == "visit":
        return "new" if decision.fresh else "more"
    return SHORT.get(decision.what, decision.what)


PER_SECOND = 4
"""Refreshes per second."""
PROGRESS_S = 5.0
"""Seconds of the campaign between two lines of progress in a pipe."""


def plain_lines(view: View, previous: View | None) -> list[str]:
    """Return the lines of a log for what is new in `view`: decisions, estimates, progress, the end."""
    stamp = f"{view.elapsed_s:7.1f} s  "
    lines = []
    if previous is None:
        low, high = view.range
        where = ", ".join(system_name(volume.system) for volume in view.systems)
        lines.append(
            f"{view.name}: {where}, {view.coordinate} {low:g} .. {high:g}, {view.algorithm}, ordering {view.ordering}"
        )
        lines += [f"{budget.name}: at most {budget.limit:g} {budget.unit}" for budget in view.budgets]
    if view.heads and view.visits and (previous is None or not previous.visits or view.heads != previous.heads):
        lines.append(stamp + view.heads)
    decisions, unseen = _new_decisions(view, previous)
    if unseen:
        lines.append(f"{stamp}{unseen} decisions before these")
    lines += [f"{d.seconds:7.1f} s  {d.what}, {d.by}: {_decision_text(d, view.coordinate)}" for d in decisions]
    before = {} if previous is None else {volume.system: volume for volume in previous.systems}
    for volume in view.systems:
        known = volume.result is not None or volume.error is not None
        if known and volume != before.get(volume.system):
            lines.append(stamp + _volume_text(view, volume).plain)
    due = previous is None or view.elapsed_s // PROGRESS_S > previous.elapsed_s // PROGRESS_S
    if view.status == "running" and due and view.trajectories:
        busy, rate = sum(chain.busy for chain in view.chains), f"{view.per_second:.0f} per wall second"
        run = f"{busy} of {len(view.chains)} chains run{_left_text(view)}"
        lines.append(f"{stamp}{view.trajectories} updates, {rate}, {run}")
    if view.status != "running" and (previous is None or previous.status == "running"):
        lines.append(stamp + _status_text(view))
    return lines


class LiveView:
    """Shows a campaign while the block runs: drawn over itself on a terminal, line by line in a pipe.

    With a `source` it asks it four times per second from a thread of its own; without one, `show` each view and `wait`.
    """

    def __init__(self, source: Callable[[], View] | None = None, *, stream: TextIO | None = None) -> None:
        self._source = source
        self._stream = sys.stderr if stream is None else stream
        self._console = Console(file=self._stream)  # respects NO_COLOR, asks whether it is a terminal
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


def _decision_text(decision: DecisionView, coordinate: str) -> str:
    """Return where something was decided and why."""
    where = f"{decision.chain} at {coordinate} {decision.coordinate:.5g}, " if decision.coordinate is not None else ""
    if decision.what == "visit":
        verb = "new chain" if decision.fresh else "continue"
        return f"{verb} {where}{decision.updates} updates: {decision.reason}"
    return f"{where}update {decision.updates}: {decision.reason}" if where else decision.reason


def _new_decisions(view: View, previous: View | None) -> tuple[list[DecisionView], int]:
    """Return the decisions since the previous view, and how many of them are no longer shown."""
    visits, decided = (0, 0) if previous is None else (previous.visits, previous.decided)
    new = [d for d in view.decisions if d.number >= (visits if d.what == "visit" else decided)]
    return new, view.visits - visits + view.decided - decided - len(new)
