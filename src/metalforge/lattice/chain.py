"""A Markov chain of gauge fields: how it updates, where it stands, and how it continues bit for bit from a file."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Sealed, SpecError, require_at_least, require_one_of
from metalforge.native import Engine, Precision, check_dims, continues, cpu_engine

from .actions import action as named_action
from .field import Address, GaugeField
from .integrators import scheme
from .observables import Observables, measure

if TYPE_CHECKING:  # chains of sweeps load no trajectories, quenched ones no solvers
    from .hmc import EnergyProbe, Workspace
    from .sea import Sea


REVERSIBLE_TOLERANCE = 1e-9
"""The coarsest force tolerance for chronological guesses. A trajectory there and back misses its start (4^4, am = 0.1,
unit length) by as much as the tolerance then, and by a tenth of it where every solve starts from zero."""


class FermionSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sea quarks: `flavors[i]` (1 to 4) of mass `masses[i]` (am > 0), e.g. (2, 1) and (0.02, 0.05) for 2+1."""

    flavors: tuple[int, ...]
    masses: tuple[float, ...]
    n_inner: int = 2
    """Gauge steps within each move of the fermion scheme."""
    preconditioners: tuple[float, ...] = ()
    """Hasenbusch masses, ascending, for four flavours."""
    tolerance: float = 1e-11
    """Relative residual of the solves of heat bath, action and observables."""
    force_tolerance: float = 1e-8
    """Relative residual of the solves along the trajectory."""
    action_error: float = 1e-10
    """Relative error of the rational functions of heat bath and action."""
    force_error: float = 1e-6
    """Relative error of the rational function along the trajectory."""
    max_iterations: int = 10_000
    """A solve that takes more is an error."""
    chronological: int = 0
    """Solutions of a trajectory that the first guess of the next is made of; 0 starts every solve from zero."""
    mixed_precision: bool = False
    """Whether single solves run in float inside and in double outside."""
    noise_vectors: int = 4
    """Noise vectors a measurement of the condensate."""

    def __post_init__(self) -> None:
        if not self.flavors or len(self.flavors) != len(self.masses):
            raise SpecError(f"every entry of `flavors` needs a mass. Got {self.flavors} and {self.masses}")
        if any(n not in (1, 2, 3, 4) for n in self.flavors):
            raise SpecError(
                f"`flavors` must be 1, 2, 3 or 4 for each field. Got {self.flavors}\n"
                "hint: more flavours of one mass are several fields, e.g. (4, 4)"
            )
        if any(not 0 < mass < math.inf for mass in self.masses):
            raise SpecError(f"`masses` must be finite numbers > 0. Got {self.masses}")
        heavier = (self.masses[0], *self.preconditioners)
        if self.preconditioners and self.flavors != (4,):
            raise SpecError(f"`preconditioners` are for one field of four flavours. Got flavors {self.flavors}")
        if any(not b > a for a, b in pairwise(heavier)) or math.inf in heavier:
            raise SpecError(f"`preconditioners` must be ascending masses above the quark's. Got {heavier}")
        require_at_least(1, n_inner=self.n_inner, max_iterations=self.max_iterations)
        require_at_least(0, chronological=self.chronological, noise_vectors=self.noise_vectors)
        for name, least in (("tolerance", 0), ("force_tolerance", 0), ("action_error", 1e-12), ("force_error", 1e-12)):
            if not (getattr(self, name) > 0 and least <= getattr(self, name) <= 1e-2):
                raise SpecError(f"`{name}` must be > 0 and in [{least}, 0.01]. Got {getattr(self, name)}")
        if self.chronological and self.force_tolerance > REVERSIBLE_TOLERANCE:
            raise SpecError(
                f"chronological guesses need `force_tolerance` <= {REVERSIBLE_TOLERANCE:g}, or trajectories are not "
                f"reversible. Got {self.force_tolerance}\nhint: solve more exactly, or start every solve from zero"
            )

    @property
    def exact(self) -> bool:
        """Whether no root is taken, so that there is no approximation in the action."""
        return all(n == 4 for n in self.flavors)


class HeatbathSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One update: `heatbath` sweeps, then `overrelax` sweeps."""

    heatbath: int = 1
    overrelax: int = 4


class HmcSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One update: a trajectory of length `tau` (momentum units of this package) in `n_steps` steps.

    With fermions the steps are theirs, and `FermionSpec.n_inner` gauge steps lie within each move.
    """

    tau: float = 1.0
    n_steps: int = 10
    integrator: str = "omelyan2"


class ChainSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a chain; (seed, stream) names it."""

    dims: tuple[int, int, int, int]
    beta: float
    algorithm: Literal["heatbath", "hmc", "rhmc"] = "heatbath"
    seed: int = 1
    stream: int = 0
    start: Literal["hot", "cold", "file"] = "hot"
    precision: Precision = "f64"
    heatbath: HeatbathSpec = HeatbathSpec()
    hmc: HmcSpec = HmcSpec()
    fermions: FermionSpec | None = None
    """Sea quarks; None is the quenched theory."""
    action: str = "wilson"
    """The gauge action, by its name in `actions`."""

    def __post_init__(self) -> None:
        check_dims(self.dims)
        require_one_of("hot", "cold", "file", start=self.start)
        if not 0 <= self.beta < 1e4:
            raise SpecError(f"`beta` must be a finite number >= 0. Got {self.beta}")
        if self.hmc.n_steps < 1 or not 0 < self.hmc.tau < 1e3:
            raise SpecError(f"`hmc` needs n_steps >= 1 and tau > 0. Got {self.hmc.n_steps} and {self.hmc.tau}")
        sweeps = self.heatbath.heatbath, self.heatbath.overrelax
        if min(sweeps) < 0 or sum(sweeps) < 1:
            raise SpecError("`heatbath` needs at least one sweep per update")
        scheme(self.hmc.integrator)
        gauge = named_action(self.action)
        if self.algorithm == "heatbath":
            gauge.check_sweeps("`algorithm` heatbath")
        self._check_fermions()

    def _check_fermions(self) -> None:
        if self.fermions is None:
            if self.algorithm == "rhmc":
                raise SpecError("`algorithm` rhmc needs `fermions`: flavours and masses")
            return
        if self.algorithm == "heatbath":
            raise SpecError("dynamical fermions need `algorithm` hmc or rhmc. Got heatbath")
        if self.algorithm == "hmc" and not self.fermions.exact:
            raise SpecError(
                f"`algorithm` hmc takes fields of four flavours only. Got flavors {self.fermions.flavors}\n"
                "hint: fewer flavours are a root, which rhmc takes"
            )
        if self.precision != "f64":
            raise SpecError(f"dynamical fermions need `precision` f64. Got {self.precision}")

    @property
    def has_trajectories(self) -> bool:
        """Whether updates are trajectories with an accept test."""
        return self.algorithm != "heatbath"


class UpdateInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What one update did; `accepted` and `delta_h` are None for algorithms without an accept test."""

    step: int
    accepted: bool | None = None
    delta_h: float | None = None
    cg_iterations: int | None = None
    """Applications of D^dagger D in all solves of a trajectory; None without fermions."""


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the next step needs besides links and spec: random numbers are addressed by (seed, stream, step)."""

    step: int
    spectral_seen: float = 0.0
    """The largest eigenvalue of -H^2 so far."""
    spectral_bound: float | None = None
    """The range of the rational functions, once it is frozen."""
    notes: str = ""
    """Whatever the owner of the chain wants back, as JSON."""


# Made here: at the first decoding of a record msgspec looks at its type, which two threads must not do at once.
_SPECS, _STATES = msgspec.json.Decoder(ChainSpec), msgspec.json.Decoder(_State)


class Chain:
    """A chain at some step. `update` moves it on; `save` and `load` continue it bit for bit."""

    def __init__(
        self,
        spec: ChainSpec,
        *,
        field: GaugeField | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        if field is None:
            if spec.start == "file":
                raise SpecError("a chain that starts from a file needs its field: Chain(spec, field=...)")
            make = GaugeField if spec.start == "cold" else partial(GaugeField.hot, seed=spec.seed, stream=spec.stream)
            field = make(spec.dims, precision=spec.precision, threads=threads, engine=engine)
        elif field.dims != tuple(spec.dims) or field.precision != spec.precision:
            raise SpecError(
                f"the field is {field.dims} in {field.precision}, but the spec says {spec.dims} in {spec.precision}"
            )
        self.spec = spec
        self.action = named_action(spec.action)
        self.field: GaugeField = field
        self.step = 0
        self.notes, self.series = "", dict[str, NDArray[np.float64]]()
        """What its owner saved beside it, where it was loaded."""
        self._workspace: Workspace | None = None
        self.sea = None if spec.fermions is None else _sea(field, spec.fermions)

    def update(
        self, *, accept_always: bool = False, adapting: bool = False, probe: "EnergyProbe | None" = None
    ) -> UpdateInfo:
        """Move the chain by one update; one that fails raises and leaves the chain where it was.

        `accept_always` and `adapting` are for warm-up only: without the accept test, and with a range of the rational
        functions that holds for any links. `probe` sees the energy on the way.
        """
        if not self.spec.has_trajectories:
            return self.quenched_update()
        spec, address = self.spec, self.address(1)
        if self.sea is not None:
            self.sea.choose_range(adapting, **address)
        from .hmc import Workspace, hmc_trajectory

        self._workspace = self._workspace or Workspace(self.field)
        info = hmc_trajectory(
            self.field,
            beta=spec.beta,
            tau=spec.hmc.tau,
            n_steps=spec.hmc.n_steps,
            integrator=scheme(spec.hmc.integrator),
            workspace=self._workspace,
            accept_always=accept_always,
            sea=self.sea,
            probe=probe,
            action=self.action,
            **address,
        )
        self.step = info.step
        return info

    def address(self, ahead: int = 0) -> Address:
        """Return where the random numbers of this step are, or of one ahead."""
        return {"seed": self.spec.seed, "stream": self.spec.stream, "step": self.step + ahead}

    def quenched_update(self) -> UpdateInfo:
        """Move the chain by the sweeps of `spec.heatbath`: what a chain with fermions is thermalised by at first."""
        self.action.check_sweeps("an update without sea quarks")
        self.step += 1
        spec = self.spec
        sweeps = spec.heatbath
        for n in range(sweeps.heatbath):
            # Sweep n of update s has an address of its own among the steps of the stream.
            self.field.heatbath(
                spec.beta, seed=spec.seed, stream=spec.stream, step=(self.step - 1) * sweeps.heatbath + n + 1
            )
        for _ in range(sweeps.overrelax):
            self.field.overrelax()
        self.field.reunitarise()
        if self.sea is not None:
            self.sea.inverter.links_moved()
        return UpdateInfo(step=self.step)

    def run(self, n: int, on_update: Callable[[UpdateInfo, Observables], None] | None = None) -> None:
        """Move the chain by `n` updates, measuring after each when someone listens."""
        for _ in range(n):
            info = self.update()
            if on_update is not None:
                on_update(info, self.measure())

    def measure(self) -> Observables:
        """Return the observables of the configuration; with sea quarks these are `SeaObservables`.

        Noise is addressed by the chain's step, so the same step gives the same numbers.
        """
        observed = measure(self.field)
        if self.sea is None:
            return observed
        return self.sea.observe(observed, **self.address())

    def save(self, path: Path, *, notes: str = "", series: dict[str, NDArray[np.float64]] | None = None) -> None:
        """Write a checkpoint from which `load` continues bit for bit; an old file is replaced whole or not at all.

        `notes` and `series` are the caller's own; a chain that is loaded has them.
        """
        from .io.checkpoint import write_checkpoint

        field = self.field
        links = field.to_links()
        arrays: dict[str, NDArray[Any]] = {
            f"series/{name}": np.asarray(values, np.float64) for name, values in (series or {}).items()
        }
        arrays["links"] = links if field.precision == "f64" else links.astype(np.complex64)
        sea, quarks = self.sea, dict[str, Any]()
        if sea is not None:
            quarks = {"spectral_seen": sea.seen, "spectral_bound": sea.bound if sea.frozen else None}
        texts = {"spec_json": self.spec, "state_json": _State(step=self.step, notes=notes, **quarks)}
        encoded = {name: msgspec.json.encode(record).decode() for name, record in texts.items()}
        write_checkpoint(path, Sealed(arrays, encoded, field.engine.name, field.engine.family))

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        threads: int | None = None,
        engine: Engine | None = None,
        allow_different_isa: bool = False,
    ) -> Self:
        """Return the chain of a checkpoint, on `engine` or on the process's CPU engine with so many `threads`.

        One of another bit family is refused unless `allow_different_isa`, since the chain would not continue bit for
        bit; a chain with fermions, whose solves hold sums, continues so on the engine it was on alone.
        """
        from .io.checkpoint import read_checkpoint

        engine = engine or cpu_engine(threads=threads)
        found = read_checkpoint(path)
        try:
            spec, state = _SPECS.decode(found.texts["spec_json"]), _STATES.decode(found.texts["state_json"])
        except msgspec.MsgspecError as error:
            raise SpecError(f"{path} does not hold a lattice chain: {error}") from error
        if not allow_different_isa and not continues(
            engine, found.engine, found.family, sums_matter=spec.fermions is not None
        ):
            raise SpecError(
                f"{path} was written on engine {found.engine} (bits: {found.family}), this is {engine.name} "
                f"({engine.family}): the chain would not continue bit for bit\n"
                f"hint: set METALFORGE_ISA={found.engine.removeprefix('cpu:')}, or allow a different one"
            )
        field = GaugeField.from_links(found.arrays.pop("links"), precision=spec.precision, engine=engine)
        chain = cls(spec, field=field)
        chain.step = state.step
        if chain.sea is not None:
            chain.sea.seen = state.spectral_seen
            if state.spectral_bound is not None:
                chain.sea.bound, chain.sea.frozen = state.spectral_bound, True
        chain.notes = state.notes
        chain.series = {name.removeprefix("series/"): values for name, values in found.arrays.items()}
        return chain


def _sea(field: GaugeField, fermions: FermionSpec) -> "Sea":
    from .sea import Sea

    return Sea(field, fermions)
