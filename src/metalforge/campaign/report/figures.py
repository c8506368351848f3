"""The figures of a peak: the order parameter and chi, several systems, histories; campaigns beside each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.state import CampaignState
from metalforge.campaign.theory import SizeLaw
from metalforge.statistics import Estimate, Value, with_error

from .drawing import COLOURS, GREY, INK, Drawn, axes_of, drawn, styled
from .figure_data import ComparedCampaign, TransitionPoint, TransitionSystem, apart
from .figures_of_run import draw_run
from .points import ChainResult
from .result import CampaignResult, Reported, SystemResult
from .words import say, system_math, system_text

Measured = TypeVar("Measured", ChainResult, TransitionPoint)
HISTORIES = 6
"""Chains whose histories are shown: the one nearest the peak, and others spread over the range."""


def draw_all(shown: Reported, beside: Sequence[ComparedCampaign] = ()) -> list[Drawn]:
    """Return every figure that this campaign has data for; `beside` are campaigns that it is compared with."""
    with styled():
        compared = [_compared(beside)] if beside and not apart(beside) else []
        report = shown.spec.theory.report
        return [*report.draw(shown), *compared, *report.draw_more(shown), *draw_run(shown)]


def draw_main(shown: Reported) -> Drawn | None:
    """Return the one figure that says most; None without data."""
    with styled():
        return next(iter(shown.spec.theory.report.draw(shown)), None)


def draw_peak(shown: Reported) -> list[Drawn]:
    """Return the figure of a peak, where any chain is long enough."""
    return [_transition(shown)] if any(chain.chi is not None for chain in shown.result.chains) else []


def draw_systems(shown: Reported) -> list[Drawn]:
    """Return several systems beside each other, and histories."""
    made = []
    if shown.result.finite_size is not None and (law := shown.spec.theory.size_law) is not None:
        made.append(_volumes(shown.result, law))
    if chains := _chains_to_show(shown.state, shown.result):
        made.append(_histories(shown.state, chains, shown.result))
    return made


def by_volume(result: CampaignResult) -> Iterator[tuple[SystemResult, str, str, list[ChainResult]]]:
    """Give every volume with its colour, its name, and its chains that were not given up."""
    for volume, colour in zip(result.systems, COLOURS, strict=False):
        chains = [c for c in result.chains if c.system == volume.system and not c.abandoned]
        yield volume, colour, system_math(volume.system), chains


def draw_points(
    axis: Axes,
    chains: Sequence[Measured],
    pick: Callable[[Measured], Estimate | Value | None],
    colour: str,
    label: str = "",
    marker: str = "o",
) -> None:
    """Draw what each chain has, with its error, against its coordinate."""
    found = [(chain.coordinate, value.mean, value.error) for chain in chains if (value := pick(chain)) is not None]
    if found:
        x, y, e = zip(*found, strict=True)
        axis.errorbar(x, y, e, fmt=marker, ms=4, color=colour, ecolor=colour, elinewidth=1, capsize=2, label=label)


def _transition(reported: Reported) -> Drawn:
    figure, (above, chi) = axes_of(2, 1, (6.2, 6.4), sharex=True, heights=(1, 1.25))
    theory, words = reported.spec.theory, reported.result.words
    shown, order = theory.report.figure(reported), theory.order
    for volume, colour in zip(shown.systems, COLOURS, strict=False):
        name = system_math(volume.system)
        # One volume has a colour to spare for its peak; several peaks are told apart by their curves' colours.
        own = COLOURS[1] if len(shown.systems) == 1 else colour
        _draw_system({"order": above, "chi": chi}, volume, colour, name, above, peak=own)
        if volume.result is not None and volume.error is not None:
            number = f"{words.coordinate} = {with_error(volume.result, volume.error)} of the peak"
            whose = "" if len(shown.systems) == 1 else f"{name}: "
            label = whose + (number if volume.established else "peak, not established")
            chi.plot([], [], color=own, ls="--", lw=1, label=label)
    for known in shown.published:
        for axis in (above, chi):
            axis.axvline(known.at, color=INK, lw=1.1, ls=":")
        chi.plot([], [], color=INK, lw=1.1, ls=":", label=known.text)
    above.set_ylabel(rf"$\langle {order.math} \rangle$")
    chi_of = rf"$\chi = {order.volume}\,(\langle {order.square} \rangle - \langle {order.math} \rangle^2)$"
    chi.set(ylabel=chi_of, xlabel=words.axis)
    above.set_ylim(bottom=0)
    chi.set_ylim(bottom=0)
    above.legend()
    if chi.get_legend_handles_labels()[0]:
        # Below the axes: inside it would hide points.
        chi.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    published = "".join(say("captions.published", known=known) for known in shown.published)
    return drawn("transition", figure, order=order.text, published=published)


def _draw_system(
    axes: Mapping[str, Axes],
    volume: TransitionSystem,
    colour: str,
    label: str,
    labelled: Axes,
    *,
    peak: str,
    marker: str = "o",
) -> None:
    """Draw the points, the curves with their bands and the peak of one system, by what each of the axes shows."""
    for pick, axis in axes.items():
        draw_points(axis, volume.points, attrgetter(pick), colour, label if axis is labelled else "", marker)
        if (found := volume.curve) is not None:
            y, e = getattr(found, pick), getattr(found, f"{pick}_error")
            for number in np.unique(found.segment):
                part = found.segment == number
                axis.plot(found.coordinate[part], y[part], color=colour, lw=1.4, alpha=0.9)
                axis.fill_between(found.coordinate[part], (y - e)[part], (y + e)[part], color=colour, alpha=0.18, lw=0)
        if volume.result is not None and volume.error is not None:
            axis.axvspan(volume.result - volume.error, volume.result + volume.error, color=peak, alpha=0.2, lw=0)
            axis.axvline(volume.result, color=peak, lw=1, ls="--")


def _compared(campaigns: Sequence[ComparedCampaign]) -> Drawn:
    """Draw what several campaigns found in the same axes, as many as there are halves of their figures."""
    words = campaigns[0].figure.words
    shows = {pick: label for pick, label in zip(("order", "chi"), words.shows, strict=True) if label}
    figure, axes = axes_of(len(shows), 1, (6.2, 3.2 * len(shows)), sharex=True)
    by_pick = dict(zip(shows, axes, strict=True))
    series = [(campaign, volume) for campaign in campaigns for volume in campaign.figure.systems]
    for number, (campaign, volume) in enumerate(series):
        colour, marker = COLOURS[number % len(COLOURS)], "os^Dvp"[number % 6]
        label = f"{campaign.name}, ".replace("$", r"\$") + system_math(volume.system)
        _draw_system(by_pick, volume, colour, label, axes[-1], peak=colour, marker=marker)
    for pick, axis in by_pick.items():
        axis.set(ylabel=shows[pick])
        axis.set_ylim(bottom=0)
    axes[-1].set(xlabel=words.axis)
    axes[-1].legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    return drawn("compared", figure)


def _chains_to_show(state: CampaignState, result: CampaignResult) -> list[ChainLog]:
    """Return chains of the first volume, spread over coordinate, with the one nearest the peak among them."""
    system = result.headline.system
    chains = sorted(
        (c for c in state.chains.values() if c.system == system and c.rows > 1), key=lambda c: (c.coordinate, c.id)
    )
    chains = [c for c in chains if c.measured] or chains
    if not chains:
        return []
    chosen = {round(i) for i in np.linspace(0, len(chains) - 1, min(HISTORIES, len(chains)))}
    found = result.headline.transition
    if found is not None:
        nearest = min(range(len(chains)), key=lambda i: (abs(chains[i].coordinate - found.result), -chains[i].rows))
        inner = sorted(chosen, key=lambda i: abs(i - nearest))[0]
        chosen = (chosen - {inner}) | {nearest}
    return [chains[i] for i in sorted(chosen)]


def _histories(state: CampaignState, chains: list[ChainLog], result: CampaignResult) -> Drawn:
    figure, axes = axes_of(len(chains), 2, (8.6, 1.35 * len(chains) + 0.7))
    report, words, labels = state.spec.theory.report, result.words, ("", "")
    for i, chain in enumerate(chains):
        shown = report.history(state, chain)
        labels = shown.labels
        for axis, values, label, colour in zip(axes[2 * i : 2 * i + 2], shown.series, labels, COLOURS, strict=False):
            update = np.arange(values.size)
            axis.axvspan(0, shown.warmup, color=GREY, alpha=0.28, lw=0)
            axis.plot(update, values, color=colour, lw=0.5, rasterized=True)
            axis.set_xlim(0, max(values.size, 1))
            settled = values[shown.warmup :] if chain.measured else values
            spread = max(float(np.ptp(settled)), 1e-9)
            axis.set_ylim(settled.min() - 0.35 * spread, settled.max() + 0.15 * spread)
            axis.set_ylabel(label)
        axes[2 * i].set_title(f"{chain.id}   {words.coordinate} = {chain.coordinate:.4f}", fontsize=9)
    for axis in axes[-2:]:
        axis.set_xlabel(words.update)
    left, right = labels
    return drawn("histories", figure, system=system_text(result.headline.system), left=left, right=right)


def _volumes(result: CampaignResult, law: SizeLaw) -> Drawn:
    assert result.finite_size is not None
    figure, (place, height) = axes_of(1, 2, (8.2, 3.4))
    colours = {volume.system: colour for volume, colour in zip(result.systems, COLOURS, strict=False)}
    peaks = result.finite_size.peaks
    for peak in peaks:
        colour, name = colours.get(peak.system, GREY), system_math(peak.system)
        place.errorbar(law.x(peak.system), peak.result, peak.error, fmt="o", color=colour, capsize=3, label=name)
        at = law.height_at(peak.system)
        height.errorbar(at, peak.height, peak.height_error, fmt="o", color=colour, capsize=3, label=name)
    if (fit := result.finite_size.fit) is not None:
        x = np.linspace(0, max(law.x(peak.system) for peak in peaks))
        place.plot(x, fit.result - fit.h * x, color=GREY, lw=1.2)
        place.errorbar(0, fit.result, fit.error, fmt="D", color=INK, capsize=3, label=f"{law.limit} (fit)")
    place.set(xlabel=law.axis, ylabel=f"{result.words.coordinate} of the peak")
    height.set(xlabel=law.height, ylabel=r"height of the peak of $\chi$", ylim=(0, None))
    place.legend()
    return drawn("systems", figure)
