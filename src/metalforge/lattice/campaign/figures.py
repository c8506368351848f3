"""The figures that only lattices have: the plaquette, loops in the complex plane, sea quarks, how HMC ran."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from metalforge.campaign import (
    COLOURS,
    GREY,
    CampaignState,
    ChainResult,
    Drawn,
    Panels,
    ReportedPeak,
    Results,
    axes_of,
    by_volume,
    draw_points,
    drawn,
    plane_of,
)
from metalforge.statistics import Estimate

from .advice import TEXTS, say

if TYPE_CHECKING:
    from .quarks import Quarks

BETA = r"$\beta = 6/g^2$"


def draw_plaquette(shown: Results) -> Drawn:
    """Draw the plaquette of every chain against beta."""
    figure, (axis,) = axes_of(1, 1, (6.2, 3.0))
    for _, colour, name, chains in by_volume(shown):
        draw_points(axis, chains, lambda chain: chain.values.get("plaquette"), colour, name)
    axis.set(xlabel=BETA, ylabel=r"plaquette $\langle \mathrm{Re\,tr}\,U_p\rangle / 3$")
    axis.legend()
    return drawn("plaquette", figure, TEXTS)


def draw_quarks(shown: Results, quarks: "Mapping[str, Quarks]") -> Drawn:
    """Draw loop, condensate and disconnected susceptibility against beta, with the peak of each volume."""
    figure, axes = axes_of(3, 1, (7.4, 8.2), sharex=True)
    fields = ("re_loop", "condensate", "disconnected")
    labels = (r"$\langle \mathrm{Re}\,L \rangle$", r"$\langle \bar\psi\psi \rangle$", r"$\chi_\mathrm{disc}$")
    for axis, field, label in zip(axes, fields, labels, strict=True):
        for volume, colour, name, chains in by_volume(shown):
            known = [chain for chain in chains if chain.id in quarks]
            draw_points(axis, known, partial(_quark, quarks, field), colour, name)
            if (peak := volume.transition) is not None:
                axis.axvline(peak.result, color=colour, lw=1, ls="--")
        axis.set_ylabel(label)
    axes[-1].set_xlabel(BETA)
    axes[0].legend()
    return drawn("quarks", figure, TEXTS)


def _quark(quarks: "Mapping[str, Quarks]", field: str, chain: ChainResult) -> Estimate:
    found: Estimate = getattr(quarks[chain.id], field)
    return found


def draw_hmc(shown: Results) -> Drawn:
    """Draw the acceptance of HMC and, with sea quarks, the CG iterations of a solve."""
    sea = any("cg_iterations" in chain.values for chain in shown.chains)
    figure, axes = axes_of(1, 1 + sea, (4.1 * (1 + sea), 3.2))
    for _, colour, name, chains in by_volume(shown):
        rows = [c for c in chains if "accepted" in c.values]
        for axis, column, scale in zip(axes, ("accepted", "cg_iterations"), (100, 1), strict=False):
            means = [scale * c.values[column].mean for c in rows]
            axis.plot([c.coordinate for c in rows], means, "o", color=colour, label=name)
    axes[0].set(ylim=(0, 103), ylabel="accepted trajectories [%]")
    if sea:
        axes[1].set(ylabel="CG iterations per solve", ylim=(0, None))
    for axis in axes:
        axis.set_xlabel(BETA)
    axes[0].legend()
    return drawn("hmc", figure, TEXTS, solves=say("captions.solves") if sea else "")


def loop_planes(state: CampaignState) -> Panels:
    """Return how the loops of the chains nearest to a peak are drawn."""
    loops = {name: loop_of(chain.column) for name, chain in state.chains.items()}
    return Panels(partial(_plane, loops), 2.1, 0.2, columns=3)


def loop_of(column: Callable[[str], NDArray[np.float64]]) -> NDArray[np.complex128]:
    """Return the Polyakov loop in every row."""
    return np.asarray(column("polyakov_re") + 1j * column("polyakov_im"), np.complex128)


def _plane(loops: Mapping[str, NDArray[np.complex128]], peak: ReportedPeak, *row: Axes) -> None:
    chains = peak.nearest(len(row))
    planes = [plane_of(loops[chain.point.chain]) for chain in chains]
    reach = 1.05 * max(plane.reach for plane in planes)
    for axis, chain, plane in zip(row, chains, planes, strict=False):
        for angle in 2 * np.pi / 3 * np.arange(3):
            axis.plot([0, reach * np.cos(angle)], [0, reach * np.sin(angle)], color=GREY, lw=0.8, ls=":")
        axis.plot(plane.re, plane.im, ".", ms=2.5, color=COLOURS[0], alpha=0.6, mew=0, rasterized=True)
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="Re L")
        axis.set_title(peak.label(chain), loc="center", fontsize=8)
    row[0].set_ylabel(f"Im L, {peak.title}")
    for axis in row[len(chains) :]:
        axis.set_axis_off()
