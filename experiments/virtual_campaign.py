"""A campaign in miniature: a steerer asks, a source draws, the steerer is told, until the budget of updates is spent.

Every steerer lives by the same rules. A point at a beta it has asked before goes on with the chain there; a new one
starts a chain, whose warm-up is paid. A block is a 64th of the budget, at least 250 updates; what is left at the end
is spent on a shorter one. The final beta_c is `locate` on all rows; a run in which it cannot say stays
in, with the place of the largest susceptibility and no error.

Rows come from a tape, `source.draw(beta, updates, chain=key)`, which is made once: long chains on a grid of beta, each
an independent Markov chain, warmed up and then measured after every update, rows (plaquette, Re L, Im L). They are kept
in single precision, 1e-3 of a unit of E, far below anything that reweighting sees. The first draw for a key starts a
chain at a random place of the recording nearest in beta, read in a circle from there on. Another seed gives other rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.analysis.selection import observe
from metalforge.campaign.analysis.series import PointSeries
from metalforge.campaign.analysis.transition import locate
from metalforge.core.errors import SpecError
from metalforge.core.steering import Steerer
from metalforge.lattice.campaign.series import loop_series
from metalforge.lattice.chain import Chain, ChainSpec
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp
from metalforge.native.engine import Dims
from metalforge.statistics import NotLocated

from .cache import cached_arrays
from .protocol import spread

Rows: TypeAlias = NDArray[np.float32]
Start: TypeAlias = Literal["hot", "cold"]
TAPED = ("plaquette", "polyakov_re", "polyakov_im")


def sweeping(spec: ChainSpec, *, warmup: int = 0, observed: tuple[str, ...] = TAPED) -> ChainRun:
    """Return a chain of sweeps on one core, with a row of what is `observed` after every update."""
    return ChainRun(Chain(spec, threads=1), WarmUp(total=warmup), observed, measures=("measure",))


class TapeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chains of a tape: beta in ascending order and how many updates are measured at each."""

    dims: Dims
    betas: tuple[float, ...]
    updates: tuple[int, ...]
    warmup: int = 500
    seed: int = 2026
    starts: tuple[Start, ...] = ("cold", "hot")
    """Taken in turn: a tape that remembered its starts would show it between neighbours."""

    def __post_init__(self) -> None:
        if not self.betas or len(self.betas) != len(self.updates) or list(self.betas) != sorted(set(self.betas)):
            raise SpecError("a tape needs ascending `betas` and one number of `updates` for each")
        if min(self.updates) < 1 or self.warmup < 0:
            raise SpecError("a tape needs at least one update at each beta, and no negative `warmup`")


class Tape(NamedTuple):
    """The rows of every chain, (updates, 3), in the order of the spec's beta."""

    spec: TapeSpec
    rows: tuple[Rows, ...]

    @property
    def series(self) -> list[PointSeries]:
        """Every chain as a series."""
        return [_as_series(b, self.spec.dims, rows) for b, rows in zip(self.spec.betas, self.rows, strict=True)]


@lru_cache(maxsize=1)
def tape_of(name: str, spec: TapeSpec, here: bool) -> Tape:
    """Return a tape, from the cache if it was made before; else made here, or by a process per core."""

    def make() -> dict[str, NDArray[np.float64]]:
        chains = spread(partial(_recorded, spec), range(len(spec.betas)), here=here)
        return {f"chain{i:04d}": rows for i, rows in enumerate(chains)}

    stored = cached_arrays(name, spec, make)
    return Tape(spec, tuple(stored[f"chain{i:04d}"].astype(np.float32) for i in range(len(spec.betas))))


def _recorded(spec: TapeSpec, i: int) -> NDArray[np.float64]:
    start = spec.starts[i % len(spec.starts)]
    chain = ChainSpec(dims=spec.dims, beta=spec.betas[i], seed=spec.seed, stream=i, start=start)
    return sweeping(chain, warmup=spec.warmup).measure(spec.updates[i])


def _as_series(beta: float, dims: Dims, rows: Rows) -> PointSeries:
    wide = rows.astype(np.float64)
    return loop_series(beta, dims, wide[:, 0], wide[:, 1] + 1j * wide[:, 2])


class TapeSource:
    """Draws consecutive rows of a tape, each chain from a random start."""

    def __init__(self, tape: Tape, seed: int) -> None:
        self.tape = tape
        self._betas = np.array(tape.spec.betas)
        self._rng = np.random.default_rng([seed, 77])
        self._place: dict[int, tuple[int, int]] = {}

    def draw(self, beta: float, updates: int, *, chain: int) -> PointSeries:
        """Return the next rows of the recording nearest in beta."""
        if chain not in self._place:
            nearest = int(np.abs(self._betas - beta).argmin())
            self._place[chain] = nearest, int(self._rng.integers(len(self.tape.rows[nearest])))
        nearest, start = self._place[chain]
        rows = self.tape.rows[nearest]
        if updates > len(rows):
            raise SpecError(
                f"the tape holds {len(rows)} rows at beta = {self._betas[nearest]:g}. Got a request for {updates}"
                "\nhint: make a longer tape"
            )
        self._place[chain] = nearest, (start + updates) % len(rows)
        drawn = rows[(start + np.arange(updates)) % len(rows)]
        return _as_series(float(self._betas[nearest]), self.tape.spec.dims, drawn)


BLOCKS = 64
"""Blocks in a budget: enough decisions to steer by, few enough that warm-up does not eat them."""
SHORTEST_BLOCK = 250
"""Updates in a block, at least: ten autocorrelation times at the transition, less says nothing to decide by."""
SHORTEST_LAST = 50
"""Updates of a last block that are worth drawing."""
SAME = 1e-9
"""Two asked beta closer than this are one chain."""


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be spent, in updates with warm-up included, and what a new chain costs before its first row."""

    budget: int
    warmup: int = 150
    n_bootstrap: int = 50

    @property
    def block(self) -> int:
        """Updates between two decisions."""
        return max(SHORTEST_BLOCK, self.budget // BLOCKS)

    @property
    def fresh_cost(self) -> float:
        """What a block of a new chain costs over one of an old chain."""
        return (self.warmup + self.block) / self.block


class VirtualOutcome(NamedTuple):
    """beta_c and its error; what was spent, and on how many chains.

    When the data did not say, the error is None and beta_c the place of the largest measured susceptibility.
    """

    spent: int
    chains: int
    beta_c: float
    error: float | None


@dataclass(slots=True)
class _Running:
    beta: float
    blocks: list[PointSeries] = field(default_factory=list)
    cost: int = 0


def run_campaign(steerer: Steerer, source: TapeSource, rules: Rules, seed: int) -> VirtualOutcome:
    """Return beta_c after the budget is spent, or before if the steerer has no more to ask for."""
    chains: list[_Running] = []
    spent = 0
    while suggestions := steerer.ask(1):
        beta = suggestions[0].coordinate
        number = next((i for i, chain in enumerate(chains) if abs(chain.beta - beta) < SAME), len(chains))
        fresh = number == len(chains)
        warmup = rules.warmup if fresh else 0
        updates = min(rules.block, rules.budget - spent - warmup)
        if updates < SHORTEST_LAST:
            break
        if fresh:
            chains.append(_Running(beta))
        chain = chains[number]
        chain.blocks.append(source.draw(beta, updates, chain=number))
        chain.cost += warmup + updates
        spent += warmup + updates
        seen = observe(_joined(chain.blocks), id=f"chain-{number}", cost=float(chain.cost))
        if seen is not None:
            # The tape's beta is up to half its spacing away; the steerer hears of the one it asked for.
            steerer.tell([msgspec.structs.replace(seen, coordinate=beta)])
    series = [_joined(chain.blocks) for chain in chains]
    beta_c, error = _located(series, rules, seed)
    return VirtualOutcome(spent, len(chains), beta_c, error)


def _located(series: Sequence[PointSeries], rules: Rules, seed: int) -> tuple[float, float | None]:
    try:
        peak = locate(series, seed=seed, n_bootstrap=rules.n_bootstrap)
    except NotLocated:
        return max(series, key=lambda one: float(np.var(one.order))).coordinate, None
    return peak.result, peak.error


def _joined(blocks: Sequence[PointSeries]) -> PointSeries:
    """Return consecutive blocks of one chain as one series."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    energy, order = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("energy", "order"))
    return first._replace(energy=energy, order=order)
