"""How a theory's results are shown: `Report` has what every theory can use, `PeakReport` that of a susceptibility.

The main figure is data (`TransitionFigure`): the report draws it, the live page draws it, and they agree.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metalforge.campaign.analysis.curve import TransitionCurve
from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState
from metalforge.campaign.theory import System, TheoryWords
from metalforge.statistics import Estimate, Value

from . import downloads, html, sections
from .decisions import ResultPart
from .figure_data import ChainHistory
from .result import ChainResult, Results, bare_result, chain_results, in_order
from .words import number_text, say, substrate_text, system_name

if TYPE_CHECKING:  # loaded where it is asked for
    from .drawing import Drawn


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


Figures = Mapping[str, str]
"""The figures of a page as HTML, by name."""


def compared_section(beside: Sequence[ComparedCampaign], figures: Figures) -> str:
    """Return several campaigns in one figure and one table; empty where none is compared."""
    if not beside:
        return ""
    lines = html.table(COMPARED, [campaign.line for campaign in beside])
    return html.section("Compared", figures.get("compared", "") or html.paragraph(f"There is {apart(beside)}."), lines)


class Report(ABC):
    """Shows what a campaign of one theory found; `figure`, `history` and `sections` are the theory's own."""

    def chains(self, shown: Results) -> tuple[ChainResult, ...]:
        """Return what each chain measured."""
        return tuple(bare_result(shown.theory, chain) for chain in in_order(shown.state))

    def lines(self, shown: Results) -> Iterator[str]:
        """Give what was found as lines for a terminal, the headline first."""
        return sections.found_lines(shown)

    def comparison(self, shown: Results) -> str:
        """Return one sentence that compares with what is published; empty where nothing is."""
        return ""

    def cautions(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return what to be careful about with such a spec."""
        return ()

    def known(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return what is known of what is looked for, before anything runs."""
        return ()

    def curves_csv(self, shown: Results) -> str:
        """Return the main figure as CSV: points, and curves, where no line is drawn from one `segment` to the next."""
        coordinate, *names = shown.words.columns
        picks = {pick: name for pick, name in zip(("order", "chi"), names, strict=True) if name}
        if shown.theory.target == "peak":
            picks["b4"] = "b4"
        errors = [f"{name}{error}" for name in picks.values() for error in ("", "_error")]
        rows: list[tuple[object, ...]] = []
        for system in self.figure(shown).systems:
            name, curve = system_name(system.system), system.curve
            for point in system.points:
                found = [getattr(point, pick, None) for pick in picks]
                values = [number for one in found for number in ((one.mean, one.error) if one else ("", ""))]
                rows.append((name, "point", point.chain, "", point.coordinate, *values))
            if curve is not None:
                columns = [getattr(curve, f"{pick}{error}") for pick in picks for error in ("", "_error")]
                along = zip(curve.segment, curve.coordinate, *columns, strict=True)
                rows += [(name, "curve", "", *numbers) for numbers in along]
        return downloads.csv_text(("system", "what", "chain", "segment", coordinate, *errors), rows)

    @abstractmethod
    def figure(self, shown: Results) -> TransitionFigure:
        """Return the main figure as data."""

    @abstractmethod
    def history(self, state: CampaignState, chain: ChainLog) -> ChainHistory:
        """Return the two series by which a chain is looked at."""

    @abstractmethod
    def draw(self, shown: Results) -> "Iterator[Drawn]":
        """Give the figures of the physics that there are data for, the main one first."""

    @abstractmethod
    def sections(
        self, shown: Results, figures: Figures, links: str, beside: Sequence[ComparedCampaign] = ()
    ) -> list[str]:
        """Return the sections of the page about physics."""

    def definitions(self, spec: CampaignSpec) -> dict[str, str]:
        """Return what the numbers are, by name."""
        return {}


class PeakReport(Report):
    """Shows the peak of a susceptibility; a theory of its own adds what else there is."""

    def chains(self, shown: Results) -> tuple[ChainResult, ...]:
        """Return the order parameter and chi of each chain."""
        return chain_results(shown.state, shown.found)

    def lines(self, shown: Results) -> Iterator[str]:
        """Give what was found as lines for a terminal."""
        return sections.peak_lines(shown)

    def published(self, state: CampaignState) -> tuple[PublishedPlace, ...]:
        """Return where others found the peak, within the range."""
        return ()

    def figure(self, shown: Results) -> TransitionFigure:
        """Return the order parameter and chi along the coordinate."""
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
        return TransitionFigure(words=shown.words, systems=tuple(systems), published=self.published(shown.state))

    def labels(self, state: CampaignState) -> tuple[str, str]:
        """Return what the two series of a history are."""
        return "E", state.spec.theory.order.text

    def history(self, state: CampaignState, chain: ChainLog) -> ChainHistory:
        """Return the series by which the end of the warm-up is judged."""
        theory = state.spec.theory
        columns = {name: chain.column(name, measured=False) for name in chain.columns}
        first, second = theory.warmup_columns(columns) if columns else ((), ())
        series = np.asarray(first, np.float64), np.asarray(second, np.float64)
        measured = theory.order_of(chain.column)
        return ChainHistory(series, self.labels(state), chain.warmup, measured, theory.order.text)

    def draw(self, shown: Results) -> "Iterator[Drawn]":
        """Give the order parameter and chi, several systems, histories, and what the peak rests on."""
        from .figures import draw_histories, draw_systems, draw_transition
        from .figures_of_evidence import draw_evidence

        yield from draw_transition(shown)
        yield from draw_systems(shown)
        yield from draw_histories(shown)
        yield from draw_evidence(shown)

    def theory(self, spec: CampaignSpec) -> str:
        """Return the physics in a few words."""
        return spec.theory.table()

    def sections(
        self, shown: Results, figures: Figures, links: str, beside: Sequence[ComparedCampaign] = ()
    ) -> list[str]:
        """Return the headline, the transition, its evidence, histories and all chains."""
        title, meaning = sections.verdict(shown)
        return [
            sections.headline(shown, title, meaning, theory=self.theory(shown.spec)),
            sections.transition_section(shown, figures),
            compared_section(beside, figures),
            sections.evidence_section(shown, figures),
            *self.more_sections(shown, figures),
            html.section("Histories", figures.get("histories", "")),
            sections.points_section(shown, links, self.said_of_points(shown)),
        ]

    def more_sections(self, shown: Results, figures: Figures) -> list[str]:
        """Return sections after the evidence."""
        return []

    def said_of_points(self, shown: Results) -> str:
        """Return what is to be known to read the table of chains."""
        return ""

    def definitions(self, spec: CampaignSpec) -> dict[str, str]:
        """Return what the numbers of a peak are."""
        order, words = spec.theory.order, spec.theory.words
        known = {"order": order.text, "volume": order.volume, "kind": words.system, "update": words.update}
        names = {
            "order parameter": "order",
            "susceptibility": "chi",
            words.found: "peak",
            "B4": "b4",
            "tau_int": "tau_int",
        }
        return {name: say(f"definitions.{key}", coordinate=words.coordinate, **known) for name, key in names.items()}
