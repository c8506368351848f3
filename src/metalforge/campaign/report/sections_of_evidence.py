"""The section of the report about evidence: every item with what was found and needed, and the figures behind them."""

from collections.abc import Iterable, Mapping, Sequence

from metalforge.campaign.physics.evidence import Evidence

from .html import Raw, heading, items, paragraph, section, table
from .result import CampaignResult
from .words import found_text, item_text, lattice_text, needed_text, remark_text

__all__ = ["evidence_section", "lacking_list"]

FIGURES = ("loop-histogram", "loop-plane", "crossings", "autocorrelation", "overlap", "pulls")


def evidence_section(result: CampaignResult, figures: Mapping[str, str]) -> str:
    """Return the items of every volume, and what they were judged from."""
    about = (
        "A coupling is established only when every item holds. The numbers needed are constants of the program, "
        "chosen on an exactly solved model and on 4\u00b3\u00d72, and the same for every campaign."
    )
    several = len(result.volumes) > 1
    parts = [(lattice_text(volume.dims), volume.evidence) for volume in result.volumes]
    if result.extrapolation is not None:
        parts.insert(0, ("infinite volume", result.line_evidence))
    tables = [
        heading(_title(name, evidence), _table(evidence)) if several else _table(evidence) for name, evidence in parts
    ]
    return section(
        "Evidence", paragraph(about), *tables, *(figures.get(name, "") for name in FIGURES), anchor="evidence"
    )


def lacking_list(evidence: Iterable[Evidence]) -> str:
    """Return the items that do not hold, each with what was found and what would help."""
    return items([item_text(item) for item in evidence if not item.holds])


def _title(name: str, evidence: Sequence[Evidence]) -> str:
    return f"{name}: {'established' if all(item.holds for item in evidence) else 'not established'}"


def _table(evidence: Sequence[Evidence]) -> str:
    rows = [
        (item.name, found_text(item), needed_text(item) or "-", _verdict(item.holds), remark_text(item))
        for item in evidence
    ]
    return table(("item", ">found", ">needed", "holds", "what was seen, or would help"), rows)


def _verdict(holds: bool) -> Raw:
    return Raw("yes") if holds else Raw('<b class="no">no</b>')
