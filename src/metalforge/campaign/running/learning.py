"""Heads that learn while a campaign runs: settled visits teach readouts, the better readout speaks, trust can be lost.

After every look at the estimates, visits that were completed since are told in the order of their numbers
(the theory has their labels). Both readouts, the shipped one and the one that learns, are asked before; what
the one that speaks said is judged beside its baseline, and a head that loses to it over the window is not acted on
until it wins again. Where another readout speaks from now on, the worker is given it: on a device it goes into the slot
that the old one has. All of it follows from the journal: a resumed campaign learns the same again, and a deterministic
one does so at the same places between its rounds.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from typing import Any, Protocol

from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.store.records import Decided
from metalforge.conductor.features import SCHEMA
from metalforge.conductor.retrain import JudgedRow, Retrain
from metalforge.conductor.trust import FEWEST_PAIRS, JudgedPair, Pair
from metalforge.conductor.worker import Worker
from metalforge.core.arrays import Doubles

from .book import Book
from .heads import Heads

TRUST, RETRAINED = "trust", "retrained"
BY = "rule:window"


class Lesson(Protocol):
    """What one chain showed until some update, and what its heads should have said of it."""

    chain: str
    updates: int
    mean: Doubles
    labels: Mapping[str, float]


class Lessons(Protocol):
    """Reads the chains of one campaign, each from its first row on."""

    def take(self, log: ChainLog, end: int) -> Any:
        """Return the rows of a chain that were not read yet, until update `end`; None where it teaches nothing."""
        ...

    def of(self, rows: Any) -> Any:
        """Return the `Lesson` of a chain; None where it is too short to teach. Its rows come in order."""
        ...


class Learning:
    """Teaches the heads of one campaign. All calls come from one thread at a time."""

    def __init__(self, book: Book, heads: Heads, worker: Worker) -> None:
        self._book, self._heads, self._worker = book, heads, worker
        # Heads are taught where they may speak: of chains that they were not trained on they know nothing.
        known = heads.domain is None and heads.weights.features == SCHEMA
        self._retrain = Retrain(heads.weights) if known else None
        spec = book.state.spec
        self._lessons = spec.theory.lessons(spec, heads.weights) if known else None
        self._told: set[int] = set()
        self._speaking: tuple[str, ...] = ()

    def settle(self) -> None:
        """Learn from visits that were completed since the last call."""
        if self._retrain is None or self._lessons is None or not self._retrain.heads:
            return
        with self._book.reading() as state:
            ended = self._complete(state)
            last = {log.id: (log, end) for log, end in ended}
            taken = {chain: self._lessons.take(*one) for chain, one in last.items()}
            ends = [(rows, end) for log, end in ended if (rows := taken[log.id]) is not None and end > log.warmup]
        lessons = [lesson for rows, end in ends if (lesson := self._lessons.of(rows.until(end))) is not None]
        for lesson in lessons:
            for head, label in lesson.labels.items():
                if head in self._retrain.heads:
                    row = self._retrain.learn(head, lesson.mean, label)
                    said = Pair(self._retrain.speaking(head, row), row.baseline, row.outcome)
                    self._worker.trust.take(JudgedPair(head, said, "squared", lesson.chain))
        if lessons:
            self._speak(self._retrain)
            self._judge(self._retrain)

    def _complete(self, state: CampaignState) -> list[tuple[ChainLog, int]]:
        """Return chains with the updates at which visits of theirs ended, in order, that were not told of yet."""
        whole = len(state.visits)
        if state.spec.running.deterministic and state.open_visits:
            # A round teaches when it is complete, also where its process died in the middle of it.
            under_way = min(state.visits[visit].round for visit in state.open_visits)
            whole = sum(visit.round < under_way for visit in state.visits)
        found = []
        for visit in state.visits[:whole]:
            log = state.chains[visit.chain]
            if visit.visit not in self._told and visit.visit in log.ends:
                self._told.add(visit.visit)
                found.append((log, log.ends[visit.visit]))
        return found

    def _speak(self, retrain: Retrain) -> None:
        """Give the worker the readouts that were the better ones until now."""
        speaking = tuple(filter(retrain.learned_speaks, retrain.heads))
        if speaking or self._speaking:
            self._worker.rewrite(*retrain.readout(learned=speaking))
        self._speaking = speaking

    def _judge(self, retrain: Retrain) -> None:
        """Take trust from heads that lost to their baselines, and give it back to those that win again."""
        for head in retrain.heads:
            _, skill, pairs, _ = self._worker.trust.standing(head)
            if skill is None or pairs < FEWEST_PAIRS:
                continue
            lost, said = skill <= 0, f"skill {skill:+.2f} over the last {pairs} settled visits"
            if lost == (head in self._heads.lost):
                continue
            if lost:
                self._heads.lost[head] = said
            else:
                del self._heads.lost[head]
            with self._book.reading() as state:
                known = next((d.trusted for d in reversed(state.decisions) if d.what == TRUST and d.head == head), True)
            if known == lost:  # a campaign that is resumed learns again what its journal has
                value = skill if isfinite(skill) else None
                self._book.write(Decided(what=TRUST, by=BY, head=head, reason=said, value=value, trusted=not lost))

    def notes(self) -> list[Decided]:
        """Return what was learned, head by head, for the journal's end."""
        retrain = self._retrain
        return [] if retrain is None else [_note(retrain, head) for head in retrain.heads if retrain.rows(head)]


def _note(retrain: Retrain, head: str) -> Decided:
    rows = retrain.judged(head)
    learned, shipped, baseline = (_off(rows, of) for of in ("learned", "shipped", "baseline"))
    speaks = "learned" if retrain.learned_speaks(head) else "shipped"
    reason = (
        f"{retrain.rows(head)} settled visits; off by {learned:.3g} with the learned readout, {shipped:.3g} with the "
        f"shipped one, {baseline:.3g} by the baseline, over the last {len(rows)}; the {speaks} one speaks"
    )
    return Decided(what=RETRAINED, by=head, reason=reason, value=learned, baseline=shipped)


def _off(rows: Sequence[JudgedRow], of: str) -> float:
    return sqrt(sum((getattr(row, of) - row.outcome) ** 2 for row in rows) / len(rows))
