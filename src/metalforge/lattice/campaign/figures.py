"""The figure that only lattices have: loops in the complex plane."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from metalforge.campaign import COLOURS, GREY, CampaignState, Panels, ReportedPeak, plane_of


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
