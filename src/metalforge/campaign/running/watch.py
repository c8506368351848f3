"""The rows that a chain sends to the worker that reads the heads, and its questions about them.

Rows go in blocks, so that they can be sent again after a crash. The thermalisation head may end a warm-up, by the rule
that was chosen on training chains. A theory may ask about single updates as well (`Theory.watch`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from metalforge.conductor.features import OF_TRAJECTORIES, SEEN, ChainContext
from metalforge.conductor.questions import Future, HeadQuestion
from metalforge.conductor.trust import EarlyStop
from metalforge.conductor.worker import Worker
from metalforge.core.rows import Phase, Segment

FED = (*SEEN, *OF_TRAJECTORIES)
"""Columns that frames are made of."""
THERMALISED, ANOMALY = "thermalization", "anomaly"


@dataclass(slots=True)
class _Progress:
    """How far a chain was told and asked about."""

    told: int = 0
    """Rows that the worker has."""
    phase: Phase = "warmup"
    """Of the last of them."""
    asked: list[Future] = field(default_factory=list)
    """Words of the thermalisation head that have not been collected."""
    missed: bool = False
    """Whether one of them did not come."""
    said: list[float] = field(default_factory=list)
    """What came of them: the probabilities of the warm-up's frames."""


class HeadWatch:
    """The connection of one chain to the worker, used by the thread that runs the chain.

    `rule` is None where nobody asks whether the warm-up may end. Heads without a trained readout are not asked. The
    thread that runs the chain sends all of its rows before it asks.
    """

    def __init__(self, worker: Worker, chain: str, context: ChainContext, *, rule: EarlyStop | None) -> None:
        self._worker, self._chain, self._context = worker, chain, context
        self._trained = {head.name for head in worker.layout.heads if head.trained}
        self._rule = rule if THERMALISED in self._trained else None
        self._at = _Progress()

    def begin(self, history: Iterable[Segment]) -> None:
        """Take a chain's past."""
        past = [(segment.phase, _fed(segment.columns)) for segment in history]
        self._at = at = _Progress(told=sum(_rows(columns) for _, columns in past))
        if past:
            at.phase = past[-1][0]
        self._worker.begin(self._chain, self._context, past, since=0 if self._asks else at.told)
        if self._asks:
            at.asked += self._of_frames(THERMALISED, 0)

    @property
    def told(self) -> int:
        """Rows that the worker has."""
        return self._at.told

    def push_rows(self, phase: Phase, columns: Mapping[str, Sequence[float]]) -> None:
        """Take the next rows of one phase."""
        at, first, told = self._at, self._at.told, _fed(columns)
        at.told, at.phase = first + _rows(told), phase
        self._worker.tell(self._chain, first, phase, told)
        if self._asks:
            at.asked += self._of_frames(THERMALISED, first)

    def says(self) -> tuple[bool, float] | None:
        """Return whether the thermalisation head may end the warm-up now, and its last probability.

        None where there is no word of it for every frame: then it is the rule's turn.
        """
        if self._rule is None:
            return None
        at = self._at
        for future in at.asked:
            said = future.get().said.get(THERMALISED)
            if said is None:
                at.missed = True
            else:
                at.said.append(said)
        at.asked.clear()
        return None if at.missed or not at.said else (self._rule.ends(at.said), at.said[-1])

    def anomaly(self, since: int) -> float | None:
        """Return the highest probability of an anomaly over the frames from a row on; None where no word came."""
        if ANOMALY not in self._trained:
            return None
        said = (future.get().said.get(ANOMALY) for future in self._of_frames(ANOMALY, since))
        return max((value for value in said if value is not None), default=None)

    def _of_frames(self, head: str, since: int) -> list[Future]:
        """Ask a head about every frame from a row on that the worker was told of."""
        every = self._context.rows_per_frame
        rows = range(since + -(since + 1) % every, self._at.told, every)
        return [self._worker.ask(HeadQuestion(head=head, chain=self._chain, of=row)) for row in rows]

    @property
    def _asks(self) -> bool:
        """Whether somebody may want to know if the warm-up ends."""
        return self._rule is not None and self._at.phase != "measure"


def _fed(columns: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """Return the columns that frames are made of."""
    return {name: columns[name] for name in FED if name in columns}


def _rows(columns: Mapping[str, Sequence[float]]) -> int:
    return len(next(iter(columns.values())))
