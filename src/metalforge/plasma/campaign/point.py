"""A trajectory of the plasma in a campaign: segments in a bath, then at constant energy; what a sound one keeps."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metalforge.campaign import NOTHING, ChainLog, PointChain, Tools, Unsound, WarmUpVerdict
from metalforge.core import CountedWarmUp, Row, Segment, SpecError
from metalforge.plasma.trajectory import TrajectoryRun
from metalforge.plasma.warmup import AGREEMENT

from .analysis import plasma_of

DRIFT, RMS = "rule:drift", "rule:energy"
MOST_DRIFT = 3e-3
"""Change of the energy per particle over the rows of a block and the row before it, in kT: some times what good runs
have in all."""
MOST_RMS = 2e-2
"""Fluctuation of the energy per particle within a segment, in kT: twice what a good time step has."""
MOST_MOMENTUM = {"f64": 1e-9, "f32": 1e-4}
"""Total momentum over what particles have by chance. It is zero; a pair's two forces are rounded apart where they are
added up, and in f32 thousands of steps walk to 1e-6. One particle that was kicked has a hundredth."""
WITNESS_SEGMENTS = 16
"""Segments after which one is made twice: each is thousands of steps."""


class PlasmaPoint(PointChain):
    """A trajectory that was aimed at one coupling."""

    run: TrajectoryRun
    witness_every = WITNESS_SEGMENTS

    def __init__(self, known: ChainLog, tools: Tools, checkpoint: Path | None = None) -> None:
        plasma = plasma_of(tools.spec)
        self._segment = plasma.update_time
        self._options: dict[str, Any] = {"engine": tools.engine, "fill": NOTHING, "besides": plasma.measured}
        self._wanted = plasma.trajectory(
            known.system, known.coordinate, seed=tools.spec.seed, stream=known.stream, start=known.start
        )
        self._last_energy = _energies(known.columns)[-1:] if known.measured else []
        super().__init__(known, tools, checkpoint)

    def _new(self) -> TrajectoryRun:
        return TrajectoryRun(
            self._wanted, self._segment, CountedWarmUp(total=self._spec.warmup.longest), **self._options
        )

    def _read(self, path: Path) -> TrajectoryRun:
        run = TrajectoryRun.load(path, **self._options)
        if (run.spec, run.segment) != (self._wanted, self._segment):
            raise SpecError(
                f"{path} holds another trajectory than {self.id} of this campaign\nhint: delete it to recompute"
            )
        return run

    @property
    def kind(self) -> tuple[object, ...]:
        """What trajectories of a batch have in common."""
        return self.run.kind

    def _look(self) -> None:
        """Leave the bath where that was decided, or where the energy is steady."""
        if self._is_decided("segments"):
            return
        whole = self._wanted.start == "two-phase"  # whose stages belong together
        early = self._spec.warmup.early and self.run.warmup.done >= self._spec.warmup.shortest
        if whole or not early or self.rows <= self._known.rows:
            return
        off = self.run.log.columns["restless"][-1]
        if off <= AGREEMENT:
            reason = f"the energies of the last two quarters of segment {self.rows} differ by {off:.1f} errors"
            self._end(WarmUpVerdict(ends=True, by="rule:steady", reason=reason, rule=1.0))

    def _second(self) -> Row:
        """Return the next row, by a run that has nothing of this one but where its particles stand."""
        particles, warmup = self.run.particles.copy(), self.run.warmup
        again = TrajectoryRun(self._wanted, self._segment, warmup, particles=particles, **self._options)
        again.end_warmup()
        again.log.first = self.rows
        return again.step()

    def digest(self) -> str:
        """Identify where the particles are."""
        return self.run.digest()

    def unsound(self, columns: Mapping[str, Sequence[float]], *, looks: bool) -> Iterator[Unsound]:
        """Give what no Hamiltonian does: an energy that drifts or jumps, a momentum that comes from nowhere."""
        measured = self.fresh_measured
        if not measured:
            return
        first, n = self.rows - measured, self._wanted.particles
        rows = {name: values[len(values) - measured :] for name, values in columns.items()}
        kt = 2 / 3 * float(np.mean(rows["kinetic"])) / n
        energies = [*self._last_energy, *_energies(rows)]
        drift = (max(energies) - min(energies)) / n / kt
        if not drift <= MOST_DRIFT:
            yield Unsound(DRIFT, self.rows - 1, f"the energy moved by {drift:.2g} kT a particle", drift)
        for row, (rms, momentum) in enumerate(zip(rows["energy_rms"], rows["momentum"], strict=True)):
            if not rms / n / kt <= MOST_RMS:
                reason = f"the energy fluctuates by {rms / n / kt:.2g} kT a particle"
                yield Unsound(RMS, first + row, reason, rms / n / kt)
            if not momentum <= MOST_MOMENTUM[self._wanted.precision]:
                yield Unsound("rule:momentum", first + row, f"the total momentum is {momentum:.2g}", momentum)

    def evaluated(self) -> str:
        """Return where the particles of a flagged block are, in words."""
        particles = self.run.particles
        if not (np.isfinite(particles.positions).all() and np.isfinite(particles.velocities).all()):
            return "its particles are nowhere"
        fastest = float(np.sqrt((particles.velocities**2).sum(axis=1).max()))
        return f"its fastest particle has {fastest * (3 * self._wanted.gamma) ** 0.5:.2g} thermal velocities"

    def take_segments(self) -> list[Segment]:
        """Return the rows that are not in the journal or on their way to it; from now on they are."""
        if self.fresh_measured:
            self._last_energy = _energies(self.fresh())[-1:]
        return super().take_segments()


def _energies(columns: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the mean energy of every segment."""
    return [k + p for k, p in zip(columns["kinetic"], columns["potential"], strict=True)]
