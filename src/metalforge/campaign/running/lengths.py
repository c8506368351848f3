"""How many cheaper updates a new chain begins with: by its theory, or by the advisor where that is trusted.

Everything is read from the journal, so that a round which is planned again comes out the same.
"""

from typing import Any

import msgspec

from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import BY_HEAD, Assigned, Decided
from metalforge.core import Advisor, ChainPlace, CheapLength

CHEAP = "cheap-length"


class Lengths:
    """Asks the advisor for lengths, and keeps the notes to be written about them."""

    def __init__(self, most: int, advisor: Advisor) -> None:
        self._most, self._advisor = most, advisor
        self._notes: dict[int, Decided] = {}

    def cheap(self, state: CampaignState, place: ChainPlace, usual: int, visit: int) -> int:
        """Return the cheaper updates of a new chain that would usually have so many."""
        there = [c for c in state.chains.values() if (c.system, c.start) == (place.system, place.start)]
        alike: list[Any] = [chain for chain in there if not chain.abandoned]
        found = self._advisor.advise(CheapLength(place, usual, self._most, alike))
        if found is None or found.value is None:
            return usual
        self._notes[visit] = Decided(
            what=CHEAP,
            by=f"{BY_HEAD}{found.head}" if found.trusted else "rule:spec",
            reason=found.reason,
            value=found.value,
            baseline=found.baseline,
            trusted=found.trusted,
            head=found.head,
        )
        return int(found.value) if found.trusted else usual

    def notes(self, visit: Assigned) -> list[Decided]:
        """Return what is to be written beside a visit, once."""
        note = self._notes.pop(visit.visit, None)
        if note is None:
            return []
        made, said, usual = visit.cheap, note.value, note.baseline
        if note.trusted and said is not None and usual is not None and made < said:
            # The budget cut the visit, and would have cut that of the baseline.
            note = msgspec.structs.replace(note, value=float(made), baseline=min(usual, float(made)))
        return [msgspec.structs.replace(note, chain=visit.chain, done=f"{made} updates")]
