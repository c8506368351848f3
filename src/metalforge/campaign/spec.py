"""What a campaign is asked to do: strict records that a TOML file fills in, and the presets that ship.

What every field means, its unit and its choices stand once, in `report.spec_text.NOTES`; `metalforge scan --print-spec`
writes them as a commented file. A typo fails with its path.
"""

import hashlib
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from metalforge.core import SpecError, UnknownNameError, load_files, load_named_files, opened, plugin_folder

from .orderings import AUTO, Assignee, arrange, ordering_of
from .steerers import SystemScan, find_steerer
from .steerers.peak_prior import PeakPrior
from .store.chain_files import check_address
from .theory import GROUP, SpecTable, System, TheoryField, decoded, find_theory, theory_names

SNAP = 0.01
"""Part of the range within which a suggestion continues a chain that is there: a new one would have to warm up, and
reweighting makes no difference between the two."""


class Budget(SpecTable, frozen=True, kw_only=True):
    """When to stop: whichever comes first. None means no limit of that kind."""

    LEAST: ClassVar = {"budget.trajectories": 1}

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


class WarmUpPolicy(SpecTable, frozen=True, kw_only=True):
    """How long a new chain is left alone."""

    LEAST: ClassVar = {"warmup.shortest": 1, "warmup.cheap": 0, "warmup.safety": 1}

    early: bool = True
    longest: int = 400
    shortest: int = 80
    cheap: int = 0
    safety: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest < self.shortest:
            raise SpecError(f"`warmup.longest` must be at least {self.shortest}, the shortest. Got {self.longest}")


class Steering(SpecTable, frozen=True, kw_only=True):
    """Where to measure: the steerer, the number of first points, the updates of one visit."""

    LEAST: ClassVar = {"steering.initial": 2, "steering.visit": 10, "steering.most": 2}

    steerer: str = ""
    initial: int = 5
    visit: int = 600
    most: int = 60
    points: tuple[float, ...] = ()
    removed: tuple[float, ...] = ()
    prior: Literal["auto", "off"] | tuple[float, float] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steerer:
            find_steerer(self.steerer)  # says which there are
        if isinstance(self.prior, tuple):
            PeakPrior(*self.prior)  # says what is wrong with it
            if self.steerer and not find_steerer(self.steerer).expects:
                raise SpecError(f"`steering.prior` is nothing to steerer `{self.steerer}`, which expects no peak")

    @property
    def shortest(self) -> int:
        """The fewest measured updates of a visit: still fewer would be too short to say anything."""
        return max(self.visit // 4, 10)


class Screening(SpecTable, frozen=True, kw_only=True):
    """What the screen looks at, what it flags, and where the reservoir runs."""

    LEAST: ClassVar = {"screening.window": 10, "screening.chi": 0, "screening.variance": 0}

    window: int = 200
    chi: float = 1.0
    variance: float = 0.02
    device: Literal["npu", "software"] = "npu"
    weights: str = ""


class LaneSpec(SpecTable, frozen=True, kw_only=True):
    """A producer by name: the silicon it is on, the systems it runs, all of them without, and in which precision.

    `variant` names another way in which its engine computes, where there are several; chains by one stay with it.
    """

    substrate: str
    systems: tuple[System, ...] = ()
    variant: str = ""


class Running(SpecTable, frozen=True, kw_only=True):
    """How it runs: on which silicon, chains at a time, whether it is bitwise reproducible, threads or processes."""

    LEAST: ClassVar = {"running.producers": 0, "running.block": 1, "running.checkpoint_s": 0, "running.threads": 1}

    producers: int = 0
    block: int = 50
    deterministic: bool = False
    checkpoint_s: float = 5.0
    energy: Literal["measured", "modelled"] = "measured"
    threads: int = 1
    isolation: Literal["thread", "process"] = "thread"
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


class CampaignSpec(SpecTable, frozen=True, kw_only=True):
    """Everything that decides a campaign."""

    name: str = "campaign"
    seed: int = 1
    ordering: str = "C"
    theory: TheoryField
    plugins: tuple[str, ...] = ()
    budget: Budget = Budget(seconds=150.0)
    warmup: WarmUpPolicy = WarmUpPolicy()
    steering: Steering = Steering()
    screening: Screening = Screening()
    running: Running = Running()

    def __post_init__(self) -> None:
        # Letters and names are the same choice: specs hold the letter, and hash as they always did.
        msgspec.structs.force_setattr(self, "ordering", ordering_of(self.ordering))
        self._check_theory()
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
            arrange(self.ordering, self.theory.systems, [Assignee("cpu:0")])  # says what it misses
        if budget.target_of == "infinite" and len(on_the_line(self)) < 2:
            raise SpecError(
                '`budget.target_of = "infinite"` wants two systems at least on one line'
                f"{', ' + law.holds_where if (law := self.theory.size_law) and law.holds_where else ''}. "
                f"Got {len(on_the_line(self))}"
            )
        systems = self.theory.systems
        for lane in self.running.lanes:
            if unknown := [system for system in lane.systems if system not in systems]:
                raise SpecError(f"`running.lanes` may run systems of the spec only. Got {unknown[0]}")
        served = [system for lane in self.running.lanes for system in lane.systems or systems]
        if self.running.lanes and (idle := [system for system in systems if system not in served]):
            raise SpecError(f"`running.lanes` leave a system to nobody: {idle[0]}\nhint: name it in one of them")
        if outside := [at for at in self.steering.points if not self.covers(at)]:
            raise SpecError(
                f"`steering.points` must lie within {self.theory.coordinate} {self.theory.low:g} to "
                f"{self.theory.high:g}. "
                f"Got {', '.join(f'{at:g}' for at in outside)}"
            )

    def _check_theory(self) -> None:
        """See that nothing belongs to another physics, and take the steerer that this one has unless told."""
        theory = self.theory
        if not self.steering.steerer:
            steering = msgspec.structs.replace(self.steering, steerer=theory.steerer)
            msgspec.structs.force_setattr(self, "steering", steering)
        steerer = find_steerer(self.steering.steerer)
        if theory.target not in steerer.of:
            raise SpecError(
                f"steerer `{self.steering.steerer}` is for a {' or '.join(steerer.of)}, and this campaign looks for a "
                f"{theory.target}\nhint: {theory.steerer}, or uniform"
            )
        if self.warmup.shortest < theory.shortest_warmup:
            raise SpecError(f"`warmup.shortest` must be at least {theory.shortest_warmup}. Got {self.warmup.shortest}")
        if theory.orderings and self.ordering not in theory.orderings:
            raise SpecError(
                f"`ordering` must be {' or '.join(theory.orderings)} for a campaign of `{theory.table()}`: others "
                f"check configurations or read heads, and it has neither. Got {self.ordering}"
            )
        theory.check(self)

    @property
    def folder(self) -> str:
        """The name as that of a directory; raises where it cannot be one, or would be one elsewhere."""
        if not self.name or self.name.startswith(".") or "/" in self.name:
            raise SpecError(
                f"`name` must be one that a directory may have, and begin with no dot. Got {self.name!r}"
                "\nhint: change it, or say where everything goes: --out DIR"
            )
        return self.name

    def covers(self, at: float) -> bool:
        """Return whether a value of the coordinate lies in the range: chains from before it was narrowed may not."""
        return self.theory.low <= at <= self.theory.high

    def near(self, at: float, others: Iterable[float]) -> bool:
        """Return whether a value of the coordinate is the same point as one of the others."""
        reach = SNAP * (self.theory.high - self.theory.low)
        return any(abs(at - other) <= reach for other in others)

    def scan(self, system: System) -> SystemScan:
        """Return what the steerer of a system is made from."""
        return SystemScan(
            low=self.theory.low,
            high=self.theory.high,
            system=system,
            initial=self.steering.initial,
            # Half of the longest warm-up, as it turns out, over more statistics at a point that is there.
            fresh_cost=1 + self.warmup.longest / 2 / self.steering.visit,
            seed=self.seed,
            reach=self.theory.reach_of(system),
        )

    @property
    def sha256(self) -> str:
        """Identify the spec: a resumed campaign must have the same."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


def on_the_line(spec: CampaignSpec) -> tuple[System, ...]:
    """Return the systems that an extrapolation to the infinite one is made of, in their order."""
    law, systems = spec.theory.size_law, spec.theory.systems
    if law is None:
        return ()
    return tuple(one for one in systems if law.family(one) == law.family(systems[0]) and law.holds(one))


def spec_from(plain: Mapping[str, Any]) -> CampaignSpec:
    """Return the spec of what a file says, where the physics is a table by the name of its theory."""
    fields = {field.name for field in msgspec.structs.fields(CampaignSpec)} - {"theory"}
    if not (named := [name for name in plain if name not in fields]):
        raise SpecError(f"a campaign has a table of its physics: {_tables()}\nhint: an empty one has its defaults")
    if len(named) > 1:
        load_named_files()
        if strange := [name for name in named if name not in theory_names()]:
            raise msgspec.ValidationError(f"Object contains unknown field `{strange[0]}`")
        raise SpecError(f"a campaign is of one physics: {_tables()}. Got {' and '.join(map(repr, named))}")
    (name,) = named
    kind = find_theory(name).table()
    if not isinstance(plain[name], Mapping):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(plain[name]).__name__}` - at `$.{name}`")
    table = {**plain[name], "kind": kind}
    return converted({**{key: value for key, value in plain.items() if key != name}, "theory": table})


def converted(plain: Mapping[str, Any]) -> CampaignSpec:
    """Return the spec of plain data as msgspec writes it."""
    return msgspec.convert(plain, CampaignSpec, dec_hook=decoded)


def _tables() -> str:
    return " or ".join(f"[{name}]" for name in theory_names())


def load_spec(path: Path) -> CampaignSpec:
    """Return the spec of a TOML file; plug-ins that it names are loaded, by paths from where it is."""
    with opened(path) as (stream, _):
        try:
            plain = msgspec.toml.decode(stream.read())
            plugins = plain.get("plugins", [])
            if not isinstance(plugins, list) or not all(isinstance(one, str) for one in plugins):
                raise SpecError(f"`plugins` must be a list of files. Got {plugins!r}")
            files = [str((Path(path).parent / one).resolve()) for one in plugins]
            load_files(files)
            return spec_from(plain | {"plugins": files} if files else plain)
        except ValueError as error:
            raise SpecError(f"not a campaign: {error}\nhint: metalforge scan --print-spec writes one") from error


class _Preset(SpecTable, frozen=True, kw_only=True):
    """A spec that ships, and what it is for."""

    about: str
    spec: dict[str, Any]


def _shipped() -> dict[str, _Preset]:
    """Return the presets of all theories: those of the file `presets.toml` in the package that has one, if any."""
    folders = [folder for theory in theory_names() if (folder := plugin_folder(GROUP, theory)) is not None]
    files = [file for folder in folders if (file := folder / "presets.toml").is_file()]
    shipped: dict[str, _Preset] = {}
    for file in files:  # of one name the first has it: a plug-in, which comes later, replaces nothing
        found = msgspec.toml.decode(file.read_bytes(), type=dict[str, _Preset])
        shipped |= {name: one for name, one in found.items() if name not in shipped}
    return shipped


def presets() -> dict[str, str]:
    """Return the names of the specs that ship, and what each is for."""
    return {name: one.about for name, one in _shipped().items()}


def preset(name: str) -> CampaignSpec:
    """Return a spec that ships."""
    if (found := _shipped().get(name)) is None:
        raise UnknownNameError("preset", name, presets())
    return spec_from(found.spec)
