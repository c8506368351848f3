"""Token budgets: at most n items inside a ring of stages whose edges all block.

An item takes a token when it enters the ring (over an edge from outside, or made by a source inside) and keeps it while
each stage turns it into exactly one item for the next; the token comes back when a stage sends nothing on around the
ring: the item left, was filtered, or was skipped. Because n is at most what the ring's queues hold, they are never all
full with every stage holding one more, so somebody can always send.
"""

from collections.abc import Callable
from queue import Empty, SimpleQueue

from .errors import PipelineError
from .lanes import CREDIT, Inbox, Lane

__all__ = ["Ring"]


class Ring:
    """The tokens of one cycle."""

    def __init__(self, members: frozenset[str], n_tokens: int, wake_sources: Callable[[frozenset[str]], None]) -> None:
        self.members, self.n_tokens = members, n_tokens
        self.tokens: Inbox = SimpleQueue()
        self._wake_sources = wake_sources
        for _ in range(n_tokens):
            self.tokens.put(CREDIT)

    def inside(self, lane: Lane) -> bool:
        """Whether a lane is part of the ring, not a way into it or out of it."""
        return lane.source in self.members and lane.target in self.members

    def enter(self) -> bool:
        """Take a token without waiting; False when there is none."""
        try:
            return self.tokens.get_nowait() is CREDIT
        except Empty:
            return False

    def leave(self) -> None:
        """Give a token back."""
        self.tokens.put(CREDIT)
        self._wake_sources(self.members)

    def check(self, stage: str, lanes: list[Lane]) -> int:
        """Return how many of a step's deliveries stay inside: 0 or 1; raises when there are more."""
        n = sum(self.inside(lane) for lane in lanes)
        if n > 1:
            raise PipelineError(
                f"stage `{stage}` sent {n} items around a cycle with a token budget for one: a budget of tokens holds "
                "only where each item leads to at most one\nhint: make the edge that closes the cycle Latest()"
            )
        return n
