"""Many chains of one lattice, moved together where the engine can: a GPU needs thirty at once to be busy.

Each chain is what it would be alone, bit for bit. What sweeps and trajectories are must be the same for all of them;
couplings, seeds and streams are each chain's own.
"""

from collections.abc import Sequence
from typing import NamedTuple

from metalforge.core.errors import SpecError
from metalforge.native.engine import Batch, BatchEngine, BatchRow, ChainPlace, Sweeps, Trajectory

from .chain import Chain, UpdateInfo
from .integrators import scheme
from .observables import Observables, observables_of


class BatchUpdate(NamedTuple):
    """What an update of one chain did, and what was measured after it."""

    info: UpdateInfo
    observed: Observables


class ChainBatch:
    """Chains that are updated and measured together.

    `start` asks for updates and returns while they run, `collect` gives their results. In between the chains belong to
    the batch; `bring_back` (after `collect`) puts their links into their fields, for whoever saves or measures them.
    """

    def __init__(self, chains: Sequence[Chain]) -> None:
        if not chains:
            raise SpecError("a batch needs at least one chain. Got none")
        self.chains = list(chains)
        first = self.chains[0]
        wanted = _kind(first)
        for chain in self.chains[1:]:
            if _kind(chain) != wanted:
                raise SpecError(f"chains of a batch must be of one kind, {wanted}. Got {_kind(chain)}")
        engine = first.field.engine
        self._batch: Batch | None = None
        if isinstance(engine, BatchEngine) and first.spec.fermions is None:
            self._batch = engine.batch(first.field.dims, first.field.precision, len(self.chains))
        self._started = 0
        self._alone: list[list[BatchUpdate]] = []
        self.take_up()

    def __len__(self) -> int:
        return len(self.chains)

    def take_up(self) -> None:
        """Take the chains as they are now: their links, steps and couplings."""
        if self._batch is not None:
            for n, chain in enumerate(self.chains):
                self._batch.place(n, _place(chain), chain.field.links)

    def couple(self) -> None:
        """Take the couplings that the chains have now (`Chain.hold`); their links stay where they are."""
        if self._batch is not None:
            for n, chain in enumerate(self.chains):
                self._batch.place(n, _place(chain))

    def start(self, updates: int, *, accept_always: bool = False) -> None:
        """Ask for so many updates of every chain; they run while the caller does something else."""
        if self._batch is None:
            self._alone += [[_updated(chain, accept_always) for chain in self.chains] for _ in range(updates)]
            return
        self._batch.start(_plan(self.chains[0], accept_always), updates)
        self._started += updates

    def collect(self) -> list[list[BatchUpdate]]:
        """Wait for what was started, and return it: of each update, what every chain did."""
        if self._batch is None:
            done, self._alone = self._alone, []
            return done
        rows, self._started = self._batch.rows(), 0
        return [[_result(chain, row) for chain, row in zip(self.chains, update, strict=True)] for update in rows]

    def run(self, updates: int, *, accept_always: bool = False) -> list[list[BatchUpdate]]:
        """Move every chain by so many updates, and return what each of them did."""
        self.start(updates, accept_always=accept_always)
        return self.collect()

    def bring_back(self) -> None:
        """Put the links of the chains into their fields."""
        if self._started:
            raise SpecError(f"{self._started} updates of the batch are not collected: their chains are still moving")
        if self._batch is not None:
            for n, chain in enumerate(self.chains):
                self._batch.fetch(n, chain.field.links)


def _kind(chain: Chain) -> tuple[object, ...]:
    """What chains of a batch have in common."""
    spec = chain.spec
    update = spec.hmc if spec.has_trajectories else spec.heatbath
    return chain.field.engine.name, tuple(spec.dims), spec.precision, spec.algorithm, update, spec.action, spec.fermions


def _place(chain: Chain) -> ChainPlace:
    return ChainPlace(chain.spec.beta, chain.spec.seed, chain.spec.stream, chain.step)


def _plan(chain: Chain, accept_always: bool) -> Sweeps | Trajectory:
    spec = chain.spec
    if not spec.has_trajectories:
        return Sweeps(spec.heatbath.heatbath, spec.heatbath.overrelax)
    stages = scheme(spec.hmc.integrator).stages(spec.hmc.tau, spec.hmc.n_steps)
    kernel = chain.action.kernel
    action = None if kernel is None else (kernel[0], tuple(float(c) for c in kernel[1]))
    return Trajectory(tuple(float(x) for x in stages.reshape(-1)), action, accept_always)


def _result(chain: Chain, row: BatchRow) -> BatchUpdate:
    """Move a chain's count on by an update that the batch made."""
    chain.step += 1
    info = UpdateInfo(step=chain.step)
    if chain.spec.has_trajectories:
        info = UpdateInfo(step=chain.step, accepted=bool(row.accepted), delta_h=row.delta_h)
    return BatchUpdate(info, observables_of(chain.field, row[:2], complex(row.polyakov_re, row.polyakov_im)))


def _updated(chain: Chain, accept_always: bool) -> BatchUpdate:
    return BatchUpdate(chain.update(accept_always=accept_always), chain.measure())
