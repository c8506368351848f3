"""The figures of a campaign's physics: the transition, the plaquette, histories, several volumes, how HMC ran."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias, TypeVar

import numpy as np
from matplotlib.axes import Axes

from metalforge.campaign.observables import ORDERS
from metalforge.campaign.physics.curve import Floats, TransitionCurve
from metalforge.campaign.physics.evidence import Finding
from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.lattice.registered import Value
from metalforge.statistics.estimate import Estimate, with_error

from .drawing import BETA, COLOURS, GREY, INK, Drawn, axes_of, drawn, styled
from .figure_data import ComparedCampaign, TransitionPoint, apart, transition_figure
from .figure_data_of_chains import history_of
from .figures_of_evidence import draw_evidence
from .figures_of_run import draw_run
from .plasma_report import draw_plasma
from .points import ChainResult
from .result import CampaignResult, VolumeResult
from .words import lattice_math, lattice_text, say

Curves: TypeAlias = Mapping[Dims, TransitionCurve]
Measured = TypeVar("Measured", ChainResult, TransitionPoint)
HISTORIES = 6
"""Chains whose histories are shown: the one nearest beta_c, and others spread over the range."""


def draw_all(
    state: CampaignState,
    result: CampaignResult,
    curves: Curves,
    found: Mapping[Dims, Finding],
    beside: Sequence[ComparedCampaign] = (),
) -> list[Drawn]:
    """Return every figure that this campaign has data for; `beside` are campaigns that it is compared with."""
    with styled():
        compared = [_compared(beside)] if beside and not apart(beside) else []
        if state.spec.lattice is None:
            of_physics = draw_plasma(state, result, transition_figure(state, result, curves))
            return of_physics + compared + draw_run(state, result)
        made = []
        if any(chain.chi is not None for chain in result.chains):
            made += [_transition(state, result, curves), _plaquette(result)]
        made += compared
        if result.finite_size is not None:
            made.append(_volumes(result))
        if any(chain.quarks for chain in result.chains):
            made.append(_quarks(result))
        shown = _chains_to_show(state, result)
        if shown:
            made.append(_histories(shown, result))
        if any("accepted" in chain.values for chain in result.chains):
            made.append(_hmc(result))
        return made + draw_evidence(state, found) + draw_run(state, result)


def draw_main(state: CampaignState, result: CampaignResult, curves: Curves) -> Drawn | None:
    """Return the one figure that says most: the transition, or the first of another physics; None without data."""
    with styled():
        if state.spec.lattice is None:
            return next(iter(draw_plasma(state, result, transition_figure(state, result, curves))), None)
        return _transition(state, result, curves) if any(chain.chi is not None for chain in result.chains) else None


def _by_volume(result: CampaignResult) -> Iterator[tuple[VolumeResult, str, str, list[ChainResult]]]:
    """Give every volume with its colour, its name, and its chains that were not given up."""
    for volume, colour in zip(result.volumes, COLOURS, strict=False):
        chains = [c for c in result.chains if c.dims == volume.dims and not c.abandoned]
        yield volume, colour, lattice_math(volume.dims), chains


def _points(
    axis: Axes,
    chains: Sequence[Measured],
    pick: Callable[[Measured], Estimate | Value | None],
    colour: str,
    label: str = "",
    marker: str = "o",
) -> None:
    """Draw what each chain has, with its error, against its beta."""
    found = [(chain.beta, value.mean, value.error) for chain in chains if (value := pick(chain)) is not None]
    if found:
        x, y, e = zip(*found, strict=True)
        axis.errorbar(x, y, e, fmt=marker, ms=4, color=colour, ecolor=colour, elinewidth=1, capsize=2, label=label)


def _transition(state: CampaignState, result: CampaignResult, curves: Curves) -> Drawn:
    figure, (loop, chi) = axes_of(2, 1, (6.2, 6.4), sharex=True, heights=(1, 1.25))
    shown = transition_figure(state, result, curves)
    for volume, colour in zip(shown.volumes, COLOURS, strict=False):
        name = lattice_math(volume.dims)
        _points(loop, volume.points, lambda point: point.order, colour, name)
        _points(chi, volume.points, lambda point: point.chi, colour)
        if (found := volume.curve) is not None:
            _band(loop, found, found.order, found.order_error, colour)
            _band(chi, found, found.chi, found.chi_error, colour)
        if volume.beta_c is not None and volume.error is not None:
            # One volume has a colour to spare for its peak; several peaks are told apart by their curves' colours.
            own = COLOURS[1] if len(shown.volumes) == 1 else colour
            for axis in (loop, chi):
                axis.axvspan(volume.beta_c - volume.error, volume.beta_c + volume.error, color=own, alpha=0.2, lw=0)
                axis.axvline(volume.beta_c, color=own, lw=1, ls="--")
            number = rf"$\beta_c = {with_error(volume.beta_c, volume.error)}$"
            whose = "" if len(shown.volumes) == 1 else f"{name}: "
            label = whose + (number if volume.established else "peak, not established")
            chi.plot([], [], color=own, ls="--", lw=1, label=label)
    for known in shown.published:
        for axis in (loop, chi):
            axis.axvline(known.at, color=INK, lw=1.1, ls=":")
        chi.plot([], [], color=INK, lw=1.1, ls=":", label=known.text.replace("N_t", "$N_t$"))
    _, order, square = ORDERS[shown.observable]
    loop.set_ylabel(rf"$\langle {order} \rangle$")
    chi.set(ylabel=rf"$\chi = N_s^3\,(\langle {square} \rangle - \langle {order} \rangle^2)$", xlabel=BETA)
    loop.set_ylim(bottom=0)
    chi.set_ylim(bottom=0)
    loop.legend()
    if chi.get_legend_handles_labels()[0]:
        # Below the axes: inside it would hide points.
        chi.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    return drawn("transition", figure, published="".join(say("captions.published", known=k) for k in shown.published))


def _band(axis: Axes, found: TransitionCurve, y: Floats, e: Floats, colour: str) -> None:
    for number in np.unique(found.segment):
        part = found.segment == number
        axis.plot(found.beta[part], y[part], color=colour, lw=1.4, alpha=0.9)
        axis.fill_between(found.beta[part], (y - e)[part], (y + e)[part], color=colour, alpha=0.18, lw=0)


def _compared(campaigns: Sequence[ComparedCampaign]) -> Drawn:
    """Draw what several campaigns found in the same axes, as many as there are halves of their figures."""
    words = campaigns[0].figure.words
    shows = [(pick, label) for pick, label in zip(("order", "chi"), words.shows, strict=True) if label]
    figure, axes = axes_of(len(shows), 1, (6.2, 3.2 * len(shows)), sharex=True)
    series = [(campaign, volume) for campaign in campaigns for volume in campaign.figure.volumes]
    for number, (campaign, volume) in enumerate(series):
        colour, marker = COLOURS[number % len(COLOURS)], "os^Dvp"[number % 6]
        label = f"{campaign.name}, ".replace("$", r"\$") + lattice_math(volume.dims)
        for axis, (pick, _) in zip(axes, shows, strict=True):
            _points(axis, volume.points, attrgetter(pick), colour, label, marker)
            if (found := volume.curve) is not None:
                _band(axis, found, getattr(found, pick), getattr(found, f"{pick}_error"), colour)
            if volume.beta_c is not None and volume.error is not None:
                axis.axvspan(volume.beta_c - volume.error, volume.beta_c + volume.error, color=colour, alpha=0.2, lw=0)
                axis.axvline(volume.beta_c, color=colour, lw=1, ls="--")
    for axis, (_, label) in zip(axes, shows, strict=True):
        axis.set(ylabel=label)
        axis.set_ylim(bottom=0)
    axes[-1].set(xlabel=words.axis)
    axes[-1].legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    return drawn("compared", figure)


def _plaquette(result: CampaignResult) -> Drawn:
    figure, (axis,) = axes_of(1, 1, (6.2, 3.0))
    for _, colour, name, chains in _by_volume(result):
        _points(axis, chains, lambda chain: chain.values.get("plaquette"), colour, name)
    axis.set(xlabel=BETA, ylabel=r"plaquette $\langle \mathrm{Re\,tr}\,U_p\rangle / 3$")
    axis.legend()
    return drawn("plaquette", figure)


def _quarks(result: CampaignResult) -> Drawn:
    figure, axes = axes_of(3, 1, (7.4, 8.2), sharex=True)
    fields = ("re_loop", "condensate", "disconnected")
    labels = (r"$\langle \mathrm{Re}\,L \rangle$", r"$\langle \bar\psi\psi \rangle$", r"$\chi_\mathrm{disc}$")
    for axis, field, label in zip(axes, fields, labels, strict=True):
        for volume, colour, name, chains in _by_volume(result):
            _points(axis, [c for c in chains if c.quarks], attrgetter(f"quarks.{field}"), colour, name)
            if (peak := volume.transition) is not None:
                axis.axvline(peak.beta_c, color=colour, lw=1, ls="--")
        axis.set_ylabel(label)
    axes[-1].set_xlabel(BETA)
    axes[0].legend()
    return drawn("quarks", figure)


def _chains_to_show(state: CampaignState, result: CampaignResult) -> list[ChainLog]:
    """Return chains of the first volume, spread over beta, with the one nearest beta_c among them."""
    dims = result.headline.dims
    chains = sorted((c for c in state.chains.values() if c.dims == dims and c.rows > 1), key=lambda c: (c.beta, c.id))
    chains = [c for c in chains if c.measured] or chains
    if not chains:
        return []
    chosen = {round(i) for i in np.linspace(0, len(chains) - 1, min(HISTORIES, len(chains)))}
    found = result.headline.transition
    if found is not None:
        nearest = min(range(len(chains)), key=lambda i: (abs(chains[i].beta - found.beta_c), -chains[i].rows))
        inner = sorted(chosen, key=lambda i: abs(i - nearest))[0]
        chosen = (chosen - {inner}) | {nearest}
    return [chains[i] for i in sorted(chosen)]


def _histories(chains: list[ChainLog], result: CampaignResult) -> Drawn:
    figure, axes = axes_of(len(chains), 2, (8.6, 1.35 * len(chains) + 0.7))
    for i, chain in enumerate(chains):
        shown = history_of(chain)
        for axis, values, colour in zip(axes[2 * i : 2 * i + 2], shown[:2], COLOURS, strict=False):
            update = np.arange(values.size)
            axis.axvspan(0, shown.warmup, color=GREY, alpha=0.28, lw=0)
            axis.plot(update, values, color=colour, lw=0.5, rasterized=True)
            axis.set_xlim(0, max(values.size, 1))
            settled = values[shown.warmup :] if chain.measured else values
            spread = max(float(np.ptp(settled)), 1e-9)
            axis.set_ylim(settled.min() - 0.35 * spread, settled.max() + 0.15 * spread)
        axes[2 * i + 1].set_ylim(bottom=0)
        axes[2 * i].set_ylabel("P")
        axes[2 * i + 1].set_ylabel("|L|")
        axes[2 * i].set_title(f"{chain.id}   $\\beta$ = {chain.beta:.4f}", fontsize=9)
    for axis in axes[-2:]:
        axis.set_xlabel("update")
    return drawn("histories", figure, lattice=lattice_text(result.headline.dims))


def _volumes(result: CampaignResult) -> Drawn:
    assert result.finite_size is not None
    figure, (place, height) = axes_of(1, 2, (8.2, 3.4))
    colours = {volume.dims: colour for volume, colour in zip(result.volumes, COLOURS, strict=False)}
    for peak in result.finite_size.peaks:
        x, y, z, t = peak.dims
        colour, name = colours.get(peak.dims, GREY), lattice_math(peak.dims)
        place.errorbar(t**3 / (x * y * z), peak.beta_c, peak.error, fmt="o", color=colour, capsize=3, label=name)
        height.errorbar(x * y * z, peak.height, peak.height_error, fmt="o", color=colour, capsize=3, label=name)
    if (fit := result.finite_size.fit) is not None:
        ratio = np.linspace(
            0, max(p.dims[3] ** 3 / (p.dims[0] * p.dims[1] * p.dims[2]) for p in result.finite_size.peaks)
        )
        place.plot(ratio, fit.beta_c - fit.h * ratio, color=GREY, lw=1.2)
        place.errorbar(0, fit.beta_c, fit.error, fmt="D", color=INK, capsize=3, label="infinite volume (fit)")
    place.set(xlabel=r"$(N_t/N_s)^3$", ylabel=r"$\beta_c$")
    height.set(xlabel=r"$N_s^3$", ylabel=r"height of the peak of $\chi$", ylim=(0, None))
    place.legend()
    return drawn("volumes", figure)


def _hmc(result: CampaignResult) -> Drawn:
    sea = any("cg_iterations" in chain.values for chain in result.chains)
    figure, axes = axes_of(1, 1 + sea, (4.1 * (1 + sea), 3.2))
    for _, colour, name, chains in _by_volume(result):
        rows = [c for c in chains if "accepted" in c.values]
        for axis, column, scale in zip(axes, ("accepted", "cg_iterations"), (100, 1), strict=False):
            means = [scale * c.values[column].mean for c in rows]
            axis.plot([c.beta for c in rows], means, "o", color=colour, label=name)
    axes[0].set(ylim=(0, 103), ylabel="accepted trajectories [%]")
    if sea:
        axes[1].set(ylabel="CG iterations per solve", ylim=(0, None))
    for axis in axes:
        axis.set_xlabel(BETA)
    axes[0].legend()
    return drawn("hmc", figure, solves=say("captions.solves") if sea else "")
