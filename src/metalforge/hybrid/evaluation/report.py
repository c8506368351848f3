r"""What an evaluation finds: scores on held-out rows, losses, fit and price on every profile, as data and as text.

Classes are scored by the share of right ones, real targets by the NRMSE; what is lost is positive where it is worse.
Both substrates answer the same questions, so a loss is one of pairs: most of their errors are the same ones.

Intervals, of 95 %, of classes that do not depend on each other are Wilson's and, for the loss, that of A. Agresti and
Y. Min (Statistics in Medicine 24, 2005): with b cases that only software has right, c that only the chip has, of n,

    b' = b + 1/2,   c' = c + 1/2,   n' = n + 2,      (b' - c') / n'  +-  z sqrt(b' + c' - (b' - c')^2 / n') / n'

which has a width where b = c = 0, too. All others come from a bootstrap over groups: series, where there are ten or
more of them; else blocks of neighbouring steps as long as Politis and White's rule says.
"""

from collections.abc import Callable
from functools import lru_cache
from math import sqrt

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Array, Cost, Doubles, Modelled, Reals, SpecError, TextTable, aligned, escaped
from metalforge.hybrid.routing.plan import InputRange, OpPlan, short
from metalforge.reservoir import politis_white, wilson


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


RESAMPLES, Z = 1000, 1.959964
FEWEST, MOST = 10, 500
"""Groups that a bootstrap wants, and that it keeps apart: more are joined at random, which changes no interval."""


class Scorer:
    """What rows of outputs are held against: classes (rows,) or reals (rows, outputs), each row of a group."""

    def __init__(self, wanted: Array, groups: NDArray[np.int64], *, threshold: float | None = None) -> None:
        if len(wanted) < FEWEST:
            raise SpecError(
                f"at least {FEWEST} held-out rows are wanted for an interval. Got {len(wanted)}"
                "\nhint: more data, or a larger --held-out"
            )
        self.wanted, self._groups, self._threshold = wanted, groups, threshold
        self.classes = wanted.dtype.kind in "iu"
        self._alone = self.classes and len(np.unique(groups)) == len(groups)
        if not self.classes and np.any(wanted.std(axis=0) <= 1e-12 * np.abs(wanted).max(axis=0)):
            raise SpecError("a target that never changes has no NRMSE\nhint: leave it out, or hold more data out")

    @property
    def measure(self) -> str:
        """What a score is called."""
        return "accuracy" if self.classes else "NRMSE"

    def right(self, outputs: Reals) -> NDArray[np.bool_]:
        """Return which rows name their class: the largest output, or one output on its side of a threshold."""
        if self._threshold is None:
            said = outputs if outputs.ndim == 1 else np.argmax(outputs, axis=1)
        else:
            said = (outputs.reshape(-1) > self._threshold).astype(np.int64)
        return np.asarray(said == self.wanted)

    def score(self, outputs: Reals) -> Figure:
        """Return the accuracy or the NRMSE of outputs (rows, outputs)."""
        if self._alone:
            value, low, high = wilson(int(self.right(outputs).sum()), len(self.wanted))
            return Figure(value=value, low=low, high=high)
        return self._resampled(lambda drawn: drawn[0], outputs)

    def lost(self, reference: Reals, outputs: Reals) -> Figure:
        """Return what outputs are worse by than those of a reference; positive is worse."""
        sign = -1.0 if self.classes else 1.0
        if not self._alone:
            return self._resampled(lambda drawn: sign * (drawn[1] - drawn[0]), reference, outputs)
        before, after = self.right(reference), self.right(outputs)
        b, c, n = int(np.sum(before & ~after)), int(np.sum(after & ~before)), len(before)
        half_b, half_c, more = b + 0.5, c + 0.5, n + 2.0
        middle = (half_b - half_c) / more
        wide = Z * sqrt(half_b + half_c - (half_b - half_c) ** 2 / more) / more
        return Figure(value=(b - c) / n, low=middle - wide, high=middle + wide)

    def _resampled(self, value: Callable[[list[Doubles]], Doubles], *several: Reals) -> Figure:
        """Return a value of the scores of several outputs, with the 2.5 and 97.5 percentiles of its bootstrap."""
        squares = [self._terms(outputs) for outputs in several]
        groups = self._blocks(squares)
        count = int(groups.max()) + 1
        sums = [np.stack([np.bincount(groups, column, count) for column in one.T], axis=1) for one in squares]
        found = [value([self._score(drawn @ one) for one in sums]) for drawn in (np.ones((1, count)), _draws(count))]
        # A draw without any variation of the truth has no NRMSE, and says nothing.
        low, high = np.nanquantile(found[1], [0.025, 0.975])
        return Figure(value=float(found[0][0]), low=float(low), high=float(high))

    def _terms(self, outputs: Reals) -> Doubles:
        """Return what is summed over rows: ones and rights; or ones, squares of errors, targets and their squares."""
        one = np.ones((len(self.wanted), 1))
        if self.classes:
            return np.hstack([one, self.right(outputs)[:, np.newaxis]])
        y = self.wanted.astype(np.float64) - self.wanted.mean(axis=0)
        errors = outputs.astype(np.float64) - self.wanted
        return np.hstack([one, errors**2, y, y**2])

    def _score(self, sums: Doubles) -> Doubles:
        """Return scores (draws,) of sums (draws, terms)."""
        n = sums[:, :1]
        if self.classes:
            return np.asarray(sums[:, 1] / n[:, 0])
        error, mean, square = np.split(sums[:, 1:] / n, 3, axis=1)
        variance = square - mean**2
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.sqrt(np.mean(np.where(variance > 0, error / variance, np.nan), axis=1)))

    def _blocks(self, squares: list[Doubles]) -> NDArray[np.int64]:
        """Return the group of each row that a bootstrap draws."""
        names, groups = np.unique(self._groups, return_inverse=True)
        if len(names) < FEWEST:
            varying = [column for one in squares for column in one[:, 1:].T]
            length = max(politis_white(column) for column in varying)
            length = max(1, min(length, len(groups) // FEWEST))
            starts = np.flatnonzero(np.diff(groups, prepend=-1))
            within = np.arange(len(groups)) - np.repeat(starts, np.diff([*starts, len(groups)]))
            groups = np.cumsum(within % length == 0) - 1
        elif len(names) > MOST:
            groups = np.random.default_rng(1).permutation(len(names))[groups] % MOST
        return np.asarray(groups, np.int64)


@lru_cache(maxsize=8)
def _draws(count: int) -> Doubles:
    """Return how often each of some groups is in every resample (resamples, groups)."""
    rng = np.random.default_rng(0)
    return rng.multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(np.float64)
