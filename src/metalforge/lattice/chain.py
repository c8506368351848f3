"""A Markov chain of gauge fields: how it updates, where it stands, and how it continues bit for bit from a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge import native
from metalforge.core.errors import SpecError

from .field import GaugeField, Precision, check_dims
from .hmc import hmc_trajectory, make_workspace
from .integrators import scheme
from .io.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from .observables import Observables, measure

__all__ = ["Chain", "ChainSpec", "HeatbathSpec", "HmcSpec", "UpdateInfo"]


class HeatbathSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One update: `heatbath` sweeps, then `overrelax` sweeps."""

    heatbath: int = 1
    overrelax: int = 4


class HmcSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One update: a trajectory of length `tau` (momentum units of this package) in `n_steps` steps."""

    tau: float = 1.0
    n_steps: int = 10
    integrator: str = "omelyan2"


class ChainSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a chain; (seed, stream) names it."""

    dims: tuple[int, int, int, int]
    beta: float
    algorithm: Literal["heatbath", "hmc"] = "heatbath"
    seed: int = 1
    stream: int = 0
    start: Literal["hot", "cold", "file"] = "hot"
    precision: Precision = "f64"
    heatbath: HeatbathSpec = HeatbathSpec()
    hmc: HmcSpec = HmcSpec()

    def __post_init__(self) -> None:
        check_dims(self.dims)
        if not 0 <= self.beta < 1e4:
            raise SpecError(f"`beta` must be a finite number >= 0. Got {self.beta}")
        if self.hmc.n_steps < 1 or not 0 < self.hmc.tau < 1e3:
            raise SpecError(f"`hmc` needs n_steps >= 1 and tau > 0. Got {self.hmc.n_steps} and {self.hmc.tau}")
        if (
            self.heatbath.heatbath < 0
            or self.heatbath.overrelax < 0
            or self.heatbath.heatbath + self.heatbath.overrelax < 1
        ):
            raise SpecError("`heatbath` needs at least one sweep an update")
        scheme(self.hmc.integrator)


class UpdateInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What one update did; `accepted` and `delta_h` are None for algorithms without an accept test."""

    step: int
    accepted: bool | None = None
    delta_h: float | None = None


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the next step needs besides links and spec."""

    step: int
    notes: str = ""
    """Whatever the owner of the chain wants back, as JSON."""


class Chain:
    """A chain at some step. `update` moves it on; `save` and `load` continue it bit for bit."""

    def __init__(self, spec: ChainSpec, *, field: GaugeField | None = None, threads: int | None = None) -> None:
        if field is None:
            options = {"precision": spec.precision, "threads": threads}
            if spec.start == "file":
                raise SpecError("a chain that starts from a file needs its field: Chain(spec, field=...)")
            if spec.start == "hot":
                field = GaugeField.hot(spec.dims, seed=spec.seed, stream=spec.stream, **options)
            else:
                field = GaugeField(spec.dims, precision=spec.precision, threads=threads)
        elif field.dims != tuple(spec.dims) or field.precision != spec.precision:
            raise SpecError(
                f"the field is {field.dims} in {field.precision}, but the spec says {spec.dims} in {spec.precision}"
            )
        self.spec = spec
        self.field = field
        self.step = 0
        self._workspace = make_workspace(field) if spec.algorithm == "hmc" else None

    def update(self, *, accept_always: bool = False) -> UpdateInfo:
        """Move the chain by one update; `accept_always` is for warm-up only."""
        self.step += 1
        spec = self.spec
        if spec.algorithm == "hmc":
            info = hmc_trajectory(
                self.field,
                beta=spec.beta,
                tau=spec.hmc.tau,
                n_steps=spec.hmc.n_steps,
                integrator=scheme(spec.hmc.integrator),
                seed=spec.seed,
                stream=spec.stream,
                step=self.step,
                workspace=self._workspace,
                accept_always=accept_always,
            )
            return UpdateInfo(step=self.step, accepted=info.accepted, delta_h=info.delta_h)
        sweeps = spec.heatbath
        for n in range(sweeps.heatbath):
            # Sweep n of update s has an address of its own among the steps of the stream.
            self.field.heatbath(
                spec.beta, seed=spec.seed, stream=spec.stream, step=(self.step - 1) * sweeps.heatbath + n + 1
            )
        for _ in range(sweeps.overrelax):
            self.field.overrelax()
        self.field.reunitarise()
        return UpdateInfo(step=self.step)

    def run(self, n: int, on_update: Callable[[UpdateInfo, Observables], None] | None = None) -> None:
        """Move the chain by `n` updates, measuring after each when someone listens."""
        for _ in range(n):
            info = self.update()
            if on_update is not None:
                on_update(info, measure(self.field))

    def retune(self, hmc: HmcSpec) -> None:
        """Change the trajectory; for warm-up only: a chain that is measured keeps its parameters."""
        self.spec = msgspec.structs.replace(self.spec, hmc=hmc)

    def save(self, path: Path, *, notes: str = "", series: dict[str, NDArray[np.float64]] | None = None) -> None:
        """Write a checkpoint from which `load` continues bit for bit; an old file is replaced whole or not at all.

        `notes` and `series` are the caller's own and come back with `load_with_notes`.
        """
        precision = self.field.precision
        links = self.field.to_links()
        write_checkpoint(
            path,
            Checkpoint(
                links=links if precision == "f64" else links.astype(np.complex64),
                spec_json=msgspec.json.encode(self.spec).decode(),
                state_json=msgspec.json.encode(_State(step=self.step, notes=notes)).decode(),
                isa=native.level(),
                precision=precision,
                series=series or {},
            ),
        )

    @classmethod
    def load(cls, path: Path, *, threads: int | None = None, allow_different_isa: bool = False) -> Self:
        """Return the chain of a checkpoint.

        Bits depend on the build level, so another one is refused unless `allow_different_isa`.
        """
        return cls.load_with_notes(path, threads=threads, allow_different_isa=allow_different_isa)[0]

    @classmethod
    def load_with_notes(
        cls, path: Path, *, threads: int | None = None, allow_different_isa: bool = False
    ) -> tuple[Self, str, dict[str, NDArray[np.float64]]]:
        """Return the chain of a checkpoint with the notes and series that were saved beside it."""
        checkpoint = read_checkpoint(path)
        if checkpoint.isa != native.level() and not allow_different_isa:
            raise SpecError(
                f"{path} was written at build level {checkpoint.isa}, this is {native.level()}: the chain would not "
                f"continue bit for bit\nhint: set METALFORGE_ISA={checkpoint.isa}, or allow a different level"
            )
        try:
            spec = msgspec.json.decode(checkpoint.spec_json, type=ChainSpec)
            state = msgspec.json.decode(checkpoint.state_json, type=_State)
        except msgspec.MsgspecError as error:
            raise SpecError(f"{path} does not hold a lattice chain: {error}") from error
        field = GaugeField.from_links(checkpoint.links, precision=spec.precision, threads=threads)
        chain = cls(spec, field=field, threads=threads)
        chain.step = state.step
        return chain, state.notes, dict(checkpoint.series)
