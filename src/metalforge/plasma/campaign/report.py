"""What a campaign of a plasma found, for people: its verdict, its tables, its figures, its curves as CSV."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from metalforge.campaign import (
    CampaignSpec,
    CampaignState,
    ChainHistory,
    ChainLog,
    ComparedCampaign,
    Figures,
    PublishedCurve,
    PublishedPlace,
    Raw,
    Report,
    Results,
    SystemResult,
    TransitionCurve,
    TransitionFigure,
    TransitionPoint,
    TransitionSystem,
    box,
    compared_section,
    details,
    item_text,
    items,
    note,
    paragraph,
    section,
    sections,
    system_name,
    table,
)
from metalforge.core import Paragraphs
from metalforge.plasma.references import diffusion_scaled, melting_gamma, viscosity_scaled
from metalforge.statistics import Value, with_error

from .analysis import plasma_of, segments_of

if TYPE_CHECKING:
    from metalforge.campaign import Drawn

TEXTS = Paragraphs(Path(__file__).with_name("text.toml"))
say = TEXTS.say
SCALED = 80
"""Places of a published curve."""


class PlasmaReport(Report):
    """What reports of a plasma have in common, whether they are of transport or of freezing."""

    title: ClassVar[str]
    """Of the section of the physics; `key` of what is said below its table and defined last."""
    key: ClassVar[str]
    definition: ClassVar[str]
    looked_at: ClassVar[tuple[str, str]]
    """The column of segments that a history shows, and its label."""
    columns: ClassVar[tuple[str, ...]]

    @abstractmethod
    def rows(self, found: Any) -> Iterator[tuple[object, ...]]:
        """Give the rows of the table of one box."""

    @abstractmethod
    def headline(self, first: SystemResult) -> str:
        """Return the title of the page as HTML."""

    def history(self, state: CampaignState, chain: ChainLog) -> ChainHistory:
        """Return Gamma of a trajectory and what it looks at, segment by segment."""
        column, label = self.looked_at
        gamma = 1 / np.maximum(chain.column("temperature", measured=False), 1e-300)
        seen = chain.column(column, measured=False)
        return ChainHistory((gamma, seen), ("\u0393", label), chain.warmup, chain.column(column), label)

    def sections(
        self, shown: Results, figures: Figures, links: str, beside: Sequence[ComparedCampaign] = ()
    ) -> list[str]:
        """Return the headline, the curve or the rates, the evidence, all trajectories."""
        plasma, first = plasma_of(shown.spec), shown.systems[0]
        lacking = [item_text(item) for item in first.evidence if not item.holds]
        meaning = [
            paragraph(f"{first.said[0].upper()}{first.said[1:]}."),
            box(paragraph(say("plasma.lacking")), items(lacking)) if lacking else "",
        ]
        theory, update = f"Yukawa plasma, kappa = {plasma.kappa:g}", f" of {plasma.update_time:g}/omega_p"
        parts = [figures.get("transport", ""), figures.get("freezing", "")]
        for volume in shown.systems:
            if len(shown.systems) > 1:
                parts.append(paragraph(system_name(volume.system)))
            parts += [table(self.columns, list(self.rows(volume.details))), note(say(f"plasma.{self.key}"))]
        return [
            sections.headline(shown, Raw(self.headline(first)), meaning, theory=theory, update=update),
            section(self.title, *parts),
            compared_section(beside, figures),
            sections.evidence_section(shown, figures),
            _trajectories(shown, links, figures),
        ]

    def definitions(self, spec: CampaignSpec) -> dict[str, str]:
        """Return the definitions that a reader needs to compare the numbers with others."""
        names = ("units", "update", "diffusion", "viscosity", self.definition)
        return {name: say(f"plasma.{name}") for name in names}


class TransportReport(PlasmaReport):
    """Shows transport along the coupling."""

    title, key, definition = "Transport along the coupling", "points", "curve"
    looked_at = ("diffusion_msd", "D_N*")
    columns = (
        ">Gamma aimed at",
        ">Gamma",
        ">u/Gamma",
        ">D*",
        ">of it the box's",
        ">eta*",
        ">segments",
        ">trajectories",
    )

    def rows(self, found: Any) -> Iterator[tuple[object, ...]]:
        """Give the points of a curve."""
        for point in found.points:
            yield (
                f"{exp(point.at):.4g}",
                with_error(point.gamma, point.gamma_error),
                f"{point.u_over_gamma:.5f}",
                with_error(point.diffusion, point.diffusion_error),
                f"{point.diffusion_box:.4g}",
                with_error(point.viscosity, point.viscosity_error),
                point.segments,
                point.trajectories,
            )

    def headline(self, first: SystemResult) -> str:
        """Return the errors of both curves."""
        if first.details.curve is None or not first.established:
            return "The curve is not established"
        return (
            'D*, &eta;* to <span class="value">' + ", ".join(f"{e:.1%}" for e in first.details.curve.errors) + "</span>"
        )

    def comparison(self, shown: Results) -> str:
        """Return one sentence that compares with what is published."""
        parts = []
        scalings = {"D*": (diffusion_scaled, "diffusion"), "eta*": (viscosity_scaled, "viscosity")}
        for name, (scaled, pick) in scalings.items():
            published = ((p, scaled(p.gamma, plasma_of(shown.spec).kappa)) for p in shown.systems[0].details.points)
            ratios = [getattr(p, pick) / known for p, known in published if known is not None]
            if ratios:
                parts.append(f"{name} is {min(ratios):.2f} to {max(ratios):.2f} of it")
        return f"published, by freezing scaling: {', '.join(parts)}" if parts else ""

    def figure(self, shown: Results) -> TransitionFigure:
        """Return D* (as the order) and eta* (as chi) along ln Gamma as measured."""
        volumes, kappa = [], plasma_of(shown.spec).kappa
        reach = [point.gamma for volume in shown.systems for point in volume.details.points]
        for volume in shown.systems:
            curve = None
            points = [
                TransitionPoint(
                    chain=f"{point.trajectories} at {exp(point.at):.4g}",
                    coordinate=point.abscissa,
                    order=_value(point.diffusion, point.diffusion_error),
                    chi=_value(point.viscosity, point.viscosity_error),
                )
                for point in volume.details.points
            ]
            if (found := volume.details.curve) is not None:
                at, zero = np.array(found.at), np.zeros(len(found.at))
                order, chi = np.exp(found.log_diffusion), np.exp(found.log_viscosity)
                errors = order * np.array(found.log_diffusion_error), chi * np.array(found.log_viscosity_error)
                curve = TransitionCurve(zero.astype(np.int64), at, order, errors[0], chi, errors[1], zero, zero)
            volumes.append(_system(volume, points, curve=curve))
        known = None
        if reach:
            gammas = np.geomspace(min(reach), max(reach), SCALED).tolist()
            known = PublishedCurve(
                text="published, freezing scaling",
                at=tuple(map(log, gammas)),
                order=tuple(diffusion_scaled(gamma, kappa) for gamma in gammas),
                chi=tuple(viscosity_scaled(gamma, kappa) for gamma in gammas),
            )
        return TransitionFigure(words=shown.theory.words, systems=tuple(volumes), published=(), known=known)

    def draw(self, shown: Results) -> "Iterator[Drawn]":
        """Give the curves, and histories of trajectories."""
        from metalforge.campaign import draw_curves, draw_histories

        if any(volume.details.points for volume in shown.systems):
            yield draw_curves("transport", [("", self.figure(shown))], paragraphs=TEXTS, scale="log")
        yield from draw_histories(shown)


class FreezingReport(PlasmaReport):
    """Shows where a crystal freezes."""

    title, key, definition = "Freezing", "freezing", "order"
    looked_at = ("order", "order")
    columns = (
        "trajectory",
        ">Gamma aimed at",
        ">Gamma",
        ">order at first",
        ">at last",
        "crystal",
        ">rate [1e-4 omega_p]",
        ">over 1/omega_p",
        ">segments",
    )

    def rows(self, found: Any) -> Iterator[tuple[object, ...]]:
        """Give the trajectories of a box."""
        for one in found.trajectories:
            yield (
                one.chain,
                f"{exp(one.at):.4g}",
                f"{one.gamma:.4g}",
                f"{one.began:.3f}",
                f"{one.ended:.3f}",
                {1: "grew", -1: "melted"}[one.phase],
                "over at once" if one.rate is None else f"{1e4 * one.rate:+.2f}",
                f"{one.time:.0f}",
                one.segments,
            )

    def headline(self, first: SystemResult) -> str:
        """Return Gamma_m."""
        value, error = first.result.value, first.result.error
        if value is None or error is None:
            return "Freezing is not located"
        if not first.established:
            return "&Gamma;<sub>m</sub> is not established"
        return f'&Gamma;<sub>m</sub> = <span class="value">{with_error(value, error)}</span>'

    def comparison(self, shown: Results) -> str:
        """Return one sentence that compares with what is published."""
        kappa, found = plasma_of(shown.spec).kappa, shown.systems[0].details.log_gamma
        melting = melting_gamma(kappa)
        off = "" if found is None else f"; what was found is {exp(found) / melting - 1:+.1%} from it"
        return f"published Gamma_m at kappa {kappa:g}: {melting:.4g} (Hamaguchi, Farouki, Dubin 1997){off}"

    def figure(self, shown: Results) -> TransitionFigure:
        """Return the rates by which crystals grow, along ln Gamma as measured."""
        volumes, kappa = [], plasma_of(shown.spec).kappa
        for volume in shown.systems:
            found = volume.details
            points = [
                TransitionPoint(chain=one.chain, coordinate=log(one.gamma), order=_value(1e4 * one.rate, 0.0), chi=None)
                for one in found.trajectories
                if one.rate is not None
            ]
            volumes.append(_system(volume, points, result=found.log_gamma, error=found.error))
        melting = melting_gamma(kappa)
        published = PublishedPlace(
            at=log(melting),
            text=f"Gamma_m = {melting:.4g} at kappa {kappa:g}",
            short="Hamaguchi et al. 1997",
            source="S. Hamaguchi, R. T. Farouki and D. H. E. Dubin, Phys. Rev. E 56 (1997) 4671",
        )
        return TransitionFigure(words=shown.theory.words, systems=tuple(volumes), published=(published,))

    def draw(self, shown: Results) -> "Iterator[Drawn]":
        """Give the rates, and histories of trajectories."""
        from metalforge.campaign import draw_curves, draw_histories

        if any(volume.details.trajectories for volume in shown.systems):
            yield draw_curves("freezing", [("", self.figure(shown))], paragraphs=TEXTS)
        yield from draw_histories(shown)


def _trajectories(shown: Results, downloads: str, figures: Figures) -> str:
    """Return the table of trajectories, how they went, and where every row can be had."""
    rows = []
    for chain in shown.chains:
        seen = segments_of(shown.spec, shown.state.chains[chain.id])
        gamma = 1 / float(seen.columns["temperature"].mean()) if seen.segments else None
        rows.append((
            chain.id, system_name(chain.system), f"{exp(chain.coordinate):.4g}",
            "-" if gamma is None else f"{gamma:.4g}", chain.warmup, chain.measured,
            "-" if chain.seconds <= 0 else f"{seen.cost / chain.seconds:.3g}",
        ))  # fmt: skip
    columns = ("trajectory", "box", ">Gamma aimed at", ">measured", ">warm-up", ">segments", ">atom-steps/s")
    given_up = [
        paragraph(f"{c.id} at Gamma {exp(c.coordinate):.4g} was given up: {c.abandoned}", "warn")
        for c in shown.chains
        if c.abandoned
    ]
    every = details(f"All {len(rows)} trajectories", table(columns, rows))
    return section("Every trajectory", figures.get("histories", ""), every, *given_up, downloads)


def _value(mean: float, error: float) -> Value:
    return Value(mean=mean, error=error, tau_int=None)


def _system(volume: SystemResult, points: list[TransitionPoint], **found: Any) -> TransitionSystem:
    return TransitionSystem(system=volume.system, points=tuple(points), established=volume.established, **found)
