"""A campaign as a notebook shows it: its verdict, the figure of the transition, and the evidence as a table."""

from html import escape

from metalforge.campaign.state import CampaignState

from .drawing import svg_bytes
from .figures import draw_main
from .html import image, table
from .result import CampaignResult
from .words import system_text


def shown_html(state: CampaignState, result: CampaignResult) -> str:
    """Return HTML for a cell: the lines that say what was found, one figure, and a row for every item of evidence."""
    lines = [line for line in state.spec.theory.report.lines(result) if not line.startswith("  ")]
    parts = [f"<strong>{escape(state.spec.name)}</strong>", *(f"<div>{escape(line)}</div>" for line in lines)]
    if (figure := draw_main(state, result, state.spec.theory.report.curves(state))) is not None:
        parts.append(image(svg_bytes(figure.figure), figure.title, figure.caption))
    rows = [
        (system_text(volume.system), item.name, "holds" if item.holds else "lacks", item.value, item.needed or "")
        for volume in result.systems
        for item in volume.evidence
    ]
    parts.append(table((result.words.system, "evidence", "", ">found", ">needed"), rows))
    return "\n".join(parts)
