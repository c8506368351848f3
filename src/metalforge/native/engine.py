"""What fields live on: an engine has buffers and kernels; everything above it holds buffers and hands them back.

An `Engine` is a kind of silicon, opened. For a lattice and a precision it gives a `Grid`: the buffers of that lattice
and the kernels that work on them. A buffer is opaque (mypy sees an `object`): its layout is the engine's own business,
and numbers come out by `download` alone, in file order. `cpu_engine` is the process's own; any other object of this
shape can be handed to `Chain(spec, engine=...)`.

Draws are addressed by (seed, stream, step, site, draw), so what a kernel draws is the same on every engine.
"""

import operator
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError

Precision = Literal["f64", "f32"]
Dims: TypeAlias = tuple[int, int, int, int]
"""(Nx, Ny, Nz, Nt), all even."""

Buffer: TypeAlias = object
BufferKind = Literal["links", "momenta", "colours"]
"""What a buffer holds: a matrix per link, eight reals per link, or three complex numbers per site of one parity."""

Floats: TypeAlias = NDArray[np.float64]
ActionKernel: TypeAlias = tuple[str, Floats] | None
"""A gauge action as kernels take it: None is Wilson's, others are a name of theirs and its coefficients."""
Host: TypeAlias = NDArray[Any]
"""In file order: complex links (Nt, Nz, Ny, Nx, 4, 3, 3) and colours (Nt, Nz, Ny, Nx, 3), real momenta (..., 4, 8)."""


class Iterations(NamedTuple):
    """A run of iterations that is wanted, with the matrix diagonal - H H + shift."""

    shifts: Floats
    """Counted from the first."""
    diagonal: float
    parity: int
    """Of the solutions."""
    target2: float
    """Of |r|^2."""
    most: int
    every: int
    """|r|^2 is reported each time that `since` and the iterations of the run are a multiple of it."""
    since: int


class Iterated(NamedTuple):
    """What a run of iterations did."""

    iterations: int
    residual2: float
    """|r|^2 of the first shift."""
    state: int
    """0 while there is more to do, 1 when the target is reached, 2 when a number is not finite."""
    updates: int
    """Of solutions."""
    checks: Sequence[float]
    """|r|^2 where it was wanted on the way."""


class Solver(Protocol):
    """Conjugate gradients for one or several shifts: the vectors of the recurrence."""

    def begin(self, residual: Buffer, keep: bool, /) -> None:
        """Start from a residual; `keep` goes on in the last search direction."""

    def iterate(self, solutions: Sequence[Buffer], wanted: Iterations, /) -> Iterated:
        """Iterate until the target is reached, at most so often; an engine may stop before, to be asked again."""


class Staggered(Protocol):
    """The staggered operator's own copy of the links, phases and boundary folded in, in the precision of its grid."""

    def refresh(self, links: Buffer, precision: Precision) -> None:
        """Take up links, which are in either precision."""

    def hop(self, out: Buffer, source: Buffer, parity: int, /) -> None:
        """Set out, on `parity`, to H source."""

    def normal(
        self, out: Buffer, source: Buffer | None, x: Buffer, scratch: Buffer, diagonal: float, parity: int, /
    ) -> float:
        """Set out = (diagonal - H H) x, or source minus that; return |out|^2."""

    def force(
        self, momenta: Buffer, fields: Sequence[Buffer], scratch: Sequence[Buffer], coefficients: Floats, /
    ) -> None:
        """Set pi = pi - sum_k c_k d/dw [X_k^dagger D^dagger D X_k] for even fields X_k held fixed."""

    def solver(self, shifts: int) -> Solver:
        """Return the workspace of a solve."""


class Grid(Protocol):
    """The buffers and kernels of one lattice in one precision; sums are doubles whatever it is."""

    @property
    def engine(self) -> "Engine":
        """What it is on."""

    @property
    def dims(self) -> Dims:
        """The lattice."""

    @property
    def precision(self) -> Precision:
        """Of the reals in its buffers."""

    # Buffers.

    def new(self, kind: BufferKind) -> Buffer:
        """Return a buffer: links are unit matrices, the rest is zero."""

    def assign(self, target: Buffer, source: Buffer) -> None:
        """Copy one buffer into another of its kind."""

    def clear(self, buffer: Buffer) -> None:
        """Set every number to zero."""

    def upload(self, kind: BufferKind, buffer: Buffer, host: Host, parity: int = 0) -> None:
        """Fill a buffer from the host; of colours, those on sites of `parity` are taken."""

    def download(self, kind: BufferKind, buffer: Buffer, parity: int = 0) -> Host:
        """Return a buffer's numbers, widened; colours are zero on the other parity."""

    # Links. Bit 2 mu + parity of a selection stands for the links in direction mu at sites of that parity.

    def set_hot(self, links: Buffer, seed: int, stream: int, step: int, /) -> None:
        """Draw links from the Haar measure."""

    def heatbath(self, links: Buffer, beta: float, seed: int, stream: int, step: int, selection: int, /) -> None:
        """Update the selected links once by the SU(2) subgroup heat bath."""

    def overrelax(self, links: Buffer, selection: int, /) -> None:
        """Update the selected links once by overrelaxation."""

    def reunitarise(self, links: Buffer, /) -> None:
        """Project every link to SU(3)."""

    def plaquette_sums(self, links: Buffer, /) -> tuple[float, float]:
        """Return sum_p Re tr U_p / 3 over spatial and over temporal plaquettes."""

    def action_energy(self, links: Buffer, action: ActionKernel, /) -> float:
        """Return S / beta of an action."""

    def polyakov(self, links: Buffer, /) -> complex:
        """Return the sum over space of the Polyakov loop tr / 3."""

    def clover_sums(self, links: Buffer, /) -> tuple[float, float]:
        """Return the sums over sites of the clover energy density and charge density."""

    def distance(self, links: Buffer, others: Buffer, room: Buffer | None = None) -> float:
        """Return the largest difference of two reals of two sets of links; `room`, which may be one, is overwritten.

        Fresh memory for all differences takes longer than they do.
        """

    # Momenta.

    def refresh_momenta(self, momenta: Buffer, seed: int, stream: int, step: int, /) -> None:
        """Draw standard normals."""

    def kinetic(self, momenta: Buffer, /) -> float:
        """Return sum pi_a^2 / 2."""

    def evolve(self, links: Buffer, momenta: Buffer, beta: float, stages: Floats, action: ActionKernel, /) -> None:
        """Walk (kind, coefficient): kind 0 moves links, 1 kicks momenta by -coefficient dS/dw."""

    def kick_momenta(
        self, links: Buffer, momenta: Buffer, keep: float, coefficient: float, action: ActionKernel, /
    ) -> None:
        """Set pi = keep * pi - coefficient * dS/dw at beta = 1."""

    def move_links(self, links: Buffer, momenta: Buffer, eps: float, /) -> None:
        """Move links by exp(i eps pi_a T_a)."""

    # Colours.

    def gaussian(self, colours: Buffer, parity: int, seed: int, stream: int, step: int, draw: int, /) -> None:
        """Draw complex normals of unit variance, component c from draw number `draw` + c of its site."""

    def dot(self, a: Buffer, b: Buffer, /) -> complex:
        """Return sum_x a(x)^dagger b(x)."""

    def norm2(self, colours: Buffer, /) -> float:
        """Return sum_x |a(x)|^2."""

    def combine(self, out: Buffer, colours: Buffer, keep: complex, factor: complex, /) -> None:
        """Set out = keep * out + factor * colours."""

    def narrow_colours(self, narrow: Buffer, wide: Buffer, factor: float, parity: int, /) -> None:
        """Set colours in f32 to factor times those in f64; both grids of the lattice have this."""

    def widen_colours(self, wide: Buffer, narrow: Buffer, keep: float, factor: float, parity: int, /) -> None:
        """Set colours in f64 to keep times themselves plus factor times those in f32."""

    def staggered(self) -> Staggered:
        """Return a staggered operator, to be refreshed from links."""


class Sweeps(NamedTuple):
    """An update of a quenched chain by so many heat-bath and overrelaxation sweeps."""

    heatbath: int
    overrelax: int


class Trajectory(NamedTuple):
    """An update by a trajectory: the (kind, coefficient) of its stages one after the other, and its gauge action."""

    stages: tuple[float, ...]
    action: tuple[str, tuple[float, ...]] | None = None
    accept_always: bool = False

    @property
    def action_kernel(self) -> ActionKernel:
        """The action as kernels take it."""
        return None if self.action is None else (self.action[0], np.array(self.action[1]))


class ChainPlace(NamedTuple):
    """A chain of a batch: its coupling, the address of its random numbers, and the steps it has done."""

    beta: float
    seed: int
    stream: int
    step: int


class BatchRow(NamedTuple):
    """What an update of one chain of a batch gave; dH and accepted are 0 for sweeps."""

    plaquette_spatial: float
    """Sum of Re tr U_p / 3, as `Grid.plaquette_sums` gives it."""
    plaquette_temporal: float
    polyakov_re: float
    """Sum over space of tr / 3."""
    polyakov_im: float
    delta_h: float
    accepted: float


class Batch(Protocol):
    """Quenched chains of one lattice that an engine moves together; each has the bits it would have alone."""

    def place(self, chains: Sequence[ChainPlace], links: Sequence[Buffer] = (), /) -> None:
        """Say what every chain is and, with their links on a grid of the lattice, where they stand."""

    def fetch(self, number: int, links: Buffer, /) -> None:
        """Copy the links of a chain into a buffer of a grid of the lattice."""

    def start(self, plan: Sweeps | Trajectory, updates: int, /) -> None:
        """Ask for so many updates of all chains, at most 256; the call need not wait for them."""

    def rows(self) -> Floats:
        """Wait for what was started, and return it: (updates, chains, columns), the columns those of a `BatchRow`."""


class Engine(Protocol):
    """Silicon that fields live on; it can be pickled, which is how fields go to another process."""

    @property
    def name(self) -> str:
        """Kind and number or build, such as ``cpu:v3``: what a checkpoint names."""

    @property
    def family(self) -> str:
        """``fma`` or ``plain``, by whether multiply-adds are fused: links of quenched chains have its bits."""

    @property
    def threads(self) -> int:
        """Host threads of a kernel call."""

    def grid(self, dims: Dims, precision: Precision) -> Grid:
        """Return a lattice in one precision, with its kernels; the same one for the same question, while it is used."""


@runtime_checkable
class BatchEngine(Protocol):
    """An engine that moves many chains at once."""

    @property
    def busy_sites(self) -> int:
        """Sites of all chains together below which part of it has nothing to do."""

    def batch(self, dims: Dims, precision: Precision, chains: int) -> Batch:
        """Return room for so many chains."""


PARTICLE_SUMS = (
    *("phi", "pairs", "w_xx", "w_yy", "w_zz", "w_xy", "w_yz", "w_zx"),
    *("v_xx", "v_yy", "v_zz", "v_xy", "v_yz", "v_zx"),
    *(f"current_{ab}_{part}" for ab in ("xy", "xz", "yz", "yx", "zx", "zy") for part in ("re", "im")),
)
"""The columns of a sample: sum of phi over pairs within the cut-off and their number, sum r_a F_b over them, sum v_a
v_b over particles, and currents: sum v_b exp(2 pi i a / L) for each direction a and the two b across it."""


class Motion(NamedTuple):
    """How particles move: velocity Verlet where `keep` is 1 and `noise` 0, otherwise Langevin (BAOAB).

    Between its two half moves a Langevin step sets v = keep v + noise xi, xi drawn at (seed, stream, step, particle).
    """

    dt: float
    mass: float
    keep: float = 1.0
    noise: float = 0.0
    seed: int = 0
    stream: int = 0


class ParticleState(NamedTuple):
    """Replicas of a box of particles: arrays of (replicas, n, 3), which move in place, and the steps each has done."""

    positions: Floats
    """Within the box."""
    boxes: NDArray[np.int32]
    """How often each coordinate has left the box."""
    velocities: Floats
    steps: Sequence[int]


class ParticleSamples(NamedTuple):
    """What was seen on the way of a block of steps."""

    sums: Floats
    """(samples, columns), the columns those of PARTICLE_SUMS."""
    positions: Floats
    """(frames, n, 3), as if the box had no borders."""
    velocities: Floats
    lists: int
    """How often neighbours were listed."""


class ParticleBoxes(Protocol):
    """Boxes of particles that repel each other by exp(-kappa r) / r within a cut-off; kernels on host arrays.

    All boxes have one size and move together; each has the bits that it has alone on its engine. Every call begins with
    new lists of neighbours, so what it gives is a function of its arguments alone: where blocks of steps are the same,
    so are all bits, for any number of threads and wherever a run was interrupted.
    """

    @property
    def listed(self) -> int:
        """Places of neighbours in the lists that were made last, filled or not."""

    def measure(self, positions: Floats, velocities: Floats, /) -> tuple[Floats, Floats]:
        """Return the forces (replicas, n, 3) and one row of PARTICLE_SUMS each."""

    def advance(
        self, state: ParticleState, motions: Sequence[Motion], steps: int, /, *, samples: int = 0, frames: int = 0
    ) -> list[ParticleSamples]:
        """Move every box by `steps`, in place, and look evenly so often on the way, last at the end."""


@runtime_checkable
class ParticleEngine(Protocol):
    """An engine that moves particles."""

    def particles(
        self, replicas: int, n: int, length: float, kappa: float, cutoff: float, skin: float, precision: Precision
    ) -> ParticleBoxes:
        """Return room for boxes of n particles; f32 is that of pair forces, all else is in doubles."""


MOST_SITES = 1 << 16
"""In one direction: the kernels' own bound."""


def check_dims(dims: Sequence[int]) -> Dims:
    """Return dims as a tuple; raises when they are not four even integers from 2 to 65536."""
    try:
        n_x, n_y, n_z, n_t = (operator.index(n) for n in dims)
        if any(not 2 <= n <= MOST_SITES or n % 2 for n in (n_x, n_y, n_z, n_t)):
            raise ValueError
    except (TypeError, ValueError):
        raise SpecError(
            f"`dims` must be four even integers from 2 to {MOST_SITES}, (Nx, Ny, Nz, Nt). Got {dims!r}"
        ) from None
    return n_x, n_y, n_z, n_t


def family_of_engine(name: str) -> str:
    """Return the bit family of the engine of a name, ``cpu:BUILD`` or ``CARD:NUMBER[:STRATEGY]``, here or not.

    Links that a card made in doubles have the bits of cores that fuse multiply-adds.
    """
    kind, build, *strategy = name.split(":")
    if kind == "cpu":
        return "fma" if build in ("v3", "v4") else "plain"
    return strategy[0] if strategy else "fma"


def continues(engine: Engine, name: str, family: str = "", *, sums_matter: bool) -> bool:
    """Whether a chain of the engine called `name` goes on bit for bit on `engine`.

    Its family, unless given, is that of engines of this name. Matrix products have the bits of the family; sums over
    the lattice have those of one engine, since their order follows its vectors. Of the links of a quenched chain no sum
    is a factor; solves, and so forces of fermions, are.
    """
    return engine.name == name or (engine.family == (family or family_of_engine(name)) and not sums_matter)


def rounds_to_doubles(engine: Engine) -> bool:
    """Return whether its doubles are doubles; others are pairs of floats, which round earlier."""
    return engine.family in ("fma", "plain")
