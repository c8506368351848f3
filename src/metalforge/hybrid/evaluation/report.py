"""What an evaluation found, as data and as text: scores and losses with intervals, fit and price on every profile."""

import msgspec

from metalforge.core import Cost, Modelled, TextTable, aligned, escaped
from metalforge.hybrid.routing.plan import InputRange, OpPlan, short


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return it as 0.973 (0.961 to 0.984)."""
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A score on the chip, and what it is worse by than the same readout in software."""

    score: Figure
    lost: Figure


class Fitting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a device profile has room, why not, and what a sample or step costs there: modelled, never measured."""

    profile: str
    fits: bool
    reason: str
    cost: Cost


class PrecisionRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One precision. `as_is` is the model's own readout; `refitted` one fitted to the states on the chip."""

    precision: str
    chip_rows: int
    """Rows that a sample or step sends to the chip."""
    as_is: Kept | None
    refitted: Kept | None
    on: tuple[Fitting, ...]
    within: bool
    """Whether the better of both is within the tolerance of the better one in software."""
    reason: str = ""
    """Why it could not be run, where it could not."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer of `npu evaluate`."""

    model: str
    kind: str
    measure: str
    """accuracy, of which more is better, or NRMSE, of which less is."""
    unit: str
    """What a cost is of: a sample, or a step of a series."""
    classes: tuple[str, ...]
    calibrated_on: str
    held_out: str
    software: Figure | None
    """Score of the model as it is, in software."""
    software_refitted: Figure | None
    host: Cost
    rows: tuple[PrecisionRow, ...]
    tolerance: float
    chosen: str | None
    """The cheapest precision within the tolerance, of those that were tried."""
    ops: tuple[OpPlan, ...]
    ops_at: str
    """The precision and profile that `ops` are of."""
    ranges: tuple[InputRange, ...]
    notes: tuple[str, ...]

    def tables(self) -> list[TextTable]:
        """Return what a person reads, as tables."""
        return [_accuracy(self), _prices(self), _places(self)]

    def lines(self) -> list[str]:
        """Return what a person reads besides: what it is about, and what follows from it."""
        found = [f"range: {known}" for known in self.ranges]
        found += [f"{row.op}: to make it map: {row.fix}" for row in self.ops if row.fix]
        found += [f"{row.precision}: {row.reason}" for row in self.rows if row.reason]
        found += [f"note: {note}" for note in self.notes]
        return [*found, self.verdict()]

    def head(self) -> str:
        """Return what was evaluated on what."""
        of = f", {len(self.classes)} classes" if self.classes else ""
        return f"{self.model} ({self.kind}{of}): ranges from {self.calibrated_on}, scored on {self.held_out}"

    def verdict(self) -> str:
        """Return the answer in a sentence."""
        limit = f"{self.tolerance:g} of the {self.measure} in software"
        if self.chosen is None:
            return f"no precision that was tried is within {limit}"
        row = next(row for row in self.rows if row.precision == self.chosen)
        fits = [one.profile for one in row.on if one.fits]
        how = " with a new readout" if _better(self, row) else ""
        kept = row.refitted if how else row.as_is
        lost = "" if kept is None else f"; it loses {_signed(kept.lost)}"
        unsure = ", which this much data does not settle" if kept and kept.lost.high > self.tolerance else ""
        found = f"{self.chosen}{how} is the cheapest within {limit}, and fits {' and '.join(fits) or 'no profile'}"
        return found + lost + unsure

    def __str__(self) -> str:
        """Return all of it as text."""
        blocks = [self.head()]
        for table in self.tables():
            blocks += [f"{table.title}:", *aligned([table.columns, *table.rows])]
        return escaped("\n".join([*blocks, *self.lines()]), lines=True)


def _better(found: Evaluation, row: PrecisionRow) -> bool:
    """Whether the fitted readout of a row is better than the model's own."""
    if row.as_is is None or row.refitted is None:
        return row.refitted is not None
    gain = row.refitted.score.value - row.as_is.score.value
    return gain > 0 if found.measure == "accuracy" else gain < 0


def _accuracy(found: Evaluation) -> TextTable:
    refits = found.software_refitted is not None
    columns = ("precision", found.measure, "lost", *((f"{found.measure}, new readout", "lost") if refits else ()))
    software = ["software", str(found.software or "-"), "-"] + [str(found.software_refitted), "-"] * refits
    rows = [tuple(software)]
    for row in found.rows:
        cells = [row.precision]
        for kept in (row.as_is, row.refitted)[: 1 + refits]:
            cells += ["-", "-"] if kept is None else [str(kept.score), _signed(kept.lost)]
        rows.append(tuple(cells))
    return TextTable(
        f"{found.measure} on held-out data, with 95 % intervals; lost: worse than software by", columns, rows
    )


def _signed(figure: Figure) -> str:
    return f"{figure.value:+.4f} ({figure.low:+.4f} to {figure.high:+.4f})"


def _prices(found: Evaluation) -> TextTable:
    latency, energy = found.host.latency, found.host.energy
    name = latency.profile if isinstance(latency, Modelled) else "this host"
    rows: list[tuple[str, ...]] = [("software", "-", name, "-", short(latency), short(energy))]
    for row in found.rows:
        for one in row.on:
            fits = "yes" if one.fits else f"no: {one.reason}"
            cost = [short(figure) if one.fits else "-" for figure in (one.cost.latency, one.cost.energy)]
            rows.append((row.precision, str(row.chip_rows or "-"), one.profile, fits, *cost))
    title = f"Per {found.unit}, modelled from the profile that is named"
    return TextTable(title, ("precision", "chip rows", "profile", "fits", "latency", "energy"), rows)


def _places(found: Evaluation) -> TextTable:
    rows = [(row.op, row.kind, row.substrate, row.encoding or "-", row.reason) for row in found.ops]
    return TextTable(f"Where it runs, at {found.ops_at}", ("op", "kind", "substrate", "encoding", "why"), rows)
