"""What a chain tells the worker, and asks of it: by blocks of rows, so that it can be told again after a crash.

Every update is told. Before a trajectory the CG head says how long its solves will take, at a quarter of its steps the
rejection head how its accept test will end. Both answers are recorded and scored, and change nothing in the chain. The
thermalisation head may end a warm-up, by the rule that was chosen on training chains.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from metalforge.conductor.early_stop import EarlyStop
from metalforge.conductor.features import OF_TRAJECTORIES, SEEN, SWEEPS, ChainContext
from metalforge.conductor.heuristics import cg_iterations, rejection_probability
from metalforge.conductor.questions import ComingTrajectory, Future, HeadQuestion
from metalforge.conductor.worker import Worker
from metalforge.core.phases import Phase
from metalforge.core.rows import Segment

FED = (*SEEN, *OF_TRAJECTORIES)
"""Columns that frames are made of."""
CG, REJECTION, THERMALISED, ANOMALY = "cg_estimate", "rejection", "thermalization", "anomaly"


@dataclass(slots=True)
class _Progress:
    """How far a chain was told and asked about."""

    told: int = 0
    """Rows that the worker has."""
    phase: Phase = "warmup"
    """Of the last of them."""
    cg: float | None = None
    """Iterations a solve of the last trajectory that had any."""
    ahead: Future | None = None
    """What was asked before the cheaper updates about the first trajectory that solves."""
    expected: dict[str, int] = field(default_factory=dict)
    """Questions about the update under way, by head."""
    asked: list[Future] = field(default_factory=list)
    """Words of the thermalisation head that have not been collected."""
    missed: bool = False
    """Whether one of them did not come."""
    said: list[float] = field(default_factory=list)
    """What came of them: the probabilities of the warm-up's frames."""


class HeadWatch:
    """One chain's line to the worker, from whichever thread runs the chain; `rule` is None where nobody asks of it.

    Heads without a trained readout are not asked.

    Trajectories are told as they come, since heads are asked about the next; sweeps when somebody wants to know:
    whoever runs the chain tells all of its rows before it asks.
    """

    def __init__(self, worker: Worker, chain: str, context: ChainContext, *, rule: EarlyStop | None) -> None:
        self._worker, self._chain, self._context = worker, chain, context
        self._trained = {head.name for head in worker.layout.heads if head.trained}
        self._rule = rule if THERMALISED in self._trained else None
        self._trajectories = context.algorithm == "hmc"
        self._at = _Progress()

    def begin(self, history: Iterable[Segment], n_steps: int | None) -> None:
        """Take a chain's past; `n_steps` is for rows of journals that do not say with how many steps they were made."""
        past = [(segment.phase, self._fed(segment.columns, n_steps)) for segment in history]
        self._at = at = _Progress(told=sum(_rows(columns) for _, columns in past))
        for phase, columns in past:
            at.phase, at.cg = phase, _last_cg(columns, at.cg)
        self._worker.begin(self._chain, self._context, past, since=0 if self._asks else at.told)
        if self._asks:
            at.asked += self._of_frames(THERMALISED, 0)

    @property
    def told(self) -> int:
        """Rows that the worker has."""
        return self._at.told

    def before(self, phase: Phase, n_steps: int) -> None:
        """Ask for the iterations per solve of the coming trajectory.

        `before_quench` asked about the first one after a quench.
        """
        ahead, self._at.ahead = self._at.ahead, None
        if self._at.cg is not None and CG in self._trained:
            self._at.expected[CG] = self._ask_cg(phase, n_steps, self._at.cg).id
        elif ahead is not None:
            self._worker.collect(ahead)
            self._at.expected[CG] = ahead.id

    def before_quench(self, n_steps: int) -> None:
        """Ask about the first trajectory that solves before the updates that do not: the head is read meanwhile."""
        known = self._context
        if CG in self._trained:
            self._at.ahead = self._ask_cg("warmup", n_steps, float(cg_iterations(int(known.volume), known.mass)))

    def _ask_cg(self, phase: Phase, n_steps: int, baseline: float) -> Future:
        coming = ComingTrajectory(phase=phase, n_steps=n_steps)
        return self._worker.ask(HeadQuestion(head=CG, chain=self._chain, of=coming, baseline=baseline, loss="squared"))

    def at_quarter(self, phase: Phase, n_steps: int, delta_h: float) -> None:
        """Ask the rejection head in the middle of a trajectory; nothing is done about what it says."""
        if REJECTION not in self._trained:
            return
        coming = ComingTrajectory(phase=phase, n_steps=n_steps, delta_h_quarter=delta_h)
        baseline = rejection_probability(delta_h)
        asked = HeadQuestion(head=REJECTION, chain=self._chain, of=coming, baseline=baseline, loss="log")
        self._at.expected[REJECTION] = self._worker.ask(asked).id

    def push(self, phase: Phase, values: Mapping[str, float], n_steps: int | None, *, tested: bool) -> None:
        """Take the row of an update, and judge what was said of it; `tested` when its accept test counted."""
        if (id_ := self._at.expected.pop(CG, None)) is not None and "cg_iterations" in values:
            self._worker.outcome(id_, values["cg_iterations"])
        if (id_ := self._at.expected.pop(REJECTION, None)) is not None and tested:
            self._worker.outcome(id_, 1 - values["accepted"])
        self.push_rows(phase, {name: (value,) for name, value in values.items()}, n_steps)

    def push_rows(self, phase: Phase, columns: Mapping[str, Sequence[float]], n_steps: int | None = None) -> None:
        """Take the next rows of one phase."""
        at, first, told = self._at, self._at.told, self._fed(columns, n_steps)
        at.told, at.phase, at.cg = first + _rows(told), phase, _last_cg(told, at.cg)
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
        every = 1 if self._trajectories else SWEEPS
        rows = range(since + -(since + 1) % every, self._at.told, every)
        return [self._worker.ask(HeadQuestion(head=head, chain=self._chain, of=row)) for row in rows]

    @property
    def _asks(self) -> bool:
        """Whether somebody may want to know if the warm-up ends."""
        return self._rule is not None and self._at.phase != "measure"

    def _fed(self, columns: Mapping[str, Sequence[float]], n_steps: int | None) -> dict[str, Sequence[float]]:
        """Return the columns that frames are made of."""
        found = {name: columns[name] for name in FED if name in columns}
        if self._trajectories and n_steps is not None and "n_steps" not in found:
            found["n_steps"] = [float(n_steps)] * _rows(found)
        return found


def _rows(columns: Mapping[str, Sequence[float]]) -> int:
    return len(next(iter(columns.values())))


def _last_cg(columns: Mapping[str, Sequence[float]], before: float | None) -> float | None:
    return next((cg for cg in reversed(columns.get("cg_iterations", ())) if cg), before)
