"""What is asked of the worker, and what it answers: one head each, beside the baseline that answers without it."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from metalforge.core.errors import SpecError
from metalforge.core.phases import Phase

from .features import ChainContext, MetaRow, Trajectory
from .trust import Loss

__all__ = ["HeadAnswer", "HeadQuestion", "PlannedRun"]


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that nobody has begun: its chain, and what earlier runs found."""

    context: ChainContext
    meta: tuple[MetaRow, ...] = ()
    phase: Phase = "measure"


class HeadQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a head says: of a row of a chain, of the chain's trajectory under way, or of a run that is planned.

    `of` names the one of the three: the number of a row that was told, a trajectory as far as it is known (the chain's
    state stays where it is), or a `PlannedRun`, which no chain has a part in.
    """

    head: str
    chain: str = ""
    of: int | Trajectory | PlannedRun
    baseline: float | None = None
    """What answers where the head does not; None where the asker has a rule of its own."""
    loss: Loss | None = None
    """By which head and baseline are judged when the outcome is told; None where no outcome will be."""

    def __post_init__(self) -> None:
        if bool(self.chain) == isinstance(self.of, PlannedRun):
            raise SpecError("a question is about a chain that is told, or about a run that is planned: one of the two")
        if self.loss is not None and self.baseline is None:
            raise SpecError(f"a head is judged beside a baseline: the question about `{self.head}` has none")


class HeadAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to the question with this id: `value` by the head where that is trusted, else by the baseline."""

    id: int
    head: str
    value: float | None
    source: Literal["head", "baseline"]
    why: str
    """Why this source: trusted, untrusted, deadline, error, lost, died or closed, and what there is to add."""
    said: Mapping[str, float] = {}
    """What every head said in that pass; empty where none was made in time."""
    spread: float | None = None
    """The predictive standard deviation of the head's value; None where it is not known."""
