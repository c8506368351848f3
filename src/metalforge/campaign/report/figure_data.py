"""What the figures of the transition show, as data: the report draws it, the live page draws it, and they agree."""

from collections.abc import Mapping
from math import exp, log

import numpy as np

from metalforge.campaign.physics.curve import TransitionCurve
from metalforge.campaign.physics.published import PUBLISHED, Published
from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState
from metalforge.statistics.estimate import Estimate

from .decisions import ResultPart
from .result import CampaignResult, CampaignSummary, summary_of
from .words import beta_text, substrate_text


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

    observable: str
    volumes: tuple[TransitionVolume, ...]
    published: tuple[Published, ...]


def transition_figure(
    state: CampaignState, result: CampaignResult, curves: Mapping[Dims, TransitionCurve]
) -> TransitionFigure:
    """Return the figure of the transition, or of what stands in its place."""
    if state.spec.lattice is None:
        return _of_particles(result)
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


def _of_particles(result: CampaignResult) -> TransitionFigure:
    """Return D* (as the order) and eta* (as chi) along ln Gamma as measured, or the order that crystals ended with."""
    volumes = []
    for volume, moved in zip(result.volumes, result.transport, strict=False):
        points = tuple(
            TransitionPoint(
                chain=f"{point.trajectories} at {exp(point.at):.4g}",
                beta=point.abscissa,
                order=_as_estimate(point.diffusion, point.diffusion_error, point.segments),
                chi=_as_estimate(point.viscosity, point.viscosity_error, point.segments),
            )
            for point in moved.points
        )
        curve = None
        if (found := moved.curve) is not None:
            at, zero = np.array(found.at), np.zeros(len(found.at))
            order, chi = np.exp(found.log_diffusion), np.exp(found.log_viscosity)
            errors = order * np.array(found.log_diffusion_error), chi * np.array(found.log_viscosity_error)
            curve = TransitionCurve(zero.astype(np.int64), at, order, errors[0], chi, errors[1], zero, zero)
        volumes.append(
            TransitionVolume(
                dims=volume.dims, points=points, curve=curve, beta_c=None, error=None, established=volume.established
            )
        )
    for volume, frozen in zip(result.volumes, result.freezing, strict=False):
        grown = tuple(
            TransitionPoint(
                chain=one.chain, beta=log(one.gamma), order=_as_estimate(one.ended, 0.0, one.segments), chi=None
            )
            for one in frozen.trajectories
        )
        volumes.append(
            TransitionVolume(
                dims=volume.dims,
                points=grown,
                curve=None,
                beta_c=frozen.log_gamma,
                error=frozen.error,
                established=volume.established,
            )
        )
    return TransitionFigure(observable=result.observable, volumes=tuple(volumes), published=())


def _as_estimate(mean: float, error: float, n: int) -> Estimate:
    return Estimate(mean=mean, error=error, error_error=0.0, tau_int=0.5, tau_int_error=0.0, window=0, n=n)


def _published(state: CampaignState) -> tuple[Published, ...]:
    """Return the published couplings that lie in the range of a quenched campaign."""
    lattice = state.spec.gauge
    if lattice.has_other_theory:
        return ()
    found = (PUBLISHED.get(n_t) for n_t in sorted({dims[3] for dims in lattice.volumes}))
    return tuple(k for k in found if k is not None and lattice.beta_min <= k.beta_c <= lattice.beta_max)


COMPARED = ("campaign", "beta_c", "updates", "seconds", "energy", "silicon", "evidence")
"""The columns of a table of campaigns beside each other."""


class ComparedCampaign(ResultPart, frozen=True, kw_only=True):
    """A campaign beside others: its figure, its summary, and its line of the table, in words."""

    name: str
    figure: TransitionFigure
    summary: CampaignSummary
    quoted: str
    columns: tuple[str, ...] = COMPARED
    line: tuple[str, ...]


def compared_campaign(
    state: CampaignState, result: CampaignResult, curves: Mapping[Dims, TransitionCurve]
) -> ComparedCampaign:
    """Return what is shown of a campaign beside others; energies of different sources stay apart."""
    summary = summary_of(state, result)
    quoted = beta_text(summary.beta_c.value, summary.beta_c.error)
    spent = [f"{substrate_text(e.substrate)}: {e.energy.value:.4g} J, {e.source}" for e in summary.energy if e.energy]
    lacking = [item.name for item in summary.evidence if not item.holds]
    held = f"{len(summary.evidence) - len(lacking)} of {len(summary.evidence)} items hold"
    return ComparedCampaign(
        name=state.spec.name,
        figure=transition_figure(state, result, curves),
        summary=summary,
        quoted=quoted,
        line=(
            state.spec.name,
            quoted if summary.established or summary.beta_c.value is None else f"{quoted}, not established",
            f"{summary.trajectories}",
            f"{summary.seconds:.1f}",
            "; ".join(spent) or "not known",
            "; ".join(map(substrate_text, summary.substrates)),
            held + (f"; lacking: {', '.join(lacking)}" if lacking else ""),
        ),
    )
