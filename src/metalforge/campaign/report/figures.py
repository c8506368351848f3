"""The figures of a result: curves along the coordinate of one campaign or several, histories, and several systems."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes

from metalforge.core import Paragraphs
from metalforge.statistics import Estimate, Value, with_error

from .drawing import COLOURS, GREY, INK, Drawn, axes_of, drawn, styled
from .figures_of_run import draw_run
from .parts import ComparedCampaign, TransitionFigure, apart
from .result import Results, in_order
from .words import say, system_math, system_text

Measured: TypeAlias = Estimate | Value
HISTORIES = 6
"""Chains whose histories are shown: the one nearest the peak, and others spread over the range."""
FEW = 200
"""Updates of a history up to which each has a dot."""


def draw_all(shown: Results, beside: Sequence[ComparedCampaign] = ()) -> list[Drawn]:
    """Return every figure that this campaign has data for; `beside` are campaigns that it is compared with."""
    with styled():
        figures = [(campaign.name, campaign.figure) for campaign in beside]
        compared = [draw_curves("compared", figures)] if beside and not apart(beside) else []
        return [*shown.theory.report.draw(shown), *compared, *draw_run(shown)]


def draw_main(shown: Results) -> Drawn | None:
    """Return the one figure that says most; None without data."""
    with styled():
        return next(shown.theory.report.draw(shown), None)


def draw_transition(shown: Results) -> Iterator[Drawn]:
    """Give the figure of a peak, where any chain is long enough."""
    if any(chain.chi is not None for chain in shown.chains):
        figure, order = shown.theory.report.figure(shown), shown.theory.order
        chi = rf"$\chi = {order.volume}\,(\langle {order.square} \rangle - \langle {order.math} \rangle^2)$"
        published = "".join(say("captions.published", known=known) for known in figure.published)
        labels = (rf"$\langle {order.math} \rangle$", chi)
        yield draw_curves("transition", [("", figure)], labels, order=order.text, published=published)


def draw_curves(
    name: str,
    campaigns: Sequence[tuple[str, TransitionFigure]],
    labels: Sequence[str] = (),
    paragraphs: Paragraphs | None = None,
    scale: str = "linear",
    **figures: Any,
) -> Drawn:
    """Draw what campaigns found along one coordinate in the same axes: points, curves with bands, what is located.

    There is an axis for the order parameter and for chi where it has a label: one of `labels`, or of `words.shows`.
    What is published is drawn where it is a single campaign's figure.
    """
    words = campaigns[0][1].words
    shows = {pick: label for pick, label in zip(("order", "chi"), labels or words.shows, strict=True) if label}
    drawing, axes = axes_of(len(shows), 1, (6.2, 3.2 * len(shows) + 0.6), sharex=True)
    for axis, (pick, label) in zip(axes, shows.items(), strict=True):
        series = [(campaign, system) for campaign, figure in campaigns for system in figure.systems]
        for number, (campaign, system) in enumerate(series):
            colour, marker = COLOURS[number % len(COLOURS)], "os^Dvp"[number % 6] if len(campaigns) > 1 else "o"
            name_of = (f"{campaign}, ".replace("$", r"\$") if campaign else "") + system_math(system.system)
            points = [(p.coordinate, value) for p in system.points if (value := getattr(p, pick)) is not None]
            _draw_points(axis, points, colour, name_of, marker)
            if (found := system.curve) is not None:
                y, e = getattr(found, pick), getattr(found, f"{pick}_error")
                for segment in np.unique(found.segment):
                    x, part = found.coordinate[found.segment == segment], found.segment == segment
                    axis.plot(x, y[part], color=colour, lw=1.4, alpha=0.9)
                    axis.fill_between(x, (y - e)[part], (y + e)[part], color=colour, alpha=0.18, lw=0)
            if system.result is not None and system.error is not None:
                # One system has a colour to spare for its peak; several are told apart by their curves' colours.
                own, whose = (COLOURS[1], "") if len(series) == 1 else (colour, f"{name_of}: ")
                located = f"located: {words.coordinate} = {with_error(system.result, system.error)}"
                axis.axvspan(system.result - system.error, system.result + system.error, color=own, alpha=0.2, lw=0)
                said = located if system.established else f"{words.found}, not established"
                axis.axvline(system.result, color=own, lw=1, ls="--", label=whose + said)
        for known in campaigns[0][1].published if len(campaigns) == 1 else ():
            axis.axvline(known.at, color=INK, lw=1.1, ls=":", label=known.text)
        if (curve := campaigns[0][1].known) is not None and len(campaigns) == 1:
            there = [(at, value) for at, value in zip(curve.at, getattr(curve, pick), strict=True) if value]
            axis.plot(*zip(*there, strict=True) if there else ((), ()), color=INK, lw=1.1, ls=":", label=curve.text)
        axis.set(ylabel=label, yscale=scale)
        if any(value.mean < 0 for _, one in series for point in one.points if (value := getattr(point, pick))):
            axis.axhline(0, color=GREY, lw=0.8)
        elif scale == "linear":
            axis.set_ylim(bottom=0)
    axes[-1].set_xlabel(words.axis)
    # Below the axes: inside it would hide points.
    axes[-1].legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    return drawn(name, drawing, paragraphs, **figures)


def draw_means(
    name: str, shown: Results, panels: Mapping[str, Mapping[str, Measured]], paragraphs: Paragraphs, **figures: Any
) -> Drawn:
    """Draw means of chains, by label and name of the chain, against the coordinate, with the peaks."""
    figure, axes = axes_of(len(panels), 1, (6.2, 2.7 * len(panels) + 0.4), sharex=True)
    for axis, (label, means) in zip(axes, panels.items(), strict=True):
        for volume, colour in zip(shown.systems, COLOURS, strict=False):
            chains = [c for c in shown.chains if c.system == volume.system and not c.abandoned]
            points = [(c.coordinate, means[c.id]) for c in chains if c.id in means]
            _draw_points(axis, points, colour, system_math(volume.system))
            if volume.transition is not None:
                axis.axvline(volume.transition.result, color=colour, lw=1, ls="--")
        axis.set_ylabel(label)
    axes[0].legend()
    axes[-1].set_xlabel(shown.words.axis)
    return drawn(name, figure, paragraphs, **figures)


def _draw_points(
    axis: Axes, points: Sequence[tuple[float, Measured]], colour: str, label: str, marker: str = "o"
) -> None:
    if points:
        x, y, e = zip(*((at, value.mean, value.error or 0.0) for at, value in points), strict=True)
        axis.errorbar(x, y, e, fmt=marker, ms=4, color=colour, ecolor=colour, elinewidth=1, capsize=2, label=label)


def draw_histories(shown: Results) -> Iterator[Drawn]:
    """Give the two series of some chains of the first system, spread over the range; with the one nearest a peak."""
    system, found = shown.systems[0].system, shown.systems[0].transition
    logs = [c for c in in_order(shown.state) if c.system == system and c.rows > 1]
    if not (logs := [c for c in logs if c.measured] or logs):
        return
    chosen = {round(i) for i in np.linspace(0, len(logs) - 1, min(HISTORIES, len(logs)))}
    if found is not None:
        nearest = min(range(len(logs)), key=lambda i: (abs(logs[i].coordinate - found.result), -logs[i].rows))
        chosen = (chosen - {min(chosen, key=lambda i: (abs(i - nearest), i))}) | {nearest}
    figure, axes = axes_of(len(chosen), 2, (8.6, 1.35 * len(chosen) + 0.7))
    report, words, labels = shown.theory.report, shown.words, ("", "")
    for i, chain in enumerate(logs[i] for i in sorted(chosen)):
        history = report.history(shown.state, chain)
        labels, pair = history.labels, axes[2 * i : 2 * i + 2]
        for axis, values, label, colour in zip(pair, history.series, labels, COLOURS, strict=False):
            axis.axvspan(0, history.warmup, color=GREY, alpha=0.28, lw=0)
            dots = ".-" if values.size <= FEW else "-"
            axis.plot(np.arange(values.size), values, dots, color=colour, lw=0.5, ms=3, rasterized=values.size > FEW)
            settled = values[history.warmup :] if chain.measured else values
            spread = max(float(np.ptp(settled)), 1e-9)
            limits = settled.min() - 0.35 * spread, settled.max() + 0.15 * spread
            axis.set(xlim=(0, max(values.size, 1)), ylim=limits, ylabel=label)
        pair[0].set_title(f"{chain.id}   {words.coordinate} = {chain.coordinate:.4f}", fontsize=9)
    for axis in axes[-2:]:
        axis.set_xlabel(words.update)
    yield drawn("histories", figure, system=system_text(system), left=labels[0], right=labels[1])


def draw_systems(shown: Results) -> Iterator[Drawn]:
    """Give how the peak moves with the size, where there is an extrapolation."""
    finite_size, law = shown.finite_size, shown.theory.size_law
    if finite_size is None or law is None:
        return
    figure, (place, height) = axes_of(1, 2, (8.2, 3.4))
    colours = {volume.system: colour for volume, colour in zip(shown.systems, COLOURS, strict=False)}
    for peak in finite_size.peaks:
        look: dict[str, Any] = {
            "fmt": "o",
            "color": colours.get(peak.system, GREY),
            "capsize": 3,
            "label": system_math(peak.system),
        }
        place.errorbar(law.x(peak.system), peak.result, peak.error, **look)
        height.errorbar(law.height_at(peak.system), peak.height, peak.height_error, **look)
    if (fit := finite_size.fit) is not None:
        x = np.linspace(0, max(law.x(peak.system) for peak in finite_size.peaks))
        place.plot(x, fit.result - fit.h * x, color=GREY, lw=1.2)
        place.errorbar(0, fit.result, fit.error, fmt="D", color=INK, capsize=3, label=f"{law.limit} (fit)")
    place.set(xlabel=law.axis, ylabel=f"{shown.words.coordinate} of the peak")
    height.set(xlabel=law.height, ylabel=r"height of the peak of $\chi$", ylim=(0, None))
    place.legend()
    yield drawn("systems", figure)
