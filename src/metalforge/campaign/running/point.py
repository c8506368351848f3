"""One chain of a campaign: quenched start, warm-up that may end early, then measurement with frozen parameters.

Every update leaves a row. Rows that the journal has already are computed again and must come out the same, bit for
bit; decisions that the journal has are taken from there and not made again. So a chain that continues from an old
checkpoint arrives where it was.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.observables import order_of
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import ChainLog
from metalforge.campaign.store.records import Decided, Phase
from metalforge.conductor.intervals import check_interval
from metalforge.core.errors import MetalforgeError, SpecError
from metalforge.lattice.chain import Chain, ChainSpec, UpdateInfo
from metalforge.lattice.condensate import SeaObservables
from metalforge.lattice.field import GaugeField
from metalforge.lattice.generate import SEA_SERIES
from metalforge.lattice.hmc import EnergyProbe, MidEnergy
from metalforge.lattice.observables import measure
from metalforge.lattice.warmup import WarmUp, warm_up_step

from .monitor import Monitor
from .watch import HeadWatch

__all__ = ["ChainFaultError", "Known", "PointChain", "Segment", "columns_of"]

KEPT_BLOCKS = 3
"""Blocks whose rows a checkpoint holds: at most two are on their way to the journal."""


class ChainFaultError(MetalforgeError):
    """A chain gave something that no chain may give."""


class Segment(NamedTuple):
    """Rows of one phase, from update `first` on."""

    phase: Phase
    first: int
    columns: dict[str, tuple[float, ...]]


class Known(NamedTuple):
    """What the journal has of a chain: rows, the length of its warm-up if that was decided."""

    rows: int
    phases: tuple[Phase, ...]
    columns: dict[str, tuple[float, ...]]
    warmup_ends: int | None

    @classmethod
    def of(cls, log: ChainLog) -> "Known":
        """Return what is known now."""
        ends = [d.step for d in log.decisions if d.what == "warmup-ends"]
        columns = {name: tuple(values) for name, values in log.columns.items()}
        return cls(log.rows, tuple(log.phases), columns, ends[0] if ends else None)


class _Notes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    warmup: WarmUp
    measuring: bool
    first: int


def columns_of(spec: CampaignSpec) -> tuple[str, ...]:
    """Return the columns that rows of this campaign have."""
    names = ["plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im"]
    if spec.lattice.algorithm == "hmc":
        names += ["delta_h", "accepted", "delta_h_quarter"]
    if spec.lattice.flavors:
        names += SEA_SERIES
    return tuple(names)


class PointChain:
    """A chain at some update, counted from 0; `advance` moves it."""

    def __init__(
        self,
        log: ChainLog,
        spec: CampaignSpec,
        *,
        monitor: Monitor,
        decide: Callable[[Decided], None],
        now: Callable[[], float],
        watch: HeadWatch | None = None,
        checkpoint: Path | None = None,
    ) -> None:
        self.id, self.start, self.dims, self.beta = log.id, log.start, log.dims, log.beta
        self._known = Known.of(log)
        self._monitor, self._decide, self._now, self._watch = monitor, decide, now, watch
        # Rows that are in the journal already decide the columns: an older version may have measured less.
        self._columns: dict[str, list[float]] = {
            name: [] for name in columns_of(spec) if name in log.columns or not log.rows
        }
        self._phases: list[Phase] = []
        self._first = 0
        """The update that the kept rows begin with."""
        self._marks: deque[int] = deque(maxlen=KEPT_BLOCKS)
        self._quenched = log.quenched
        self._spec, self._wanted = spec, self._chain_spec(log, spec)
        self._emitted = self._known.rows
        """Rows that are in the journal, or on their way to it."""
        if checkpoint is None or not checkpoint.exists() or not self._load(checkpoint, log, spec):
            self._start()
        if self._watch is not None:
            self._watch.begin(self._history(), self.n_steps)

    def _start(self) -> None:
        """Begin at update 0."""
        policy = self._spec.warmup
        self.chain = Chain(self._wanted, threads=self._spec.running.threads)
        self.warmup = WarmUp(total=self._quenched + policy.longest, quenched=self._quenched)
        self.measuring = False
        self._first, self._phases = 0, []
        self._columns = {name: [] for name in self._columns}
        self._marks.clear()

    @staticmethod
    def _chain_spec(log: ChainLog, spec: CampaignSpec) -> ChainSpec:
        return spec.lattice.chain(log.dims, log.beta, seed=spec.seed, stream=log.stream, start=log.start)

    @property
    def rows(self) -> int:
        """Updates made."""
        return self._first + len(self._phases)

    @property
    def measured(self) -> int:
        """Updates of measurement made."""
        return self.rows - self.warmup.done if self.measuring else 0

    @property
    def field(self) -> GaugeField:
        """The links."""
        return self.chain.field

    @property
    def n_steps(self) -> int | None:
        """Steps of a trajectory; None for sweeps."""
        return self.chain.spec.hmc.n_steps if self.chain.spec.has_trajectories else None

    def recent_order(self, window: int) -> NDArray[np.float64]:
        """Return the order parameter of the last measurements, at most `window`."""
        count = min(window, self.measured)
        return order_of(self._spec.lattice.order, lambda name: np.array(self._tail(name, count), np.float64))

    def links_digest(self) -> str:
        """Identify the links."""
        return hashlib.sha256(self.chain.field.to_links().tobytes()).hexdigest()[:32]

    def begin_block(self) -> None:
        """Say that a block begins: checkpoints keep the rows of the last few."""
        self._marks.append(self.rows)

    def advance(self, updates: int, until: int, stopping: Callable[[], bool]) -> list[Segment]:
        """Move on by at most `updates`, or until so many are measured; return the rows that the journal lacks.

        Updates that only lead back to where the journal is do not count.
        """
        if self.measured > until:
            # A checkpoint from beyond what the journal knows (it lost its end): decisions must be taken in order.
            self._start()
        begin, self._emitted = self._emitted, max(self.rows, self._emitted)
        while self.rows < self._emitted + updates and self.measured < until and not stopping():
            self._update()
        self._emitted = max(self.rows, begin)
        return self._segments(begin)

    def save(self, path: Path) -> None:
        """Write a checkpoint, with the rows that may not be in the journal yet."""
        first = self._marks[0] if self._marks else self.rows
        first = max(first, self._first)
        series = {name: np.array(values[first - self._first :], np.float64) for name, values in self._columns.items()}
        codes = {"quench": 0.0, "warmup": 1.0, "measure": 2.0}
        series["phase"] = np.array([codes[p] for p in self._phases[first - self._first :]], np.float64)
        notes = _Notes(warmup=self.warmup, measuring=self.measuring, first=first)
        self.chain.save(path, notes=msgspec.json.encode(notes).decode(), series=series)

    def _load(self, path: Path, log: ChainLog, spec: CampaignSpec) -> bool:
        """Take up a checkpoint; one from which rows before it cannot be had is left alone, and False comes back."""
        chain, text, series = Chain.load_with_notes(path, threads=spec.running.threads)
        try:
            notes = msgspec.json.decode(text, type=_Notes)
        except msgspec.MsgspecError as error:
            raise SpecError(f"{path} is not a checkpoint of a campaign: {error}") from error
        found = msgspec.structs.replace(chain.spec, hmc=self._wanted.hmc)
        if found != self._wanted:
            raise SpecError(f"{path} holds another chain than {log.id} of this campaign\nhint: delete it to recompute")
        if notes.first > self._known.rows:
            # The journal lost its end (a power cut): from the start on the chain comes out the same.
            return False
        self.chain, self.warmup, self.measuring = chain, notes.warmup, notes.measuring
        names: tuple[Phase, ...] = ("quench", "warmup", "measure")
        self._first = notes.first
        self._phases = [names[int(code)] for code in series.pop("phase")]
        self._columns = {name: [float(x) for x in values] for name, values in series.items()}
        self._marks.append(notes.first)
        for i in range(min(self._known.rows, self.rows) - self._first):
            self._verify(i)
        return True

    def _update(self) -> None:
        phase: Phase = "measure" if self.measuring else "quench" if self.warmup.is_quenched else "warmup"
        quarter: list[MidEnergy] = []
        probe = self._probe(phase, quarter) if self.n_steps is not None and phase != "quench" else None
        tested = self.measuring
        if self.measuring:
            info = self.chain.update(probe=probe)
        else:
            tuned = self.n_steps
            self.warmup, info = warm_up_step(self.chain, self.warmup, probe)
            # Untested trajectories are accepted whatever dH was; and one after which the steps changed is not judged.
            updates = self.warmup.done - self.warmup.quenched
            tested = 3 * updates > self.warmup.total - self.warmup.quenched and tuned == self.n_steps
        values = self._row(phase, info, quarter)
        for name, column in self._columns.items():
            # Quenched updates of a chain with trajectories have no dH, and no update before measurement has a
            # condensate: 0 keeps the rows aligned, the phase tells.
            column.append(values.get(name, 0.0))
        self._phases.append(phase)
        if self.rows <= self._known.rows:
            self._verify(len(self._phases) - 1)
        if self._watch is not None:
            self._watch.push(phase, values, self.n_steps, tested=tested and info.accepted is not None)
        if phase == "warmup":
            self._look()

    def _probe(self, phase: Phase, quarter: list[MidEnergy]) -> EnergyProbe:
        """Return what looks at the energy at a quarter of a trajectory, with the heads asked on the way."""
        watch, steps = self._watch, self.n_steps
        assert steps is not None
        if watch is not None and self.chain.sea is not None:
            self.chain.sea.inverter.check_interval = check_interval(watch.before(phase, steps))

        def seen(energy: MidEnergy) -> None:
            quarter.append(energy)
            if watch is not None:
                watch.at_quarter(phase, steps, energy.delta_h)

        return EnergyProbe((0.25,), seen)

    def _row(self, phase: Phase, info: UpdateInfo, quarter: list[MidEnergy]) -> dict[str, float]:
        # Noise is addressed by the update, so the condensate comes out the same when it is computed again.
        condensate = phase == "measure" and "condensate" in self._columns
        seen = self.chain.measure() if condensate else measure(self.chain.field)
        values = {
            "plaquette": seen.plaquette,
            "plaquette_spatial": seen.plaquette_spatial,
            "polyakov_re": seen.polyakov_re,
            "polyakov_im": seen.polyakov_im,
        }
        if info.delta_h is not None:
            values["delta_h"] = info.delta_h
            values["accepted"] = float(bool(info.accepted))
        if quarter:
            values["delta_h_quarter"] = quarter[0].delta_h
        if info.cg_iterations is not None and self.chain.sea is not None:
            values["cg_iterations"] = info.cg_iterations / max(self.chain.sea.inverter.solves, 1)
        if isinstance(seen, SeaObservables):
            values["condensate"] = seen.condensate
            values["condensate_connected"] = seen.condensate_connected
            if seen.condensate_pairs is not None:
                values["condensate_pairs"] = seen.condensate_pairs
        if not np.isfinite([values["plaquette"], seen.polyakov_re, seen.polyakov_im]).all():
            raise ChainFaultError(
                f"chain {self.id} at beta {self.beta:g}: update {self.rows} gave no finite observables"
            )
        return values

    def _look(self) -> None:
        """End the warm-up where that was decided, or may be decided now."""
        if self._known.warmup_ends is not None:
            if self.warmup.done >= self._known.warmup_ends:
                self._measure_from_now()
            return
        if self.warmup.finished:
            self._end("rule:longest", f"{self.warmup.total} updates are the longest warm-up", None, None, None)
            return
        updates = self.warmup.done - self.warmup.quenched
        halfway = not self.chain.spec.has_trajectories or 2 * updates >= self.warmup.total - self.warmup.quenched
        if self.rows <= self._known.rows or not self._monitor.due(updates) or not halfway:
            return
        plaquette, loop = self._warmup_series()
        verdict = self._monitor.look(plaquette, loop, self._watch.says if self._watch is not None else None)
        if verdict.ends:
            self._end(verdict.by, verdict.reason, verdict.head, verdict.rule, verdict.trusted)

    def _warmup_series(self) -> tuple[list[float], list[float]]:
        """Return plaquette and |L| of the warm-up, from kept rows and, before them, from the journal."""
        quenched = self.warmup.quenched
        every = {name: self._all(name) for name in ("plaquette", "polyakov_re", "polyakov_im")}
        loop = np.hypot(every["polyakov_re"][quenched:], every["polyakov_im"][quenched:])
        return every["plaquette"][quenched:], loop.tolist()

    def _tail(self, name: str, count: int) -> list[float]:
        """Return the last entries of a column, from kept rows and, before them, from the journal."""
        kept = self._columns[name]
        if count <= len(kept):
            return kept[len(kept) - count :]
        return [*self._known.columns[name][self._first - (count - len(kept)) : self._first], *kept]

    def _all(self, name: str) -> list[float]:
        return [*self._known.columns.get(name, ())[: self._first], *self._columns.get(name, [])]

    def _history(self) -> list[tuple[Phase, dict[str, float]]]:
        """Return the rows so far, for a network that has to be told them again."""
        phases = [*self._known.phases[: self._first], *self._phases]
        columns = {name: self._all(name) for name in {*self._known.columns, *self._columns}}
        return [(phase, {name: column[i] for name, column in columns.items()}) for i, phase in enumerate(phases)]

    def _end(self, by: str, reason: str, head: float | None, rule: float | None, trusted: bool | None) -> None:
        # The tuning is over with it: what is decided here holds for the whole measurement.
        steps = "" if self.n_steps is None else f"; {self.n_steps} steps per trajectory from now on"
        self._decide(
            Decided(
                at=self._now(),
                what="warmup-ends",
                chain=self.id,
                step=self.warmup.done,
                by=by,
                reason=reason + steps,
                value=head,
                baseline=rule,
                trusted=trusted,
            )
        )
        self._measure_from_now()

    def _measure_from_now(self) -> None:
        self.measuring = True

    def _verify(self, i: int) -> None:
        """Hold a row that was computed again against the journal."""
        at = self._first + i
        if self._known.phases[at] != self._phases[i]:
            raise SpecError(f"chain {self.id}: update {at} is of phase {self._phases[i]}, the journal says otherwise")
        for name, values in self._known.columns.items():
            if values[at] != self._columns[name][i]:
                raise SpecError(
                    f"chain {self.id}: update {at} was computed again and differs from the journal in `{name}`"
                    "\nhint: was it resumed with another version or build level?"
                )

    def _segments(self, begin: int) -> list[Segment]:
        segments = []
        at = begin
        while at < self.rows:
            phase = self._phases[at - self._first]
            end = at
            while end < self.rows and self._phases[end - self._first] == phase:
                end += 1
            part = slice(at - self._first, end - self._first)
            segments.append(Segment(phase, at, {name: tuple(v[part]) for name, v in self._columns.items()}))
            at = end
        return segments
