"""The report: one HTML page that stands alone; its figures as PNG files and what was measured as CSV beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from metalforge.campaign.analysis.curve import TransitionCurve
from metalforge.campaign.analysis.evidence import Finding
from metalforge.campaign.state import CampaignState
from metalforge.campaign.theory import System
from metalforge.core.files import PathLike, naming, replacing

from . import sections, sections_of_run
from .downloads import CURVES, ROWS, write_rows
from .drawing import Drawn, png_bytes, svg_bytes
from .figure_data import ComparedCampaign, compared_campaign
from .figures import draw_all
from .html import Raw, data_address, document, image, link, paragraph
from .result import CampaignResult, findings_of, result_of

REPORT = "report.html"
FIGURES = "figures"


def write_report(
    state: CampaignState,
    directory: PathLike,
    found: Mapping[System, Finding] | None = None,
    beside: Sequence[CampaignState] = (),
) -> Path:
    """Write ``report.html``, ``figures/*.png`` and two CSV files in a campaign's directory; return where the page is.

    `found` is what `findings_of` gives, if it is there; `beside` are campaigns to compare with. Each file is written
    whole or not at all, the page last: an old report stays until the new one is complete.
    """
    where = Path(directory)
    found = found or findings_of(state)
    result, curves = result_of(state, found), state.spec.theory.report.curves(state)
    others = [compared_campaign(other, result_of(other), other.spec.theory.report.curves(other)) for other in beside]
    compared = [compared_campaign(state, result, curves), *others] if others else []
    drawn = draw_all(state, result, curves, found, compared)
    page = page_of(state, result, drawn, curves, compared)
    with naming(where / FIGURES, "made"):
        (where / FIGURES).mkdir(parents=True, exist_ok=True)
    for figure in drawn:
        with replacing(where / FIGURES / f"{figure.name}.png") as stream:
            stream.write(png_bytes(figure.figure))
    if state.trajectories:
        with replacing(where / ROWS) as stream:
            write_rows(state, stream)
        with replacing(where / CURVES) as stream:
            stream.write(state.spec.theory.report.curves_csv(result, curves).encode())
    with replacing(where / REPORT) as stream:
        stream.write(page.encode())
    return where / REPORT


def page_of(
    state: CampaignState,
    result: CampaignResult,
    drawn: list[Drawn],
    curves: Mapping[System, TransitionCurve],
    beside: Sequence[ComparedCampaign] = (),
) -> str:
    """Return the page."""
    figures: Mapping[str, str] = {
        figure.name: image(svg_bytes(figure.figure), figure.title, figure.caption) for figure in drawn
    }
    downloads = _downloads(state.spec.theory.report.curves_csv(result, curves)) if state.trajectories else ""
    report = state.spec.theory.report
    parts = [
        *report.sections(state, result, figures, downloads, beside),
        sections.updates_section(result, figures),
        sections_of_run.decisions_section(state, result, figures),
        sections_of_run.energy_section(result),
        sections_of_run.efficiency_section(state, result, figures),
        sections_of_run.checks_section(state, result),
        report.definitions(state.spec),
        sections_of_run.provenance_section(state, result),
        sections_of_run.footer(),
    ]
    return document(f"{state.spec.name}: metalforge report", [part for part in parts if part])


def _downloads(curves: str) -> str:
    """Return the links; the curves are in the page itself, the rows lie beside it: there can be a million of them."""
    inside = data_address(curves.encode(), "text/csv")
    rows, drawn = link("every row of every chain", ROWS, save_as=ROWS), link("the curves", inside, save_as=CURVES)
    return paragraph(Raw(f"As CSV: {drawn.html} (in this page), {rows.html} ({ROWS}, a file beside this page)."))
