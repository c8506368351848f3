"""The report: one HTML page that stands alone; its figures as PNG files and what was measured as CSV beside it."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from metalforge.core import PathLike, naming, replacing

from . import sections, sections_of_run
from .downloads import CURVES, ROWS, write_rows
from .drawing import Drawn, png_bytes, svg_bytes
from .figures import draw_all, draw_main
from .html import Raw, data_address, document, image, link, paragraph, section, table
from .parts import ComparedCampaign, compared_campaign
from .result import Results
from .words import say, system_text

REPORT = "report.html"
FIGURES = "figures"


def write_report(shown: Results, directory: PathLike, beside: Sequence[Results] = ()) -> Path:
    """Write ``report.html``, ``figures/*.png`` and two CSV files in a campaign's directory; return where the page is.

    `beside` are campaigns to compare with. Each file is written whole or not at all, the page last: an old report stays
    until the new one is complete.
    """
    where, state, report = Path(directory), shown.state, shown.theory.report
    compared = [compared_campaign(one) for one in (shown, *beside)] if beside else []
    drawn = draw_all(shown, compared)
    page = page_of(shown, drawn, compared)
    with naming(where / FIGURES, "made"):
        (where / FIGURES).mkdir(parents=True, exist_ok=True)
    for figure in drawn:
        with replacing(where / FIGURES / f"{figure.name}.png") as stream:
            stream.write(png_bytes(figure.figure))
    if state.trajectories:
        with replacing(where / ROWS) as stream:
            write_rows(state, stream)
        with replacing(where / CURVES) as stream:
            stream.write(report.curves_csv(shown).encode())
    with replacing(where / REPORT) as stream:
        stream.write(page.encode())
    return where / REPORT


def page_of(shown: Results, drawn: Sequence[Drawn], beside: Sequence[ComparedCampaign] = ()) -> str:
    """Return the page."""
    figures: dict[str, str] = {}
    for one in drawn:
        where = one.section or one.name
        figures[where] = figures.get(where, "") + _image(one)
    report = shown.theory.report
    downloads = _downloads(report.curves_csv(shown)) if shown.state.trajectories else ""
    parts = [
        *report.sections(shown, figures, downloads, beside),
        sections.updates_section(shown, figures),
        sections_of_run.decisions_section(shown, figures),
        sections_of_run.energy_section(shown),
        sections_of_run.efficiency_section(shown, figures),
        sections_of_run.checks_section(shown),
        section("Definitions", table(("", ""), list(report.definitions(shown.spec).items()))),
        sections_of_run.provenance_section(shown),
        f"<footer>{paragraph(say('sections.footer'))}</footer>",
    ]
    return document(f"{shown.spec.name}: metalforge report", [part for part in parts if part])


def notebook_html(shown: Results) -> str:
    """Return HTML for a cell: the lines that say what was found, one figure, and a row for every item of evidence."""
    lines = [line for line in shown.theory.report.lines(shown) if not line.startswith("  ")]
    parts = [f"<strong>{escape(shown.spec.name)}</strong>", *(f"<div>{escape(line)}</div>" for line in lines)]
    if (figure := draw_main(shown)) is not None:
        parts.append(_image(figure))
    rows = [
        (system_text(volume.system), item.name, "holds" if item.holds else "lacks", item.value, item.needed or "")
        for volume in shown.systems
        for item in volume.evidence
    ]
    parts.append(table((shown.words.system, "evidence", "", ">found", ">needed"), rows))
    return "\n".join(parts)


def _image(one: Drawn) -> str:
    return image(svg_bytes(one.figure), one.figure.get_figwidth(), one.title, one.caption)


def _downloads(curves: str) -> str:
    """Return the links; the curves are in the page itself, the rows lie beside it: there can be a million of them."""
    inside = data_address(curves.encode(), "text/csv")
    rows, drawn = link("every row of every chain", ROWS, save_as=ROWS), link("the curves", inside, save_as=CURVES)
    return paragraph(Raw(f"As CSV: {drawn.html} (in this page), {rows.html} ({ROWS}, a file beside this page)."))
