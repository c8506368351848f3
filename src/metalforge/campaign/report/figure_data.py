"""What the figures of the transition show, as data: the report draws it, the live page draws it, and they agree."""

from collections.abc import Sequence
from typing import Any

from metalforge.campaign.analysis.curve import TransitionCurve
from metalforge.campaign.theory import System, TheoryWords
from metalforge.statistics import Estimate, Value

from .decisions import ResultPart
from .result import Results
from .words import number_text, substrate_text


class TransitionPoint(ResultPart, frozen=True, kw_only=True):
    """What one chain measured: the order parameter and its chi, None while it is too short."""

    chain: str
    coordinate: float
    order: Estimate | Value | None
    chi: Estimate | Value | None


class TransitionSystem(ResultPart, frozen=True, kw_only=True):
    """One volume: its chains, the curves that join them, and the peak of chi where it is located."""

    system: System
    points: tuple[TransitionPoint, ...]
    curve: TransitionCurve | None = None
    result: float | None = None
    error: float | None = None
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
    """The order parameter and chi against the coordinate, by system, and what is published; or what `words.shows`."""

    words: TheoryWords
    systems: tuple[TransitionSystem, ...]
    published: tuple[PublishedPlace, ...]
    known: PublishedCurve | None = None


def peak_figure(shown: Results, published: tuple[PublishedPlace, ...] = ()) -> TransitionFigure:
    """Return the figure of a peak."""
    systems = []
    for volume in shown.systems:
        chains = [c for c in shown.chains if c.system == volume.system and not c.abandoned]
        peak = volume.transition
        systems.append(
            TransitionSystem(
                system=volume.system,
                points=tuple(
                    TransitionPoint(chain=c.id, coordinate=c.coordinate, order=c.order, chi=c.chi) for c in chains
                ),
                curve=shown.curves.get(volume.system),
                result=None if peak is None else peak.result,
                error=None if peak is None else peak.error,
                established=volume.established,
            )
        )
    return TransitionFigure(words=shown.words, systems=tuple(systems), published=published)


COMPARED = ("campaign", "found", "updates", "seconds", "energy", "silicon", "evidence")
"""The columns of a table of campaigns beside each other."""


class ComparedCampaign(ResultPart, frozen=True, kw_only=True):
    """A campaign beside others: its figure, its summary, and its line of the table, in words."""

    name: str
    figure: TransitionFigure
    summary: dict[str, Any]
    quoted: str
    """What a peak is quoted as."""
    columns: tuple[str, ...] = COMPARED
    line: tuple[str, ...]


def compared_campaign(shown: Results) -> ComparedCampaign:
    """Return what is shown of a campaign beside others; energies of different sources stay apart."""
    summary, quoted = shown.summary, number_text(shown.value, shown.error)
    spent = [f"{substrate_text(e.substrate)}: {e.energy.value:.4g} J, {e.source}" for e in shown.energy if e.energy]
    lacking = [item.name for item in shown.evidence if not item.holds]
    held = f"{len(shown.evidence) - len(lacking)} of {len(shown.evidence)} items hold"
    return ComparedCampaign(
        name=shown.spec.name,
        figure=shown.theory.report.figure(shown),
        summary=summary,
        quoted=quoted,
        line=(
            shown.spec.name,
            _found(shown, quoted),
            f"{shown.state.trajectories}",
            f"{shown.seconds:.1f}",
            "; ".join(spent) or "not known",
            "; ".join(map(substrate_text, summary["substrates"])),
            held + (f"; lacking: {', '.join(lacking)}" if lacking else ""),
        ),
    )


def _found(shown: Results, quoted: str) -> str:
    """Return what a campaign found, by name, and whether that is established."""
    if shown.quoted.error is None:
        return shown.words.missing
    said = f"{shown.words.found} = {quoted}" if shown.quoted.value is not None else shown.systems[0].said
    return said if shown.established else f"{said}, not established"


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
