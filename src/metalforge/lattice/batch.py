"""Many chains of one lattice, moved together where the engine can: a GPU needs thirty at once to be busy.

Each chain is what it would be alone, bit for bit. What sweeps and trajectories are must be the same for all of them;
couplings, seeds and streams are each chain's own.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from metalforge.core import SpecError
from metalforge.native import Batch, BatchEngine, ChainPlace, Sweeps, Trajectory

from .chain import Chain
from .integrators import scheme
from .observables import COLUMNS, Columns, measure


class ChainBatch:
    """Chains that are updated and measured together.

    `start` asks for updates and returns while they run, `collect` gives what was observed. In between the chains belong
    to the batch; `bring_back` (after `collect`) puts their links into their fields, for whoever saves or measures them.
    """

    def __init__(self, chains: Sequence[Chain]) -> None:
        if not chains:
            raise SpecError("a batch needs at least one chain. Got none")
        first = chains[0]
        self.kind = kind_of(first)
        engine = first.field.engine
        self._batch: Batch | None = None
        if isinstance(engine, BatchEngine) and first.spec.fermions is None:
            self._batch = engine.batch(first.field.dims, first.field.precision, len(chains))
        self._started = 0
        self._alone: list[list[dict[str, float]]] = [[] for _ in chains]
        """Rows that are not collected, where the engine has no batches."""
        self.chains = list(chains)
        self.take_up()

    def take_up(self, chains: Sequence[Chain] | None = None) -> None:
        """Take chains as they are now, links, steps and couplings: those of the batch, or as many others in place."""
        others = self.chains if chains is None else list(chains)
        if len(others) != len(self.chains):
            raise SpecError(f"this batch has room for {len(self.chains)} chains. Got {len(others)}")
        for chain in others:
            if kind_of(chain) != self.kind:
                raise SpecError(f"chains of a batch must be of one kind, {self.kind}. Got {kind_of(chain)}")
        self.chains = others
        if self._batch is not None:
            places = [ChainPlace(one.spec.beta, one.spec.seed, one.spec.stream, one.step) for one in others]
            self._batch.place(places, [chain.field.links for chain in others])

    def start(self, updates: int, *, accept_always: bool = False) -> None:
        """Ask for so many updates of every chain; they run while the caller does something else."""
        if self._batch is None:
            for chain, rows in zip(self.chains, self._alone, strict=True):
                rows += (_updated(chain, accept_always) for _ in range(updates))
            return
        self._batch.start(_plan(self.chains[0], accept_always), updates)
        self._started += updates

    def collect(self) -> list[Columns]:
        """Wait for what was started, and return what every chain gave: its observables, a number per update."""
        if self._batch is None:
            made, self._alone = self._alone, [[] for _ in self.chains]
            return [{name: [row[name] for row in rows] for name in (rows[0] if rows else ())} for rows in made]
        table, self._started = np.moveaxis(self._batch.rows(), 2, 0), 0
        field = self.chains[0].field
        spatial, temporal = (sums / (3 * field.volume) for sums in table[:2])
        loops = table[2:4] / field.spatial_volume
        values = [(spatial + temporal) / 2, spatial, temporal, *loops]
        names = COLUMNS[:5]
        if self.chains[0].spec.has_trajectories:
            names, values = (*names, *COLUMNS[5:]), [*values, *table[4:6]]
        for chain in self.chains:
            chain.step += table.shape[1]
        by_chain = [found.T.tolist() for found in values]
        return [dict(zip(names, columns, strict=True)) for columns in zip(*by_chain, strict=True)]

    def run(self, updates: int, *, accept_always: bool = False) -> list[Columns]:
        """Move every chain by so many updates, and return what each chain gave."""
        self.start(updates, accept_always=accept_always)
        return self.collect()

    def bring_back(self) -> None:
        """Put the links of the chains into their fields."""
        if self._started:
            raise SpecError(f"{self._started} updates of the batch are not collected: their chains are still moving")
        if self._batch is not None:
            for n, chain in enumerate(self.chains):
                self._batch.fetch(n, chain.field.links)


def kind_of(chain: Chain) -> tuple[object, ...]:
    """Return what chains of a batch have in common."""
    spec = chain.spec
    update = spec.hmc if spec.has_trajectories else spec.heatbath
    return chain.field.engine.name, tuple(spec.dims), spec.precision, spec.algorithm, update, spec.action, spec.fermions


def _plan(chain: Chain, accept_always: bool) -> Sweeps | Trajectory:
    spec = chain.spec
    if not spec.has_trajectories:
        return Sweeps(spec.heatbath.heatbath, spec.heatbath.overrelax)
    stages = scheme(spec.hmc.integrator).stages(spec.hmc.tau, spec.hmc.n_steps)
    kernel = chain.action.kernel
    action = None if kernel is None else (kernel[0], tuple(float(c) for c in kernel[1]))
    return Trajectory(tuple(float(x) for x in stages.reshape(-1)), action, accept_always)


def _updated(chain: Chain, accept_always: bool) -> dict[str, float]:
    """Make an update of a chain alone, and return its observables."""
    info = chain.update(accept_always=accept_always)
    row: dict[str, float] = msgspec.structs.asdict(measure(chain.field))
    if info.accepted is not None and info.delta_h is not None:
        row |= {"delta_h": info.delta_h, "accepted": float(info.accepted)}
    return row
