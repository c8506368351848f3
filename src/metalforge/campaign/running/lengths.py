"""The lengths of visits and of cheap warm-ups: by the spec and the theory, or by heads where they are trusted.

The head `schedule` predicts log(2 tau_int) of the order parameter from a chain, and the screen records it. A visit of
`SAMPLES` times 2 tau_int gives the same precision everywhere: near a transition it is longer than elsewhere, where half
as many updates are enough. The spec's length is the baseline. A length differs from it by a factor of two at most, so
that a wrong prediction costs little.

A theory may begin its chains with cheaper updates, and name a head (of the layout gpu-prep-11) that predicts from the
first frame of such a chain how many of them it takes to equilibrium (`Theory.cheap_head`). The prediction from the
nearest chain with the same start replaces the theory's own number.

Everything is read from the journal, so that a round which is planned again comes out the same.
"""

from functools import lru_cache
from math import exp, expm1

import msgspec

from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.store.records import BY_HEAD, Assigned, Decided
from metalforge.campaign.theory import System
from metalforge.conductor.features import SWEEPS, ChainContext, FrameMaker
from metalforge.conductor.program import ConductorProgram
from metalforge.conductor.shipped import shipped_scores, shipped_weights

from .heads import SOFTWARE, Heads

SCHEDULE, CHEAP = "schedule", "cheap-length"
LAYOUT = "gpu-prep-11"
"""The layout of the heads for cheaper updates; one is asked once per chain, on the host."""
SAMPLES = 10
"""Independent samples of a visit: the default visit of 600 updates has as many where 2 tau_int is 60."""
BETWEEN = 0.5, 2.0
"""Of the spec's length, the least and the most that a visit may have."""
LARGEST = 20.0
"""Of a logarithm that a head says."""


class Lengths:
    """Reads the lengths of visits and cheap warm-ups from the journal, and keeps the notes to be written about them."""

    def __init__(self, spec: CampaignSpec, heads: Heads) -> None:
        self._spec, self._heads = spec, heads
        self._notes: dict[int, dict[str, Decided]] = {}

    def visit(
        self, state: CampaignState, system: System, coordinate: float, chain: ChainLog | None, usual: int, visit: int
    ) -> int:
        """Return the updates of a visit to a chain, or to a new one there, that would usually have so many."""
        if self._heads.domain is not None or SCHEDULE in self._heads.unused:
            return usual
        there = [
            c for c in state.chains.values() if c.system == system and not c.abandoned and _scheduled(c) is not None
        ]
        nearest = min(there, key=lambda c: (c is not chain, abs(c.coordinate - coordinate), c.id), default=None)
        said = None if nearest is None else _scheduled(nearest)
        if nearest is None or said is None:
            return usual
        least, most = (round(part * usual) for part in BETWEEN)
        double_tau = exp(min(said, LARGEST))
        updates = min(max(round(SAMPLES * double_tau), least), most)
        why = f"2 tau_int of {double_tau:.3g} updates read off {nearest.id} at {nearest.coordinate:.5g}"
        return self._noted(visit, "visit-length", SCHEDULE, updates, usual, self._heads.acts(SCHEDULE), why)

    def cheap(self, state: CampaignState, system: System, coordinate: float, start: str, usual: int, visit: int) -> int:
        """Return the cheaper updates of a new chain that would usually have so many."""
        alike = [
            c
            for c in state.chains.values()
            if c.system == system and c.start == start and min(c.cheap, c.rows) >= SWEEPS and not c.abandoned
        ]
        nearest = min(alike, key=lambda c: (abs(c.coordinate - coordinate), c.id), default=None)
        head = self._spec.theory.cheap_head
        if not head or not usual or nearest is None:
            return usual
        if (known := self._spec.theory.head_context(nearest.coordinate, system, nearest.start)) is None:
            return usual
        context = known.of_sweeps
        scores = shipped_scores(LAYOUT)
        if not any(kind.lacks(context) is None and head in kind.heads for kind in scores.tested_on):
            return usual
        rows = {name: tuple(column[:SWEEPS]) for name, column in nearest.columns.items()}
        said = expm1(min(_read(head, context, tuple(sorted(rows.items()))), LARGEST))
        updates = min(max(round(said), 1), self._spec.warmup.cheap)
        trusted = any(s.trusted for s in scores.heads if (s.name, s.route) == (head, SOFTWARE))
        why = f"{said:.3g} updates to equilibrium read off {nearest.id} at {nearest.coordinate:.5g}"
        return self._noted(visit, CHEAP, head, updates, usual, trusted, why)

    def notes(self, visit: Assigned) -> list[Decided]:
        """Return what is to be written beside a visit, once."""
        notes = []
        for what, note in self._notes.pop(visit.visit, {}).items():
            updates = visit.cheap if what == CHEAP else visit.updates
            note = msgspec.structs.replace(note, chain=visit.chain, done=f"{updates} updates")
            said, usual = note.value, note.baseline
            if note.trusted and said is not None and usual is not None and updates < said:
                # The budget cut the visit, and would have cut that of the baseline.
                note = msgspec.structs.replace(note, value=float(updates), baseline=min(usual, float(updates)))
            notes.append(note)
        return notes

    def _noted(self, visit: int, what: str, head: str, updates: int, usual: int, trusted: bool, reason: str) -> int:
        """Keep what was said, and return what is done."""
        self._notes.setdefault(visit, {})[what] = Decided(
            what=what,
            by=f"{BY_HEAD}{head}" if trusted else "rule:spec",
            reason=reason,
            value=float(updates),
            baseline=float(usual),
            trusted=trusted,
            head=head,
        )
        return updates if trusted else usual


def _scheduled(chain: ChainLog) -> float | None:
    """Return what the head said last of a chain; None where it said nothing."""
    return chain.screened[-1].heads.get(SCHEDULE) if chain.screened else None


@lru_cache(maxsize=64)
def _read(head: str, context: ChainContext, rows: tuple[tuple[str, tuple[float, ...]], ...]) -> float:
    """Return what a head of the second layout predicts after the first frame of a chain."""
    frames = FrameMaker(context).push("measure", dict(rows))
    with ConductorProgram(weights=shipped_weights(LAYOUT)).run_on() as network:
        return float(network.through(frames.values)[head][0, -1])
