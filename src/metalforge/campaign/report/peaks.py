"""The located peaks of a campaign with the chains that they rest on: what the figures of evidence are drawn from."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from metalforge.campaign.observables import ORDERS
from metalforge.campaign.physics.evidence import Finding
from metalforge.campaign.physics.phases import Shape, shape_at
from metalforge.campaign.physics.selection import MeasuredChain
from metalforge.campaign.physics.transition import Located, Transition
from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState

__all__ = ["ReportedPeak", "peaks_of"]

Key: TypeAlias = tuple[float, int, float]


class ReportedPeak(NamedTuple):
    """A peak, the chains that were joined for it, and how the order parameter is distributed there.

    `order` is the order parameter in words, `names` what the chains are called.
    """

    located: Located
    shape: Shape
    order: str
    names: Mapping[Key, str]

    @property
    def transition(self) -> Transition:
        """Where it is, and how high."""
        return self.located.transition

    @property
    def chains(self) -> tuple[MeasuredChain, ...]:
        """The chains that were joined, in order of beta."""
        return self.located.chains

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
        return rf"{self.names[_key(chain)]}: $\beta$ = {chain.beta:.5g}{start}"


def peaks_of(state: CampaignState, found: Mapping[Dims, Finding]) -> list[ReportedPeak]:
    """Return the peaks of all volumes in which one was located."""
    peaks = []
    for dims, finding in found.items():
        if (located := finding.located) is not None:
            # A series carries no name; its beta, length and first row tell which chain it is of.
            names = {
                (chain.beta, chain.measured, chain.columns["plaquette"][chain.warmup]): chain.id
                for chain in state.chains.values()
                if chain.dims == dims and chain.measured
            }
            shape = shape_at(located.joint, located.chains, located.transition.beta_c)
            peaks.append(ReportedPeak(located, shape, ORDERS[state.spec.lattice.order].text, names))
    return peaks


def _key(chain: MeasuredChain) -> Key:
    return chain.beta, chain.energy.size, float(chain.point.plaquette[0])
