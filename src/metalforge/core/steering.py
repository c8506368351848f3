"""Where to measure next: the ask/tell protocol of steerers, its records, and the history a steerer decides from.

    suggestions = steerer.ask(n, pending)      at most n; none when nothing is worth a measurement any more
    steerer.tell(observations)                 what came out, in any order

A steerer is pure given its history: the same observations and the same pending points give the same suggestions,
whatever was asked before, so a campaign resumes by telling the journal again. Its range [low, high] is fixed
when it is made, and no suggestion leaves it.

`find_largest_gaps` is a rule that places a measurement without a model of the curve.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import ClassVar, Protocol, runtime_checkable

import msgspec

from .errors import SpecError

SAME_POINT = 1e-9
"""Two coordinates closer than this part of the range are one: far above rounding, far below any physics."""


class Observation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one chain gave so far: a value such as a susceptibility, its standard error, and what it cost.

    `id` names the chain. An observation with an id that was told before replaces the earlier one: the chain went on.
    Two chains at one place have two ids. `cost` is in units of the campaign's choice (trajectories, seconds, joules).
    """

    coordinate: float
    value: float
    error: float
    cost: float = 1.0
    id: str
    more: tuple[tuple[float, float], ...] = ()
    """Values and errors of other quantities of the same chain, where a steerer looks at several."""

    def __post_init__(self) -> None:
        for name, least in (("coordinate", -inf), ("value", -inf), ("error", 0.0), ("cost", 0.0)):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= least):
                wanted = "finite and not negative" if least == 0 else "finite"
                raise SpecError(f"`{name}` of observation `{self.id}` must be {wanted}. Got {getattr(self, name)}")


class Suggestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A coordinate to measure, why, and how much it is worth; scores compare within one steerer only.

    `by` names who decided where that was not the steerer that was asked: another one, a head or a rule. What it was
    decided from is for people, and may be left out: `mean` and `width` of the value that is expected there, and
    `candidates` with the `acquisition` of each, a few dozen of those that were looked at.
    """

    coordinate: float
    reason: str
    score: float = 0.0
    by: str = ""
    mean: float | None = None
    width: float | None = None
    candidates: tuple[float, ...] = ()
    acquisition: tuple[float, ...] = ()


@runtime_checkable
class Steerer(Protocol):
    """What places the next measurement."""

    @property
    def name(self) -> str:
        """Identify the kind of steerer."""

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return at most n coordinate to measure next, given those that are being measured now."""

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take what came out: all of it, or nothing when one of them is refused."""


@runtime_checkable
class ExpectsPeak(Protocol):
    """A steerer that takes what is known of a peak before it is measured."""

    def expect(self, prior: Sequence[float] | None) -> None:
        """Take a mean and a width in place of what was expected; None is nothing."""


def distinct(coordinates: Iterable[float], width: float) -> list[float]:
    """Return the coordinate in ascending order, each once, for a range of this width."""
    kept: list[float] = []
    for coordinate in sorted(coordinates):
        if not kept or coordinate - kept[-1] > SAME_POINT * width:
            kept.append(coordinate)
    return kept


class History:
    """The observations a steerer was told, inside a range that does not move.

    They are kept in order of place and id: chains end in any order, and that must not change a decision.
    """

    def __init__(self, low: float, high: float) -> None:
        self.width = _width(low, high)
        """Extent of the range."""
        self.low = float(low)
        self.high = float(high)
        self._by_id: dict[str, Observation] = {}
        self._observations: tuple[Observation, ...] | None = ()
        self._measured: list[float] | None = []

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def observations(self) -> tuple[Observation, ...]:
        """The latest observation of each chain, in order, then id."""
        if self._observations is None:
            self._observations = tuple(sorted(self._by_id.values(), key=lambda seen: (seen.coordinate, seen.id)))
        return self._observations

    @property
    def measured(self) -> list[float]:
        """Every coordinate with an observation, ascending, each once."""
        if self._measured is None:
            self._measured = distinct((seen.coordinate for seen in self._by_id.values()), self.width)
        return list(self._measured)

    def same(self, one: float, other: float) -> bool:
        """Return whether two coordinates are the same point."""
        return abs(one - other) <= SAME_POINT * self.width

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take observations; all of them, or none when one is refused."""
        if not observations:
            raise SpecError("`tell` wants at least one observation. Got none")
        told: dict[str, Observation] = {}
        for new in observations:
            self.check(f"observation `{new.id}`", new.coordinate)
            known = told.get(new.id) or self._by_id.get(new.id)
            if known is not None and not self.same(known.coordinate, new.coordinate):
                raise SpecError(
                    f"observation `{new.id}` must stay at {known.coordinate}. Got {new.coordinate}"
                    "\nhint: an id names one chain; give the chain elsewhere its own id"
                )
            told[new.id] = new
        self._by_id |= told
        self._observations = self._measured = None

    def check(self, what: str, coordinate: float) -> None:
        """Return if a coordinate lies in the range."""
        if not self.low <= coordinate <= self.high:
            raise SpecError(f"{what} must lie in [{self.low}, {self.high}]. Got coordinate {coordinate}")

    def asked(self, n: int, pending: Sequence[float]) -> list[float]:
        """Return the pending coordinate, after a check of what `ask` was given."""
        if n < 1:
            raise SpecError(f"`ask` wants at least one point. Got n = {n}")
        for coordinate in sorted(set(pending)):
            self.check("a pending point", coordinate)
        return [float(coordinate) for coordinate in pending]


class HistorySteerer:
    """What steerers have in common that decide from a history."""

    name: ClassVar[str]

    def __init__(self, low: float, high: float) -> None:
        self.history = History(low, high)

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take what came out."""
        self.history.tell(observations)


def find_largest_gaps(measured: Sequence[float], low: float, high: float, n: int) -> list[float]:
    """Return the midpoints of the n widest gaps of sort(measured + {low, high}), the widest first.

    Points outside the range do not count. There are fewer than n midpoints when there are fewer gaps; gaps of one
    width are taken from the lower end of the range.
    """
    width = _width(low, high)
    points = distinct([low, high, *_inside(measured, low, high)], width)
    # Widths that differ by rounding only are one width: the order must not depend on the last bit.
    gaps = sorted(pairwise(points), key=lambda gap: (-round((gap[1] - gap[0]) / (SAME_POINT * width)), gap[0]))
    return [(low + high) / 2 for low, high in gaps[:n]]


def _width(low: float, high: float) -> float:
    if not (isfinite(low) and isfinite(high) and low < high):
        raise SpecError(f"the range must be finite and not empty. Got [{low}, {high}]")
    return float(high) - float(low)


def _inside(coordinates: Sequence[float], low: float, high: float) -> list[float]:
    for coordinate in coordinates:
        if not isfinite(coordinate):
            raise SpecError(f"a measured or queued coordinate must be finite. Got {coordinate}")
    return [coordinate for coordinate in coordinates if low <= coordinate <= high]
