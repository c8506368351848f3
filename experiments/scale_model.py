r"""Simulated lanes of a large machine: how fast they are, how they fail, and rows with the statistics of a lattice.

A lane is a GPU that makes 57,000 updates per second of 8^3x4, 1.17e8 sites per second, or a core at a rate that was
measured. On lattices of aspect ratio 4 the distance of the two phases in E is the same for every N_t, since
Delta E = 6 V Delta P with V = (4 N_t)^3 N_t and Delta P ~ N_t^-4, while the width of E within a phase grows as
V^(1/2): so rows are those of the exact model "like 8^3x2" (`exact_model.FIRST_ORDER`) with that width. A phase lasts
200 (N_s / 8)^2 updates, as local updates diffuse; a row is written after so many updates that it lasts 200 rows.

What fails and what is slow:

    failures      The training of Llama 3 had 419 unexpected interruptions in 54 days on 16,384 GPUs, 1.97e-5 per GPU
                  and hour (A. Grattafiori et al., arXiv:2407.21783). Six times that is assumed here, 1.24e-4, or one
                  in 7.9 hours on 1,024 GPUs: shared research clusters lose jobs more often than that training did
                  (A. Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
                  HPCA 2025, arXiv:2410.21680).
    stragglers    assumed: one machine in 200 is slower by a tenth. That a few hosts of a large machine are slower is
                  reported by Z. Jiang et al., "MegaScale", NSDI 2024, arXiv:2402.15627.
    network       a message takes 1 ms, as a call of Ray does here; one in a hundred takes 100 ms
"""

from collections.abc import Iterable
from math import prod, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.lattice.campaign.published import PUBLISHED
from metalforge.native.engine import Dims

from .exact_model import FIRST_ORDER, PLAQUETTES, ExactChains, ExactModel

Floats = NDArray[np.float64]
SITES_PER_S = 57_000.0 * 2048
"""Of a GPU with 32 chains of 8^3x4; heat bath and overrelaxation of larger lattices cost a link the same."""
BUSY_SITES = 65_536
"""Sites in flight that keep a GPU busy."""
FAILURES_PER_HOUR = 1 / (7.9 * 1024)
"""Of a GPU: six times that of the training of Llama 3."""
REPAIR_S = 300.0
"""Until a GPU that failed is replaced by another one."""
STRAGGLERS, STRAGGLING = 1 / 200, 1.1
JITTER = 0.02
"""Spread of the time that the same work takes."""
MESSAGE_S, SLOW_MESSAGE_S, SLOW_MESSAGES = 1e-3, 0.1, 0.01
BUFFERED = 2048
"""Rows of a chain that are drawn at once, for all chains that want some."""


class SimulatedLattice(NamedTuple):
    """A lattice: its model, and how many updates one row is for."""

    dims: Dims
    model: ExactModel
    thinning: int

    @property
    def beta_c(self) -> float:
        """Where the model has its peak."""
        return self.model.peak()[0]


def lattice_of(dims: Dims) -> SimulatedLattice:
    """Return the simulated lattice of these extents, its peak where the published coupling of its N_t is."""
    if dims[3] not in PUBLISHED:
        raise SpecError(f"a simulated lattice wants a published N_t: {', '.join(map(str, PUBLISHED))}. Got {dims[3]}")
    wanted = PUBLISHED[dims[3]].beta_c
    sites, plaquettes = prod(dims), 6 * prod(dims)
    model = FIRST_ORDER._replace(s=FIRST_ORDER.s * sqrt(sites / 1024), e_0=0.42 * plaquettes)
    shift = wanted - model.peak()[0]
    moved = model._replace(
        name="x".join(map(str, dims)), beta_0=model.beta_0 + shift, low=model.low + shift, high=model.high + shift
    )
    return SimulatedLattice(dims, moved, max(round((dims[0] / 8) ** 2), 1))


class Machine(NamedTuple):
    """What lanes there are: how many, how fast by share of them, how often they fail."""

    lanes: int
    sites_per_s: float = SITES_PER_S
    speeds: tuple[tuple[float, float], ...] = ((0.7, 1.0), (0.3, 0.6))
    """Shares of lanes and their speeds: GPUs of two generations."""
    failures: float = FAILURES_PER_HOUR
    messages: bool = True
    wide: bool = True
    """Whether a lane runs many chains at once."""

    def speeds_of(self, rng: np.random.Generator) -> Floats:
        """Return the speed of every lane in sites per second, stragglers among them."""
        shares = np.array([share for share, _ in self.speeds])
        kinds = np.arange(self.lanes) / self.lanes
        speed = np.array([speed for _, speed in self.speeds])[np.searchsorted(np.cumsum(shares), kinds, side="right")]
        slow = rng.uniform(size=self.lanes) < (STRAGGLERS if self.failures else 0.0)
        return np.asarray(self.sites_per_s * speed / np.where(slow, STRAGGLING, 1.0))

    def message(self, rng: np.random.Generator) -> float:
        """Return how long the next message takes."""
        if not self.messages:
            return 0.0
        return SLOW_MESSAGE_S if rng.uniform() < SLOW_MESSAGES else MESSAGE_S


class RowSource:
    """Rows of chains of a model, as a lattice would give them: drawn for many chains together, handed out one by one.

    The loop has a phase besides, which no observable sees: its columns then have the digits that real ones have.
    """

    def __init__(self, lattice: SimulatedLattice, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 22])
        self._chains = ExactChains(lattice.model, self._rng)
        self._plaquettes = 6 * prod(lattice.dims)
        self._number: dict[str, int] = {}
        self._rows: dict[str, Floats] = {}

    def open(self, chain: str, beta: float, start: str) -> None:
        """Begin a chain, where there is none of this name."""
        if chain not in self._number:
            self._number[chain] = self._chains.add(beta, start)
            self._rows[chain] = np.empty((3, 0))

    def take(self, chain: str, rows: int) -> Floats:
        """Return the next rows of a chain: plaquette, Re L and Im L."""
        while self._rows[chain].shape[1] < rows:
            self._fill(name for name, there in self._rows.items() if there.shape[1] < BUFFERED // 2 or name == chain)
        there = self._rows[chain]
        self._rows[chain] = there[:, rows:]
        return there[:, :rows]

    def _fill(self, names: Iterable[str]) -> None:
        wanting = list(names)
        plaquette, loop, _ = self._chains.advance([self._number[name] for name in wanting], BUFFERED)
        angle = self._rng.normal(0.0, 0.3, size=loop.shape)
        energy = (1 - plaquette) * PLAQUETTES
        drawn = np.stack([1 - energy / self._plaquettes, loop * np.cos(angle), loop * np.sin(angle)])
        for k, name in enumerate(wanting):
            self._rows[name] = np.concatenate([self._rows[name], drawn[:, :, k]], axis=1)
