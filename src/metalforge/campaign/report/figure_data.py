"""What the figures of the transition show, as data: the report draws it, the live page draws it, and they agree."""

from collections.abc import Mapping, Sequence
from math import exp, log

import numpy as np

from metalforge.campaign.physics.curve import TransitionCurve
from metalforge.campaign.physics.published import PUBLISHED
from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState
from metalforge.campaign.theories import TheoryWords
from metalforge.statistics.estimate import Estimate

from .decisions import ResultPart
from .result import CampaignResult, CampaignSummary, summary_of
from .words import beta_text, substrate_text

SCALED = 80
"""Places of a published curve."""


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


class PublishedPlace(ResultPart, frozen=True, kw_only=True):
    """Where others found what is looked for; by whom, in short and in full."""

    at: float
    text: str
    short: str
    source: str


class PublishedCurve(ResultPart, frozen=True, kw_only=True):
    """What others found along the coordinate; None where it says nothing."""

    text: str
    at: tuple[float, ...]
    order: tuple[float | None, ...]
    chi: tuple[float | None, ...]


class TransitionFigure(ResultPart, frozen=True, kw_only=True):
    """The order parameter and chi against beta, by volume, and what is published for infinite volume.

    Of a plasma `order` and `chi` are what `words.shows` says: D* and eta*, or the rates of crystals and nothing.
    """

    observable: str
    words: TheoryWords
    volumes: tuple[TransitionVolume, ...]
    published: tuple[PublishedPlace, ...]
    known: PublishedCurve | None = None


def transition_figure(
    state: CampaignState, result: CampaignResult, curves: Mapping[Dims, TransitionCurve]
) -> TransitionFigure:
    """Return the figure of the transition, or of what stands in its place."""
    if state.spec.lattice is None:
        return _of_particles(state, result)
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
    return TransitionFigure(
        observable=result.observable,
        words=state.spec.theory.words,
        volumes=tuple(volumes),
        published=_published(state),
    )


def _of_particles(state: CampaignState, result: CampaignResult) -> TransitionFigure:
    """Return D* (as the order) and eta* (as chi) along ln Gamma as measured, or the rates by which crystals grow."""
    from metalforge.plasma.references import melting_gamma

    assert state.spec.plasma is not None
    kappa, volumes = state.spec.plasma.kappa, []
    published: tuple[PublishedPlace, ...] = ()
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
                chain=one.chain, beta=log(one.gamma), order=_as_estimate(1e4 * one.rate, 0.0, one.segments), chi=None
            )
            for one in frozen.trajectories
            if one.rate is not None
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
    if result.freezing:
        melting = melting_gamma(kappa)
        published = (
            PublishedPlace(
                at=log(melting),
                text=f"Gamma_m = {melting:.4g} at kappa {kappa:g}",
                short="Hamaguchi et al. 1997",
                source="S. Hamaguchi, R. T. Farouki and D. H. E. Dubin, Phys. Rev. E 56 (1997) 4671",
            ),
        )
    reach = [point.gamma for found in result.transport for point in found.points]
    return TransitionFigure(
        observable=result.observable,
        words=state.spec.theory.words,
        volumes=tuple(volumes),
        published=published,
        known=_scaled(kappa, min(reach), max(reach)) if reach else None,
    )


def _scaled(kappa: float, low: float, high: float) -> PublishedCurve:
    """Return D* and eta* by freezing scaling, over the couplings that were measured."""
    from metalforge.plasma.references import diffusion_scaled, viscosity_scaled

    gammas = np.geomspace(low, high, SCALED).tolist()
    return PublishedCurve(
        text="published, freezing scaling",
        at=tuple(map(log, gammas)),
        order=tuple(diffusion_scaled(gamma, kappa) for gamma in gammas),
        chi=tuple(viscosity_scaled(gamma, kappa) for gamma in gammas),
    )


def _as_estimate(mean: float, error: float, n: int) -> Estimate:
    return Estimate(mean=mean, error=error, error_error=0.0, tau_int=0.5, tau_int_error=0.0, window=0, n=n)


def _published(state: CampaignState) -> tuple[PublishedPlace, ...]:
    """Return the published couplings that lie in the range of a quenched campaign."""
    lattice = state.spec.gauge
    if lattice.has_other_theory:
        return ()
    found = (PUBLISHED.get(n_t) for n_t in sorted({dims[3] for dims in lattice.volumes}))
    return tuple(
        PublishedPlace(at=k.beta_c, text=f"infinite volume, N_t = {k.n_t}: {k.printed}", short=k.short, source=k.source)
        for k in found
        if k is not None and lattice.beta_min <= k.beta_c <= lattice.beta_max
    )


COMPARED = ("campaign", "found", "updates", "seconds", "energy", "silicon", "evidence")
"""The columns of a table of campaigns beside each other."""


class ComparedCampaign(ResultPart, frozen=True, kw_only=True):
    """A campaign beside others: its figure, its summary, and its line of the table, in words."""

    name: str
    figure: TransitionFigure
    summary: CampaignSummary
    quoted: str
    """What a peak is quoted as."""
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
            _found(state, result, quoted),
            f"{summary.trajectories}",
            f"{summary.seconds:.1f}",
            "; ".join(spent) or "not known",
            "; ".join(map(substrate_text, summary.substrates)),
            held + (f"; lacking: {', '.join(lacking)}" if lacking else ""),
        ),
    )


def _found(state: CampaignState, result: CampaignResult, quoted: str) -> str:
    """Return what a campaign found, by name, and whether that is established."""
    words = state.spec.theory.words
    said, error = f"{words.found} = {quoted}", None if result.quoted is None else result.quoted.error
    if result.of_plasma:
        said, error = result.of_plasma[0].said, result.of_plasma[0].error
    return words.missing if error is None else said if result.established else f"{said}, not established"


def apart(campaigns: Sequence[ComparedCampaign]) -> str:
    """Return why campaigns have no figure in common; nothing where they have."""
    first = campaigns[0].figure.words
    for other in campaigns[1:]:
        words = other.figure.words
        if (words.axis, words.shows) != (first.axis, first.shows):
            shown = [f"{one.name} shows {_shown(one.figure.words)}" for one in (campaigns[0], other)]
            return f"no figure in common: {', '.join(shown)}"
    return ""


def _shown(words: TheoryWords) -> str:
    return f"{' and '.join(filter(None, words.shows))} against {words.coordinate}"
