"""What `conductor evaluate` found, as tables: for a terminal, and as a page that says how it is made again."""

from collections.abc import Sequence
from pathlib import Path

from metalforge.core.pages import Paragraphs, TextTable, markdown_table

from .evaluation import HeadCalibration, NeitherPhase
from .scores import HeadScore, HeadsEvaluation, StopStudy, least_seen

_notes = Paragraphs(Path(__file__).with_name("data") / "notes.toml")


def tables(
    found: HeadsEvaluation,
    calibration: Sequence[HeadCalibration],
    neither: NeitherPhase | None,
    untested: Sequence[str],
) -> list[TextTable]:
    """Return all tables; `untested` are heads of the layout that no chain of the corpus has labels for."""
    made = [_heads(found.heads, untested), _calibration(calibration), stop_table(found.thermalisation_stop)]
    if neither is not None:
        made.insert(1, _neither(neither))
    return made


def as_markdown(tables: Sequence[TextTable], command: str) -> str:
    """Return a page with all tables; `command` is what makes it."""
    lines = ["# The conductor on held-out chains", "", f"Made by `{command}`. Do not edit.", ""]
    for table in tables:
        lines += [f"## {table.title}", "", table.note, "", markdown_table([table.columns, *table.rows]), ""]
    return "\n".join(lines)


def _table(title: str, notes: Sequence[str], rows: Sequence[dict[str, str]]) -> TextTable:
    """Return the table of rows with the same keys, which are the names of its columns."""
    return TextTable(title, tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows], "".join(notes))


def _heads(scores: Sequence[HeadScore], untested: Sequence[str]) -> TextTable:
    missing = _notes("heads.untested", names=", ".join(untested)) if untested else []
    rows = [
        {
            "head": s.name,
            "route": s.route,
            "metric": s.metric,
            "value": f"{s.value:.4g}",
            "95 % interval": f"{s.low:.4g} .. {s.high:.4g}",
            "strongest baseline": f"{s.baseline:.4g} ({s.baseline_name})",
            "skill": f"{s.skill:+.3f}",
            "trusted": "yes" if s.trusted else "no",
        }
        for s in scores
    ]
    return _table("Heads", _notes("heads.note") + missing, rows)


def _neither(found: NeitherPhase) -> TextTable:
    known = found.value is not None and found.baseline is not None
    row = {
        "head": found.name,
        "chains": str(found.chains),
        "accuracy": f"{found.value:.3f}" if known else "",
        "baseline": f"{found.baseline:.3f} ({found.baseline_name})" if known else "",
    }
    return _table("Chains of neither phase", _notes("neither.note"), [row])


def _calibration(found: Sequence[HeadCalibration]) -> TextTable:
    def shown(x: float | None) -> str:
        return "" if x is None else f"{x:.2f}"

    rows = [
        {
            "head": c.name,
            "chains": str(c.chains),
            "within 68 %": shown(c.within_68),
            "within 95 %": shown(c.within_95),
            "calibration error": shown(c.calibration_error),
        }
        for c in found
    ]
    return _table("Calibration", _notes("calibration.note"), rows)


def stop_table(study: StopStudy) -> TextTable:
    """Return the early stop of warm-up: every rule with its length and what it leaves of the start."""
    dims, betas = "x".join(map(str, study.dims)), ", ".join(f"{beta:g}" for beta in study.betas)
    seen = least_seen(2 / study.chains)
    notes = _notes("stop.note", study=study, dims=dims, betas=betas, seen=seen, couplings=len(study.betas))
    rows = [
        {
            "rule": r.rule,
            "mean length": f"{study.fixed * (1 - r.saved):.0f}",
            "saved": f"{r.saved:.2f}",
            "premature": f"{r.premature:.3f}",
            "left of the start, P": str(r.left_plaquette or ""),
            "left of the start, |L|": str(r.left_polyakov or ""),
            "worst coupling": f"{max(r.bias_plaquette, r.bias_polyakov):.2f} ({r.worst})",
            "one start": f"{r.one_start:.2f}",
            "unbiased": "yes" if r.unbiased else "no",
        }
        for r in study.rules
    ]
    return _table("Early stop of warm-up", notes, rows)
