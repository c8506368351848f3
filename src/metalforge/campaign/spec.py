"""What a campaign is asked to do: strict records that a TOML file fills in, and the presets that ship.

What every field means, its unit and its choices stand once, in `report.spec_text.NOTES`; `metalforge scan --print-spec`
writes them as a commented file. A typo fails with its path.
"""

import hashlib
from importlib.resources import files
from math import inf, isfinite, isnan, nan
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.files import opened
from metalforge.lattice.actions import Action
from metalforge.lattice.actions import action as named_action
from metalforge.lattice.chain import ChainSpec, HeatbathSpec, HmcSpec
from metalforge.lattice.registered import standard
from metalforge.lattice.sea import FermionSpec

from .observables import OrderName
from .orderings import AUTO, arrange, ordering_of
from .physics.finite_size import scales
from .physics.published import PUBLISHED, derived_range
from .steerers import VolumeScan, find_steerer
from .steerers.peak_prior import PeakPrior
from .store.chain_files import check_address

Dims: TypeAlias = tuple[int, int, int, int]
EARLY, FULL = "early-warm-up", "full-warm-up"
PLACEMENTS: dict[str, str] = {"A": EARLY, "B": FULL, "C": FULL, "D": FULL, "E": FULL, "F": EARLY}
"""What the six places of experiment 020, at which a network may speak, mean for a campaign: may warm-ups end early."""
LATER: dict[str, dict[str, Any]] = {
    "budget": {"target_of": "first"},
    "lattice": {"observable": "auto", "also_measure": (), "action": "wilson"},
    "running": {
        "isolation": "thread",
        "exchange": "auto",
        "substrate": "auto",
        "lanes": (),
        "rewire": True,
        "checkpoints": "",
        "cluster": "",
    },
    "screening": {"weights": ""},
    "steering": {"points": (), "prior": "auto"},
}
"""Fields that journals of this version may lack, with their defaults: a spec that has these hashes as it did before."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; `LEAST` bounds its numbers from below."""

    LEAST: ClassVar[dict[str, float]] = {}

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if isinstance(value := getattr(self, name), float) and not isfinite(value):
                raise SpecError(f"`{name}` must be a finite number. Got {value}")
        for path, least in self.LEAST.items():
            value = getattr(self, path.rpartition(".")[2])
            if value is not None and not (isfinite(value) and value >= least):
                raise SpecError(f"`{path}` must be at least {least:g}. Got {value}")


class Lattice(_Part, frozen=True, kw_only=True):
    """The theory: volumes, action, algorithm. A range of beta that is derived from N_t is in the spec from then on."""

    volumes: tuple[Dims, ...] = ((8, 8, 8, 4),)
    beta_min: float = nan
    beta_max: float = nan
    algorithm: Literal["heatbath", "hmc"] = "heatbath"
    heatbath: int = 1
    overrelax: int = 4
    tau: float = 1.0
    n_steps: int = 8
    integrator: str = "omelyan2"
    flavors: Literal[0, 4] = 0
    mass: float = 0.0
    tolerance: float = 1e-8
    force_tolerance: float = 1e-6
    precision: Literal["f64", "f32"] = "f64"
    observable: OrderName | Literal["auto"] = "auto"
    also_measure: tuple[str, ...] = ()
    action: str = "wilson"

    @property
    def has_other_theory(self) -> bool:
        """Whether couplings published for Wilson's action without sea quarks say nothing of it."""
        return self.flavors > 0 or self.action != "wilson"

    @property
    def gauge(self) -> Action:
        """The gauge action."""
        return named_action(self.action)

    @property
    def order(self) -> OrderName:
        """The order parameter: |L| without sea quarks; Re L with them, since they break Z3 and prefer Re L > 0."""
        if self.observable != "auto":
            return self.observable
        return "re_loop" if self.flavors else "abs_loop"

    def __post_init__(self) -> None:
        if not self.volumes:
            raise SpecError("`lattice.volumes` wants at least one lattice")
        if len(set(self.volumes)) < len(self.volumes):
            raise SpecError(f"`lattice.volumes` must differ. Got {self.volumes}")
        if isnan(self.beta_min) and isnan(self.beta_max):
            low, high = self._derived_range()
            msgspec.structs.force_setattr(self, "beta_min", low)
            msgspec.structs.force_setattr(self, "beta_max", high)
        if not 0 < self.beta_min < self.beta_max < inf:
            raise SpecError(
                f"`lattice.beta_min` must be positive and below `beta_max`. Got {self.beta_min} and {self.beta_max}"
                "\nhint: give both, or neither to have them derived from N_t"
            )
        if self.flavors and self.algorithm != "hmc":
            raise SpecError('sea quarks need `lattice.algorithm = "hmc"`. Got heatbath')
        if (self.flavors > 0) != (self.mass > 0):
            raise SpecError(f"`lattice.mass` goes with `lattice.flavors`. Got {self.mass} and {self.flavors}")
        for dims in self.volumes:
            self.chain(dims, self.beta_min, seed=1, stream=0, start="hot")
        self.columns()
        super().__post_init__()

    def columns(self) -> tuple[str, ...]:
        """Return the observables that rows of these chains have."""
        own = () if self.gauge.variable == "plaquette" else (self.gauge.variable,)
        return standard(trajectories=self.algorithm == "hmc", sea=self.flavors > 0, more=(*own, *self.also_measure))

    def _derived_range(self) -> tuple[float, float]:
        """Return the range around what was published for the volumes' N_t; raises where there is nothing to go by."""
        hint = "\nhint: give `lattice.beta_min` and `lattice.beta_max`"
        if self.has_other_theory:
            raise SpecError(
                f"with sea quarks or another action than wilson a range of beta must be given: it is not derived from "
                f"N_t{hint}"
            )
        temporal = sorted({dims[3] for dims in self.volumes})
        if len(temporal) > 1:
            raise SpecError(f"volumes must share one N_t for the range of beta to be derived. Got {temporal}{hint}")
        found = derived_range(temporal[0])
        if found is None:
            known = ", ".join(map(str, PUBLISHED))
            raise SpecError(
                f"the range of beta is derived where couplings are published: N_t = {known}. Got {temporal[0]}{hint}"
            )
        return found

    def chain(self, dims: Dims, beta: float, *, seed: int, stream: int, start: Literal["hot", "cold"]) -> ChainSpec:
        """Return the chain of one point."""
        sea = None
        if self.flavors:
            sea = FermionSpec(
                flavors=(self.flavors,),
                masses=(self.mass,),
                tolerance=self.tolerance,
                force_tolerance=self.force_tolerance,
            )
        return ChainSpec(
            dims=dims,
            beta=beta,
            algorithm=self.algorithm,
            seed=seed,
            stream=stream,
            start=start,
            precision=self.precision,
            heatbath=HeatbathSpec(heatbath=self.heatbath, overrelax=self.overrelax),
            hmc=HmcSpec(tau=self.tau, n_steps=self.n_steps, integrator=self.integrator),
            fermions=sea,
            action=self.action,
        )


class Budget(_Part, frozen=True, kw_only=True):
    """When to stop: whichever comes first. None means no limit of that kind."""

    LEAST = {"budget.trajectories": 1}

    trajectories: int | None = None
    seconds: float | None = None
    joules: float | None = None
    target_error: float | None = None
    target_of: Literal["first", "infinite"] = "first"
    max_wall: float | None = None

    def __post_init__(self) -> None:
        if self.trajectories is None and self.seconds is None and self.joules is None:
            raise SpecError("`budget` needs one of trajectories, seconds, joules: a target alone may never be reached")
        super().__post_init__()
        for name in ("seconds", "joules", "target_error", "max_wall"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise SpecError(f"`budget.{name}` must be positive. Got {value}")


class WarmUpPolicy(_Part, frozen=True, kw_only=True):
    """How long a new chain is left alone."""

    LEAST = {"warmup.shortest": 10, "warmup.quenched": 0, "warmup.safety": 1}

    longest: int = 400
    shortest: int = 80
    quenched: int = 0
    safety: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest < self.shortest:
            raise SpecError(f"`warmup.longest` must be at least {self.shortest}, the shortest. Got {self.longest}")


class Steering(_Part, frozen=True, kw_only=True):
    """Where to measure: the steerer, the number of first points, the updates of one visit."""

    LEAST = {"steering.initial": 2, "steering.visit": 10, "steering.most": 2}

    steerer: str = "conductor"
    initial: int = 5
    visit: int = 600
    most: int = 60
    points: tuple[float, ...] = ()
    prior: Literal["auto", "off"] | tuple[float, float] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        expects = find_steerer(self.steerer).expects
        if isinstance(self.prior, tuple):
            PeakPrior(*self.prior)  # says what is wrong with it
            if not expects:
                raise SpecError(f"`steering.prior` is nothing to steerer `{self.steerer}`, which expects no peak")


class Screening(_Part, frozen=True, kw_only=True):
    """What the screen looks at, what it flags, and where the reservoir runs."""

    LEAST = {"screening.every": 1, "screening.window": 10, "screening.chi": 0, "screening.variance": 0}

    every: int = 10
    window: int = 200
    chi: float = 1.0
    variance: float = 0.02
    device: Literal["npu", "software"] = "npu"
    weights: str = ""


class LaneSpec(_Part, frozen=True, kw_only=True):
    """A producer by name: the silicon it is on, the volumes it runs, all of them without, and in which precision.

    `strategy` is how a card computes trajectories in double precision; chains by one of them stay with it.
    """

    substrate: str
    volumes: tuple[Dims, ...] = ()
    strategy: Literal["native", "hybrid", "concurrent", "auto"] = "native"


class Running(_Part, frozen=True, kw_only=True):
    """How it runs: on which silicon, chains at a time, whether it is bitwise reproducible, threads or processes."""

    LEAST = {"running.producers": 0, "running.block": 1, "running.checkpoint_s": 0, "running.threads": 1}

    producers: int = 0
    block: int = 50
    deterministic: bool = False
    checkpoint_s: float = 5.0
    energy: Literal["measured", "modelled"] = "measured"
    threads: int = 1
    isolation: Literal["thread", "process"] = "thread"
    exchange: Literal["auto", "on", "off"] = "auto"
    substrate: str = "auto"
    lanes: tuple[LaneSpec, ...] = ()
    rewire: bool = True
    checkpoints: str = ""
    cluster: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lanes and self.cluster:
            raise SpecError(
                "`running.lanes` are of one machine, and `running.cluster` has many\nhint: give one of them"
            )
        protocol, _ = check_address(self.checkpoints)
        if protocol == "memory" and (self.isolation == "process" or self.cluster):
            raise SpecError(
                "`running.checkpoints` in memory are one process's own, and `running.isolation` wants several"
                "\nhint: file:///shared/path"
            )
        if self.lanes and self.substrate != "auto":
            raise SpecError(
                "`running.lanes` says where everything runs, and leaves nothing for `running.substrate`. "
                f"Got {self.substrate}\nhint: give one of them"
            )


class CampaignSpec(_Part, frozen=True, kw_only=True):
    """Everything that decides a campaign."""

    name: str = "campaign"
    seed: int = 1
    ordering: str = "C"
    placement: str = "A"
    lattice: Lattice = Lattice()
    budget: Budget = Budget(seconds=150.0)
    warmup: WarmUpPolicy = WarmUpPolicy()
    steering: Steering = Steering()
    screening: Screening = Screening()
    running: Running = Running()

    def __post_init__(self) -> None:
        # Letters and names are the same choice: specs hold the letter, and hash as they always did.
        msgspec.structs.force_setattr(self, "ordering", ordering_of(self.ordering))
        msgspec.structs.force_setattr(self, "placement", _placement(self.placement))
        if not self.name.isprintable():  # it is printed, journalled and put on pages
            raise SpecError(f"`name` must hold printable characters only. Got {self.name!r}")
        if not 0 <= self.seed < 1 << 32:
            raise SpecError(f"`seed` must be within [0, 2^32). Got {self.seed}")
        budget = self.budget
        if self.running.deterministic and (budget.trajectories is None or budget.seconds or budget.joules):
            raise SpecError(
                "`running.deterministic` wants a budget in trajectories only: clocks and meters differ from run to run"
            )
        if self.running.deterministic and self.ordering == AUTO:
            raise SpecError("`running.deterministic` cannot choose an ordering by the clock: name one of A to E")
        if self.ordering != AUTO:
            arrange(self.ordering, self.lattice.volumes, {"cpu:0": 0})  # says what it misses
        if budget.target_of == "infinite" and len(on_the_line(self)) < 2:
            raise SpecError(
                '`budget.target_of = "infinite"` wants two volumes at least with one N_t and N_s > 2 N_t. '
                f"Got {len(on_the_line(self))}"
            )
        for lane in self.running.lanes:
            if unknown := [dims for dims in lane.volumes if dims not in self.lattice.volumes]:
                raise SpecError(f"`running.lanes` may run volumes of `lattice.volumes` only. Got {unknown[0]}")
        served = [dims for lane in self.running.lanes for dims in lane.volumes or self.lattice.volumes]
        if self.running.lanes and (idle := [dims for dims in self.lattice.volumes if dims not in served]):
            raise SpecError(f"`running.lanes` leave a volume to nobody: {idle[0]}\nhint: name it in one of them")
        outside = [b for b in self.steering.points if not self.lattice.beta_min <= b <= self.lattice.beta_max]
        if outside:
            raise SpecError(
                f"`steering.points` must lie within beta {self.lattice.beta_min:g} to {self.lattice.beta_max:g}. "
                f"Got {', '.join(f'{b:g}' for b in outside)}"
            )

    @property
    def ends_warm_up_early(self) -> bool:
        """Whether the monitor may end a warm-up before its longest."""
        return PLACEMENTS[self.placement] == EARLY

    @property
    def folder(self) -> str:
        """The name as that of a directory; raises where it cannot be one, or would be one elsewhere."""
        if not self.name or self.name.startswith(".") or "/" in self.name:
            raise SpecError(
                f"`name` must be one that a directory may have, and begin with no dot. Got {self.name!r}"
                "\nhint: change it, or say where everything goes: --out DIR"
            )
        return self.name

    def scan(self, dims: Dims) -> VolumeScan:
        """Return what the steerer of a volume is made from."""
        return VolumeScan(
            beta_min=self.lattice.beta_min,
            beta_max=self.lattice.beta_max,
            dims=dims,
            initial=self.steering.initial,
            # Half of the longest warm-up, as it turns out, over more statistics at a beta that is there.
            fresh_cost=1 + self.warmup.longest / 2 / self.steering.visit,
            seed=self.seed,
        )

    @property
    def sha256(self) -> str:
        """Identify the spec: a resumed campaign must have the same."""
        plain = msgspec.to_builtins(self)
        for table, fields in LATER.items():
            for name, default in fields.items():
                if plain[table][name] == default:
                    del plain[table][name]
        return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def _placement(text: str) -> str:
    """Return the letter of a placement that was given by letter or name."""
    if text in PLACEMENTS:
        return text
    letters = [letter for letter, name in PLACEMENTS.items() if name == text]
    if not letters:
        raise UnknownNameError("placement", text, [*PLACEMENTS, EARLY, FULL])
    return letters[0]


def on_the_line(spec: CampaignSpec) -> tuple[Dims, ...]:
    """Return the volumes that an extrapolation to infinite volume is made of, in their order."""
    volumes = spec.lattice.volumes
    return tuple(dims for dims in volumes if dims[3] == volumes[0][3] and scales(dims))


def load_spec(path: Path) -> CampaignSpec:
    """Return the spec of a TOML file."""
    with opened(path) as (stream, _):
        try:
            return msgspec.toml.decode(stream.read(), type=CampaignSpec)
        except ValueError as error:
            raise SpecError(f"not a campaign: {error}\nhint: metalforge scan --print-spec writes one") from error


class _Preset(_Part, frozen=True, kw_only=True):
    """A spec that ships, and what it is for."""

    about: str
    spec: CampaignSpec


_SHIPPED = msgspec.toml.decode(files(__package__).joinpath("presets.toml").read_bytes(), type=dict[str, _Preset])
PRESETS: dict[str, CampaignSpec] = {name: shipped.spec for name, shipped in _SHIPPED.items()}
"""Specs by name."""
ABOUT: dict[str, str] = {name: shipped.about for name, shipped in _SHIPPED.items()}
"""What each of them is for."""


def preset(name: str) -> CampaignSpec:
    """Return a shipped spec."""
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    return PRESETS[name]
