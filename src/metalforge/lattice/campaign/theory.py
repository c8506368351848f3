"""SU(3) on a lattice: the table `[lattice]` of a spec. Systems are volumes, points are couplings beta."""

from collections.abc import Callable, Mapping, Sequence
from math import exp, hypot, inf, isnan, nan, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, cast

import msgspec
import numpy as np

from metalforge.campaign import Floats, OrderParameter, SizeLaw, Start, System, Theory, TheoryWords, WideWork
from metalforge.core import ChainPlace, Measurements, SpecError
from metalforge.lattice import observables
from metalforge.lattice.actions import ACTIONS, Action
from metalforge.lattice.actions import action as named_action
from metalforge.lattice.chain import ChainSpec, FermionSpec, HeatbathSpec, HmcSpec
from metalforge.lattice.observables import COLUMNS, OF_UPDATES, named, standard

from .published import PUBLISHED, derived_range

if TYPE_CHECKING:
    from metalforge.campaign import (
        CampaignSpec,
        ChainLog,
        PointBatch,
        PointChain,
        Report,
        Snapshot,
        Tools,
    )
    from metalforge.conductor import ChainContext
    from metalforge.core import Advisor, ExpectedPeak

OrderName: TypeAlias = Literal["abs_loop", "re_loop"]
ORDERS: dict[str, OrderParameter] = {
    "abs_loop": OrderParameter("|L|", "|L|", "|L|^2", "N_s^3"),
    "re_loop": OrderParameter("Re L", r"\mathrm{Re}\,L", r"(\mathrm{Re}\,L)^2", "N_s^3"),
}
"""The deconfinement transition of the quenched theory breaks Z3, and L falls into one of three equivalent sectors: |L|
is its order parameter. Sea quarks break Z3 themselves and prefer Re L > 0, so with them it is Re L."""


class FirstOrderLaw(SizeLaw):
    r"""The line of a first-order transition, beta_c(N_s) = beta_c - h (N_t / N_s)^3, height ~ N_s^3.

    (M. Fukugita, M. Okawa and A. Ukawa, Nucl. Phys. B 337 (1990) 181; QCDPAX, Phys. Rev. D 46 (1992) 4657, with
    h = 0.122(54) at N_t = 4; it is 0.33 at N_t = 2.) It holds for N_s well above 2 N_t: on 8^3 x 4 the peak of chi lies
    above the line. The next term q x^2 is about as large as h x at x = 1 / 16 (N_s = 2.5 N_t): 6^3, 8^3 and 12^3 at
    N_t = 2, each to 2e-4, give q = 13 h, and 8^3 x 4 gives 8 h. Of plain lines through 12^3, 16^3 and 24^3 at N_t = 4,
    each to 1e-4, with q = 8 h, one in thirty is within its error, and half have nothing against themselves; with q of
    the size 16 h in the covariance 0.69 are within one error and 0.95 within two.
    """

    bend, largest_h = 16.0, 0.4
    axis, holds_where, height = r"$(N_t/N_s)^3$", "N_s > 2 N_t", r"$N_s^3$"
    limit = "infinite volume"

    def x(self, system: System) -> float:
        """Return (N_t / N_s)^3."""
        return system[3] ** 3 / prod(system[:3])

    def height_at(self, system: System) -> float:
        """Return N_s^3."""
        return prod(system[:3])

    def holds(self, system: System) -> bool:
        """Return whether all spatial extents are above 2 N_t."""
        return min(system[:3]) > 2 * system[3]

    def family(self, system: System) -> object:
        """Return N_t."""
        return system[3]


class Lattice(Theory, frozen=True, kw_only=True, tag="lattice"):
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
    action: str = "wilson"

    coordinate: ClassVar[str] = "beta"
    screened: ClassVar[bool] = True
    size_law: ClassVar[SizeLaw] = FirstOrderLaw()
    orderings: ClassVar[tuple[str, ...]] = ()
    shortest_warmup: ClassVar[int] = 10
    wide: ClassVar[WideWork] = WideWork(256, 1024, visit=4)  # tens of thousands a second: deciding takes time, too

    @classmethod
    def notes(cls) -> Mapping[str, tuple[str, ...]]:
        """Return what is said of every field, with the names of actions and observables."""
        known = {"actions": " or ".join(ACTIONS)}
        return {name: (text.format(**known), *unit) for name, (text, *unit) in super().notes().items()}

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
            shows=(f"\u27e8{self.order.text}\u27e9", "\u03c7"),
            columns=("beta", "order", "chi"),
        )

    @property
    def systems(self) -> tuple[System, ...]:
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

    def of(self, systems: Sequence[System]) -> Self:
        """Return other volumes; the range of another N_t is derived anew."""
        changes: dict[str, object] = {"volumes": tuple(map(extents, systems))}
        if {extents(dims)[3] for dims in systems} != {dims[3] for dims in self.volumes}:
            changes |= {"beta_min": nan, "beta_max": nan}
        return msgspec.structs.replace(self, **changes)

    def with_more(self, systems: Sequence[System]) -> Self:
        """Return more volumes, of the same N_t."""
        n_t = {dims[3] for dims in self.volumes}
        for dims in systems:
            if extents(dims)[3] not in n_t:
                raise SpecError(
                    f"an added volume must have the campaign's N_t = {self.volumes[0][3]}, to which its range of beta "
                    f"belongs. Got {dims}\nhint: metalforge scan --system {','.join(map(str, dims))} begins another one"
                )
        return msgspec.structs.replace(self, volumes=(*self.volumes, *map(extents, systems)))

    def within(self, low: float, high: float) -> Self:
        """Return another range of beta."""
        return msgspec.structs.replace(self, beta_min=low, beta_max=high)

    @property
    def sums_matter(self) -> bool:
        """Whether the order of sums has a say in what comes next: solves with sea quarks do."""
        return self.flavors > 0

    def bytes_of(self, dims: System) -> int:
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
    def order_name(self) -> OrderName:
        """The order parameter: |L| without sea quarks; Re L with them, since they break Z3 and prefer Re L > 0."""
        if self.observable != "auto":
            return self.observable
        return "re_loop" if self.flavors else "abs_loop"

    @property
    def order(self) -> OrderParameter:
        """The order parameter as it is written."""
        return ORDERS[self.order_name]

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
        super().__post_init__()
        self._standard(self.observables)

    def columns(self) -> tuple[str, ...]:
        """Return the observables that rows of these chains always have."""
        return self._standard(() if self.gauge.variable == "plaquette" else (self.gauge.variable,))

    @property
    def measured(self) -> Measurements:
        """The observables of links that were asked for; those of updates are in every row."""
        return Measurements(named([name for name in self.observables if name not in OF_UPDATES]), self.observe_every)

    def _standard(self, more: Sequence[str]) -> tuple[str, ...]:
        return standard(trajectories=self.algorithm == "hmc", sea=self.flavors > 0, more=more)

    def _derived_range(self) -> tuple[float, float]:
        """Return the range around what was published for the volumes' N_t; raises where there is nothing to go by."""
        temporal = sorted({dims[3] for dims in self.volumes})
        found = None if self.has_other_theory or len(temporal) > 1 else derived_range(temporal[0])
        if found is None:
            raise SpecError(
                "a range of beta is derived for action wilson without sea quarks, on volumes of one N_t whose coupling "
                f"is published: {', '.join(map(str, PUBLISHED))}. Got N_t {temporal}, action {self.action} and "
                f"{self.flavors} flavours\nhint: give `lattice.beta_min` and `lattice.beta_max`"
            )
        return found

    def chain(self, dims: System, beta: float, *, seed: int, stream: int, start: Start) -> ChainSpec:
        """Return the chain of one point."""
        solves: dict[str, Any] = {"tolerance": self.tolerance, "force_tolerance": self.force_tolerance}
        sea = FermionSpec(flavors=(self.flavors,), masses=(self.mass,), **solves) if self.flavors else None
        return ChainSpec(
            dims=extents(dims),
            beta=beta,
            algorithm=self.algorithm,
            seed=seed,
            stream=stream,
            start=cast("Any", start),
            precision=self.precision,
            heatbath=HeatbathSpec(heatbath=self.heatbath, overrelax=self.overrelax),
            hmc=HmcSpec(tau=self.tau, n_steps=self.n_steps, integrator=self.integrator),
            fermions=sea,
            action=self.action,
        )

    # -- how chains run ------------------------------------------------------------------------------------------------

    @property
    def why_no_cards(self) -> str:
        """With sea quarks the order of sums has a say."""
        return "chains with sea quarks stay on one kind of engine" if self.flavors else ""

    @property
    def batches(self) -> bool:
        """A batch of links makes sweeps; observables that no kernel measures are measured on the host."""
        return self.algorithm == "heatbath" and set(self.columns()) <= set(COLUMNS)

    def point(self, known: "ChainLog", tools: "Tools", checkpoint: Path | None = None) -> "PointChain":
        """Return a chain of links."""
        from .point import LatticePoint

        return LatticePoint(known, tools, checkpoint)

    def batch(self, members: "Sequence[PointChain]") -> "PointBatch":
        """Return room for chains, or ladders of them, on one engine."""
        from .batch import LinksTogether

        return LinksTogether(members)

    @property
    def update_is(self) -> str:
        """The algorithm."""
        return self.algorithm

    @property
    def tuned(self) -> bool:
        """Whether updates are trajectories."""
        return self.algorithm == "hmc"

    def cheap_updates(self, at: float, system: System, peak: float | None) -> int:
        """Return how many sweeps without sea quarks a chain with them begins with: most near the transition."""
        return quenched_length(at, system[0], peak) if self.flavors else 0

    # -- heads ---------------------------------------------------------------------------------------------------------

    def head_context(self, at: float, system: System, start: Start) -> "ChainContext":
        """Return what the features see of a chain."""
        from metalforge.conductor import ChainContext

        return ChainContext(
            beta=at,
            dims=extents(system),
            mass=self.mass,
            flavors=self.flavors,
            algorithm=self.algorithm,
            start=cast("Any", start),
            tau=self.tau,
            action=self.action,
        )

    def advisor(self, *, profile: str = "", weights: Path | None = None) -> "Advisor":
        """Return the conductor, which reads chains of links."""
        from metalforge.conductor import ConductorAdvisor

        unused = dict.fromkeys(("transport_D", "transport_eta"), "needs plasma input")
        if self.algorithm != "hmc":
            unused["rejection"] = "sweeps have no accept test"
        if not self.flavors:
            unused["cg_estimate"] = "a quenched chain solves nothing"
        return ConductorAdvisor.of(
            lambda place: self.head_context(place.coordinate, place.system, place.start),
            [ChainPlace(system, self.low, self.start_of(0)) for system in self.systems],
            integrator=self.integrator,
            unused=unused,
            profile=profile,
            weights=weights,
        )

    def expected(self, system: System) -> "ExpectedPeak | None":
        """Return where the transition curve has the peak; None with sea quarks or another action."""
        from metalforge.conductor import transition_on

        return None if self.has_other_theory else transition_on(extents(system))

    def evaluated_again(self, shot: "Snapshot") -> tuple[str, dict[str, float]]:
        """Return how far S / V, P and |L| are from those of the links in higher precision."""
        again = observables.evaluate_again(shot.configuration, shot.precision)
        plaquette, loop = shot.measured["plaquette"], hypot(shot.measured["polyakov_re"], shot.measured["polyakov_im"])
        return again.precision, {
            "action": 6 * (1 - plaquette) - again.action_density,
            "plaquette": plaquette - again.plaquette,
            "polyakov": loop - abs(again.polyakov),
        }

    # -- what rows say -------------------------------------------------------------------------------------------------

    def energy_of(self, chain: "ChainLog") -> Floats:
        """Return the gauge action over beta; for Wilson's sum_p (1 - Re tr U_p / 3) = 6 V (1 - P).

        Reweighting in beta by exp(-dbeta E) is exact with sea quarks, too: their determinant does not depend on beta.
        """
        variable = self.gauge.variable
        return cast("Floats", self.gauge.energy_of(chain.column(variable), prod(chain.system)))

    def order_of(self, columns: Callable[[str], Floats]) -> Floats:
        """Return the order parameter in every row."""
        re = columns("polyakov_re")
        return re if self.order_name == "re_loop" else np.abs(re + 1j * columns("polyakov_im"))

    def volume_of(self, system: System) -> int:
        """Return N_s^3."""
        return prod(system[:3])

    def warmup_columns(self, columns: Mapping[str, Any]) -> tuple[Sequence[float], Sequence[float]]:
        """Return the plaquette and |L|."""
        return columns["plaquette"], np.hypot(columns["polyakov_re"], columns["polyakov_im"]).tolist()

    def variance_of_energy(self, system: System) -> float:
        """Return about the variance of E, 6 V d<P>/dbeta with d<P>/dbeta = 0.2 near the transition."""
        return 1.2 * prod(system)

    def reach_of(self, system: System) -> float:
        """Return 1 / sd(E) = (2 V)^(-1/2): d<P>/dbeta is 0.2 to 0.4 at the couplings of interest."""
        return float((2.0 * prod(system)) ** -0.5)

    @property
    def live_columns(self) -> tuple[str, ...]:
        """The accepted trajectories, and the iterations of solves with sea quarks."""
        if not self.tuned:
            return ()
        return ("accepted", "cg_iterations") if self.flavors else ("accepted",)

    @property
    def report(self) -> "Report":
        """Loops, sea quarks and what is published besides."""
        from .report import LatticeReport

        return LatticeReport()


def quenched_length(beta: float, extent: int, centre: float | None) -> int:
    """Return min(20 + 80 exp(-(beta - centre)^2 / 0.3), 10 L) sweeps; without a centre the longest, 100.

    The rule of design document 004, with a measured centre in place of a known transition.
    """
    near = 1.0 if centre is None else exp(-((beta - centre) ** 2) / 0.3)
    return min(20 + int(80 * near), 10 * extent)


def lattice_of(spec: "CampaignSpec") -> Lattice:
    """Return the table of a campaign that is known to be of a lattice."""
    if not isinstance(spec.theory, Lattice):
        raise SpecError(f"this is for lattices, and the campaign is of `{spec.theory.table()}`")
    return spec.theory


def extents(dims: System) -> tuple[int, int, int, int]:
    """Return the name of a lattice as its four extents."""
    if len(dims) != 4:
        raise SpecError(f"a lattice has four extents, as in 12,12,12,4. Got {','.join(map(str, dims))}")
    x, y, z, t = dims
    return x, y, z, t
