"""One chain from its start to its last measurement: quench, warm-up, then frozen measurement, with a row per update.

Whoever runs chains runs them here. A checkpoint holds the chain, how far its warm-up has come and the rows since some
update; a run that continues from it gives the bits of one that was never interrupted. Rows that somebody wrote down
before are computed again and must come out the same.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from metalforge.core import (
    ChainFaultError,
    LoggedRun,
    Measurements,
    MetalforgeError,
    Row,
    Rowed,
    RowLog,
    RunNotes,
    SpecError,
)

from .chain import Chain
from .observables import COLUMNS, Columns, Look, named
from .warmup import WarmUp, warm_up_step

NOTHING_BESIDES = Measurements()
NEVER_INFINITE = ("plaquette", "polyakov_re", "polyakov_im")
"""What a field of unitary links cannot have otherwise."""


ROUNDING = {"f64": 1e-9, "f32": 1e-4}
"""How far two engines may be apart in the sums of one configuration: dH is a small difference of large ones."""


_NOTES = msgspec.json.Decoder(RunNotes[WarmUp])
"""Made here: at the first decoding of a record msgspec looks at its type, which two threads must not do at once."""


class ChainRun(LoggedRun[WarmUp]):
    """A chain that moves update by update, with its rows in `log`.

    A row's observables are those of the configuration after its update; `besides` are measured on the links of some
    updates. `seconds` is what the updates took, without measurements.
    """

    def __init__(
        self,
        chain: Chain,
        warmup: WarmUp,
        names: Sequence[str],
        *,
        fill: float = math.nan,
        besides: Measurements = NOTHING_BESIDES,
    ) -> None:
        super().__init__(warmup, RowLog(names, fill=fill, held=besides.names))
        self.chain, self.besides = chain, besides
        self.seconds, self.updates = 0.0, 0
        """Of this process."""
        self._observables = [one for one in named(names) if one.name not in besides.names]

    @property
    def n_steps(self) -> int | None:
        """Steps of a trajectory; None for sweeps."""
        return self.chain.spec.hmc.n_steps if self.chain.spec.has_trajectories else None

    def step(self) -> Row:
        """Make one update and return its row; one that fails raises and leaves the run where it was."""
        phase, look = self.phase, Look(self.chain)
        probe = look.at_quarter if phase != "quench" and "delta_h_quarter" in self.log.columns else None
        began = time.perf_counter()
        try:
            if phase == "measure":
                look.info = self.chain.update(probe=probe)
            else:
                self.warmup, look.info = warm_up_step(self.chain, self.warmup, probe)
            self.seconds += time.perf_counter() - began
            self.updates += 1
            asked = (one for one in self._observables if phase in one.phases)
            values = {one.name: value for one in asked if (value := one.measure(look)) is not None}
            if not all(math.isfinite(values.get(name, 0.0)) for name in NEVER_INFINITE):
                raise self._infinite()
            values |= self.besides.of(look, self.log.end, phase)
        except MetalforgeError as error:
            # Whatever fails for links that are no numbers is a fault of the chain: solves refuse such fields.
            if isinstance(error, ChainFaultError) or all(map(math.isfinite, self.chain.field.plaquette_sums())):
                raise
            raise self._infinite() from error
        row = Row(self.log.end, phase, values)
        self.log.add(row)
        return row

    @property
    def in_batches(self) -> bool:
        """Whether its updates are sweeps whose rows a `ChainBatch` has, but for those that `extend` measures."""
        chain, here = self.chain, {*COLUMNS, *self.besides.names}
        return not chain.spec.has_trajectories and chain.sea is None and set(self.log.columns) <= here

    def extend(self, columns: Columns) -> None:
        """Take the rows of sweeps that a batch made of this chain, all of the phase it is in.

        Where the last of them is one whose links are measured here (`besides`), the links are those after it.
        """
        phase, log = self.phase, self.log
        whole = np.logical_and.reduce([np.isfinite(columns[name]) for name in NEVER_INFINITE])
        count = len(whole) if whole.all() else int(np.argmin(whole))
        log.phases += [phase] * count
        for name, column in log.columns.items():
            if name in self.besides.names:
                log.hold(name, count)
            else:
                column += columns[name][:count]
        if count == len(whole):
            for name, value in self.besides.of(Look(self.chain), log.end - 1, phase).items():
                log.columns[name][-1] = value
        self.updates += count
        if phase != "measure":
            self.warmup = msgspec.structs.replace(self.warmup, done=self.warmup.done + count)
        if count < len(whole):
            raise self._infinite()

    def verify(self, update: int, recorded: Rowed, *, exact: bool = True) -> None:
        """Compare a row that was computed again with the recorded one (`RowLog.verify`).

        A row that is not `exact` was recorded on another engine of the family, whose links have the same bits and
        whose sums have another order.
        """
        self.log.verify(update, recorded, 0.0 if exact else ROUNDING[self.chain.spec.precision])

    def save(self, path: Path, *, first: int | None = None) -> None:
        """Write a checkpoint with the rows from `first` on; an old one is replaced whole or not at all."""
        noted, rows = self._noted(first)
        self.chain.save(path, notes=msgspec.json.encode(RunNotes(**noted)).decode(), series=rows)

    @classmethod
    def load(
        cls, path: Path, *, fill: float = math.nan, besides: Measurements = NOTHING_BESIDES, **options: Any
    ) -> Self:
        """Return the run of a checkpoint; `options` are those of `Chain.load`."""
        chain = Chain.load(path, **options)
        series, chain.series = chain.series, {}
        try:
            notes = _NOTES.decode(chain.notes)
        except msgspec.MsgspecError as error:
            raise SpecError(f"{path} holds a chain, but not a run that can be resumed: {error}") from error
        run = cls(chain, notes.warmup, tuple(series), fill=fill, besides=besides)
        run._take_up(path, notes, series)
        return run

    def _infinite(self) -> ChainFaultError:
        return ChainFaultError(
            f"the chain at beta {self.chain.spec.beta:g}: update {self.log.end} gave no finite observables"
        )
