"""How long a visit is: as the spec says, or as many updates as hold so many independent samples by the `schedule` head.

The head reads log(2 tau_int of |L|) off a chain; the screen writes it down. A visit of `SAMPLES` times 2 tau_int says
the same of every coupling: near a transition it is longer than elsewhere, where half as many updates are enough. The
spec's length is the baseline, and is never left by more than a factor of two, so that a reading that is wrong costs
little.
"""

from math import exp

import msgspec

from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.store.records import Assigned, Decided

from .heads import Heads

HEAD = "schedule"
SAMPLES = 10
"""Independent samples of a visit: what the default one has on 8^3x4 at the transition, 2 tau_int being about 60."""
BETWEEN = 0.5, 2.0
"""Of the spec's length, the least and the most that a visit may have."""


class VisitLengths:
    """Reads the lengths of visits off the journal, and keeps what is to be written down about them."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._notes: dict[int, Decided] = {}

    def of(self, state: CampaignState, dims: Dims, beta: float, chain: ChainLog | None, usual: int, visit: int) -> int:
        """Return the updates of a visit to a chain, or to a new one at this beta, that would usually have so many."""
        if self._heads.domain is not None or HEAD in self._heads.unused:
            return usual
        there = [c for c in state.chains.values() if c.dims == dims and not c.abandoned and _read(c) is not None]
        nearest = min(there, key=lambda c: (c is not chain, abs(c.beta - beta), c.id), default=None)
        said = None if nearest is None else _read(nearest)
        if nearest is None or said is None:
            return usual
        least, most = (round(part * usual) for part in BETWEEN)
        updates = min(max(round(SAMPLES * exp(min(said, 20.0))), least), most)
        trusted = self._heads.acts(HEAD)
        self._notes[visit] = Decided(
            what="visit-length",
            by=f"head:{HEAD}" if trusted else "rule:spec",
            reason=f"2 tau_int of {exp(min(said, 20.0)):.3g} updates read off {nearest.id} at beta {nearest.beta:.5g}",
            value=float(updates),
            baseline=float(usual),
            trusted=trusted,
            head=HEAD,
        )
        return updates if trusted else usual

    def notes(self, visit: Assigned) -> list[Decided]:
        """Return what is to be written beside a visit, once."""
        note = self._notes.pop(visit.visit, None)
        if note is None:
            return []
        return [msgspec.structs.replace(note, chain=visit.chain, done=f"{visit.updates} updates")]


def _read(chain: ChainLog) -> float | None:
    """Return what the head said last of a chain; None where it said nothing."""
    return chain.screened[-1].heads.get(HEAD) if chain.screened else None
