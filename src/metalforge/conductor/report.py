"""What `conductor evaluate` found, as tables: for a terminal, and as a page that says how it is made again."""

from collections.abc import Sequence
from typing import NamedTuple

from .evaluation import HeadCalibration, NeitherPhase
from .scores import Evaluation, HeadScore, StopStudy, least_seen


class ReportTable(NamedTuple):
    """A title, what is to be known to read the table, names of columns, and rows of text."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def tables(
    found: Evaluation, calibration: Sequence[HeadCalibration], neither: NeitherPhase | None, untested: Sequence[str]
) -> list[ReportTable]:
    """Return all tables; `untested` are heads of the layout that no chain of the corpus has labels for."""
    made = [_heads(found.heads, untested), _calibration(calibration), stop_table(found.thermalisation_stop)]
    if neither is not None:
        made.insert(1, _neither(neither))
    return made


def as_markdown(tables: Sequence[ReportTable], command: str) -> str:
    """Return a page with all tables; `command` is what makes it."""
    lines = ["# The conductor on held-out chains", "", f"Made by `{command}`. Do not edit.", ""]
    for table in tables:
        lines += [f"## {table.title}", "", table.note, ""]
        lines += [_row(table.columns), _row(["---"] * len(table.columns)), *map(_row, table.rows), ""]
    return "\n".join(lines)


def _table(title: str, note: str, rows: Sequence[dict[str, str]]) -> ReportTable:
    """Return the table of rows with the same keys, which are the names of its columns."""
    return ReportTable(title, note, tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows])


def _row(cells: Sequence[str]) -> str:
    # A bar within a cell, as in |L|, would end it.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _heads(scores: Sequence[HeadScore], untested: Sequence[str]) -> ReportTable:
    note = (
        "Couplings and seeds that no head was trained on. Accuracy is better when larger, brier and rmse when smaller. "
        "Skill is 1 - loss / loss of the strongest baseline; a head is trusted where its skill is above 0 with 95 % "
        "confidence."
    )
    if untested:
        note += f" Without labels here, and not trusted: {', '.join(untested)}."
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
    return _table("Heads", note, rows)


def _neither(found: NeitherPhase) -> ReportTable:
    note = (
        "Test chains whose interval for |L| covers the cut between the phases; they are in no other score. Right is "
        "the side that their mean is on, which they do not establish."
    )
    known = found.value is not None and found.baseline is not None
    row = {
        "head": found.name,
        "chains": str(found.chains),
        "accuracy": f"{found.value:.3f}" if known else "",
        "baseline": f"{found.baseline:.3f} ({found.baseline_name})" if known else "",
    }
    return _table("Chains of neither phase", note, [row])


def _calibration(found: Sequence[HeadCalibration]) -> ReportTable:
    note = (
        "An ensemble of three reservoirs: the share of labels within its intervals, for heads that are numbers; the "
        "mean distance of probabilities from shares, in ten bins, for heads that are probabilities."
    )

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
    return _table("Calibration", note, rows)


def stop_table(study: StopStudy) -> ReportTable:
    """Return the early stop of warm-up: every rule with its length and what it leaves of the start."""
    place = "x".join(map(str, study.dims))
    betas = ", ".join(f"{beta:g}" for beta in study.betas)
    note = (
        f"{study.chains} fresh chains at each of beta {betas} on {place}, half of them hot: a bias of "
        f"{least_seen(2 / study.chains):.2f} in one start is seen in 95 % of all studies (the default number of chains "
        "is the one that shows 0.3, and was fixed before any was run). Warm-up is "
        f"{study.fixed} trajectories at most, a measurement {study.measured}. The head's rule: {study.factor:g} times "
        f"the trajectories until it is above {study.sure:g} for {study.in_a_row} in a row, chosen on training chains; "
        "the fixed length of its mean is what a rule that does not look at the chain leaves for as many trajectories. "
        "All biases are in errors of a standard measurement. Left of the start is the mean over couplings, positive "
        f"where something is left, with a 95 % interval that draws the {len(study.betas)} couplings again, not the "
        "chains: so few couplings make it wide, it nearly spans them all. Worst coupling is the 95 % upper bound of "
        "the bias of both starts together at the coupling where it is largest. One start is the largest bias of hot "
        "or of cold chains alone at a coupling, without a margin. Unbiased: the bound and the ends of both intervals "
        "are below 0.3. Premature is the share of chains that stop before their label says thermalised."
    )
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
    return _table("Early stop of warm-up", note, rows)
