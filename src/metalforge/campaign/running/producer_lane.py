"""One producer as the planner sees it: its orders, the visits that still need orders, and how long orders are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from metalforge.campaign.orderings import Assignee
from metalforge.campaign.store.records import Assigned
from metalforge.campaign.theory import WideWork

from .orders import Order, Volley
from .visits import Nothing

DEPTH = 2
"""Orders on a lane: one that runs and one that waits."""
VOLLEY_S = 0.5
"""That the orders of a wide lane should take, so that decisions are not late; it waits while the host sees to a block.
Those of a deterministic campaign are the shortest."""


@dataclass(slots=True, eq=False)
class ProducerLane:
    """One producer, and what it has been ordered to do."""

    who: Assignee
    place: int = 0
    """Among the lanes."""
    block: int = 1
    """Updates of an order, where it is wide."""
    waiting: list[int] = field(default_factory=list)
    """Visits of the orders that have not been answered."""
    visits: dict[int, Assigned] = field(default_factory=dict)
    """Those that lack orders still."""
    outbox: list[Order] = field(default_factory=list)
    """Orders that have not been sent."""
    flying: int = 0
    """Volleys that have not been answered."""
    nothing: Nothing = field(default_factory=Nothing)
    """Why there was no visit for it when the plan was last asked."""
    asked_after: int = -1
    """Visits of the campaign that were over then, where the answer stays until another one is; -1: ask again."""

    @property
    def wide(self) -> bool:
        """Whether it runs many chains at once."""
        return self.who.sites > 0

    def load(self, visits: Iterable[Assigned]) -> float:
        """Return how much of it visits keep busy: 1 is all of it."""
        return round(sum(map(self._load_of, visits)), 6)

    def _load_of(self, visit: Assigned) -> float:
        return self.who.share(visit.system) if self.wide else 1.0

    def updates_of(self, block: int) -> int:
        """Return the updates of one order: `block` unless the lane is wide."""
        return max(block, self.block) if self.wide else max(1, block)

    def pace(self, wide: WideWork, took: float) -> None:
        """Make orders longer where volleys are short, and shorter where they are long."""
        if took:
            wanted = self.block * (2 if took < VOLLEY_S / 2 else 0.5 if took > 2 * VOLLEY_S else 1)
            self.block = int(min(max(wanted, wide.least), wide.most))

    def next_volley(self, visits: Sequence[Assigned]) -> Volley:
        """Take orders out of the outbox that are sent together: one of a chain, as many as keep the lane busy."""
        sent: dict[str, Order] = {}
        kept, load = [], 0.0
        for order in self.outbox:
            if round(load, 6) >= 1 or order.chain in sent:
                kept.append(order)
            else:
                sent[order.chain] = order
                load += self._load_of(visits[order.visit])
        self.outbox = kept
        self.flying += 1
        return Volley(self.who.substrate, tuple(sent.values()))
