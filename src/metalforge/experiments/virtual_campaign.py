"""A campaign in miniature: a steerer asks, a source draws, the steerer is told, until the budget of updates is spent.

Every steerer lives by the same rules. A point at a beta it has asked before goes on with the chain there; a new one
starts a chain, whose warm-up is paid. A block is a 64th of the budget, at least 250 updates; what is left at the end
is spent on a shorter one. The final beta_c is `locate` on all rows; a run in which it cannot say stays
in, with the place of the largest susceptibility and no error.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.campaign.physics.selection import observe
from metalforge.campaign.physics.series import PointSeries
from metalforge.campaign.physics.transition import NotLocated, locate
from metalforge.core.steering import Steerer

from .drawing import RowSource

__all__ = ["Rules", "VirtualOutcome", "joined", "run_campaign"]

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
    near: float = float("inf")
    """Distance from beta_c within which rows are counted in `VirtualOutcome.near`."""

    @property
    def block(self) -> int:
        """Updates between two decisions."""
        return max(SHORTEST_BLOCK, self.budget // BLOCKS)


class VirtualOutcome(NamedTuple):
    """beta_c and its error; what was spent, on how many chains, and how many rows of it are near beta_c.

    When the data did not say, the error is None and beta_c the place of the largest measured susceptibility.
    """

    spent: int
    chains: int
    beta_c: float
    error: float | None
    near: int = 0


class _Running(NamedTuple):
    beta: float
    blocks: list[PointSeries]
    cost: int


def run_campaign(steerer: Steerer, source: RowSource, rules: Rules, seed: int) -> VirtualOutcome:
    """Return beta_c after the budget is spent, or before if the steerer has no more to ask for."""
    chains: list[_Running] = []
    spent = 0
    while suggestions := steerer.ask(1):
        beta = suggestions[0].beta
        number = next((i for i, chain in enumerate(chains) if abs(chain.beta - beta) < SAME), len(chains))
        fresh = number == len(chains)
        warmup = rules.warmup if fresh else 0
        updates = min(rules.block, rules.budget - spent - warmup)
        if updates < SHORTEST_LAST:
            break
        if fresh:
            chains.append(_Running(beta, [], 0))
        chain = chains[number]
        chain.blocks.append(source.draw(beta, updates, chain=number))
        chains[number] = chain._replace(cost=chain.cost + warmup + updates)
        spent += warmup + updates
        seen = observe(joined(chain.blocks), id=f"chain-{number}", cost=float(chains[number].cost))
        if seen is not None:
            # The tape's beta is up to half its spacing away; the steerer hears of the one it asked for.
            steerer.tell([msgspec.structs.replace(seen, beta=beta)])
    series = [joined(chain.blocks) for chain in chains]
    beta_c, error = _located(series, rules, seed)
    near = sum(one.plaquette.size for one in series if abs(one.beta - beta_c) <= rules.near)
    return VirtualOutcome(spent, len(chains), beta_c, error, near)


def _located(series: Sequence[PointSeries], rules: Rules, seed: int) -> tuple[float, float | None]:
    try:
        peak = locate(series, seed=seed, n_bootstrap=rules.n_bootstrap)
    except NotLocated:
        return max(series, key=lambda one: float(np.var(one.order))).beta, None
    return peak.beta_c, peak.error


def joined(blocks: Sequence[PointSeries]) -> PointSeries:
    """Return consecutive blocks of one chain as one series."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    plaquette = np.concatenate([block.plaquette for block in blocks])
    polyakov = np.concatenate([block.polyakov for block in blocks])
    observable = None if first.observable is None else np.concatenate([block.order for block in blocks])
    return first._replace(plaquette=plaquette, polyakov=polyakov, observable=observable)
