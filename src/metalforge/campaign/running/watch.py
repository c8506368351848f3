"""The heads beside one chain: fed row by row, so that they can be fed again after a crash, and judged as they go.

Before a trajectory the CG head says how long its solves will take, at a quarter of its steps the rejection head how
its accept test will end. Neither changes a bit of the chain: the one sets how often a solve is looked at, the other is
recorded and scored. The thermalisation head may end a warm-up, by the rule that was chosen on training chains.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from metalforge.campaign.store.records import Phase
from metalforge.conductor.features import ChainContext, FrameBuilder, MetaRow, Stage, Trajectory
from metalforge.conductor.heads import HeadReading
from metalforge.conductor.heuristics import rejection_probability
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.trust import Trust

__all__ = ["HeadWatch", "StopRule", "trajectory_of"]

STAGES: dict[Phase, Stage] = {"quench": "quenched", "warmup": "warmup", "measure": "measure"}
CG, REJECTION, THERMALISED = "cg_estimate", "rejection", "thermalization"


class StopRule(NamedTuple):
    """When the head's word ends a warm-up: `factor` times the updates until it was `sure` for some in a row."""

    sure: float
    in_a_row: int
    factor: float


class HeadWatch:
    """Carries one chain through the network, from whichever thread runs the chain."""

    def __init__(
        self,
        conductor: NetworkConductor,
        chain: str,
        context: ChainContext,
        *,
        start: float,
        tau: float,
        rule: StopRule,
        trust: Trust,
        next_id: Callable[[], int],
        meta: Sequence[MetaRow] = (),
    ) -> None:
        self._conductor, self._chain, self._context, self._meta = conductor, chain, context, meta
        self._start, self._tau, self._rule = start, tau, rule
        self._trust, self._next_id = trust, next_id
        self._before = start, start
        self._run, self._updates, self._probability = 0, 0, 0.0
        self._first: int | None = None
        self._last_cg: float | None = None
        self._expected: dict[str, int] = {}
        self._begin_again()

    def begin(self, history: Sequence[tuple[Phase, Mapping[str, float]]], n_steps: int | None) -> None:
        """Take a chain's past."""
        self._begin_again()
        for phase, values in history:
            self._observe(phase, values, n_steps)

    def before(self, phase: Phase, n_steps: int) -> float | None:
        """Return the iterations a solve of the coming trajectory, by the head if it is trusted, else as last time."""
        seen = self._coming(phase, n_steps, None)
        said = self._read(seen, CG)
        if self._last_cg is None:
            return None
        self._expected[CG] = self._next_id()
        self._trust.expect(self._expected[CG], CG, said, self._last_cg)
        return said if self._trust.standing(CG).trusted else self._last_cg

    def at_quarter(self, phase: Phase, n_steps: int, delta_h: float) -> None:
        """Note what the rejection head says in the middle of a trajectory; nothing is done about it."""
        said = self._read(self._coming(phase, n_steps, delta_h), REJECTION)
        self._expected[REJECTION] = self._next_id()
        self._trust.expect(self._expected[REJECTION], REJECTION, said, rejection_probability(delta_h), loss="log")

    def push(self, phase: Phase, values: Mapping[str, float], n_steps: int | None, *, tested: bool) -> None:
        """Take the row of an update, and judge what was said of it; `tested` when its accept test counted."""
        if (id_ := self._expected.pop(CG, None)) is not None and "cg_iterations" in values:
            self._trust.outcome(id_, values["cg_iterations"])
        if (id_ := self._expected.pop(REJECTION, None)) is not None and tested:
            self._trust.outcome(id_, 1 - values["accepted"])
        self._observe(phase, values, n_steps)

    def says(self) -> tuple[bool, float]:
        """Return whether the thermalisation head may end the warm-up now, and its last probability."""
        return self._first is not None and self._updates >= self._rule.factor * self._first, self._probability

    def _observe(self, phase: Phase, values: Mapping[str, float], n_steps: int | None) -> None:
        seen = trajectory_of(phase, values, self._before, tau=self._tau, n_steps=n_steps)
        self._before = values["plaquette"], values["plaquette_spatial"]
        self._last_cg = values.get("cg_iterations", self._last_cg) or self._last_cg
        readings: Mapping[str, HeadReading] = self._conductor.observe(self._chain, self._builder.push(seen))
        if phase == "measure":
            return
        self._probability = float(readings[THERMALISED].value[-1])
        self._updates += 1
        self._run = self._run + 1 if self._probability > self._rule.sure else 0
        if self._first is None and self._run >= self._rule.in_a_row:
            self._first = self._updates

    def _coming(self, phase: Phase, n_steps: int, quarter: float | None) -> Trajectory:
        """Return a trajectory that is under way, as far as it is known."""
        plaquette, spatial = self._before
        return Trajectory(
            stage=STAGES[phase],
            plaquette_spatial=spatial,
            plaquette_temporal=2 * plaquette - spatial,
            delta_h_quarter=quarter,
            step_size=self._tau / n_steps,
            n_steps=n_steps,
        )

    def _read(self, coming: Trajectory, head: str) -> float:
        frame = self._builder.midway(coming)
        return float(self._conductor.read(frame, chain=self._chain)[head].value[-1])

    def _begin_again(self) -> None:
        self._conductor.end(self._chain)
        self._builder = FrameBuilder(self._context, self._meta)
        self._before = self._start, self._start
        self._run, self._updates, self._probability = 0, 0, 0.0
        self._first = self._last_cg = None
        self._expected = {}


def trajectory_of(
    phase: Phase, values: Mapping[str, float], before: tuple[float, float], *, tau: float, n_steps: int | None
) -> Trajectory:
    """Return a row as the features see it: with the plaquettes of the configuration it started from."""
    plaquette, spatial = before
    if n_steps is None or phase == "quench":
        return Trajectory(stage=STAGES[phase], plaquette_spatial=spatial, plaquette_temporal=2 * plaquette - spatial)
    return Trajectory(
        stage=STAGES[phase],
        plaquette_spatial=spatial,
        plaquette_temporal=2 * plaquette - spatial,
        delta_h=values["delta_h"],
        delta_h_quarter=values["delta_h_quarter"],
        accepted=bool(values["accepted"]),
        step_size=tau / n_steps,
        n_steps=n_steps,
        cg_iterations=values.get("cg_iterations"),
    )
