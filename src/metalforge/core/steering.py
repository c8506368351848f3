"""Where to measure next: the ask/tell protocol of steerers, its records, and the history a steerer decides from.

    suggestions = steerer.ask(n, pending)      at most n; none when nothing is worth a measurement any more
    steerer.tell(observations)                 what came out, in any order

A steerer is pure given its history: the same observations and the same pending points give the same suggestions,
whatever was asked before, so a campaign resumes by telling the journal again. Its range [beta_min, beta_max] is fixed
when it is made, and no suggestion leaves it.
"""

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from .errors import SpecError

__all__ = ["SAME_BETA", "History", "Observation", "Setting", "Steerer", "SteererState", "Suggestion", "distinct"]

Setting: TypeAlias = int | float | str | None
SAME_BETA = 1e-9
"""Two beta closer than this part of the range are one: far above rounding, far below any physics."""


class Observation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one chain gave at one beta, so far: a value such as a susceptibility, its standard error, and what it cost.

    `id` names the chain. An observation with an id that was told before replaces the earlier one: the chain went on.
    Two chains at one beta have two ids. `cost` is in units of the campaign's choice (trajectories, seconds, joules).
    """

    beta: float
    value: float
    error: float
    cost: float = 1.0
    id: str

    def __post_init__(self) -> None:
        for name in ("beta", "value"):
            if not isfinite(getattr(self, name)):
                raise SpecError(f"`{name}` of observation `{self.id}` must be finite. Got {getattr(self, name)}")
        for name in ("error", "cost"):
            if not 0 <= getattr(self, name) < inf:
                raise SpecError(
                    f"`{name}` of observation `{self.id}` must be finite and not negative. Got {getattr(self, name)}"
                )


class Suggestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A beta to measure, why, and how much it is worth; scores compare within one steerer only.

    `by` names who decided where that was not the steerer that was asked: another one, a head or a rule.
    """

    beta: float
    reason: str
    score: float = 0.0
    by: str = ""


class SteererState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All a steerer knows: which one it is, its range, its settings by name, and what it was told."""

    name: str
    beta_min: float
    beta_max: float
    settings: dict[str, Setting] = {}
    observations: tuple[Observation, ...] = ()


@runtime_checkable
class Steerer(Protocol):
    """What places the next measurement."""

    @property
    def name(self) -> str:
        """Identify the kind of steerer."""
        ...

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return at most n beta to measure next, given those that are being measured now."""
        ...

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take what came out: all of it, or nothing when one of them is refused."""
        ...

    def state(self) -> SteererState:
        """Return all that `ask` depends on."""
        ...


def distinct(betas: Iterable[float], width: float) -> list[float]:
    """Return the beta in ascending order, each once, for a range of this width."""
    kept: list[float] = []
    for beta in sorted(betas):
        if not kept or beta - kept[-1] > SAME_BETA * width:
            kept.append(beta)
    return kept


class History:
    """The observations a steerer was told, inside a range that does not move.

    They are kept in order of beta and id: chains end in any order, and that must not change a decision.
    """

    def __init__(self, beta_min: float, beta_max: float) -> None:
        if not (isfinite(beta_min) and isfinite(beta_max) and beta_min < beta_max):
            raise SpecError(f"the range of beta must be finite and not empty. Got [{beta_min}, {beta_max}]")
        self.beta_min = float(beta_min)
        self.beta_max = float(beta_max)
        self._by_id: dict[str, Observation] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def width(self) -> float:
        """Extent of the range."""
        return self.beta_max - self.beta_min

    @property
    def observations(self) -> tuple[Observation, ...]:
        """The latest observation of each chain, in order of beta, then id."""
        return tuple(sorted(self._by_id.values(), key=lambda seen: (seen.beta, seen.id)))

    @property
    def measured(self) -> list[float]:
        """Every beta with an observation, ascending, each once."""
        return distinct((seen.beta for seen in self._by_id.values()), self.width)

    def same(self, one: float, other: float) -> bool:
        """Return whether two beta are the same point."""
        return abs(one - other) <= SAME_BETA * self.width

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take observations; all of them, or none when one is refused."""
        if not observations:
            raise SpecError("`tell` wants at least one observation. Got none")
        told: dict[str, Observation] = {}
        for new in observations:
            self.check(f"observation `{new.id}`", new.beta)
            known = told.get(new.id) or self._by_id.get(new.id)
            if known is not None and not self.same(known.beta, new.beta):
                raise SpecError(
                    f"observation `{new.id}` must stay at beta {known.beta}. Got {new.beta}"
                    "\nhint: an id names one chain; give the chain at another beta its own id"
                )
            told[new.id] = new
        self._by_id |= told

    def check(self, what: str, beta: float) -> None:
        """Return if a beta lies in the range."""
        if not self.beta_min <= beta <= self.beta_max:
            raise SpecError(f"{what} must lie in [{self.beta_min}, {self.beta_max}]. Got beta {beta}")

    def asked(self, n: int, pending: Sequence[float]) -> list[float]:
        """Return the pending beta, after a check of what `ask` was given."""
        if n < 1:
            raise SpecError(f"`ask` wants at least one point. Got n = {n}")
        for beta in pending:
            self.check("a pending point", beta)
        return [float(beta) for beta in pending]

    def state(self, name: str, settings: dict[str, Setting]) -> SteererState:
        """Return the record of a steerer with this history."""
        return SteererState(
            name=name,
            beta_min=self.beta_min,
            beta_max=self.beta_max,
            settings=settings,
            observations=self.observations,
        )
