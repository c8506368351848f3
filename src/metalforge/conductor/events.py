"""What a producer tells the worker and does not wait for: trajectories of its chains, and what came of answers."""

from typing import TypeAlias

import msgspec

__all__ = ["ChainEnded", "Event", "Outcome", "TrajectoryEvent"]


class TrajectoryEvent(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event", tag=True
):
    """One trajectory of a chain, as a frame of `FrameBuilder.push`: the heads' carried state moves by one step."""

    chain: str
    frame: dict[str, float]


class ChainEnded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event", tag=True):
    """A chain is finished: what was kept for it is forgotten."""

    chain: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event", tag=True):
    """What really happened after the answer with this id; 0 or 1 for yes-or-no questions.

    `part` is the index of the candidate where one request asked about several.
    """

    id: int
    value: float
    part: int = 0


Event: TypeAlias = TrajectoryEvent | ChainEnded | Outcome
