"""The figures of a plasma: transport along the coupling, rates of crystals, histories of trajectories."""

from math import exp
from typing import Any

import numpy as np

from metalforge.campaign import COLOURS, GREY, INK, CampaignState, Drawn, TransitionFigure, axes_of, drawn, system_name

from .report import TEXTS

HISTORIES = 6
"""Trajectories whose histories are shown, spread over the range."""


def draw_transport(shown: TransitionFigure) -> Drawn:
    """Draw D* and eta* along the coupling."""
    figure, halves = axes_of(2, 1, (6.2, 6.4), sharex=True)
    for axis, pick, label in zip(halves, ("order", "chi"), ("$D^*$", r"$\eta^*$"), strict=True):
        for volume, colour in zip(shown.systems, COLOURS, strict=False):
            points = [
                (exp(p.coordinate), value.mean, value.error) for p in volume.points if (value := getattr(p, pick))
            ]
            if points:
                gammas, means, errors = zip(*points, strict=True)
                look: dict[str, Any] = {"fmt": "o", "ms": 4, "elinewidth": 1, "capsize": 2}
                axis.errorbar(gammas, means, errors, color=colour, label=system_name(volume.system), **look)
            if (curve := volume.curve) is not None:
                at, mean, off = np.exp(curve.coordinate), getattr(curve, pick), getattr(curve, f"{pick}_error")
                axis.plot(at, mean, color=colour, lw=1.4)
                axis.fill_between(at, mean - off, mean + off, color=colour, alpha=0.2, lw=0)
        if (known := shown.known) is not None:
            there = [(exp(at), value) for at, value in zip(known.at, getattr(known, pick), strict=True) if value]
            if there:
                axis.plot(*zip(*there, strict=True), color=INK, lw=1.1, ls=":", label=known.text)
        axis.set(xscale="log", yscale="log", ylabel=label)
        axis.legend()
    halves[-1].set_xlabel(r"$\Gamma$, as measured")
    return drawn("transport", figure, TEXTS)


def draw_freezing(shown: TransitionFigure) -> Drawn:
    """Draw the rates by which crystals grow."""
    figure, (axis,) = axes_of(1, 1, (6.6, 3.8))
    for volume, colour in zip(shown.systems, COLOURS, strict=False):
        rated = [(exp(point.coordinate), point.order.mean) for point in volume.points if point.order is not None]
        if rated:
            axis.plot(*zip(*rated, strict=True), "o", ms=4, color=colour, label="trajectories")
        if volume.result is not None and volume.error is not None:
            low, high = (exp(volume.result + side * volume.error) for side in (-1, 1))
            axis.axvspan(low, high, color=COLOURS[4], alpha=0.25, lw=0, label="where rates cross zero")
    axis.axhline(0.0, color=GREY, lw=0.8)
    for known in shown.published:
        axis.axvline(exp(known.at), color=INK, lw=1.1, ls=":", label="published")
    axis.set(xlabel=r"$\Gamma$, as measured", ylabel=r"rate of the order [$10^{-4}\,\omega_p$]")
    axis.legend()
    return drawn("freezing", figure, TEXTS)


def draw_histories(state: CampaignState) -> list[Drawn]:
    """Draw some trajectories segment by segment; nothing where there is none."""
    logs = sorted((c for c in state.chains.values() if c.rows), key=lambda c: (c.system, c.coordinate, c.id))
    if not logs:
        return []
    chains = [logs[i] for i in sorted({round(i) for i in np.linspace(0, len(logs) - 1, min(HISTORIES, len(logs)))})]
    figure, axes = axes_of(len(chains), 2, (8.6, 1.35 * len(chains) + 0.7))
    for i, chain in enumerate(chains):
        moved, pair = state.spec.theory.report.history(state, chain), axes[2 * i : 2 * i + 2]
        for axis, values, colour in zip(pair, moved.series, COLOURS, strict=False):
            axis.axvspan(0, chain.warmup, color=GREY, alpha=0.28, lw=0)
            axis.plot(np.arange(values.size) + 0.5, values, ".-", color=colour, lw=0.8, ms=3)
            axis.set_xlim(0, max(values.size, 1))
        pair[0].set_ylabel(r"$\Gamma$")
        pair[1].set_ylabel(moved.labels[1])
        pair[0].set_title(f"{chain.id}   aimed at $\\Gamma$ = {exp(chain.coordinate):.4g}", fontsize=9)
    for axis in axes[-2:]:
        axis.set_xlabel("segment")
    return [drawn("trajectories", figure, TEXTS)]
