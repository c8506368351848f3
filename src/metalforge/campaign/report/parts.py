"""How a theory's results are shown: `Report` has what every theory can use, `PeakReport` that of a susceptibility."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState

from . import downloads, verdict
from .figure_data import ComparedCampaign, PublishedPlace, TransitionFigure, peak_figure
from .figure_data_of_chains import ChainHistory
from .points import ChainResult, bare_result, chain_results, in_order
from .result import Results
from .words import say

if TYPE_CHECKING:  # the live page and the terminal draw nothing
    from .drawing import Drawn

Figures = Mapping[str, str]
"""The figures of a page as HTML, by name."""


class Report(ABC):
    """Shows what a campaign of one theory found; `figure`, `history` and `sections` are the theory's own."""

    def chains(self, shown: Results) -> tuple[ChainResult, ...]:
        """Return what each chain measured."""
        return tuple(bare_result(shown.theory, chain) for chain in in_order(shown.state))

    def lines(self, shown: Results) -> Iterator[str]:
        """Give what was found as lines for a terminal, the headline first."""
        return verdict.found_lines(shown)

    def comparison(self, shown: Results) -> str:
        """Return one sentence that compares with what is published; empty where nothing is."""
        return ""

    def cautions(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return what to be careful about with such a spec."""
        return ()

    def known(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return what is known of what is looked for, before anything runs."""
        return ()

    @abstractmethod
    def curves_csv(self, shown: Results) -> str:
        """Return the curves as CSV."""

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

    def definitions(self, spec: CampaignSpec) -> str:
        """Return the section of definitions."""
        return ""


class PeakReport(Report):
    """Shows the peak of a susceptibility; a theory of its own adds what else there is."""

    own_figures: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names of figures that a theory adds to the sections `transition`, `evidence` and `histories`."""

    def chains(self, shown: Results) -> tuple[ChainResult, ...]:
        """Return the order parameter and chi of each chain."""
        return chain_results(shown.state, shown.found)

    def lines(self, shown: Results) -> Iterator[str]:
        """Give what was found as lines for a terminal."""
        return verdict.peak_lines(shown)

    def published(self, state: CampaignState) -> tuple[PublishedPlace, ...]:
        """Return where others found the peak, within the range."""
        return ()

    def curves_csv(self, shown: Results) -> str:
        """Return the curves as CSV."""
        return downloads.curves_csv(shown.curves)

    def figure(self, shown: Results) -> TransitionFigure:
        """Return the order parameter and chi along the coordinate."""
        return peak_figure(shown, self.published(shown.state))

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
        from . import sections
        from .html import section

        title, meaning = verdict.verdict(shown)
        own = {where: [figures.get(name, "") for name in names] for where, names in self.own_figures.items()}
        return [
            sections.headline(shown, title, meaning, theory=self.theory(shown.spec)),
            sections.transition_section(shown, figures, *own.get("transition", ())),
            sections.compared_section(beside, figures),
            sections.evidence_section(shown, figures, *own.get("evidence", ())),
            *self.more_sections(shown, figures),
            section("Histories", figures.get("histories", ""), *own.get("histories", ())),
            sections.points_section(shown, links, self.said_of_points(shown)),
        ]

    def more_sections(self, shown: Results, figures: Figures) -> list[str]:
        """Return sections after the evidence."""
        return []

    def said_of_points(self, shown: Results) -> str:
        """Return what is to be known to read the table of chains."""
        return ""

    def definitions(self, spec: CampaignSpec) -> str:
        """Return what the numbers of a peak are."""
        from .html import section, table

        order, words = spec.theory.order, spec.theory.words
        known = {"order": order.text, "volume": order.volume, "kind": words.system, "update": words.update}
        known["coordinate"] = words.coordinate
        names = {
            "order": "order parameter",
            "chi": "susceptibility",
            "peak": words.found,
            "b4": "B4",
            "tau_int": "tau_int",
        }
        rows = [(name, say(f"definitions.{key}", **known)) for key, name in names.items()]
        return section("Definitions", table(("", ""), rows))
