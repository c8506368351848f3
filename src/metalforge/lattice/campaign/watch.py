"""Questions of one chain of links to the heads: about the trajectory that comes, and about the one under way.

Before a trajectory the head `cg_estimate` predicts the iterations of its solves; at a quarter of its steps the head
`rejection` predicts the outcome of its accept test. Both answers are recorded and scored, and change nothing in the
chain.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from metalforge.campaign.running.watch import HeadWatch
from metalforge.conductor.heuristics import cg_iterations, rejection_probability
from metalforge.conductor.questions import ComingTrajectory, Future, HeadQuestion
from metalforge.core.rows import Phase, Segment

CG, REJECTION = "cg_estimate", "rejection"


class LinksWatch(HeadWatch):
    """The connection of one chain of links to the worker.

    Trajectories are sent one by one, since heads are asked about the next one; sweeps are sent before a question.
    """

    def __init__(self, *connection: Any, **options: Any) -> None:
        super().__init__(*connection, **options)
        self._forget()

    def _forget(self) -> None:
        self._cg: float | None = None
        """Iterations of a solve in the last trajectory that had any."""
        self._ahead: Future | None = None
        """The question about the first trajectory with solves that was asked before the sweeps without quarks."""
        self._expected: dict[str, int] = {}
        """Questions about the update under way, by head."""

    def begin(self, history: Iterable[Segment]) -> None:
        """Take a chain's past."""
        past = list(history)
        self._forget()
        for segment in past:
            self._cg = _last_cg(segment.columns, self._cg)
        super().begin(past)

    def before(self, phase: Phase, n_steps: int) -> None:
        """Ask for the iterations per solve of the coming trajectory.

        `before_quench` asked about the first one after a quench.
        """
        ahead, self._ahead = self._ahead, None
        if self._cg is not None and CG in self._trained:
            self._expected[CG] = self._ask_cg(phase, n_steps, self._cg).id
        elif ahead is not None:
            self._worker.collect(ahead)
            self._expected[CG] = ahead.id

    def before_quench(self, n_steps: int) -> None:
        """Ask about the first trajectory with solves before the sweeps without any: the head is read meanwhile."""
        known = self._context
        if CG in self._trained:
            self._ahead = self._ask_cg("warmup", n_steps, float(cg_iterations(int(known.volume), known.mass)))

    def _ask_cg(self, phase: Phase, n_steps: int, baseline: float) -> Future:
        coming = ComingTrajectory(phase=phase, n_steps=n_steps)
        return self._worker.ask(HeadQuestion(head=CG, chain=self._chain, of=coming, baseline=baseline, loss="squared"))

    def at_quarter(self, phase: Phase, n_steps: int, delta_h: float) -> None:
        """Ask the rejection head within a trajectory; its answer changes nothing."""
        if REJECTION not in self._trained:
            return
        coming = ComingTrajectory(phase=phase, n_steps=n_steps, delta_h_quarter=delta_h)
        baseline = rejection_probability(delta_h)
        asked = HeadQuestion(head=REJECTION, chain=self._chain, of=coming, baseline=baseline, loss="log")
        self._expected[REJECTION] = self._worker.ask(asked).id

    def push(self, phase: Phase, values: Mapping[str, float], *, tested: bool) -> None:
        """Take the row of a trajectory, and judge the answers about it; `tested` when its accept test counted."""
        if (id_ := self._expected.pop(CG, None)) is not None and "cg_iterations" in values:
            self._worker.outcome(id_, values["cg_iterations"])
        if (id_ := self._expected.pop(REJECTION, None)) is not None and tested:
            self._worker.outcome(id_, 1 - values["accepted"])
        self.push_rows(phase, {name: (value,) for name, value in values.items()})

    def push_rows(self, phase: Phase, columns: Mapping[str, Sequence[float]]) -> None:
        """Take the next rows of one phase."""
        super().push_rows(phase, columns)
        self._cg = _last_cg(columns, self._cg)


def _last_cg(columns: Mapping[str, Sequence[float]], before: float | None) -> float | None:
    return next((cg for cg in reversed(columns.get("cg_iterations", ())) if cg), before)
