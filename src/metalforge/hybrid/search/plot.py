"""A picture of a search: errors against modelled latency, energy as colour, and the front that nothing beats.

matplotlib's only home in this package; it draws to files and opens no window.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .choosing import Point, front

if TYPE_CHECKING:
    from .run import SearchReport


def plot_pareto(path: Path, candidates: Sequence[Point], report: "SearchReport") -> None:
    """Write the picture, PNG or SVG by the name of the file.

    Small dots are candidates in software, priced at one precision; large ones are finalists on the chip with the error
    they have there, coloured by energy; a ring marks the chosen one.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)  # a canvas of its own: pyplot's state and the user's backend stay as they are
    axes = figure.add_subplot()
    finalists, (chosen,) = report.finalists, [f for f in report.finalists if f.parameters == report.best.params]
    shown, edge = ([(1e6 * p.latency.value, p.error) for p in some] for some in (candidates, front(candidates)))
    axes.plot(
        *zip(*shown, strict=True), ".", color="0.75", label=f"candidates, software ({candidates[0].precision} price)"
    )
    axes.step(*zip(*edge, strict=True), "-", where="post", color="0.4", label="front")
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
        [1e6 * chosen.latency.value],
        [chosen.error_int4],
        "o",
        markersize=13,
        markerfacecolor="none",
        color="crimson",
        label=f"chosen: {chosen.parameters.units} units, {chosen.precision}",
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel(f"latency of a step in us (modelled: {report.profile})")
    axes.set_ylabel("NRMSE on validation data")
    axes.set_title(f"{report.task}: {report.candidates} candidates")
    axes.legend(fontsize="small")
    figure.colorbar(on_chip, ax=axes, label=f"energy of a step in uJ (modelled: {report.profile})")
    figure.savefig(path, dpi=150)
