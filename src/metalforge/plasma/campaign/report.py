"""What a campaign of a plasma found, for people: its verdict, its tables, its figures, its curves as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metalforge.campaign.analysis.curve import TransitionCurve
from metalforge.campaign.report import sections
from metalforge.campaign.report.figure_data import (
    ComparedCampaign,
    PublishedCurve,
    PublishedPlace,
    TransitionFigure,
    TransitionPoint,
    TransitionSystem,
)
from metalforge.campaign.report.figure_data_of_chains import ChainHistory
from metalforge.campaign.report.html import Raw, box, details, items, note, paragraph, section, table
from metalforge.campaign.report.parts import Figures, Report
from metalforge.campaign.report.result import CampaignResult, Reported
from metalforge.campaign.report.words import item_text, system_name
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.core.pages import Paragraphs
from metalforge.plasma.references import diffusion_scaled, melting_gamma, viscosity_scaled
from metalforge.statistics.estimate import Estimate, with_error

from .analysis import plasma_of, segments_of
from .freezing import FreezingFinding
from .transport import PointTransport, TransportCurve, TransportFinding

if TYPE_CHECKING:
    from metalforge.campaign.report.drawing import Drawn

TEXTS = Paragraphs(Path(__file__).with_name("text.toml"))
SCALED = 80
"""Places of a published curve."""


def say(group: str, **figures: Any) -> str:
    """Return the sentences that `text.toml` has for `table.key`, with these figures in them."""
    return " ".join(TEXTS(group, **figures))


class PlasmaReport(Report):
    """Shows transport along the coupling, or where a crystal freezes."""

    def comparison(self, spec: CampaignSpec, result: CampaignResult) -> str:
        """Return one sentence that compares with what is published."""
        return plasma_comparison(spec, result)

    def curves_csv(self, shown: Reported) -> str:
        """Return points, curves or rates as CSV."""
        return plasma_csv(shown.result)

    def figure(self, shown: Reported) -> TransitionFigure:
        """Return transport along ln Gamma, or the rates of crystals."""
        return plasma_figure(shown.state, shown.result)

    def history(self, state: CampaignState, chain: ChainLog) -> ChainHistory:
        """Return Gamma of a trajectory and what it looks at, segment by segment."""
        column, label = ("order", "order") if state.spec.theory.target == "crossing" else ("diffusion_msd", "D_N*")
        gamma = 1 / np.maximum(chain.column("temperature", measured=False), 1e-300)
        seen = chain.column(column, measured=False)
        return ChainHistory((gamma, seen), ("\u0393", label), chain.warmup, chain.column(column), label)

    def draw(self, shown: Reported) -> "list[Drawn]":
        """Return the figures of the physics."""
        from .figures import draw_plasma

        return draw_plasma(shown.state, shown.result, self.figure(shown))

    def sections(
        self, shown: Reported, figures: Figures, links: str, beside: Sequence[ComparedCampaign] = ()
    ) -> list[str]:
        """Return the headline, the curve or the rates, the evidence, all trajectories."""
        return [
            plasma_headline(shown),
            plasma_section(shown.state, shown.result, figures),
            sections.compared_section(beside, figures),
            sections.evidence_section(shown.result, figures),
            trajectories_section(shown.state, shown.result, links, figures),
        ]

    def definitions(self, spec: CampaignSpec) -> str:
        """Return what the numbers are."""
        return plasma_definitions(spec)


def transport_of_boxes(result: CampaignResult) -> list[TransportFinding]:
    """Return what each box says of transport; nothing where freezing is looked for."""
    return [volume.details for volume in result.systems if isinstance(volume.details, TransportFinding)]


def freezing_of_boxes(result: CampaignResult) -> list[FreezingFinding]:
    """Return what each box says of freezing."""
    return [volume.details for volume in result.systems if isinstance(volume.details, FreezingFinding)]


def plasma_comparison(spec: CampaignSpec, result: CampaignResult) -> str:
    """Return one sentence that compares with what is published."""
    kappa = plasma_of(spec).kappa
    melting = melting_gamma(kappa)
    if freezing := freezing_of_boxes(result):
        found = freezing[0].log_gamma
        off = "" if found is None else f"; what was found is {exp(found) / melting - 1:+.1%} from it"
        return f"published Gamma_m at kappa {kappa:g}: {melting:.4g} (Hamaguchi, Farouki, Dubin 1997){off}"
    parts = []
    points = transport_of_boxes(result)[0].points
    for name, scaled, pick in (("D*", diffusion_scaled, "diffusion"), ("eta*", viscosity_scaled, "viscosity")):
        ratios = [getattr(p, pick) / known for p in points if (known := scaled(p.gamma, kappa)) is not None]
        if ratios:
            parts.append(f"{name} is {min(ratios):.2f} to {max(ratios):.2f} of it")
    return f"published, by freezing scaling: {', '.join(parts)}" if parts else ""


def plasma_headline(shown: Reported) -> str:
    """Return the top of the page."""
    plasma, first = plasma_of(shown.spec), shown.result.headline
    found, quoted = first.details, first.result
    if quoted.value is not None and quoted.error is not None:
        title = f'&Gamma;<sub>m</sub> = <span class="value">{with_error(quoted.value, quoted.error)}</span>'
        if not first.established:
            title = "&Gamma;<sub>m</sub> is not established"
    elif isinstance(found, TransportFinding) and found.curve is not None and first.established:
        title = 'D*, &eta;* to <span class="value">' + ", ".join(f"{e:.1%}" for e in found.curve.errors) + "</span>"
    else:
        title = "The curve is not established" if isinstance(found, TransportFinding) else "Freezing is not located"
    lacking = [item_text(item) for item in first.evidence if not item.holds]
    meaning = [
        paragraph(f"{first.said[0].upper()}{first.said[1:]}."),
        box(paragraph(say("plasma.lacking")), items(lacking)) if lacking else "",
    ]
    theory, update = f"Yukawa plasma, kappa = {plasma.kappa:g}", f" of {plasma.update_time:g}/omega_p"
    return sections.headline(shown, Raw(title), meaning, theory=theory, update=update)


def plasma_section(state: CampaignState, result: CampaignResult, figures: Mapping[str, str]) -> str:
    """Return the physics: the curve with its points, or which half of each crystal grew."""
    parts = [figures.get("transport", ""), figures.get("freezing", "")]
    for volume in result.systems:
        found = volume.details
        if isinstance(found, TransportFinding):
            parts += [table(_POINTS, [_point(point) for point in found.points]), note(say("plasma.points"))]
        else:
            rows = [
                (
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
                for one in found.trajectories
            ]
            parts += [table(_GROWTH, rows), note(say("plasma.freezing"))]
        if len(result.systems) > 1:
            parts.insert(-2, paragraph(system_name(volume.system)))
    return section("Transport along the coupling" if transport_of_boxes(result) else "Freezing", *parts)


_POINTS = (">Gamma aimed at", ">Gamma", ">u/Gamma", ">D*", ">of it the box's", ">eta*", ">segments", ">trajectories")
_GROWTH = (
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


def _point(point: PointTransport) -> tuple[object, ...]:
    return (
        f"{exp(point.at):.4g}",
        with_error(point.gamma, point.gamma_error),
        f"{point.u_over_gamma:.5f}",
        with_error(point.diffusion, point.diffusion_error),
        f"{point.diffusion_box:.4g}",
        with_error(point.viscosity, point.viscosity_error),
        point.segments,
        point.trajectories,
    )


def trajectories_section(
    state: CampaignState, result: CampaignResult, downloads: str, figures: Mapping[str, str]
) -> str:
    """Return the table of trajectories, how they went, and where every row can be had."""
    rows = []
    for chain in result.chains:
        seen = segments_of(state.spec, state.chains[chain.id])
        gamma = 1 / float(seen.columns["temperature"].mean()) if seen.segments else None
        rows.append((
            chain.id, system_name(chain.system), f"{exp(chain.coordinate):.4g}",
            "-" if gamma is None else f"{gamma:.4g}", chain.warmup, chain.measured,
            "-" if chain.seconds <= 0 else f"{seen.cost / chain.seconds:.3g}",
        ))  # fmt: skip
    columns = ("trajectory", "box", ">Gamma aimed at", ">measured", ">warm-up", ">segments", ">atom-steps/s")
    given_up = [
        paragraph(f"{c.id} at Gamma {exp(c.coordinate):.4g} was given up: {c.abandoned}", "warn")
        for c in result.chains
        if c.abandoned
    ]
    shown = details(f"All {len(rows)} trajectories", table(columns, rows))
    return section("Every trajectory", figures.get("trajectories", ""), shown, *given_up, downloads)


def plasma_definitions(spec: CampaignSpec) -> str:
    """Return the definitions that a reader needs to compare the numbers with others."""
    names = ("units", "update", "diffusion", "viscosity", "order") if spec.theory.target == "crossing" else (
        "units", "update", "diffusion", "viscosity", "curve")  # fmt: skip
    return section("Definitions", table(("", ""), [(name, say(f"plasma.{name}")) for name in names]))


# -- the main figure, as data -----------------------------------------------------------------------------------------


def plasma_figure(state: CampaignState, result: CampaignResult) -> TransitionFigure:
    """Return D* (as the order) and eta* (as chi) along ln Gamma as measured, or the rates by which crystals grow."""
    kappa, volumes = plasma_of(state.spec).kappa, []
    published: tuple[PublishedPlace, ...] = ()
    for volume, moved in zip(result.systems, transport_of_boxes(result), strict=False):
        points = tuple(
            TransitionPoint(
                chain=f"{point.trajectories} at {exp(point.at):.4g}",
                coordinate=point.abscissa,
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
            TransitionSystem(
                system=volume.system,
                points=points,
                curve=curve,
                result=None,
                error=None,
                established=volume.established,
            )
        )
    for volume, frozen in zip(result.systems, freezing_of_boxes(result), strict=False):
        grown = tuple(
            TransitionPoint(
                chain=one.chain,
                coordinate=log(one.gamma),
                order=_as_estimate(1e4 * one.rate, 0.0, one.segments),
                chi=None,
            )
            for one in frozen.trajectories
            if one.rate is not None
        )
        volumes.append(
            TransitionSystem(
                system=volume.system,
                points=grown,
                curve=None,
                result=frozen.log_gamma,
                error=frozen.error,
                established=volume.established,
            )
        )
    if freezing_of_boxes(result):
        melting = melting_gamma(kappa)
        published = (
            PublishedPlace(
                at=log(melting),
                text=f"Gamma_m = {melting:.4g} at kappa {kappa:g}",
                short="Hamaguchi et al. 1997",
                source="S. Hamaguchi, R. T. Farouki and D. H. E. Dubin, Phys. Rev. E 56 (1997) 4671",
            ),
        )
    reach = [point.gamma for found in transport_of_boxes(result) for point in found.points]
    return TransitionFigure(
        words=state.spec.theory.words,
        systems=tuple(volumes),
        published=published,
        known=_scaled(kappa, min(reach), max(reach)) if reach else None,
    )


def _scaled(kappa: float, low: float, high: float) -> PublishedCurve:
    """Return D* and eta* by freezing scaling, over the couplings that were measured."""
    gammas = np.geomspace(low, high, SCALED).tolist()
    return PublishedCurve(
        text="published, freezing scaling",
        at=tuple(map(log, gammas)),
        order=tuple(diffusion_scaled(gamma, kappa) for gamma in gammas),
        chi=tuple(viscosity_scaled(gamma, kappa) for gamma in gammas),
    )


def _as_estimate(mean: float, error: float, n: int) -> Estimate:
    return Estimate(mean=mean, error=error, error_error=0.0, tau_int=0.5, tau_int_error=0.0, window=0, n=n)


# -- files ------------------------------------------------------------------------------------------------------------


def plasma_csv(result: CampaignResult) -> str:
    """Return what was found as a table: points and curves of transport, or the rate of every trajectory.

    Gamma is what was measured; along a curve it is the coordinate.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    if freezing := freezing_of_boxes(result):
        writer.writerow(["system", "trajectory", "gamma", "rate", "time", "order_first", "order_last"])
        for volume, frozen in zip(result.systems, freezing, strict=True):
            for one in frozen.trajectories:
                rate = "" if one.rate is None else one.rate
                writer.writerow([volume.system[0], one.chain, one.gamma, rate, one.time, one.began, one.ended])
        return text.getvalue()
    columns = ("D", "D_error", "eta", "eta_error")
    writer.writerow(["system", "what", "gamma", *columns])
    for volume, found in zip(result.systems, transport_of_boxes(result), strict=True):
        for p in found.points:
            writer.writerow([
                volume.system[0], "point", p.gamma, p.diffusion, p.diffusion_error, p.viscosity, p.viscosity_error
            ])  # fmt: skip
        for gamma, *values in curve_rows(found.curve):
            writer.writerow([volume.system[0], "curve", gamma, *values])
    return text.getvalue()


def curve_rows(curve: TransportCurve | None) -> list[tuple[float, ...]]:
    """Return Gamma, D*, its error, eta*, its error along a curve."""
    if curve is None:
        return []
    logs = zip(
        curve.at, curve.log_diffusion, curve.log_diffusion_error, curve.log_viscosity, curve.log_viscosity_error,
        strict=True,
    )  # fmt: skip
    return [(exp(at), exp(d), exp(d) * de, exp(v), exp(v) * ve) for at, d, de, v, ve in logs]
