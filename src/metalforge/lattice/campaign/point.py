"""A chain of links in a campaign: sweeps or trajectories of an engine."""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from metalforge.campaign import (
    ACCEPTANCE,
    LEAST_ACCEPTANCE,
    NOTHING,
    TRIED_IN_WARMUP,
    ChainLog,
    Decided,
    PointChain,
    Snapshot,
    Tools,
    Unsound,
    acceptance_of,
    is_due,
)
from metalforge.core import Row, SpecError
from metalforge.lattice import observables
from metalforge.lattice.chain import Chain
from metalforge.lattice.field import GaugeField
from metalforge.lattice.observables import Columns
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp
from metalforge.native import rounds_to_doubles

from .theory import lattice_of

OFF_GROUP = {"f64": 2e-15, "f32": 1e-6}
"""How far rounding takes links off the group between two projections."""
PAIRS = 32
"""Times as far where doubles of a trajectory are pairs of floats."""
HMC_STEPS = 10
"""Steps of a trajectory that take them as far as this again."""


class LatticePoint(PointChain):
    """A chain at one coupling."""

    run: ChainRun

    def __init__(self, known: ChainLog, tools: Tools, checkpoint: Path | None = None) -> None:
        spec = tools.spec
        self._goes_on = False
        """Whether it was said that its warm-up goes on because of its acceptance."""
        own = lattice_of(spec)
        self._names = own.row_columns
        self._besides = own.measured
        lattice = msgspec.structs.replace(own, n_steps=known.n_steps or own.n_steps)
        self._wanted = lattice.chain(
            known.system, known.coordinate, seed=spec.seed, stream=known.stream, start=known.start
        )
        super().__init__(known, tools, checkpoint)

    def _new(self) -> ChainRun:
        warmup = WarmUp(total=self._known.cheap + self._spec.warmup.longest, quenched=self._known.cheap)
        chain = Chain(self._wanted, engine=self._tools.engine)
        return ChainRun(chain, warmup, self._names, fill=NOTHING, besides=self._besides)

    def _read(self, path: Path) -> ChainRun:
        run = ChainRun.load(path, fill=NOTHING, engine=self._tools.engine, besides=self._besides)
        found = msgspec.structs.replace(run.chain.spec, hmc=self._wanted.hmc)
        if found != self._wanted:
            raise SpecError(f"{path} holds another chain than {self.id} of this campaign\nhint: delete it to recompute")
        return run

    @property
    def kind(self) -> tuple[object, ...] | None:
        """What chains of a batch have in common; None where it moves alone."""
        if not self.run.in_batches:
            return None
        from metalforge.lattice.batch import kind_of

        return kind_of(self.run.chain)

    @property
    def field(self) -> GaugeField:
        """The links."""
        return self.run.chain.field

    @property
    def n_steps(self) -> int | None:  # type: ignore[override]
        """Steps of a trajectory; None for sweeps."""
        return self.run.n_steps

    def digest(self) -> str:
        """Identify the links."""
        return hashlib.sha256(self.field.to_links().tobytes()).hexdigest()[:32]

    def _second(self) -> Row | None:
        """Return the next row, by a chain that has nothing of this one but its links and what was tuned."""
        if self.run.chain.sea is not None:
            return None
        chain = Chain(
            msgspec.structs.replace(self._wanted, hmc=self.run.chain.spec.hmc, start="file"), field=self.field.copy()
        )
        chain.step = self.rows
        witness = ChainRun(chain, WarmUp(total=0), self._names, fill=NOTHING, besides=self._besides)
        witness.log.first = self.rows
        return witness.step()

    def unsound(self, columns: Mapping[str, Sequence[float]], *, looks: bool) -> Iterator[Unsound]:
        """Report links that are off the group: those of trajectories are projected at their start.

        Of chains with sea quarks, which have no witness, it reports rows that were there before, too.
        """
        if self.run.chain.sea is not None:
            yield from self._repeated(columns)
        if not looks:
            return
        field, scratch = self.field, self._tools.scratch
        key = field.engine.name, field.dims, field.precision
        if key not in scratch:
            scratch[key] = field.copy()
        pairs = PAIRS if field.precision == "f64" and not rounds_to_doubles(field.engine) else 1
        most = OFF_GROUP[field.precision] * pairs * (1 + (self.n_steps or 0) / HMC_STEPS)
        off = field.off_group(scratch[key])
        if not off <= most:
            yield Unsound("rule:unitarity", self.rows, f"links are off SU(3) by {off:.2g}, above {most:.2g}", off)

    def _repeated(self, columns: Mapping[str, Sequence[float]]) -> Iterator[Unsound]:
        """Report new configurations with the plaquette of an earlier one: the chain stands still, or runs again."""
        log = self.run.log
        begin = max(self.emitted, log.first)
        known = set(log.columns["plaquette"][: begin - log.first])
        for update, (value, moved) in enumerate(zip(columns["plaquette"], columns["accepted"], strict=True), begin):
            if moved and value in known:
                yield Unsound("rule:repeated", update, "a row is one that was there before")
            known.add(value)

    def evaluated(self) -> str:
        """Return what the links of a flagged block are in higher precision, in words."""
        links = self.field.to_links()
        if not np.isfinite(links).all():
            return "its links are not finite"
        again = observables.evaluate_again(links, self.field.precision)
        row = self.run.log.columns["plaquette"][-1]
        return f"in {again.precision} its links have plaquette {again.plaquette:.6g}, its last row says {row:.6g}"

    def snap(self) -> None:
        """Keep the configuration as it is, with what was measured on it, to be checked if it was not."""
        if self.rows in self._known.checked_ahead:
            return
        measured = {name: column[-1] for name, column in self.run.log.columns.items()}
        links, precision = self.field.to_links(), self.field.precision
        self._snapshots.append(Snapshot(self.id, self.rows, links, precision, measured))

    def take(self, row: Row) -> None:
        """Take the update that was made last; its configuration is kept where it is to be checked."""
        super().take(row)
        if self._is_checked(self.rows):
            self.snap()

    def room(self, until: int) -> int:
        """Return how many sweeps a batch may make of it at once: up to a configuration that is checked, or the end."""
        ends = [self.rows + until - self.measured]
        if self._tools.checks != "none":
            ends += [update for update in self._known.unchecked if update > self.rows]
        if self._tools.checks == "all":
            ends.append(max(self.rows, self._known.step) + 1)
        return min(ends) - self.rows

    def absorb(self, columns: Columns) -> None:
        """Take sweeps that a batch made; the warm-up ends among them where it would have ended alone."""
        begin, end = 0, len(columns["plaquette"])
        while begin < end:
            phase, first = self.run.phase, self.rows
            part = slice(begin, min(end, begin + self._unlooked()))
            taken = {name: values[part] for name, values in columns.items()}
            self.run.extend(taken)
            for update in range(first, min(self.rows, self._known.rows)):
                self._verify(update)
            if phase == "warmup":
                self._look()
            begin = part.stop
        if self._is_checked(self.rows):
            self.snap()

    def _is_checked(self, update: int) -> bool:
        """Return whether the configuration after so many updates is to be checked."""
        every = self._tools.checks == "all" and update > self._known.step
        return self._tools.checks != "none" and (update in self._known.unchecked or every)

    def _unlooked(self) -> int:
        """Return after how many updates something is to be decided; sweeps of either phase are the same updates."""
        warmup, ends = self.run.warmup, self._known.warmup_ends
        if self.run.phase == "measure":
            return sys.maxsize
        left = warmup.total - warmup.done
        if ends is not None:
            return max(min(left, ends - warmup.done), 1)
        updates = warmup.done - warmup.quenched
        return next((n for n in range(1, left) if is_due(self._spec.warmup, updates + n)), left)

    def _look(self) -> None:
        if self._is_decided("updates"):
            return
        warmup = self.run.warmup
        updates = warmup.done - warmup.quenched
        halfway = self.n_steps is None or 2 * updates >= warmup.total - warmup.quenched
        if self.rows <= self._known.rows or not is_due(self._spec.warmup, updates) or not halfway or self._is_refused():
            return
        self._end_if_settled({name: column[warmup.quenched :] for name, column in self.run.log.columns.items()})

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
