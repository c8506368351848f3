"""SU(3) on a lattice: the table `[lattice]` of a spec. Systems are volumes, points are couplings beta."""

from collections.abc import Sequence
from math import inf, isnan, nan, prod
from typing import ClassVar, Literal, Self

import msgspec

from metalforge.campaign.observables import ORDERS, OrderName
from metalforge.campaign.physics.published import PUBLISHED, derived_range
from metalforge.core.errors import SpecError
from metalforge.lattice.actions import Action
from metalforge.lattice.actions import action as named_action
from metalforge.lattice.chain import ChainSpec, HeatbathSpec, HmcSpec
from metalforge.lattice.registered import standard
from metalforge.lattice.sea import FermionSpec

from .table import SpecTable
from .theory import Dims, Start, Target, TheoryWords, WideWork


class Lattice(SpecTable, frozen=True, kw_only=True):
    """The theory: volumes, action, algorithm. A range of beta that is derived from N_t is in the spec from then on."""

    volumes: tuple[tuple[int, int, int, int], ...] = ((8, 8, 8, 4),)
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

    table: ClassVar[str] = "lattice"
    screened: ClassVar[bool] = True
    wide: ClassVar[WideWork] = WideWork(256, 1024, visit=4)  # tens of thousands a second: deciding takes time, too
    coordinate: ClassVar[str] = "beta"
    target: ClassVar[Target] = "peak"

    @property
    def words(self) -> TheoryWords:
        """A scan in beta for the peak of chi."""
        return TheoryWords(
            coordinate="\u03b2",
            axis="\u03b2 = 6/g\u00b2",
            coupling="\u03b2",
            coupling_like="5.68,5.70",
            system="lattice",
            system_like="12,12,12,4",
            found="\u03b2c",
            missing="\u03b2c not located",
            error_of="on beta_c",
            figure="Transition",
            shows=(f"\u27e8{ORDERS[self.order].text}\u27e9", "\u03c7"),
            columns=("beta", "order", "chi"),
            chain="chain",
            chains="Chains",
            update="update",
        )

    @property
    def systems(self) -> tuple[Dims, ...]:
        """The volumes."""
        return self.volumes

    @property
    def low(self) -> float:
        """The smallest coupling."""
        return self.beta_min

    @property
    def high(self) -> float:
        """The largest coupling."""
        return self.beta_max

    def at(self, coupling: float) -> float:
        """Return beta."""
        return coupling

    def of(self, systems: Sequence[Dims]) -> Self:
        """Return other volumes; the range of another N_t is derived anew."""
        changes: dict[str, object] = {"volumes": tuple(map(extents, systems))}
        if {extents(dims)[3] for dims in systems} != {dims[3] for dims in self.volumes}:
            changes |= {"beta_min": nan, "beta_max": nan}
        return msgspec.structs.replace(self, **changes)

    def with_more(self, systems: Sequence[Dims]) -> Self:
        """Return more volumes, of the same N_t."""
        n_t = {dims[3] for dims in self.volumes}
        for dims in systems:
            if extents(dims)[3] not in n_t:
                raise SpecError(
                    f"an added volume must have the campaign's N_t = {self.volumes[0][3]}, to which its range of beta "
                    f"belongs. Got {dims}\nhint: metalforge scan --volume {','.join(map(str, dims))} begins another one"
                )
        return msgspec.structs.replace(self, volumes=(*self.volumes, *map(extents, systems)))

    def within(self, low: float, high: float) -> Self:
        """Return another range of beta."""
        return msgspec.structs.replace(self, beta_min=low, beta_max=high)

    @property
    def sums_matter(self) -> bool:
        """Whether the order of sums has a say in what comes next: solves with sea quarks do."""
        return self.flavors > 0

    def start_of(self, number: int) -> Start:
        """Return hot and cold in turn."""
        return "hot" if number % 2 == 0 else "cold"

    def bytes_of(self, dims: Dims) -> int:
        """Return four links of 18 reals per site; a trajectory has momenta and the links before it besides."""
        return prod(dims) * 72 * (8 if self.precision == "f64" else 4) * (3 if self.algorithm == "hmc" else 1)

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

    def chain(self, dims: Dims, beta: float, *, seed: int, stream: int, start: Start) -> ChainSpec:
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
            dims=extents(dims),
            beta=beta,
            algorithm=self.algorithm,
            seed=seed,
            stream=stream,
            start=start_of_links(start),
            precision=self.precision,
            heatbath=HeatbathSpec(heatbath=self.heatbath, overrelax=self.overrelax),
            hmc=HmcSpec(tau=self.tau, n_steps=self.n_steps, integrator=self.integrator),
            fermions=sea,
            action=self.action,
        )


def start_of_links(start: Start) -> Literal["hot", "cold"]:
    """Return a start of links as what it is."""
    if start == "hot" or start == "cold":
        return start
    raise SpecError(f"a chain of links starts hot or cold. Got {start}")


def extents(dims: Dims) -> tuple[int, int, int, int]:
    """Return the name of a lattice as its four extents."""
    if len(dims) != 4:
        raise SpecError(f"a lattice has four extents, as in 12,12,12,4. Got {','.join(map(str, dims))}")
    x, y, z, t = dims
    return x, y, z, t
