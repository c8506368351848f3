"""How a campaign's result is shown: `Report` is what a theory gives, `PeakReport` that of a susceptibility's peak."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from metalforge.campaign.analysis.curve import TransitionCurve
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.theory import System

from . import downloads, verdict
from .figure_data import ComparedCampaign, PublishedPlace, TransitionFigure, peak_figure
from .figure_data_of_chains import ChainHistory
from .points import ChainResult, chain_results
from .result import CampaignResult
from .words import say

if TYPE_CHECKING:  # the live page and the terminal draw nothing
    from .drawing import Drawn

Figures = Mapping[str, str]
Curves = Mapping[System, TransitionCurve]


class Report(Protocol):
    """Shows what a campaign of one theory found."""

    def chains(self, state: CampaignState, found: Mapping[System, Any]) -> tuple[ChainResult, ...]:
        """Return what each chain measured."""
        ...

    def lines(self, result: CampaignResult) -> Iterator[str]:
        """Give what was found as lines for a terminal, the headline first."""
        ...

    def comparison(self, spec: CampaignSpec, result: CampaignResult) -> str:
        """Return one sentence that compares with what is published; empty where nothing is."""
        ...

    def cautions(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return what to be careful about with such a spec."""
        ...

    def known(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return what is known of what is looked for, before anything runs."""
        ...

    def curves(self, state: CampaignState) -> dict[System, TransitionCurve]:
        """Return curves along the coordinate, by system."""
        ...

    def curves_csv(self, result: CampaignResult, curves: Curves) -> str:
        """Return the curves as CSV."""
        ...

    def figure(self, state: CampaignState, result: CampaignResult, curves: Curves) -> TransitionFigure:
        """Return the main figure as data."""
        ...

    def history(self, state: CampaignState, chain: ChainLog) -> ChainHistory:
        """Return the two series by which a chain is looked at."""
        ...

    def draw_main(self, state: CampaignState, result: CampaignResult, curves: Curves) -> "Drawn | None":
        """Return the main figure; None without data."""
        ...

    def draw(
        self,
        state: CampaignState,
        result: CampaignResult,
        curves: Curves,
        found: Mapping[System, Any],
        compared: Sequence["Drawn"],
    ) -> list["Drawn"]:
        """Return the figures of the physics, in the order of the page, with those of a comparison among them."""
        ...

    def sections(
        self,
        state: CampaignState,
        result: CampaignResult,
        figures: Figures,
        links: str,
        beside: Sequence[ComparedCampaign],
    ) -> list[str]:
        """Return the sections of the page about physics."""
        ...

    def definitions(self, spec: CampaignSpec) -> str:
        """Return the section of definitions."""
        ...


class PeakReport:
    """Shows the peak of a susceptibility; a theory of its own adds what else there is."""

    def chains(self, state: CampaignState, found: Mapping[System, Any]) -> tuple[ChainResult, ...]:
        """Return the order parameter and chi of each chain."""
        return chain_results(state, found)

    def lines(self, result: CampaignResult) -> Iterator[str]:
        """Give what was found as lines for a terminal."""
        return verdict.peak_lines(result)

    def comparison(self, spec: CampaignSpec, result: CampaignResult) -> str:
        """Return nothing: a theory may know what is published."""
        return ""

    def cautions(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return nothing to be careful about."""
        return ()

    def known(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    def published(self, state: CampaignState) -> tuple[PublishedPlace, ...]:
        """Return where others found the peak, within the range."""
        return ()

    def curves(self, state: CampaignState) -> dict[System, TransitionCurve]:
        """Return the reweighted curves."""
        return downloads.curves_of(state)

    def curves_csv(self, result: CampaignResult, curves: Curves) -> str:
        """Return the curves as CSV."""
        return downloads.curves_csv(curves)

    def figure(self, state: CampaignState, result: CampaignResult, curves: Curves) -> TransitionFigure:
        """Return the order parameter and chi along the coordinate."""
        return peak_figure(state, result, curves, self.published(state))

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

    def draw_main(self, state: CampaignState, result: CampaignResult, curves: Curves) -> "Drawn | None":
        """Return the order parameter and chi; None without data."""
        from .figures import draw_peak

        return next(iter(draw_peak(state, result, curves)), None)

    def draw(
        self,
        state: CampaignState,
        result: CampaignResult,
        curves: Curves,
        found: Mapping[System, Any],
        compared: Sequence["Drawn"],
    ) -> list["Drawn"]:
        """Return the transition, several systems, histories, and what the peak rests on."""
        from .figures import draw_more, draw_peak
        from .figures_of_evidence import draw_evidence

        made = [*draw_peak(state, result, curves), *compared, *draw_more(state, result)]
        return made + draw_evidence(state, found)

    def theory(self, spec: CampaignSpec) -> str:
        """Return the physics in a few words."""
        return spec.theory.table()

    def remark(self, spec: CampaignSpec) -> str:
        """Return a sentence that belongs to what an established number means."""
        return ""

    def sections(
        self,
        state: CampaignState,
        result: CampaignResult,
        figures: Figures,
        links: str,
        beside: Sequence[ComparedCampaign],
    ) -> list[str]:
        """Return the headline, the transition, its evidence, histories and all chains."""
        from . import sections

        title, meaning = verdict.verdict(state, result, self.remark(state.spec))
        return [
            sections.headline(state, result, title, meaning, theory=self.theory(state.spec)),
            sections.transition_section(state, result, figures, *self.more_of_transition(figures)),
            sections.compared_section(beside, figures),
            sections.evidence_section(result, figures, self.evidence_figures),
            *self.more_sections(state, result, figures),
            sections.history_section(figures, *self.more_of_histories(figures)),
            sections.points_section(state, result, links, self.said_of_points(result)),
        ]

    evidence_figures: tuple[str, ...] = ()
    """Names of figures that stand with the evidence besides those of every peak."""

    def more_of_transition(self, figures: Figures) -> list[str]:
        """Return what stands below the transition."""
        return []

    def more_sections(self, state: CampaignState, result: CampaignResult, figures: Figures) -> list[str]:
        """Return sections after the evidence."""
        return []

    def more_of_histories(self, figures: Figures) -> list[str]:
        """Return what stands below the histories."""
        return []

    def said_of_points(self, result: CampaignResult) -> str:
        """Return what is to be known to read the table of chains."""
        return ""

    def definitions(self, spec: CampaignSpec) -> str:
        """Return what the numbers of a peak are."""
        from .html import section, table

        theory = spec.theory
        order, words = theory.order, theory.words
        known = {"order": order.text, "volume": order.volume, "kind": words.system, "update": words.update}
        known["coordinate"] = words.coordinate
        names = {
            "order parameter": "order",
            "susceptibility": "chi",
            words.found: "peak",
            "B4": "b4",
            "tau_int": "tau_int",
        }
        rows = [(name, say(f"definitions.{key}", **known)) for name, key in names.items()]
        return section("Definitions", table(("", ""), rows))
