"""What a campaign of a plasma found, for people: its verdict, its tables, its figures, its curves as CSV."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import Any

import numpy as np

from metalforge.campaign.findings import segments_of
from metalforge.campaign.physics.freezing import FreezingFinding
from metalforge.campaign.physics.transport import PointTransport, TransportCurve, TransportFinding
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.theories import Target
from metalforge.plasma.references import diffusion_scaled, melting_gamma, viscosity_scaled
from metalforge.statistics.estimate import with_error

from .drawing import COLOURS, GREY, INK, Drawn, axes_of, drawn
from .figure_data import TransitionFigure
from .figure_data_of_chains import trajectory_of
from .html import box, card, details, items, note, paragraph, section, table
from .result import CampaignResult, VolumeResult
from .words import duration, item_text, lattice_name, say, substrates_text

HISTORIES = 6
"""Trajectories whose histories are shown, spread over the range."""


def plasma_lines(result: CampaignResult) -> Iterator[str]:
    """Give the lines for a terminal: what was found of every box, and the evidence."""
    for volume, said, _ in _found(result):
        holds = "established" if volume.established else "not established"
        yield f"{lattice_name(volume.dims)}: {said}, {holds}"
        yield from (f"  {'holds' if item.holds else 'lacks'}: {item_text(item)}" for item in volume.evidence)


def _found(
    result: CampaignResult,
) -> Iterator[tuple[VolumeResult, str, TransportFinding | FreezingFinding]]:
    for volume, found in zip(result.volumes, result.of_plasma, strict=True):
        yield volume, found.said, found


def plasma_comparison(spec: CampaignSpec, result: CampaignResult) -> str:
    """Return one sentence that compares with what is published."""
    assert spec.plasma is not None
    melting = melting_gamma(spec.plasma.kappa)
    if result.freezing:
        found = result.freezing[0].log_gamma
        off = "" if found is None else f"; what was found is {exp(found) / melting - 1:+.1%} from it"
        return f"published Gamma_m at kappa {spec.plasma.kappa:g}: {melting:.4g} (Hamaguchi, Farouki, Dubin 1997){off}"
    parts = []
    kappa, points = spec.plasma.kappa, result.transport[0].points
    for name, scaled, pick in (("D*", diffusion_scaled, "diffusion"), ("eta*", viscosity_scaled, "viscosity")):
        ratios = [getattr(p, pick) / known for p in points if (known := scaled(p.gamma, kappa)) is not None]
        if ratios:
            parts.append(f"{name} is {min(ratios):.2f} to {max(ratios):.2f} of it")
    return f"published, by freezing scaling: {', '.join(parts)}" if parts else ""


def plasma_headline(state: CampaignState, result: CampaignResult) -> str:
    """Return the top of the page."""
    plasma, first = state.spec.plasma, result.headline
    assert plasma is not None
    _, said, found = next(_found(result))
    if isinstance(found, FreezingFinding) and found.log_gamma is not None and found.error is not None:
        number = with_error(exp(found.log_gamma), exp(found.log_gamma) * found.error)
        title = f'&Gamma;<sub>m</sub> = <span class="value">{number}</span>'
        if not first.established:
            title = "&Gamma;<sub>m</sub> is not established"
    elif isinstance(found, TransportFinding) and found.curve is not None and first.established:
        title = 'D*, &eta;* to <span class="value">' + ", ".join(f"{e:.1%}" for e in found.curve.errors) + "</span>"
    else:
        title = "The curve is not established" if isinstance(found, TransportFinding) else "Freezing is not located"
    lacking = [item_text(item) for item in first.evidence if not item.holds]
    cards = [
        card(lattice_name(first.dims), f"Yukawa plasma, kappa = {plasma.kappa:g}"),
        card(f"{state.trajectories:,}", f"segments of {plasma.update_time:g}/omega_p, warm-up included"),
        card(duration(result.seconds), f"wall time, {result.updates_per_second:.2g} segments/s"),
        card(state.ordering, f"ordering, on {substrates_text([s.name for s in state.opened.silicon])}"),
    ]
    compared = plasma_comparison(state.spec, result)
    return "\n".join([
        f'<header>{paragraph(f"metalforge campaign {state.spec.name}", "kind")}<h1>{title}</h1></header>',
        paragraph(f"{said[0].upper()}{said[1:]}."),
        box(paragraph(say("plasma.lacking")), items(lacking)) if lacking else "",
        paragraph(f"{compared[0].upper()}{compared[1:]}.") if compared else "",
        f'<div class="cards">{"".join(cards)}</div>',
    ])  # fmt: skip


def plasma_section(state: CampaignState, result: CampaignResult, figures: Mapping[str, str]) -> str:
    """Return the physics: the curve with its points, or which half of each crystal grew."""
    parts = [figures.get("transport", ""), figures.get("freezing", "")]
    for volume, _, found in _found(result):
        if isinstance(found, TransportFinding):
            parts += [table(_POINTS, [_point(point) for point in found.points]), note(say("plasma.points"))]
        else:
            rows = [
                (
                    one.chain,
                    f"{exp(one.at):.4g}",
                    f"{one.gamma:.4g}",
                    f"{one.began:.3f}",
                    f"{one.ended:.3f}",
                    {1: "grew", -1: "melted"}[one.phase],
                    "over at once" if one.rate is None else f"{1e4 * one.rate:+.2f}",
                    f"{one.time:.0f}",
                    one.segments,
                )
                for one in found.trajectories
            ]
            parts += [table(_GROWTH, rows), note(say("plasma.freezing"))]
        if len(result.volumes) > 1:
            parts.insert(-2, paragraph(lattice_name(volume.dims)))
    return section("Transport along the coupling" if result.transport else "Freezing", *parts)


_POINTS = (">Gamma aimed at", ">Gamma", ">u/Gamma", ">D*", ">of it the box's", ">eta*", ">segments", ">trajectories")
_GROWTH = (
    "trajectory",
    ">Gamma aimed at",
    ">Gamma",
    ">order at first",
    ">at last",
    "crystal",
    ">rate [1e-4 omega_p]",
    ">over 1/omega_p",
    ">segments",
)


def _point(point: PointTransport) -> tuple[object, ...]:
    return (
        f"{exp(point.at):.4g}",
        with_error(point.gamma, point.gamma_error),
        f"{point.u_over_gamma:.5f}",
        with_error(point.diffusion, point.diffusion_error),
        f"{point.diffusion_box:.4g}",
        with_error(point.viscosity, point.viscosity_error),
        point.segments,
        point.trajectories,
    )


def trajectories_section(
    state: CampaignState, result: CampaignResult, downloads: str, figures: Mapping[str, str]
) -> str:
    """Return the table of trajectories, how they went, and where every row can be had."""
    rows = []
    for chain in result.chains:
        seen = segments_of(state.spec, state.chains[chain.id])
        gamma = 1 / float(seen.columns["temperature"].mean()) if seen.segments else None
        rows.append((
            chain.id, lattice_name(chain.dims), f"{exp(chain.beta):.4g}", "-" if gamma is None else f"{gamma:.4g}",
            chain.warmup, chain.measured, "-" if chain.seconds <= 0 else f"{seen.cost / chain.seconds:.3g}",
        ))  # fmt: skip
    columns = ("trajectory", "box", ">Gamma aimed at", ">measured", ">warm-up", ">segments", ">atom-steps/s")
    given_up = [
        paragraph(f"{c.id} at Gamma {exp(c.beta):.4g} was given up: {c.abandoned}", "warn")
        for c in result.chains
        if c.abandoned
    ]
    shown = details(f"All {len(rows)} trajectories", table(columns, rows))
    return section("Every trajectory", figures.get("trajectories", ""), shown, *given_up, downloads)


def plasma_definitions(spec: CampaignSpec) -> str:
    """Return the definitions that a reader needs to compare the numbers with others."""
    names = ("units", "update", "diffusion", "viscosity", "order") if spec.theory.target == "crossing" else (
        "units", "update", "diffusion", "viscosity", "curve")  # fmt: skip
    return section("Definitions", table(("", ""), [(name, say(f"plasma.{name}")) for name in names]))


# -- figures ----------------------------------------------------------------------------------------------------------


def draw_plasma(state: CampaignState, result: CampaignResult, shown: TransitionFigure) -> list[Drawn]:
    """Return the figures of the physics."""
    made = []
    if any(found.points for found in result.transport):
        made.append(_transport(shown))
    if any(found.trajectories for found in result.freezing):
        made.append(_freezing(result, shown))
    chains = sorted((c for c in state.chains.values() if c.rows), key=lambda c: (c.dims, c.beta, c.id))
    if chains:
        chosen = sorted({round(i) for i in np.linspace(0, len(chains) - 1, min(HISTORIES, len(chains)))})
        made.append(_histories([chains[i] for i in chosen], state.spec.theory.target))
    return made


def _transport(shown: TransitionFigure) -> Drawn:
    figure, halves = axes_of(2, 1, (6.2, 6.4), sharex=True)
    for axis, pick, label in zip(halves, ("order", "chi"), ("$D^*$", r"$\eta^*$"), strict=True):
        for volume, colour in zip(shown.volumes, COLOURS, strict=False):
            points = [(exp(p.beta), value.mean, value.error) for p in volume.points if (value := getattr(p, pick))]
            if points:
                gammas, means, errors = zip(*points, strict=True)
                look: dict[str, Any] = {"fmt": "o", "ms": 4, "elinewidth": 1, "capsize": 2}
                axis.errorbar(gammas, means, errors, color=colour, label=lattice_name(volume.dims), **look)
            if (curve := volume.curve) is not None:
                at, mean, off = np.exp(curve.beta), getattr(curve, pick), getattr(curve, f"{pick}_error")
                axis.plot(at, mean, color=colour, lw=1.4)
                axis.fill_between(at, mean - off, mean + off, color=colour, alpha=0.2, lw=0)
        if (known := shown.known) is not None:
            there = [(exp(at), value) for at, value in zip(known.at, getattr(known, pick), strict=True) if value]
            if there:
                axis.plot(*zip(*there, strict=True), color=INK, lw=1.1, ls=":", label=known.text)
        axis.set(xscale="log", yscale="log", ylabel=label)
        axis.legend()
    halves[-1].set_xlabel(r"$\Gamma$, as measured")
    return drawn("transport", figure)


def _freezing(result: CampaignResult, shown: TransitionFigure) -> Drawn:
    figure, (axis,) = axes_of(1, 1, (6.6, 3.8))
    for found, volume, colour in zip(result.freezing, shown.volumes, COLOURS, strict=False):
        rated = [(exp(point.beta), point.order.mean) for point in volume.points if point.order is not None]
        if rated:
            axis.plot(*zip(*rated, strict=True), "o", ms=4, color=colour, label="trajectories")
        if found.log_gamma is not None and found.error is not None:
            low, high = (exp(found.log_gamma + side * found.error) for side in (-1, 1))
            axis.axvspan(low, high, color=COLOURS[4], alpha=0.25, lw=0, label="where rates cross zero")
    axis.axhline(0.0, color=GREY, lw=0.8)
    for known in shown.published:
        axis.axvline(exp(known.at), color=INK, lw=1.1, ls=":", label="published")
    axis.set(xlabel=r"$\Gamma$, as measured", ylabel=r"rate of the order [$10^{-4}\,\omega_p$]")
    axis.legend()
    return drawn("freezing", figure)


def _histories(chains: Sequence[ChainLog], target: Target) -> Drawn:
    figure, axes = axes_of(len(chains), 2, (8.6, 1.35 * len(chains) + 0.7))
    for i, chain in enumerate(chains):
        moved, pair = trajectory_of(chain, target), axes[2 * i : 2 * i + 2]
        for axis, values, colour in zip(pair, (moved.gamma, moved.seen), COLOURS, strict=False):
            axis.axvspan(0, chain.warmup, color=GREY, alpha=0.28, lw=0)
            axis.plot(np.arange(values.size) + 0.5, values, ".-", color=colour, lw=0.8, ms=3)
            axis.set_xlim(0, max(values.size, 1))
        pair[0].set_ylabel(r"$\Gamma$")
        pair[1].set_ylabel(moved.label)
        pair[0].set_title(f"{chain.id}   aimed at $\\Gamma$ = {exp(chain.beta):.4g}", fontsize=9)
    for axis in axes[-2:]:
        axis.set_xlabel("segment")
    return drawn("trajectories", figure)


# -- files ------------------------------------------------------------------------------------------------------------


def plasma_csv(result: CampaignResult) -> str:
    """Return what was found as a table: points and curves of transport, or the rate of every trajectory.

    Gamma is what was measured; along a curve it is the coordinate.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    if result.freezing:
        writer.writerow(["particles", "trajectory", "gamma", "rate", "time", "order_first", "order_last"])
        for volume, frozen in zip(result.volumes, result.freezing, strict=True):
            for one in frozen.trajectories:
                rate = "" if one.rate is None else one.rate
                writer.writerow([volume.dims[0], one.chain, one.gamma, rate, one.time, one.began, one.ended])
        return text.getvalue()
    columns = ("D", "D_error", "eta", "eta_error")
    writer.writerow(["particles", "what", "gamma", *columns])
    for volume, found in zip(result.volumes, result.transport, strict=True):
        for p in found.points:
            writer.writerow([
                volume.dims[0], "point", p.gamma, p.diffusion, p.diffusion_error, p.viscosity, p.viscosity_error
            ])  # fmt: skip
        for gamma, *values in curve_rows(found.curve):
            writer.writerow([volume.dims[0], "curve", gamma, *values])
    return text.getvalue()


def curve_rows(curve: TransportCurve | None) -> list[tuple[float, ...]]:
    """Return Gamma, D*, its error, eta*, its error along a curve."""
    if curve is None:
        return []
    logs = zip(
        curve.at, curve.log_diffusion, curve.log_diffusion_error, curve.log_viscosity, curve.log_viscosity_error,
        strict=True,
    )  # fmt: skip
    return [(exp(at), exp(d), exp(d) * de, exp(v), exp(v) * ve) for at, d, de, v, ve in logs]
