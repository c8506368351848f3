"""What a chain tells the worker, and asks of it: row by row, so that it can be told again after a crash.

Before a trajectory the CG head says how long its solves will take, at a quarter of its steps the rejection head how
its accept test will end. Neither changes a bit of the chain: the one sets how often a solve is looked at, the other is
recorded and scored. The thermalisation head may end a warm-up, by the rule that was chosen on training chains.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metalforge.conductor.early_stop import EarlyStop
from metalforge.conductor.features import ChainContext, MetaRow, ObservedUpdate
from metalforge.conductor.heuristics import rejection_probability
from metalforge.conductor.questions import Future, HeadQuestion
from metalforge.conductor.worker import Worker
from metalforge.core.phases import Phase

TOGETHER = 1000
"""Rows of a chain's past that are told at once."""
CG, REJECTION, THERMALISED = "cg_estimate", "rejection", "thermalization"


@dataclass(slots=True)
class _Progress:
    """How far a chain was told and asked about."""

    before: tuple[float, float]
    """Plaquettes, all and spatial, of the last row that was told."""
    row: int = 0
    cg: float | None = None
    """Iterations a solve of the last trajectory that had any."""
    expected: dict[str, int] = field(default_factory=dict)
    """Questions about the update under way, by head."""
    asked: list[Future] = field(default_factory=list)
    """Words of the thermalisation head that have not been collected."""
    missed: bool = False
    """Whether one of them did not come."""
    said: list[float] = field(default_factory=list)
    """What came of them: the probabilities of the warm-up's rows."""


class HeadWatch:
    """One chain's line to the worker, from whichever thread runs the chain.

    Trajectories are told one by one. Sweeps, which the heads were not trained on, are recorded and not acted on: of
    them every `every`-th is told (the screen asks for no other), and nothing is asked.
    """

    def __init__(
        self,
        worker: Worker,
        chain: str,
        context: ChainContext,
        *,
        start: float,
        tau: float,
        rule: EarlyStop,
        meta: Sequence[MetaRow] = (),
        every: int = 1,
    ) -> None:
        self._worker, self._chain, self._context, self._meta = worker, chain, context, meta
        self._start, self._tau, self._rule, self._every = start, tau, rule, every
        self._begin_again()

    def begin(self, history: Iterable[tuple[Phase, Mapping[str, float]]], n_steps: int | None) -> None:
        """Take a chain's past; `n_steps` is for rows of journals that do not say with how many steps they were made."""
        self._begin_again()
        measured: list[tuple[int, ObservedUpdate]] = []
        for phase, values in history:
            if phase == "measure":
                measured += self._next(phase, values, n_steps)
                if len(measured) == TOGETHER:
                    self._worker.tell(self._chain, measured)
                    measured = []
            else:
                self._observe(phase, values, n_steps)
        self._worker.tell(self._chain, measured)

    def before(self, phase: Phase, n_steps: int) -> float | None:
        """Return the iterations a solve of the coming trajectory, by the head if it is trusted, else as last time."""
        if self._at.cg is None:
            return None
        coming = self._trajectory(phase, n_steps)
        asked = self._ask(CG, coming, baseline=self._at.cg, loss="squared")
        self._at.expected[CG] = asked.id
        return asked.get().value

    def at_quarter(self, phase: Phase, n_steps: int, delta_h: float) -> None:
        """Ask the rejection head in the middle of a trajectory; nothing is done about what it says."""
        coming = self._trajectory(phase, n_steps, delta_h_quarter=delta_h)
        baseline = rejection_probability(delta_h)
        self._at.expected[REJECTION] = self._ask(REJECTION, coming, baseline=baseline, loss="log").id

    def push(self, phase: Phase, values: Mapping[str, float], n_steps: int | None, *, tested: bool) -> None:
        """Take the row of an update, and judge what was said of it; `tested` when its accept test counted."""
        if (id_ := self._at.expected.pop(CG, None)) is not None and "cg_iterations" in values:
            self._worker.outcome(id_, values["cg_iterations"])
        if (id_ := self._at.expected.pop(REJECTION, None)) is not None and tested:
            self._worker.outcome(id_, 1 - values["accepted"])
        self._observe(phase, values, n_steps)

    def push_sweeps(self, phase: Phase, columns: Mapping[str, Sequence[float]]) -> None:
        """Take the rows of sweeps at once: of them only every so many are told."""
        first, count = self._at.row, len(columns["plaquette"])
        for row in range(first + -first % self._every, first + count, self._every):
            self._at.row = row
            self._observe(phase, {name: values[row - first] for name, values in columns.items()}, None)
        self._at.row = first + count

    def says(self) -> tuple[bool, float] | None:
        """Return whether the thermalisation head may end the warm-up now, and its last probability.

        None where there is no word of it for every row: then it is the rule's turn.
        """
        at = self._at
        for future in at.asked:
            said = future.get().said.get(THERMALISED)
            if said is None:
                at.missed = True
            else:
                at.said.append(said)
        at.asked.clear()
        return None if at.missed or not at.said else (self._rule.ends(at.said), at.said[-1])

    def _observe(self, phase: Phase, values: Mapping[str, float], n_steps: int | None) -> None:
        row = self._at.row
        if told := self._next(phase, values, n_steps):
            self._worker.tell(self._chain, told)
            if self._every == 1 and phase != "measure":
                self._at.asked.append(self._ask(THERMALISED, row))

    def _next(self, phase: Phase, values: Mapping[str, float], n_steps: int | None) -> list[tuple[int, ObservedUpdate]]:
        """Return what the worker is told of the next row: it, or nothing."""
        row, self._at.row = self._at.row, self._at.row + 1
        if row % self._every:
            return []
        steps = int(values.get("n_steps", 0)) or n_steps
        if steps is None or phase == "quench":
            told = self._trajectory(phase, None)
        else:
            seen = {name: values[name] for name in ("delta_h", "delta_h_quarter")}
            accepted, iterations = bool(values["accepted"]), values.get("cg_iterations")
            told = self._trajectory(phase, steps, accepted=accepted, cg_iterations=iterations, **seen)
        self._at.before = values["plaquette"], values["plaquette_spatial"]
        self._at.cg = values.get("cg_iterations", self._at.cg) or self._at.cg
        return [(row, told)]

    def _trajectory(self, phase: Phase, n_steps: int | None, **seen: Any) -> ObservedUpdate:
        """Return a trajectory with the plaquettes of the configuration it starts from, and what was seen of it."""
        plaquette, spatial = self._at.before
        if n_steps is not None:
            seen |= {"step_size": self._tau / n_steps, "n_steps": n_steps}
        return ObservedUpdate(
            phase=phase, plaquette_spatial=spatial, plaquette_temporal=2 * plaquette - spatial, **seen
        )

    def _ask(self, head: str, of: int | ObservedUpdate, **more: object) -> Future:
        return self._worker.ask(HeadQuestion(head=head, chain=self._chain, of=of, **more))  # type: ignore[arg-type]

    def _begin_again(self) -> None:
        self._worker.begin(self._chain, self._context, self._meta)
        self._at = _Progress((self._start, self._start))
