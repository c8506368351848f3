"""The look of figures: colours that colour-blind readers tell apart, quiet axes, and the bytes of a finished drawing.

Figures are made as objects, never through pyplot: there is no global figure list, so threads and tests cannot disturb
each other.
"""

import io
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from metalforge.core import Paragraphs

from .words import TEXTS

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Blue, vermilion, green, purple, orange, sky: the palette of Okabe and Ito (2008)."""
GREY = "#8a8f98"
INK = "#22262b"
STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "svg.hashsalt": "metalforge",  # the same drawing gives the same bytes
}


class Drawn(NamedTuple):
    """A figure with its file name (no suffix), its title and what it shows, in words.

    `section` names a part of the page where several figures are shown in their order.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    section: str = ""


def drawn(name: str, figure: Figure, paragraphs: Paragraphs | None = None, section: str = "", **figures: Any) -> Drawn:
    """Return a figure with its words, and these figures in them; `paragraphs` are those of a theory."""
    title, *caption = (paragraphs or TEXTS)(f"figures.{name}", **figures)
    return Drawn(name, title, " ".join(caption), figure, section)


styled = partial(matplotlib.rc_context, STYLE)
"""Draws in the style of the report inside a block."""


def axes_of(
    rows: int, columns: int, size: tuple[float, float], *, sharex: bool = False, heights: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `size` inches and its axes, row by row."""
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    grid = figure.subplots(rows, columns, sharex=sharex, squeeze=False, height_ratios=heights)
    axes = [axis for row in grid for axis in row]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(GREY)
        axis.tick_params(color=GREY, labelcolor=INK)
        axis.grid(True, color="#e6e8eb", linewidth=0.8)
        axis.set_axisbelow(True)
    return figure, axes


def png_bytes(figure: Figure) -> bytes:
    """Return the figure as PNG."""
    return _bytes(figure, "png", {"Software": None}, 180)


def svg_bytes(figure: Figure) -> bytes:
    """Return the figure as SVG; long histories in it are pictures."""
    return _bytes(figure, "svg", {"Date": None, "Creator": None}, 160)


def _bytes(figure: Figure, kind: str, metadata: dict[str, Any], dpi: int) -> bytes:
    stream = io.BytesIO()
    with styled():
        if (layout := figure.get_layout_engine()) is not None:
            # The arrangement is found once, not again for each format.
            layout.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(stream, format=kind, dpi=dpi, metadata=metadata)
    return stream.getvalue()
