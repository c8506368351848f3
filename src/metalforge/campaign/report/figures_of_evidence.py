"""The figures of what a peak rests on: the order parameter there, crossings, memory, overlap, and pulls."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from metalforge.campaign.analysis.agreement import Pulls
from metalforge.campaign.analysis.evidence import JUDGED_TAU, MIN_CROSSINGS, pull_limit
from metalforge.campaign.analysis.phases import TWO_PEAKS, Shape, density_of, shape_at, weights_at
from metalforge.campaign.analysis.selection import MeasuredChain
from metalforge.campaign.analysis.transition import Located, Transition
from metalforge.campaign.theory import TheoryWords
from metalforge.core import Paragraphs
from metalforge.statistics import Joint, with_error

from .drawing import COLOURS, GREY, INK, Drawn, axes_of, drawn
from .figure_data import PeakSupport, histogram_edges, memory_of, support_of
from .result import Results
from .words import system_math

Floats = NDArray[np.float64]
WIDTH = 6.2
"""Inches: narrow enough that the labels can be read on a telephone."""
SHOWN = 4
"""Chains nearest to the peak in a figure with a line for each."""


class ReportedPeak(NamedTuple):
    """A peak, the chains that were joined for it, in order, and how the order parameter is distributed there.

    `order` is the order parameter in words.
    """

    transition: Transition
    joint: Joint
    chains: tuple[MeasuredChain, ...]
    pulls: Pulls
    shape: Shape
    support: PeakSupport
    order: str
    words: TheoryWords

    def nearest(self, count: int) -> list[MeasuredChain]:
        """Return the chains nearest to the peak, in order; of those at one place the longest."""
        by_distance = sorted(self.chains, key=lambda c: (abs(c.coordinate - self.transition.result), -c.energy.size))
        return sorted(by_distance[:count], key=lambda c: c.coordinate)

    def label(self, chain: MeasuredChain) -> str:
        """Return what a chain is called in a figure."""
        start = f", {chain.point.start}" if chain.point.start else ""
        return f"{chain.point.chain}: {self.words.coordinate} = {chain.coordinate:.5g}{start}"

    @property
    def title(self) -> str:
        """What the system is called in a figure."""
        return system_math(self.transition.system)

    def mark(self, axis: Axes) -> None:
        """Shade the width of the peak."""
        found = self.transition
        axis.axvspan(found.result - found.width, found.result + found.width, color=GREY, alpha=0.15, lw=0)
        axis.axvline(found.result, color=GREY, lw=1, ls=":")


def draw_evidence(
    shown: Results,
    more: Mapping[str, "Panels"] = MappingProxyType({}),
    paragraphs: Paragraphs | None = None,
) -> list[Drawn]:
    """Return the figures, each with a panel or a row of them for every located system; none without a peak.

    `more` are those that a theory has besides, with its own words.
    """
    order, words = shown.theory.order.text, shown.words
    peaks = []
    for finding in shown.found.values():
        located: Located | None = finding.located
        if located is not None:
            shape = shape_at(located.joint, located.chains, located.transition.result)
            peaks.append(ReportedPeak(*located, shape, support_of(located, shape), order, words))
    made = []
    for name, kind in {**FIGURES, **more}.items() if peaks else ():
        size = (WIDTH, kind.height * len(peaks) + kind.margin)
        figure, axes = axes_of(kind.rows * len(peaks), kind.columns, size)
        panels = kind.rows * kind.columns
        for i, peak in enumerate(peaks):
            kind.draw(peak, *axes[panels * i : panels * (i + 1)])
        own = paragraphs if name in more else None
        made.append(drawn(name, figure, own, "evidence", order=order, two_peaks=TWO_PEAKS, judged=JUDGED_TAU))
    return made


def _histogram(peak: ReportedPeak, axis: Axes) -> None:
    values, weight = weights_at(peak.joint, peak.chains, peak.transition.result)
    edges = histogram_edges(values)
    for chain, colour in zip(peak.nearest(SHOWN), COLOURS, strict=False):
        look: dict[str, Any] = {"histtype": "step", "color": colour, "lw": 1.1, "label": peak.label(chain)}
        axis.hist(chain.order, edges.tolist(), density=True, **look)
    at, density = density_of(values, weight, peak.transition.n_effective)
    axis.plot(at, density, color=INK, lw=2, label=r"all, at the peak of $\chi$")
    title = f"{peak.title}: counted as {peak.shape.kind}"
    axis.set(xlim=(edges[0], None), xlabel=peak.order, ylabel="density", title=title)
    axis.legend(fontsize=8)


def _crossings(peak: ReportedPeak, history: Axes, counts: Axes) -> None:
    shown = peak.support
    (chain,) = peak.nearest(1)
    history.axhspan(shown.low, shown.high, color=COLOURS[4], alpha=0.25, lw=0, label="between the thresholds")
    history.plot(chain.order, color=COLOURS[0], lw=0.5, rasterized=True)
    marks = next(one.marks for one in shown.chains if one.chain == chain.point.chain)
    history.plot(marks, np.full(len(marks), shown.high), "|", ms=7, color=INK, label="crossing")
    history.set(xlim=(0, chain.order.size), ylim=(min(float(chain.order.min()), 0), None))
    history.set(xlabel="measured update", ylabel=peak.order, title=f"{peak.title}, {peak.label(chain)}")
    history.legend(fontsize=8, loc="upper right")
    peak.mark(counts)
    for one in shown.chains:
        counts.plot(one.coordinate, one.crossings, "o", ms=5, mec=COLOURS[0], mfc=COLOURS[0] if one.near else "white")
    together = sum(one.crossings for one in shown.chains if one.near)
    needed = f"{MIN_CROSSINGS:.0f} needed" if shown.two_phases else "one phase: none needed"
    counts.set_title(f"{together} together within the width of the peak; {needed}", fontsize=9)
    counts.set(ylim=(0, None), ylabel="crossings", xlabel=peak.words.axis)


def _autocorrelation(peak: ReportedPeak, axis: Axes) -> None:
    longest = 0
    for chain, colour in zip(peak.nearest(SHOWN), COLOURS, strict=False):
        if (found := memory_of(chain.order)) is None:
            continue
        longest = max(longest, found.rho.size - 1)
        memory = with_error(found.tau, found.tau_error) if found.tau_error else f"{found.tau:.3g}"
        axis.plot(found.rho, color=colour, lw=1.2, label=rf"{peak.label(chain)}, $\tau$ = {memory}")
        if found.window < found.rho.size:
            axis.plot(found.window, found.rho[found.window], "o", ms=5, color=colour)
    axis.axhline(0, color=GREY, lw=0.8)
    label = rf"$\rho$ of {peak.order}"
    axis.set(xlim=(0, max(longest, 1)), xlabel="distance in updates", ylabel=label, title=peak.title)
    axis.legend(fontsize=8)


def _overlap(peak: ReportedPeak, shared: Axes, samples: Axes) -> None:
    shown = peak.support
    for low, high, value in shown.overlaps:
        shared.plot([low, high], [value, value], "-", color=COLOURS[0], lw=2)
    shared.axhline(shown.needed, color=INK, lw=1, ls="--", label=f"needed at the peak: {shown.needed:g}")
    shared.set(ylim=(0, 1), ylabel="overlap in E", title=peak.title)
    coordinate = [chain.coordinate for chain in shown.chains]
    own, carried = ([getattr(chain, name) for chain in shown.chains] for name in ("own", "carried"))
    samples.plot(coordinate, own, "o", ms=5, mec=COLOURS[0], mfc="white", label="the chain's own")
    samples.plot(coordinate, carried, "o", ms=5, color=COLOURS[1], label="carried to the peak")
    samples.set(ylim=(0, None), ylabel="effective samples", xlabel=peak.words.axis)
    for axis in (shared, samples):
        peak.mark(axis)
        axis.legend(fontsize=8)


def _pulls(peak: ReportedPeak, axis: Axes) -> None:
    coordinate = np.array([chain.coordinate for chain in peak.chains])
    off = peak.pulls
    judged = off.length >= JUDGED_TAU
    # Signs at one place would hide each other.
    aside = 0.006 * max(float(np.ptp(coordinate)), 1e-3)
    pulls = [(r"$\chi$", off.chi, "o"), ("E", off.energy, "s"), (peak.order, off.order, "^")]
    if off.share is not None:
        pulls.append(("time above", off.share, "D"))
    for i, (name, values, marker) in enumerate(pulls):
        place, colour = coordinate + (i - 1) * aside, COLOURS[i]
        axis.plot(place[judged], values[judged], marker, ms=5, color=colour, label=name)
        axis.plot(place[~judged], values[~judged], marker, ms=5, mec=colour, mfc="white")
    limit = pull_limit(max(int(judged.sum()), 1))
    for level in (-limit, limit):
        axis.axhline(level, color=INK, lw=1, ls="--")
    axis.axhline(0, color=GREY, lw=0.8)
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, -1.2 * limit), max(high, 1.2 * limit))
    peak.mark(axis)
    axis.set(xlabel=peak.words.axis, ylabel="pull [errors]", title=peak.title)
    axis.legend(ncols=4, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1))


class Panels(NamedTuple):
    """How the panels of one peak are drawn: by whom, how high they are together, how many in rows and columns."""

    draw: Callable[..., None]
    height: float
    margin: float
    rows: int = 1
    columns: int = 1


FIGURES = {
    "order-histogram": Panels(_histogram, 2.9, 0.3),
    "crossings": Panels(_crossings, 4.1, 0.2, rows=2),
    "autocorrelation": Panels(_autocorrelation, 2.7, 0.3),
    "overlap": Panels(_overlap, 4.3, 0.2, rows=2),
    "pulls": Panels(_pulls, 2.7, 0.3),
}
"""The figures by name, in the order of the page."""
