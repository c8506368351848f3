"""What figures show, as data: the report draws it, the live page draws it, and so they cannot disagree."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.observables import OrderName
from metalforge.campaign.physics.curve import TransitionCurve
from metalforge.campaign.physics.published import PUBLISHED, Published
from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.statistics.estimate import Estimate

from .decisions import ResultPart
from .result import CampaignResult

Floats = NDArray[np.float64]
BINS = 40


class TransitionPoint(ResultPart, frozen=True, kw_only=True):
    """What one chain measured: the order parameter and its chi, None while it is too short."""

    chain: str
    beta: float
    order: Estimate | None
    chi: Estimate | None


class TransitionVolume(ResultPart, frozen=True, kw_only=True):
    """One volume: its chains, the curves that join them, and the peak of chi where it is located."""

    dims: Dims
    points: tuple[TransitionPoint, ...]
    curve: TransitionCurve | None
    beta_c: float | None
    error: float | None
    established: bool


class TransitionFigure(ResultPart, frozen=True, kw_only=True):
    """The order parameter and chi against beta, by volume, and what is published for infinite volume."""

    observable: OrderName
    volumes: tuple[TransitionVolume, ...]
    published: tuple[Published, ...]


def transition_figure(
    state: CampaignState, result: CampaignResult, curves: Mapping[Dims, TransitionCurve]
) -> TransitionFigure:
    """Return the figure of the transition."""
    volumes = []
    for volume in result.volumes:
        chains = [c for c in result.chains if c.dims == volume.dims and not c.abandoned]
        peak = volume.transition
        volumes.append(
            TransitionVolume(
                dims=volume.dims,
                points=tuple(TransitionPoint(chain=c.id, beta=c.beta, order=c.order, chi=c.chi) for c in chains),
                curve=curves.get(volume.dims),
                beta_c=None if peak is None else peak.beta_c,
                error=None if peak is None else peak.error,
                established=volume.established,
            )
        )
    return TransitionFigure(observable=result.observable, volumes=tuple(volumes), published=_published(state))


def _published(state: CampaignState) -> tuple[Published, ...]:
    """Return the published couplings that lie in the range of a quenched campaign."""
    lattice = state.spec.lattice
    if lattice.has_other_theory:
        return ()
    found = (PUBLISHED.get(n_t) for n_t in sorted({dims[3] for dims in lattice.volumes}))
    return tuple(k for k in found if k is not None and lattice.beta_min <= k.beta_c <= lattice.beta_max)


class ChainHistory(NamedTuple):
    """The plaquette and |L| of a chain, update by update; measurement begins after `warmup`."""

    plaquette: Floats
    loop: Floats
    warmup: int


def history_of(chain: ChainLog) -> ChainHistory:
    """Return the history of a chain, warm-up too."""
    loop = np.hypot(chain.column("polyakov_re", measured=False), chain.column("polyakov_im", measured=False))
    return ChainHistory(chain.column("plaquette", measured=False), loop, chain.warmup)


class OrderHistogram(NamedTuple):
    """The density of a value between edges."""

    edges: Floats
    density: Floats


def histogram_edges(values: Floats) -> Floats:
    """Return the edges of the bins for an order parameter: from 0, or from below where it goes there."""
    return np.linspace(min(float(values.min()), 0.0), float(values.max()), BINS + 1)


def histogram_of(values: Floats, edges: Floats) -> OrderHistogram:
    """Return how values are distributed."""
    return OrderHistogram(edges, np.histogram(values, edges, density=True)[0])
