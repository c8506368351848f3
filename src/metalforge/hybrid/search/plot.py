"""A picture of a search: errors against modelled latency, energy as colour, and the front that nothing beats.

matplotlib's only home in this room; it draws to files and opens no window.
"""

from collections.abc import Sequence
from pathlib import Path

from metalforge.core import SpecError

from .choosing import Finalist, Point, front

SUFFIXES = (".png", ".svg", ".pdf")


def plot_pareto(
    path: Path, candidates: Sequence[Point], finalists: Sequence[Finalist], best: Finalist, *, title: str
) -> None:
    """Write the picture; its kind follows from the name of the file.

    Small dots are candidates in software, priced at one precision; large ones are finalists on the chip with the error
    they have there, coloured by energy; a ring marks the chosen one.
    """
    if path.suffix not in SUFFIXES:
        raise SpecError(f"{path}: a plot is written as {', '.join(SUFFIXES)}. Got `{path.suffix}`")
    if not candidates or not finalists:
        raise SpecError("a plot wants at least one candidate and one finalist. Got none")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)  # a canvas of its own: pyplot's state and the user's backend stay as they are
    axes = figure.add_subplot()
    profile, precision = candidates[0].latency.profile, candidates[0].precision
    micro = [1e6 * point.latency.value for point in candidates]
    axes.plot(
        micro, [p.error for p in candidates], ".", color="0.75", label=f"candidates, software ({precision} price)"
    )
    edge = front(candidates)
    axes.step(
        [1e6 * p.latency.value for p in edge], [p.error for p in edge], "-", where="post", color="0.4", label="front"
    )
    on_chip = axes.scatter(
        [1e6 * f.latency.value for f in finalists],
        [f.error_int4 for f in finalists],
        c=[1e6 * f.energy.value for f in finalists],
        cmap="viridis",
        s=50,
        zorder=3,
        label="finalists, int4 on the chip",
    )
    axes.plot(
        [1e6 * best.latency.value],
        [best.error_int4],
        "o",
        markersize=13,
        markerfacecolor="none",
        color="crimson",
        label=f"chosen: {best.parameters.units} units, {best.precision}",
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel(f"latency of a step in us (modelled: {profile})")
    axes.set_ylabel("NRMSE on validation data")
    axes.set_title(title)
    axes.legend(fontsize="small")
    figure.colorbar(on_chip, ax=axes, label=f"energy of a step in uJ (modelled: {profile})")
    figure.savefig(path, dpi=150)
