"""The figures of what a peak rests on: the Polyakov loop there, crossings, memory, overlap, and pulls."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from metalforge.campaign.observables import ORDERS
from metalforge.campaign.physics.evidence import (
    JUDGED_TAU,
    MAX_PULL,
    MIN_CROSSINGS,
    MIN_OVERLAP,
    Finding,
    chi_pulls,
)
from metalforge.campaign.physics.phases import TWO_PEAKS, Shape, crossings, density_of, shape_at, weights_at
from metalforge.campaign.physics.selection import MeasuredChain, neighbours, overlap
from metalforge.campaign.physics.transition import Transition
from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState
from metalforge.statistics.estimate import with_error
from metalforge.statistics.gamma import autocorrelation, gamma_method
from metalforge.statistics.histograms import Joint

from .drawing import COLOURS, GREY, INK, Drawn, axes_of
from .words import lattice_math

Floats = NDArray[np.float64]
WIDTH = 6.2
"""Inches: narrow enough that the labels can be read on a telephone."""
SHOWN = 4
"""Chains nearest to the peak in a figure with a line for each."""
BINS = 40
DOTS = 500
"""Rows of one chain in a scatter: more hide each other."""


class ReportedPeak(NamedTuple):
    """A peak, the chains that were joined for it in order of beta, and how the order parameter is distributed there.

    `order` is the order parameter in words.
    """

    transition: Transition
    joint: Joint
    chains: tuple[MeasuredChain, ...]
    shape: Shape
    order: str

    def is_near(self, chain: MeasuredChain) -> bool:
        """Return whether a chain lies within the peak's width."""
        return abs(chain.beta - self.transition.beta_c) <= self.transition.width

    def nearest(self, count: int) -> list[MeasuredChain]:
        """Return the chains nearest to the peak, in order of beta; of those at one beta the longest."""
        by_distance = sorted(self.chains, key=lambda c: (abs(c.beta - self.transition.beta_c), -c.energy.size))
        return sorted(by_distance[:count], key=lambda c: c.beta)

    def label(self, chain: MeasuredChain) -> str:
        """Return what a chain is called in a figure."""
        start = f", {chain.point.start}" if chain.point.start else ""
        return rf"{chain.point.chain}: $\beta$ = {chain.beta:.5g}{start}"


def _peaks_of(state: CampaignState, found: Mapping[Dims, Finding]) -> list[ReportedPeak]:
    """Return the peaks of all volumes in which one was located."""
    peaks = []
    for finding in found.values():
        if (located := finding.located) is not None:
            shape = shape_at(located.joint, located.chains, located.transition.beta_c)
            peaks.append(ReportedPeak(*located, shape, ORDERS[state.spec.lattice.order].text))
    return peaks


def draw_evidence(state: CampaignState, found: Mapping[Dims, Finding]) -> list[Drawn]:
    """Return the figures, each with a panel or a row of them for every located volume; none without a peak."""
    peaks = _peaks_of(state, found)
    figures = (_histograms, _plane, _crossings, _autocorrelation, _overlap, _pulls)
    return [draw(peaks) for draw in figures] if peaks else []


def _histograms(peaks: Sequence[ReportedPeak]) -> Drawn:
    figure, axes = axes_of(len(peaks), 1, (WIDTH, 2.9 * len(peaks) + 0.3))
    for axis, peak in zip(axes, peaks, strict=True):
        loop, weight = weights_at(peak.joint, peak.chains, peak.transition.beta_c)
        edges = np.linspace(min(loop.min(), 0), loop.max(), BINS + 1).tolist()
        for chain, colour in zip(peak.nearest(SHOWN), COLOURS, strict=False):
            axis.hist(chain.order, edges, density=True, histtype="step", color=colour, lw=1.1, label=peak.label(chain))
        at, density = density_of(loop, weight, peak.transition.n_effective)
        axis.plot(at, density, color=INK, lw=2, label=r"all, at the peak of $\chi$")
        axis.set(
            xlim=(edges[0], None),
            xlabel=peak.order,
            ylabel="density",
            title=f"{_lattice(peak)}: counted as {peak.shape.kind}",
        )
        axis.legend(fontsize=8)
    return Drawn(
        "loop-histogram",
        f"How {peaks[0].order} is distributed at the peak",
        "Steps: the chains nearest to the peak, each at its own beta. Line: all chains together, reweighted to the "
        f"peak and smoothed. Where the valley between two maxima is below {TWO_PEAKS:g} of the lower one there are two "
        "phases, and the chains must go back and forth between them.",
        figure,
    )


def _plane(peaks: Sequence[ReportedPeak]) -> Drawn:
    columns = 3
    figure, axes = axes_of(len(peaks), columns, (WIDTH, 2.1 * len(peaks) + 0.2))
    for i, peak in enumerate(peaks):
        chains = peak.nearest(columns)
        reach = 1.05 * max(float(chain.point.abs_loop.max()) for chain in chains)
        row = axes[columns * i : columns * (i + 1)]
        for axis, chain in zip(row, chains, strict=False):
            for angle in 2 * np.pi / 3 * np.arange(3):
                axis.plot([0, reach * np.cos(angle)], [0, reach * np.sin(angle)], color=GREY, lw=0.8, ls=":")
            loop = chain.point.polyakov[:: -(-chain.point.polyakov.size // DOTS)]
            axis.plot(loop.real, loop.imag, ".", ms=2.5, color=COLOURS[0], alpha=0.6, mew=0, rasterized=True)
            axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
            axis.set_title(peak.label(chain), loc="center", fontsize=8)
            axis.set_xlabel("Re L")
        row[0].set_ylabel(f"Im L, {_lattice(peak)}")
        for axis in row[len(chains) :]:
            axis.set_axis_off()
    return Drawn(
        "loop-plane",
        "The Polyakov loop in the complex plane",
        "Rows of the chains nearest to the peak, thinned. Dotted: the directions of the three centre elements, of "
        "which a quenched chain visits all when it is long enough. One blob around zero is the confined phase.",
        figure,
    )


def _crossings(peaks: Sequence[ReportedPeak]) -> Drawn:
    figure, axes = axes_of(2 * len(peaks), 1, (WIDTH, 4.1 * len(peaks) + 0.2))
    for peak, history, counts in zip(peaks, axes[::2], axes[1::2], strict=True):
        low, high = peak.shape.thresholds
        (chain,) = peak.nearest(1)
        history.axhspan(low, high, color=COLOURS[4], alpha=0.25, lw=0, label="between the thresholds")
        history.plot(chain.order, color=COLOURS[0], lw=0.5, rasterized=True)
        history.set(
            xlim=(0, chain.order.size),
            ylim=(min(float(chain.order.min()), 0), None),
            xlabel="measured update",
            ylabel=peak.order,
            title=f"{_lattice(peak)}, {peak.label(chain)}",
        )
        history.legend(fontsize=8, loc="upper right")
        _mark(counts, peak)
        number = [crossings(chain.order, low, high) for chain in peak.chains]
        for chain, count in zip(peak.chains, number, strict=True):
            colour = COLOURS[0] if peak.is_near(chain) else "white"
            counts.plot(chain.beta, count, "o", ms=5, mec=COLOURS[0], mfc=colour)
        together = sum(n for chain, n in zip(peak.chains, number, strict=True) if peak.is_near(chain))
        needed = f"{MIN_CROSSINGS:.0f} needed" if peak.shape.two_phases else "one phase: none needed"
        counts.set_title(f"{together} together within the width of the peak; {needed}", fontsize=9)
        counts.set(ylim=(0, None), ylabel="crossings", xlabel=r"$\beta = 6/g^2$")
    return Drawn(
        "crossings",
        "Crossings between the phases",
        f"Top: {peaks[0].order} of the chain nearest to the peak; it crosses when it goes from below the band to above "
        "it or back, so that noise at a border does not count. Bottom: how often each chain did; filled, within the "
        "width of the peak (shaded), where they count.",
        figure,
    )


def _autocorrelation(peaks: Sequence[ReportedPeak]) -> Drawn:
    figure, axes = axes_of(len(peaks), 1, (WIDTH, 2.7 * len(peaks) + 0.3))
    for axis, peak in zip(axes, peaks, strict=True):
        longest = 20
        for chain, colour in zip(peak.nearest(SHOWN), COLOURS, strict=False):
            found = gamma_method(chain.order)
            rho = autocorrelation(chain.order)
            longest = max(longest, 2 * found.window)
            memory = with_error(found.tau_int, found.tau_int_error) if found.tau_int_error else f"{found.tau_int:.3g}"
            axis.plot(rho, color=colour, lw=1.2, label=rf"{peak.label(chain)}, $\tau$ = {memory}")
            if found.window < rho.size:
                axis.plot(found.window, rho[found.window], "o", ms=5, color=colour)
        axis.axhline(0, color=GREY, lw=0.8)
        axis.set(
            xlim=(0, longest), xlabel="distance in updates", ylabel=rf"$\rho$ of {peak.order}", title=_lattice(peak)
        )
        axis.legend(fontsize=8)
    return Drawn(
        "autocorrelation",
        "How long the chains remember",
        f"Autocorrelation of {peaks[0].order} in the chains nearest to the peak. tau is the integrated autocorrelation "
        "time in updates by the Gamma method, summed up to the dot: every 2 tau updates there is one independent "
        "sample.",
        figure,
    )


def _overlap(peaks: Sequence[ReportedPeak]) -> Drawn:
    figure, axes = axes_of(2 * len(peaks), 1, (WIDTH, 4.3 * len(peaks) + 0.2))
    for peak, shared, samples in zip(peaks, axes[::2], axes[1::2], strict=True):
        for low, high in pairwise(neighbours(peak.chains)):
            value = overlap(low, high)
            shared.plot([low[0].beta, high[0].beta], [value, value], "-", color=COLOURS[0], lw=2)
        shared.axhline(MIN_OVERLAP, color=INK, lw=1, ls="--", label=f"needed at the peak: {MIN_OVERLAP:g}")
        shared.set(ylim=(0, 1), ylabel="overlap in E", title=_lattice(peak))
        beta = [chain.beta for chain in peak.chains]
        own = [chain.energy.size / (2 * chain.tau) for chain in peak.chains]
        samples.plot(beta, own, "o", ms=5, mec=COLOURS[0], mfc="white", label="the chain's own")
        samples.plot(beta, _carried(peak), "o", ms=5, color=COLOURS[1], label="carried to the peak")
        samples.set(ylim=(0, None), ylabel="effective samples", xlabel=r"$\beta = 6/g^2$")
        for axis in (shared, samples):
            _mark(axis, peak)
            axis.legend(fontsize=8)
    return Drawn(
        "overlap",
        "Overlap of neighbours, and effective samples",
        "Top: how much the energies of the chains at two neighbouring beta overlap, from 0 to 1. Bottom: independent "
        "samples of each chain, and how many of those that carry the peak are its. Shaded: the width of the peak.",
        figure,
    )


def _carried(peak: ReportedPeak) -> Floats:
    """Return how many of the effective samples at the peak are those of each chain."""
    joint, found = peak.joint, peak.transition
    shares = np.bincount(joint.chain_of_block, joint.shares(found.beta_c), minlength=len(peak.chains))
    return np.asarray(found.n_effective * shares, dtype=np.float64)


def _pulls(peaks: Sequence[ReportedPeak]) -> Drawn:
    figure, axes = axes_of(len(peaks), 1, (WIDTH, 2.7 * len(peaks) + 0.3))
    for axis, peak in zip(axes, peaks, strict=True):
        beta = np.array([chain.beta for chain in peak.chains])
        judged = np.array([chain.energy.size >= JUDGED_TAU * chain.tau for chain in peak.chains])
        of_energy, of_loop = peak.joint.pulls([chain.rows() for chain in peak.chains])
        pulls = (
            (r"$\chi$", chi_pulls(peak.joint, peak.chains), "o"),
            ("E", of_energy, "s"),
            (peak.order, of_loop, "^"),
        )
        # Three signs at one beta would hide each other.
        aside = 0.006 * max(float(np.ptp(beta)), 1e-3)
        for i, (name, values, marker) in enumerate(pulls):
            place, colour = beta + (i - 1) * aside, COLOURS[i]
            axis.plot(place[judged], values[judged], marker, ms=5, color=colour, label=name)
            axis.plot(place[~judged], values[~judged], marker, ms=5, mec=colour, mfc="white")
        for limit in (-MAX_PULL, MAX_PULL):
            axis.axhline(limit, color=INK, lw=1, ls="--")
        axis.axhline(0, color=GREY, lw=0.8)
        low, high = axis.get_ylim()
        axis.set_ylim(min(low, -1.2 * MAX_PULL), max(high, 1.2 * MAX_PULL))
        _mark(axis, peak)
        axis.set(xlabel=r"$\beta = 6/g^2$", ylabel="pull [errors]", title=_lattice(peak))
        axis.legend(ncols=3, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1))
    return Drawn(
        "pulls",
        "Do the chains agree with the curve?",
        f"Each chain's own chi, mean E and mean {peaks[0].order} less what all chains together give at its beta, in "
        "its own errors; dashed, the largest that is taken for chance. Hollow: chains shorter than "
        f"{JUDGED_TAU:g} tau, which are not judged.",
        figure,
    )


def _mark(axis: Axes, peak: ReportedPeak) -> None:
    """Shade the width of the peak."""
    found = peak.transition
    axis.axvspan(found.beta_c - found.width, found.beta_c + found.width, color=GREY, alpha=0.15, lw=0)
    axis.axvline(found.beta_c, color=GREY, lw=1, ls=":")


def _lattice(peak: ReportedPeak) -> str:
    return lattice_math(peak.transition.dims)
