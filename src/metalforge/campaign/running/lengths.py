"""How long a visit and a quench are: as the spec and a formula say, or as heads do where they are trusted.

The head `schedule` reads log(2 tau_int of |L|) off a chain, and the screen writes it down. A visit of `SAMPLES` times
2 tau_int says the same of every coupling: near a transition it is longer than elsewhere, where half as many updates are
enough. The spec's length is the baseline, and is never left by more than a factor of two, so that a reading that is
wrong costs little.

The head `quenched_length` (of the layout gpu-prep-11) says after the first frame of a quenched chain how many updates
it takes to equilibrium. A dynamical chain begins with such updates; what the head reads off those of the nearest chain
from the same start is the length of the next one's, in place of the formula's.

All of it is read off the journal, so that a round which is planned again comes out the same.
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

SCHEDULE, QUENCH = "schedule", "quenched_length"
LAYOUT = "gpu-prep-11"
"""Of the second; it is asked once per chain, on the host."""
SAMPLES = 10
"""Independent samples of a visit: what the default one has on 8^3x4 at the transition, 2 tau_int being about 60."""
BETWEEN = 0.5, 2.0
"""Of the spec's length, the least and the most that a visit may have."""
LARGEST = 20.0
"""Of a logarithm that a head says."""


class Lengths:
    """Reads the lengths of visits and quenches off the journal, and keeps what is to be written down about them."""

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

    def quench(
        self, state: CampaignState, system: System, coordinate: float, start: str, usual: int, visit: int
    ) -> int:
        """Return the cheaper updates of a new chain that would usually have so many."""
        alike = [
            c
            for c in state.chains.values()
            if c.system == system and c.start == start and min(c.quenched, c.rows) >= SWEEPS and not c.abandoned
        ]
        nearest = min(alike, key=lambda c: (abs(c.coordinate - coordinate), c.id), default=None)
        if not usual or nearest is None:
            return usual
        if (known := self._spec.theory.head_context(nearest.coordinate, system, nearest.start)) is None:
            return usual
        # The quench is made of the theory's cheaper updates.
        context = known.of_sweeps
        scores = shipped_scores(LAYOUT)
        if not any(kind.lacks(context) is None and QUENCH in kind.heads for kind in scores.tested_on):
            return usual
        rows = {name: tuple(column[:SWEEPS]) for name, column in nearest.columns.items()}
        said = expm1(min(_read(context, tuple(sorted(rows.items()))), LARGEST))
        updates = min(max(round(said), 1), self._spec.warmup.quenched)
        trusted = any(s.trusted for s in scores.heads if (s.name, s.route) == (QUENCH, SOFTWARE))
        why = f"{said:.3g} updates to equilibrium read off {nearest.id} at {nearest.coordinate:.5g}"
        return self._noted(visit, "quenched-length", QUENCH, updates, usual, trusted, why)

    def notes(self, visit: Assigned) -> list[Decided]:
        """Return what is to be written beside a visit, once."""
        notes = []
        for what, note in self._notes.pop(visit.visit, {}).items():
            updates = visit.quenched if what == "quenched-length" else visit.updates
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
def _read(context: ChainContext, rows: tuple[tuple[str, tuple[float, ...]], ...]) -> float:
    """Return what the second head says after the first frame of a quench."""
    frames = FrameMaker(context).push("measure", dict(rows))
    with ConductorProgram(weights=shipped_weights(LAYOUT)).run_on() as network:
        return float(network.through(frames.values)[QUENCH][0, -1])
