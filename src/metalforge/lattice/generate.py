"""A run that generates configurations: warm-up, measurement, trace, files, and a checkpoint it can be resumed from.

Its whole state is a `ChainRun` with the measured rows; `save` writes it at an update's border, so that an interrupted
and resumed run gives the numbers of an uninterrupted one.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import MetalforgeError, Row, SpecError, remove_half_written, require_at_least
from metalforge.statistics import MIN_LENGTH, Value, chiral_susceptibility, quoted, susceptibility, value_of

from .chain import Chain, ChainSpec
from .io import write_links
from .observables import COLUMNS, named
from .run import ChainRun
from .warmup import WarmUp

Floats = NDArray[np.float64]
Format = Literal["nersc", "ildg", "hdf5"]
SEA_SERIES = ("cg_total", "condensate", "condensate_pairs", "condensate_connected")
"""What a run with sea quarks has besides."""

_SUFFIX = {"nersc": ".nersc", "ildg": ".ildg", "hdf5": ".h5"}


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a run is and what it leaves behind; `save_every` of 0 keeps the last configuration only.

    `quenched` updates without fermions come before `warmup` ones with them.
    """

    warmup: int
    trajectories: int
    quenched: int = 0
    out: str | None = None
    format: Format = "hdf5"
    save_every: int = 0
    trace: str | None = None
    observables: tuple[str, ...] = ()
    """What is measured besides, by the names of `lattice.observables`."""

    def __post_init__(self) -> None:
        require_at_least(0, warmup=self.warmup, quenched=self.quenched, save_every=self.save_every)
        require_at_least(1, trajectories=self.trajectories)

    @property
    def checkpoint(self) -> Path:
        """Where the run's state is kept."""
        return Path(self.out) / "checkpoint.h5" if self.out else Path("metalforge-checkpoint.h5")


class GenerationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run found; entries that do not apply to the algorithm are None."""

    plaquette: Value
    polyakov_abs: Value
    susceptibility: Value
    acceptance: Value | None
    exp_minus_dh: Value | None
    condensate: Value | None
    """(1/V) tr D^-1 of the first mass, four tastes, colours summed."""
    chiral_susceptibility: Value | None
    """Its disconnected part, (Nf/4)^2 V (<condensate^2> - <condensate>^2)."""
    chiral_susceptibility_connected: Value | None
    cg_iterations: Value | None
    """A trajectory's, in all its solves."""
    observables: dict[str, Value | None]
    """Those that were asked for besides."""
    n_measurements: int
    updates_per_second: float
    threads: int
    isa: str
    spec: ChainSpec


class Generation:
    """A run of `job` on a chain, from its start or from a checkpoint."""

    def __init__(self, chain: Chain, job: Job, *, run: ChainRun | None = None) -> None:
        if job.quenched and chain.sea is None:
            raise SpecError(
                f"`quenched` updates precede those with fermions, and this chain has none. Got {job.quenched}\n"
                "hint: use `warmup`"
            )
        warmup = WarmUp(total=job.quenched + job.warmup, quenched=job.quenched)
        self.chain, self.job = chain, job
        self.progress = run or ChainRun(chain, warmup, (*_series_of(chain), *job.observables))
        """How far the chain has come, with its rows."""
        self.series = self.progress.log.columns
        """What was measured so far, by observable; not a number where an update has no such thing."""

    @property
    def measured(self) -> int:
        """Measurements so far."""
        return self.progress.measured

    @property
    def remaining(self) -> int:
        """Updates still to do."""
        warmup = self.progress.warmup
        return warmup.total - warmup.done + self.job.trajectories - self.measured

    def run(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_update: Callable[[Row], None] | None = None,
        checkpoint_every_s: float = 60.0,
    ) -> bool:
        """Run to the end of the job, or until `should_stop` at an update's border; return whether it came to the end.

        Either way a checkpoint is left when the job keeps files or was stopped. An update that fails raises; the chain
        is then where it was before, and so is its checkpoint.
        """
        folder = self.job.checkpoint.parent
        folder.mkdir(parents=True, exist_ok=True)  # before the work, not after it
        if self.job.out:  # the folder is this run's own
            remove_half_written(folder)
        saved_at = time.monotonic()
        while self.remaining > 0:
            if should_stop():
                self.save()
                return False
            try:
                self._advance(on_update)
            except MetalforgeError:
                # The links are those of the last good update: worth keeping, a new attempt may start from there.
                if self.job.out:
                    self.save()
                raise
            if self.job.out and time.monotonic() - saved_at > checkpoint_every_s:
                self.save()
                saved_at = time.monotonic()
        if self.job.out:
            self.save()
            self._write_configuration()
        return True

    def _advance(self, on_update: Callable[[Row], None] | None) -> None:
        row = self.progress.step()
        if row.phase != "measure":
            self.progress.log.forget(self.progress.log.end)  # only measurements are kept
        elif self.job.out and (every := self.job.save_every) and self.measured % every == 0 and self.remaining > 0:
            self._write_configuration()
        if on_update is not None:
            on_update(row)

    def _write_configuration(self) -> None:
        path = self.job.checkpoint.parent / f"configuration-{self.chain.step:08d}{_SUFFIX[self.job.format]}"
        links = self.chain.field.to_links()
        narrow = self.chain.field.precision == "f32"
        write_links(path, links.astype(np.complex64) if narrow else links, self.job.format)

    def save(self) -> None:
        """Write the checkpoint; one that is there already is replaced whole or not at all."""
        self.progress.job = msgspec.Raw(msgspec.json.encode(self.job))
        self.progress.save(self.job.checkpoint)

    @classmethod
    def resume(
        cls,
        path: Path,
        *,
        trajectories: int | None = None,
        threads: int | None = None,
        allow_different_isa: bool = False,
    ) -> Self:
        """Return the run of a checkpoint (or of its folder), to be continued; `trajectories` is a new total."""
        path = path / "checkpoint.h5" if path.is_dir() else path
        run = ChainRun.load(path, threads=threads, allow_different_isa=allow_different_isa)
        try:
            job = msgspec.json.decode(run.job, type=Job)
        except msgspec.MsgspecError as error:
            raise SpecError(f"{path} holds a chain, but not a run that can be resumed: {error}") from error
        names = _series_of(run.chain)
        if not {*names, *job.observables} <= set(run.log.columns):
            raise SpecError(f"{path} must hold series {', '.join(names)}. Got {sorted(run.log.columns)}")
        job = job if trajectories is None else msgspec.structs.replace(job, trajectories=trajectories)
        return cls(run.chain, job, run=run)

    def _sea_values(self) -> dict[str, Value | None]:
        """The entries of the summary that sea quarks add."""
        names = ("condensate", "chiral_susceptibility", "chiral_susceptibility_connected", "cg_iterations")
        values: dict[str, Value | None] = dict.fromkeys(names)
        fermions = self.chain.spec.fermions
        if fermions is None:
            return values
        values["cg_iterations"] = quoted(self.series["cg_total"])
        condensate, pairs, connected = (np.array(self.series[name]) for name in SEA_SERIES[1:])
        if fermions.noise_vectors >= 1:
            values["condensate"] = quoted(condensate)
        if fermions.noise_vectors >= 2 and self.measured >= MIN_LENGTH:
            same = [n for n, mass in zip(fermions.flavors, fermions.masses, strict=True) if mass == fermions.masses[0]]
            parts = chiral_susceptibility(
                condensate, pairs, connected, volume=self.chain.field.volume, flavors=sum(same)
            )
            values["chiral_susceptibility"] = Value.of(parts.disconnected)
            values["chiral_susceptibility_connected"] = Value.of(parts.connected)
        return values

    def summary(self) -> GenerationSummary:
        """Return means with Gamma-method errors; needs at least one measurement."""
        loop = np.hypot(self.series["polyakov_re"], self.series["polyakov_im"])
        volume = self.chain.field.spatial_volume
        absolute = quoted(loop)
        enough = self.measured >= MIN_LENGTH
        chi = Value.of(susceptibility(loop, volume)) if enough else Value(mean=volume * float(loop.var()))
        hmc = self.chain.spec.has_trajectories
        also = (*_own(self.chain), *self.job.observables)
        return GenerationSummary(
            plaquette=quoted(self.series["plaquette"]),
            polyakov_abs=absolute,
            # How far apart measurements must be is a property of |L|, so its autocorrelation time is the one shown.
            susceptibility=msgspec.structs.replace(chi, tau_int=absolute.tau_int),
            acceptance=quoted(self.series["accepted"]) if hmc else None,
            exp_minus_dh=quoted(np.exp(-np.array(self.series["delta_h"]))) if hmc else None,
            **self._sea_values(),
            observables={
                o.name: value_of(o.transform(np.array(self.series[o.name])), error=o.error)
                for o in named(tuple(dict.fromkeys(also)))
            },
            n_measurements=self.measured,
            updates_per_second=self.progress.updates / self.progress.seconds if self.progress.seconds else 0.0,
            threads=self.chain.field.engine.threads,
            isa=self.chain.field.engine.name.removeprefix("cpu:"),
            spec=self.chain.spec,
        )


def _series_of(chain: Chain) -> tuple[str, ...]:
    return COLUMNS + _own(chain) + (() if chain.sea is None else SEA_SERIES)


def _own(chain: Chain) -> tuple[str, ...]:
    """What reweighting reads of the action, where it is not among those of every run."""
    return () if chain.action.variable in COLUMNS else (chain.action.variable,)
