"""The figures of how a campaign went: updates, errors, decisions, the pipeline, and when silicon worked."""

from collections.abc import Iterator

import numpy as np
from matplotlib.ticker import MaxNLocator

from metalforge.campaign.state import CampaignState

from .drawing import COLOURS, GREY, INK, Drawn, axes_of, drawn
from .figure_data import PipelineFigure, SiliconFigure, pipeline_figure, silicon_figure
from .result import Results
from .words import system_math

EDGES = {"": (GREY, "-"), "put": (COLOURS[1], "--"), "get": (COLOURS[0], ":")}
"""Colour and line of an edge, by who waits there."""
MOST_LABELS = 40
"""Labels that can be written below bars and still be read."""


def draw_run(shown: Results) -> Iterator[Drawn]:
    """Give the figures that there are data for."""
    state = shown.state
    if state.trajectories:
        yield _updates(shown)
    if sum(estimate.error is not None for estimate in state.estimates) > 1:
        yield _error(state)
    if state.visits:
        yield _timeline(state)
    if (graph := pipeline_figure(state)) is not None and graph.edges:
        yield _pipeline(graph)
    silicon = silicon_figure(state)
    if any(lane.began for lane in silicon.lanes):
        yield _silicon(silicon)


def _updates(shown: Results) -> Drawn:
    systems = [volume for volume in shown.systems if volume.chains]
    figure, axes = axes_of(len(systems), 1, (8.2, 2.5 * len(systems) + 0.6))
    for axis, volume in zip(axes, systems, strict=True):
        rows = [chain for chain in shown.chains if chain.system == volume.system]
        place = np.arange(len(rows))
        cheap = np.array([chain.cheap for chain in rows])
        warm = np.array([chain.warmup for chain in rows])
        measured = np.array([chain.measured for chain in rows])
        if cheap.any():
            axis.bar(place, cheap, color=COLOURS[5], label="cheap warm-up")
        axis.bar(place, warm, bottom=cheap, color=COLOURS[4], label="warm-up")
        axis.bar(place, measured, bottom=cheap + warm, color=COLOURS[0], label="measured")
        every = max(1, -(-len(rows) // MOST_LABELS))
        axis.set_xticks(place[::every], [f"{chain.coordinate:.4f}" for chain in rows][::every], rotation=90, fontsize=8)
        axis.set_ylabel("updates")
        axis.grid(False, axis="x")
        axis.set(title=system_math(volume.system), xlim=(-0.7, len(rows) - 0.3))
        found = volume.transition
        if found is not None:
            at = np.interp(found.result, [chain.coordinate for chain in rows], place)
            axis.axvline(at, color=COLOURS[1], ls="--", lw=1.2, label=shown.words.found)
    axes[-1].set_xlabel(f"{shown.words.coordinate} of each {shown.words.chain}, in order")
    axes[0].legend(ncols=4, loc="lower right", bbox_to_anchor=(1, 1))
    return drawn("updates", figure, found=shown.words.found)


def _error(state: CampaignState) -> Drawn:
    figure, (axis,) = axes_of(1, 1, (7.4, 3.6))
    words = state.spec.theory.words
    for system, colour in zip(state.spec.theory.systems, COLOURS, strict=False):
        found = [(e.trajectories, e.error) for e in state.estimates if e.system == system and e.error is not None]
        if not found:
            continue
        n, error = (np.array(column, dtype=float) for column in zip(*found, strict=True))
        axis.plot(n, error, "o-", ms=4, lw=1, color=colour, label=system_math(system))
        if n.size > 1:
            guide = float(np.exp(np.mean(np.log(error * np.sqrt(n)))))
            ends = np.array([n[0], n[-1]])
            axis.plot(ends, guide / np.sqrt(ends), color=GREY, lw=1, ls=":")
    if (target := state.spec.budget.target_error) is not None:
        axis.axhline(target, color=INK, lw=1.2, ls="--", label=f"target {target:g}")
    axis.set(xscale="log", yscale="log", xlabel="updates of all chains, warm-up too", ylabel=f"error {words.error_of}")
    axis.legend()
    return drawn("error", figure, error_of=words.error_of)


def _timeline(state: CampaignState) -> Drawn:
    systems, words = state.spec.theory.systems, state.spec.theory.words
    figure, axes = axes_of(len(systems), 1, (8.2, 2.7 * len(systems) + 0.4), sharex=True)
    for axis, system in zip(axes, systems, strict=True):
        visits = [visit for visit in state.visits if visit.system == system]
        for fresh, marker, label in ((True, "o", "new chain"), (False, "s", "chain continued")):
            chosen = [visit for visit in visits if visit.fresh == fresh]
            axis.plot(
                [visit.visit for visit in chosen],
                [visit.coordinate for visit in chosen],
                marker,
                ms=5,
                color=COLOURS[0],
                mfc=COLOURS[0] if fresh else "white",
                label=label,
            )
        steps = [(visit.at, visit.visit) for visit in state.visits]
        found = [e for e in state.estimates if e.system == system and e.result is not None and e.error is not None]
        if found:
            at = np.array([sum(time <= e.at for time, _ in steps) for e in found], dtype=float)
            value = np.array([e.result for e in found], dtype=float)
            error = np.array([e.error for e in found], dtype=float)
            axis.fill_between(at, value - error, value + error, color=COLOURS[1], alpha=0.25, lw=0)
            axis.plot(at, value, ".-", color=COLOURS[1], lw=1.2, ms=5, label=f"{words.found} so far")
        axis.set(
            ylabel=state.spec.theory.coordinate,
            ylim=(state.spec.theory.low, state.spec.theory.high),
            title=system_math(system),
        )
    axes[-1].set_xlabel("visit, in the order of decisions")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].legend(ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    return drawn("decisions", figure, found=words.found)


def _pipeline(shown: PipelineFigure) -> Drawn:
    columns = 1 + max(stage.column for stage in shown.stages)
    rows = 1 + max(stage.row for stage in shown.stages)
    figure, (axis,) = axes_of(1, 1, (8.2, 0.95 * rows + 0.8))
    place = {stage.name: (stage.column, -stage.row) for stage in shown.stages}
    for edge in shown.edges:
        if {edge.source, edge.target} <= place.keys():
            colour, style = EDGES[edge.blocked]
            bent = "arc3,rad=0.3" if edge.feedback else "arc3,rad=0"
            look = {"arrowstyle": "->", "color": colour, "ls": style, "connectionstyle": bent}
            axis.annotate("", place[edge.target], place[edge.source], arrowprops={**look, "shrinkA": 34, "shrinkB": 34})
    for stage in shown.stages:
        rate = "" if stage.per_second is None else f"\n{stage.per_second:.3g} items/s, busy {stage.busy or 0.0:.0%}"
        box = {"boxstyle": "round", "fc": "white", "ec": COLOURS[1] if stage.slowest else GREY}
        text = f"{stage.name}{rate}".replace("$", r"\$")
        axis.text(*place[stage.name], text, ha="center", va="center", fontsize=7, bbox=box)
    axis.set(xlim=(-0.6, columns - 0.4), ylim=(0.6 - rows, 0.6), title=shown.bottleneck.replace("$", r"\$"))
    axis.set_axis_off()
    return drawn("pipeline", figure, window=shown.window_s)


def _silicon(shown: SiliconFigure) -> Drawn:
    size = (8.2, 0.32 * len(shown.lanes) + 3.2)
    figure, (work, spent) = axes_of(2, 1, size, sharex=True, heights=(0.32 * len(shown.lanes) + 0.3, 2))
    for row, lane in enumerate(shown.lanes):
        bars = [(began, ended - began) for began, ended in zip(lane.began, lane.ended, strict=True)]
        colour = COLOURS[row % len(COLOURS)]
        face, hatch = ("white", "////") if lane.emulated else (colour, None)
        work.broken_barh(bars, (row - 0.35, 0.7), facecolor=face, edgecolor=colour, lw=0.3, hatch=hatch)
    shares = ["" if lane.at_once is None else f" ({lane.at_once:.0%})" for lane in shown.lanes]
    names = [lane.name + share for lane, share in zip(shown.lanes, shares, strict=True)]
    work.set_yticks(range(len(names)), names, fontsize=8)
    work.invert_yaxis()
    for number, line in enumerate(shown.energy):
        style = "-" if line.source == "measured" else "--"
        label = f"{line.substrate}, {line.source}"
        spent.plot(line.seconds, line.joules, style, marker=".", color=COLOURS[number % len(COLOURS)], label=label)
    for axis in (work, spent):
        for at in shown.rewired:
            axis.axvline(at, color=INK, lw=0.8, ls=":")
    spent.set(xlabel="seconds since the campaign began", ylabel="energy [J]", ylim=(0, None))
    spent.set_xlim(shown.low, max(shown.high, shown.low + 1e-3))
    if shown.energy:
        spent.legend(fontsize=8)
    return drawn("silicon", figure)
