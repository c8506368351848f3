"""One chain of a campaign: a run whose warm-up may end early, in blocks, with heads that watch it.

Rows that the journal has already are computed again and must come out the same, bit for bit; decisions that the
journal has are taken from there and not made again. So a chain that continues from an old checkpoint arrives where it
was.
"""

import hashlib
import math
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.observables import order_of
from metalforge.campaign.store.records import Decided
from metalforge.conductor.heuristics import check_interval
from metalforge.core.errors import SpecError
from metalforge.lattice.batch import Columns
from metalforge.lattice.chain import Chain
from metalforge.lattice.field import GaugeField
from metalforge.lattice.run import ROUNDING, ChainFaultError, ChainRun, Row, Segment
from metalforge.lattice.warmup import WarmUp

from .band import Band
from .equipment import Tools
from .monitor import WarmUpVerdict
from .orders import Brief, Flagged, Snapshot
from .rewiring import ACCEPTANCE, LEAST_ACCEPTANCE, TRIED_IN_WARMUP, acceptance_of
from .watch import THERMALISED, HeadWatch

KEPT_BLOCKS = 3
"""Blocks whose rows a checkpoint holds: at most two are on their way to the journal."""
WITNESS = 256
"""Updates after which one is made twice."""
WIDE_WITNESS = 64
"""Times as rarely where a batch moves the chain: an update alone takes an engine of batches as long as many do."""
SEEN = 4096
"""Rows, and at least as many again, that a new one must differ from."""
NOTHING = 0.0
"""Stands in rows for what an update does not have: JSON knows no NaN, and the phase tells."""


class PointChain:
    """A chain at some update, counted from 0; `update` moves it."""

    def __init__(self, brief: Brief, tools: Tools, checkpoint: Path | None = None) -> None:
        self.id, self.dims, self.beta = brief.id, brief.dims, brief.beta
        self._known, self._tools, self._spec = brief, tools, tools.spec
        self._watch = tools.lines.watch(brief)
        self._decisions: list[Decided] = []
        self._goes_on = False
        """Whether it was said that its warm-up goes on because of its acceptance."""
        self._snapshots: list[Snapshot] = []
        # Rows that are in the journal already decide the columns: an older version may have measured less.
        spec = tools.spec
        wanted = (*spec.lattice.columns(), *(("replica",) if brief.exchanges else ()))
        self.band = Band(brief.dims[3])
        self.band.take(brief.columns, brief.measured)
        self._seen = set(brief.columns.get("plaquette", ())[-SEEN:]), set[float]()
        self._witness: Row | None = None
        self._witness_at = 0
        self.suspect = False
        """Whether it is computed again because of what it gave: its rows must still be those that were written."""
        self._names = tuple(name for name in wanted if name in brief.columns or not brief.rows)
        self._marks: deque[int] = deque(maxlen=KEPT_BLOCKS)
        self._exact = set(brief.engines) <= {tools.engine.name}
        lattice = msgspec.structs.replace(spec.lattice, n_steps=brief.n_steps or spec.lattice.n_steps)
        self._wanted = lattice.chain(brief.dims, brief.beta, seed=spec.seed, stream=brief.stream, start=brief.start)
        self.emitted = self._known.rows
        """Rows that are in the journal, or on their way to it."""
        taken_up = None if checkpoint is None or not checkpoint.exists() else self._load(checkpoint)
        self._take_up(taken_up or self._begin())

    def _take_up(self, run: ChainRun) -> None:
        """Go on with a run, whose rows so far are told to whoever watches."""
        self.run = run
        self.taken_up_at = run.log.end
        """The update from which it is computed here."""
        self._witness, self._witness_at = None, run.log.end + WITNESS
        if self._watch is not None:
            past = chain(self._known.segments(run.log.first), run.log.segments(run.log.first))
            self._watch.begin(past, self.n_steps)

    def _begin(self) -> ChainRun:
        """Return the chain at update 0."""
        self._marks.clear()
        warmup = WarmUp(total=self._known.quenched + self._spec.warmup.longest, quenched=self._known.quenched)
        return ChainRun(Chain(self._wanted, engine=self._tools.engine), warmup, self._names, fill=NOTHING)

    def _load(self, path: Path) -> ChainRun | None:
        """Return the chain of a checkpoint; None for one from which rows before it cannot be had."""
        run = ChainRun.load(path, fill=NOTHING, engine=self._tools.engine)
        found = msgspec.structs.replace(run.chain.spec, hmc=self._wanted.hmc)
        if self._known.exchanges:
            # Any replica of its ladder may hold the coupling; that no other one does is for the ladder to see.
            found = msgspec.structs.replace(found, stream=self._wanted.stream, start=self._wanted.start)
        if found != self._wanted:
            raise SpecError(f"{path} holds another chain than {self.id} of this campaign\nhint: delete it to recompute")
        if run.log.first > self._known.rows or (self._tools.checks != "none" and run.log.end > self._known.settled):
            # The journal lost its end (a power cut), or configurations before it are to be checked: from the start on
            # the chain comes out the same.
            return None
        if run.phase == "measure" and self._known.warmup_ends is None:
            if (decided := msgspec.json.decode(run.job, type=Decided | None)) is None:
                return None  # who ended its warm-up was not written down anywhere: it is decided again
            self._decisions.append(decided)
        self._marks.append(run.log.first)
        for update in range(run.log.first, min(self._known.rows, run.log.end)):
            run.verify(update, self._known, self.id, exact=self._exact)
        # A warm-up is looked at as a whole, a measurement at its end.
        since = min(run.log.first, max(run.log.end - self._spec.screening.window, 0)) if run.phase == "measure" else 0
        run.log.precede(self._known, since)
        return run

    @property
    def rows(self) -> int:
        """Updates made."""
        return self.run.log.end

    @property
    def measured(self) -> int:
        """Updates of measurement made."""
        return self.run.measured

    @property
    def field(self) -> GaugeField:
        """The links."""
        return self.run.chain.field

    @property
    def n_steps(self) -> int | None:
        """Steps of a trajectory; None for sweeps."""
        return self.run.n_steps

    def recent_order(self, window: int) -> NDArray[np.float64]:
        """Return the order parameter of the last measurements, at most `window`."""
        log = self.run.log
        begin = self.rows - min(window, self.measured) - log.first
        return order_of(self._spec.lattice.order, lambda name: np.array(log.columns[name][begin:], np.float64))

    def links_digest(self) -> str:
        """Identify the links."""
        return hashlib.sha256(self.field.to_links().tobytes()).hexdigest()[:32]

    def begin_block(self) -> None:
        """Say that a block begins: checkpoints keep the rows of the last few; now and then its first has a witness."""
        self._marks.append(self.rows)
        alone = self.run.chain.sea is None and not self._known.exchanges
        if alone and self.run.phase == "measure" and self.rows >= max(self._witness_at, self.emitted):
            self._call_witness()

    def _call_witness(self) -> None:
        """Make the next update by a chain that has nothing of this one but its links and what was tuned."""
        chain = Chain(
            msgspec.structs.replace(self._wanted, hmc=self.run.chain.spec.hmc, start="file"), field=self.field.copy()
        )
        chain.step = self.rows
        witness = ChainRun(chain, WarmUp(total=0), self._names, fill=NOTHING)
        witness.log.first = self.rows
        self._witness = witness.step()
        self._witness_at = self.rows + WITNESS * (WIDE_WITNESS if self._tools.wide else 1)

    def witnessed(self) -> tuple[int, str]:
        """Return the update that was made twice and the column in which it differs; no column where it does not."""
        row, self._witness = self._witness, None
        if row is None or row.update >= self.rows:
            return 0, ""
        rounding = ROUNDING[self.field.precision]
        at = row.update - self.run.log.first
        for name, value in row.values.items():
            if not math.isclose(self.run.log.columns[name][at], value, rel_tol=rounding, abs_tol=rounding):
                return row.update, name
        return row.update, ""

    def anomaly(self) -> float | None:
        """Return what the anomaly head says of the rows that are not written, at most; None where there is no word."""
        watch = self._tell()
        return None if watch is None else watch.anomaly(self.emitted)

    def fresh(self) -> dict[str, list[float]]:
        """Return the rows that are not in the journal or on their way to it."""
        log = self.run.log
        return {name: column[max(self.emitted - log.first, 0) :] for name, column in log.columns.items()}

    @property
    def thrown_away(self) -> frozenset[Flagged]:
        """What blocks of the chain were thrown away for, as the journal says."""
        return self._known.thrown_away

    @property
    def fresh_measured(self) -> int:
        """Those of them that are measured."""
        return min(self.measured, max(self.rows - self.emitted, 0))

    def repeats(self, columns: Mapping[str, Sequence[float]]) -> int | None:
        """Return the first of new rows that is one of earlier ones; None where all are new.

        A trajectory that was rejected leaves the links as they were, and its row.
        """
        plaquettes = columns["plaquette"]
        if len(new := set(plaquettes)) == len(plaquettes) and all(new.isdisjoint(seen) for seen in self._seen):
            return None
        moved = columns.get("accepted", ()) if self.n_steps is not None else [1.0] * len(plaquettes)
        known = set().union(*self._seen)
        for row, (plaquette, accepted) in enumerate(zip(plaquettes, moved, strict=False)):
            if accepted and plaquette in known:
                return row
            known.add(plaquette)
        return None

    def begin_again(self) -> None:
        """Go back to update 0; decisions that the journal has are taken from there once more."""
        self._decisions.clear()
        self._take_up(self._begin())

    def take_segments(self) -> list[Segment]:
        """Return the rows that are not in the journal or on their way to it; from now on they are."""
        columns = self.fresh()
        self.band.take(columns, self.fresh_measured)
        before, recent = self._seen
        recent.update(columns["plaquette"])
        self._seen = (recent, set()) if len(recent) >= SEEN else (before, recent)
        begin, self.emitted = self.emitted, max(self.rows, self.emitted)
        made = list(self.run.log.segments(begin))
        self._tell()
        self._forget()
        return made

    def _forget(self) -> None:
        """Drop rows that the journal has and nobody here looks at, so that a chain of any length takes as little."""
        log = self.run.log
        if self.run.phase == "measure":
            kept = min([*self._marks, self.rows - max(self._spec.screening.window, 1)])
            log.forget(max(kept, log.first))
        if self.rows >= self._known.rows:
            self._known = replace(self._known, phases=(), columns={})

    def _tell(self) -> HeadWatch | None:
        """Tell whoever watches the rows that it has not heard of, and return it."""
        watch = self._watch
        if watch is not None and watch.told < self.rows:
            for segment in self.run.log.segments(watch.told):
                watch.push_rows(segment.phase, segment.columns, self.n_steps)
        return watch

    def take_decisions(self) -> list[Decided]:
        """Return what was decided since the last call; whoever writes it down dates it."""
        made, self._decisions = self._decisions, []
        return made

    def take_snapshots(self) -> list[Snapshot]:
        """Return the configurations to be checked that were met since the last call."""
        met, self._snapshots = self._snapshots, []
        return met

    def snap(self) -> None:
        """Keep the configuration as it is, with what was measured on it, to be checked if it was not."""
        if self.rows in self._known.checked_ahead:
            return
        plaquette, re, im = (self.run.log.columns[n][-1] for n in ("plaquette", "polyakov_re", "polyakov_im"))
        links, precision = self.field.to_links(), self.field.precision
        self._snapshots.append(
            Snapshot(
                chain=self.id,
                step=self.rows,
                links=links,
                precision=precision,
                plaquette=plaquette,
                polyakov=complex(re, im),
            )
        )

    def save(self, path: Path) -> None:
        """Write a checkpoint, with the rows that may not be in the journal yet."""
        self.run.save(path, first=self._marks[0] if self._marks else self.rows)

    def update(self) -> None:
        """Make one update, whose row must be the one that the journal has if it has one."""
        run, watch, phase, steps = self.run, self._watch, self.run.phase, self.n_steps
        at_quarter = None
        if watch is not None and steps is not None and phase == "quench" and not self.rows:
            watch.before_quench(steps)
        if watch is not None and steps is not None and phase != "quench":
            if run.chain.sea is not None:
                run.chain.sea.inverter.check_interval = check_interval(watch.before(phase, steps))

            def at_quarter(delta_h: float) -> None:
                watch.at_quarter(phase, steps, delta_h)

        row = run.step(at_quarter=at_quarter)
        if row.update < self._known.rows:
            self._verify(row.update)
        if self._is_checked(self.rows):
            self.snap()
        if watch is not None and steps is not None:
            watch.push(phase, row.values, steps, tested=row.tested)
        if phase == "warmup":
            self._look()

    def _verify(self, update: int) -> None:
        """Hold a row against the one that the journal has; one that was spoiled is no fault of whoever resumes."""
        try:
            self.run.verify(update, self._known, self.id, exact=self._exact)
        except SpecError as error:
            if not self.suspect:
                raise
            raise ChainFaultError(f"update {update} is in the journal, and is another one now") from error

    def room(self, until: int) -> int:
        """Return how many sweeps a batch may make of it at once: up to a configuration that is checked, or the end."""
        ends = [self.rows + until - self.measured]
        if self._tools.checks != "none":
            ends += [update for update in self._known.unchecked if update > self.rows]
        if self._tools.checks == "all":
            ends.append(max(self.rows, self._known.closed) + 1)
        return min(ends) - self.rows

    def absorb(self, columns: Columns, replicas: Sequence[float] | None = None) -> None:
        """Take sweeps that a batch made; the warm-up ends among them where it would have ended alone."""
        begin, end = 0, len(columns["plaquette"])
        while begin < end:
            phase, first = self.run.phase, self.rows
            part = slice(begin, min(end, begin + self._unlooked()))
            taken = {name: values[part] for name, values in columns.items()}
            self.run.extend(taken, None if replicas is None else replicas[part])
            for update in range(first, min(self.rows, self._known.rows)):
                self._verify(update)
            if phase == "warmup":
                self._look()
            begin = part.stop
        if self._is_checked(self.rows):
            self.snap()

    def _is_checked(self, update: int) -> bool:
        """Return whether the configuration after so many updates is to be checked."""
        every = self._tools.checks == "all" and update > self._known.closed
        return self._tools.checks != "none" and (update in self._known.unchecked or every)

    def _unlooked(self) -> int:
        """Return after how many updates something is to be decided; sweeps of either phase are the same updates."""
        warmup, ends = self.run.warmup, self._known.warmup_ends
        if self.run.phase == "measure":
            return sys.maxsize
        left = warmup.total - warmup.done
        if ends is not None:
            return max(min(left, ends - warmup.done), 1)
        if self._known.exchanges:
            return left
        updates = warmup.done - warmup.quenched
        return next((n for n in range(1, left) if self._tools.monitor.due(updates + n)), left)

    def _look(self) -> None:
        """End the warm-up where that was decided, or may be decided now."""
        warmup = self.run.warmup
        if self._known.warmup_ends is not None:
            if warmup.done >= self._known.warmup_ends:
                self.run.end_warmup()
            return
        if warmup.finished:
            reason = f"{warmup.total} updates are the longest warm-up"
            self._end(WarmUpVerdict(ends=True, by="rule:longest", reason=reason))
            return
        if self._known.exchanges:
            return  # the warm-ups of a ladder end together: one that still adapts would spoil what others measure
        updates = warmup.done - warmup.quenched
        halfway = self.n_steps is None or 2 * updates >= warmup.total - warmup.quenched
        if self.rows <= self._known.rows or not self._tools.monitor.due(updates) or not halfway or self._is_refused():
            return
        columns = self.run.log.columns
        plaquette, re, im = (columns[n][warmup.quenched :] for n in ("plaquette", "polyakov_re", "polyakov_im"))
        watch = self._tell()
        says = None if watch is None else watch.says
        verdict = self._tools.monitor.look(plaquette, np.hypot(re, im).tolist(), says)
        if verdict.ends:
            self._end(verdict)

    def _is_refused(self) -> bool:
        """Whether too few of its trajectories are accepted for it to be measured: their steps are tuned on."""
        accepted = self.run.log.columns.get("accepted")
        if accepted is None or not self._spec.running.rewire:
            return False
        found = acceptance_of(accepted[self.run.warmup.first_tested :][-TRIED_IN_WARMUP:], TRIED_IN_WARMUP // 2)
        if found is None or found >= LEAST_ACCEPTANCE:
            return False
        if not self._goes_on:
            self._goes_on = True
            self._decisions.append(
                Decided(
                    what="warmup-goes-on",
                    chain=self.id,
                    step=self.run.warmup.done,
                    by=ACCEPTANCE,
                    reason=f"{found:.0%} of its last trajectories were accepted with {self.n_steps} steps",
                    value=found,
                    baseline=LEAST_ACCEPTANCE,
                    done="the steps are tuned for the longest warm-up",
                )
            )
        return True

    def _end(self, verdict: WarmUpVerdict) -> None:
        # The tuning is over with it: what is decided here holds for the whole measurement.
        steps = "" if self.n_steps is None else f"; {self.n_steps} steps per trajectory from now on"
        decided = Decided(
            what="warmup-ends",
            chain=self.id,
            step=self.run.warmup.done,
            by=verdict.by,
            reason=verdict.reason + steps,
            value=verdict.head,
            baseline=verdict.rule,
            trusted=verdict.trusted,
            head="" if verdict.head is None else THERMALISED,
            done=f"measured from update {self.run.warmup.done} on",
        )
        self._decisions.append(decided)
        # A checkpoint may be written before the journal has it.
        self.run.job = msgspec.Raw(msgspec.json.encode(decided))
        self.run.end_warmup()
