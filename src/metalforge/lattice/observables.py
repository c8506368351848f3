"""What is measured on a configuration: plaquettes and loops, the chiral condensate by noise, the pion's correlator.

The condensate is normalised for one staggered field, that is four tastes, colours summed:

    condensate = (1/V) tr D^-1 = (m/V) tr A^-1 over all sites = (2 m/V) tr A^-1 over even ones,
    connected  = -(1/V) tr D^-2 = (2/V) tr (A^-1 - 2 m^2 A^-2) over even sites, its derivative with m at fixed links,

with A = D^+ D: the rest of D^-1 = D^+ A^-1 joins sites of opposite parity, and both parities have one spectrum.

Each column of rows is registered once (`core.observables`): what it is called in rows, journals, checkpoints, CSV files
and reports, when it is measured and how it is averaged. Another one is registered alike:

    register_observable("lattice", Observable(name="link_trace", measure=lambda look: look.chain.field.link_trace()))
"""

import cmath
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, Unpack

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Observable, SpecError, find_observables, register_observable, require_at_least

from .field import Address, GaugeField

if TYPE_CHECKING:  # what trajectories and quarks need is loaded where there are some
    from .chain import Chain, UpdateInfo
    from .hmc import EnergyProbe, MidEnergy
    from .solvers import Inverter
    from .staggered import ColourField


class Observables(msgspec.Struct, frozen=True, kw_only=True):
    """The cheap observables of one configuration; conventions in `metalforge.lattice`."""

    plaquette: float
    plaquette_spatial: float
    plaquette_temporal: float
    polyakov_re: float
    polyakov_im: float

    @property
    def polyakov(self) -> complex:
        """The volume-averaged Polyakov loop."""
        return complex(self.polyakov_re, self.polyakov_im)


Columns: TypeAlias = dict[str, list[float]]
"""Observables of the updates of one chain, by name."""
COLUMNS = (*Observables.__struct_fields__, "delta_h", "accepted")
"""What a batch measures; sweeps have no accept test."""


def measure(field: GaugeField) -> Observables:
    """Return the observables of a field."""
    spatial, temporal = (sums / (3 * field.volume) for sums in field.plaquette_sums())
    loop = field.polyakov()
    return Observables(
        plaquette=(spatial + temporal) / 2,
        plaquette_spatial=spatial,
        plaquette_temporal=temporal,
        polyakov_re=loop.real,
        polyakov_im=loop.imag,
    )


def z3_projection(loop: complex) -> float:
    """Return Re(z L) for the third root of unity z that brings L closest to the positive real axis."""
    if loop == 0 or not cmath.isfinite(loop):
        return abs(loop)
    sector = round(cmath.phase(loop) / (2 * math.pi / 3))
    return (loop * cmath.exp(-2j * math.pi / 3 * sector)).real


def plaquette_of(links: NDArray[Any]) -> Any:
    """Return P of host links in their own precision; 1 for unit links.

    By NumPy: a second opinion about files and kernels, small and slow.
    """
    total = links.real.dtype.type(0)
    for mu in range(4):
        for nu in range(mu):
            ahead = np.roll(links[..., nu, :, :], -1, axis=3 - mu)
            beside = np.roll(links[..., mu, :, :], -1, axis=3 - nu)
            forth = _product(links[..., mu, :, :], ahead)
            back = _product(links[..., nu, :, :], beside)
            total += (forth * back.conj()).real.sum()  # Re tr (forth back^dagger)
    return total / (6 * 3 * (links.size // 36))


def polyakov_of(links: NDArray[Any]) -> Any:
    """Return the Polyakov loop of host links, averaged over space, in their own precision."""
    line = links[0, ..., 3, :, :]
    for later in links[1:, ..., 3, :, :]:
        line = _product(line, later)
    return (line[..., 0, 0] + line[..., 1, 1] + line[..., 2, 2]).mean() / 3


def _product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    # Nine sums of three terms: matmul has no fast path for extended precision.
    c = np.empty(np.broadcast_shapes(a.shape, b.shape), np.result_type(a, b))
    for i in range(3):
        for j in range(3):
            c[..., i, j] = a[..., i, 0] * b[..., 0, j] + a[..., i, 1] * b[..., 1, j] + a[..., i, 2] * b[..., 2, j]
    return c


class EvaluatedField(NamedTuple):
    """P, the action a site over beta 6 (1 - P), and L of a configuration."""

    plaquette: float
    action_density: float
    polyakov: complex
    precision: str


def evaluate_again(links: NDArray[np.complex128], precision: str) -> EvaluatedField:
    """Return the observables of host links (Nt, Nz, Ny, Nx, 4, 3, 3), one precision above `precision`.

    Links in f32 are evaluated in double precision, those in f64 in extended precision (the C long double: 64 bits of
    mantissa on x86), independently of the kernels that measured them.
    """
    extended = "f80" if np.finfo(np.longdouble).nmant == 63 else "long double"  # on some systems it is a double
    name, dtype = ("f64", np.complex128) if precision == "f32" else (extended, np.clongdouble)
    u = links.astype(dtype)
    plaquette = plaquette_of(u)
    return EvaluatedField(float(plaquette), float(6 * (1 - plaquette)), complex(polyakov_of(u)), name)


def wilson_loop(links: NDArray[np.complex128], r: int, t: int) -> float:
    """Return W(r, t) = <Re tr / 3> of planar loops on host links, r in space by t in time.

    It is averaged over sites and the three spatial directions.
    """
    n_t, n_z, n_y, n_x = links.shape[:4]
    if not (1 <= r <= min(n_x, n_y, n_z) and 1 <= t <= n_t):
        raise SpecError(f"loops of {r} x {t} do not fit a lattice of {(n_x, n_y, n_z, n_t)}")

    def shift(field: NDArray[np.complex128], mu: int, distance: int) -> NDArray[np.complex128]:
        there = np.arange(distance, distance + field.shape[3 - mu])
        return field.take(there, axis=3 - mu, mode="wrap")

    def line(mu: int, length: int) -> NDArray[np.complex128]:
        """The product of so many links in direction mu, starting at each site."""
        u = links[..., mu, :, :]
        product = u
        for n in range(1, length):
            product = product @ shift(u, mu, n)
        return product

    up, mean = line(3, t), 0.0
    for mu in range(3):
        side = line(mu, r)
        there, back = side @ shift(up, mu, r), up @ shift(side, 3, t)
        mean += float(np.einsum("...ij,...ij->...", there, back.conj()).real.mean() / 9)
    return mean


NOISE_DRAW = 6 << 28
"""Draws of estimator noise: NOISE_DRAW + vector * 256."""

TOLERANCE = 1e-9
"""Relative residual of a measurement's solves: far below the noise of any number of vectors one would draw."""


class SeaObservables(Observables, frozen=True, kw_only=True):
    """The observables of a configuration with sea quarks; of the first mass, averaged over noise vectors."""

    condensate: float
    condensate_pairs: float | None
    """The mean product of two different noise vectors' condensates, an estimate of its square; None for one vector."""
    condensate_connected: float


class CondensateSample(NamedTuple):
    """What each noise vector found on one configuration."""

    condensate: tuple[float, ...]
    connected: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean condensate."""
        return math.fsum(self.condensate) / len(self.condensate)

    @property
    def pairs(self) -> float | None:
        """The mean product of two different vectors' condensates."""
        n = len(self.condensate)
        if n < 2:
            return None
        total = math.fsum(self.condensate)
        return (total**2 - math.fsum(c**2 for c in self.condensate)) / (n * (n - 1))

    @property
    def mean_connected(self) -> float:
        """The mean connected part."""
        return math.fsum(self.connected) / len(self.connected)


def measure_condensate(
    inverter: "Inverter", mass: float, *, n_vectors: int, tolerance: float = TOLERANCE, **address: Unpack[Address]
) -> CondensateSample:
    """Return the condensate and its connected part on the inverter's links, from each of `n_vectors` noise vectors.

    Noise is (+-1 +- i) / sqrt 2 for each component, so that only off-diagonal elements of A^-1 make it noisy.
    """
    require_at_least(1, n_vectors=n_vectors)
    noise, found = inverter.fresh(), inverter.fresh()
    volume = inverter.operator.volume
    condensate, connected = [], []
    for n in range(n_vectors):
        noise.gaussian(draw=NOISE_DRAW + 256 * n, **address)
        noise.from_host(np.copysign(math.sqrt(0.5), noise.to_host().view(float)).view(complex))
        inverter.solve(noise, found, mass=mass, tolerance=tolerance)
        trace = noise.dot(found).real
        condensate.append(2 * mass * trace / volume)
        connected.append(2 * (trace - 2 * mass**2 * found.norm2()) / volume)
    return CondensateSample(tuple(condensate), tuple(connected))


def pion_correlator(inverter: "Inverter", mass: float, *, tolerance: float = TOLERANCE) -> NDArray[np.float64]:
    """Return C(t) = sum_x sum_ab |D^-1(x, t; 0)_ab|^2 for t = 0 .. Nt - 1, from a point source at the origin.

    The Goldstone pion's channel. With X = A^-1 source on even sites, D^-1 source is m X there and -H X on odd ones.
    """
    source, found, odd = inverter.fresh(), inverter.fresh(), inverter.fresh(parity=1)
    host = source.to_host()
    total = np.zeros(host.shape[0])
    for colour in range(3):
        host[...] = 0
        host[0, 0, 0, 0, colour] = 1
        source.from_host(host)
        inverter.solve(source, found, mass=mass, tolerance=tolerance)
        inverter.hop(odd, found)
        total += _sum_by_time(found) * mass**2 + _sum_by_time(odd)
    return total


def _sum_by_time(field: "ColourField") -> NDArray[np.float64]:
    host = field.to_host()
    return np.asarray(np.sum(np.abs(host) ** 2, axis=(1, 2, 3, 4)), np.float64)


THEORY = "lattice"
STANDARD: dict[str, Literal["nothing", "trajectories", "sea"]] = {
    **dict.fromkeys(("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im"), "nothing"),
    **dict.fromkeys(("delta_h", "accepted", "delta_h_quarter"), "trajectories"),
    **dict.fromkeys(("cg_iterations", "condensate", "condensate_pairs", "condensate_connected"), "sea"),
    "n_steps": "trajectories",
}
"""The columns that every chain has which has what they need; any other is measured where it is asked for by name."""
OF_UPDATES = {"delta_h", "accepted", "delta_h_quarter", "cg_iterations", "cg_total", "n_steps"}
"""Those that tell how a configuration came about, where others are measured on its links."""


class Look:
    """A configuration and the update that led to it; what several observables need is computed once."""

    def __init__(self, chain: "Chain") -> None:
        self.chain = chain
        self.n_steps = chain.spec.hmc.n_steps
        """Steps of the trajectory, before what came of it tunes those of the next."""
        self.info: UpdateInfo | None = None
        self.delta_h_quarter: float | None = None
        """The energy violation at a quarter of the trajectory, where somebody looked."""

    @property
    def at_quarter(self) -> "EnergyProbe":
        """Looks at the energy violation at a quarter of the trajectory."""
        from .hmc import EnergyProbe

        def seen(energy: "MidEnergy") -> None:
            self.delta_h_quarter = energy.delta_h

        return EnergyProbe((0.25,), seen)

    @cached_property
    def gauge(self) -> Observables:
        """The plaquettes and the Polyakov loop."""
        return measure(self.chain.field)

    @cached_property
    def quarks(self) -> SeaObservables | None:
        """The condensate by noise vectors, addressed by the chain's step; None where none are drawn."""
        if self.chain.sea is None:
            return None
        seen = self.chain.sea.observe(self.gauge, **self.chain.address())
        return seen if isinstance(seen, SeaObservables) else None


def named(names: Sequence[str]) -> tuple[Observable, ...]:
    """Return observables by name."""
    return find_observables(THEORY, names)


def standard(*, trajectories: bool, sea: bool, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the columns of a chain: those that every chain of this kind has, then `more`."""
    has = {"nothing": True, "trajectories": trajectories, "sea": sea}
    for observable in named(more):
        if not has[needs := (STANDARD | {"cg_total": "sea"}).get(observable.name, "nothing")]:
            raise SpecError(f"`{observable.name}` needs {needs}, which these chains do not have")
    return tuple(dict.fromkeys([*(name for name, needs in STANDARD.items() if has[needs]), *more]))


def _whole(mean: float, error: float) -> str:
    return f"{mean:.0f}"


def _cg_of_one_solve(look: Look) -> float | None:
    total, sea = getattr(look.info, "cg_iterations", None), look.chain.sea
    # The count of solves starts anew with every trajectory, as that of iterations does.
    return None if total is None or sea is None else total / max(sea.inverter.solves, 1)


def _from(part: Literal["gauge", "quarks", "info"], name: str) -> Callable[[Look], float | None]:
    """Return what measures a number of a part of what is seen, where it has such a number."""

    def measured(look: Look) -> float | None:
        value = getattr(getattr(look, part), name, None)
        return None if value is None else float(value)

    return measured


for _observable in (
    Observable(name="plaquette", label="plaquette", measure=_from("gauge", "plaquette")),
    *(Observable(name=name, measure=_from("gauge", name)) for name in COLUMNS[1:5]),
    Observable(name="polyakov_z3", label="Re L to Z3", measure=lambda look: z3_projection(look.gauge.polyakov)),
    Observable(
        name="action_density",
        label="S/(beta V)",
        measure=lambda look: look.chain.action.energy(look.chain.field) / look.chain.field.volume,
    ),
    Observable(
        name="wilson_loop",
        label="W(2,1)",
        measure=lambda look: wilson_loop(look.chain.field.to_links(), 2, 1),
    ),
    Observable(
        name="delta_h", label="exp(-dH)", measure=_from("info", "delta_h"), transform=lambda delta_h: np.exp(-delta_h)
    ),
    Observable(
        name="accepted",
        label="accepted",
        measure=_from("info", "accepted"),
        error=False,
        text=lambda mean, error: f"{mean:.0%}",
    ),
    Observable(name="delta_h_quarter", measure=lambda look: look.delta_h_quarter),
    Observable(name="cg_iterations", label="CG per solve", measure=_cg_of_one_solve, error=False, text=_whole),
    Observable(name="cg_total", measure=_from("info", "cg_iterations")),
    *(
        Observable(name=name, measure=_from("quarks", name), phases=("measure",))
        for name in ("condensate", "condensate_pairs", "condensate_connected")
    ),
    # Heads see the steps of every trajectory: those of a warm-up, which are tuned, must be known to read it again.
    Observable(
        name="n_steps",
        measure=lambda look: float(look.n_steps),
        phases=("warmup", "measure"),
        error=False,
        text=_whole,
    ),
):
    register_observable(THEORY, _observable)
