"""Simulated campaigns without time: the planner, evidence and stop rule of a real one, on chains of an exact model.

Everything but the chains is what `metalforge scan` runs: the same visits, estimates and rules, over a journal that is
kept in memory. Many campaigns are rehearsed at once, so that their chains move together.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import count
from typing import Literal, NamedTuple, cast

import msgspec
import numpy as np

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.findings import target_met
from metalforge.campaign.orderings import Assignee
from metalforge.campaign.running.book import Book, Estimator
from metalforge.campaign.running.graph import records_of
from metalforge.campaign.running.orders import Answer, Block, Order, Volley
from metalforge.campaign.running.planner import Planner
from metalforge.campaign.spec import CampaignSpec, Running, Steering
from metalforge.campaign.state import CampaignState, fold
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import Finished, Opened, Record
from metalforge.core.rows import Phase, Segment
from metalforge.lattice.campaign import Lattice

from .exact_model import DIMS, ExactChains, ExactModel, ExactRows

LANES = ("model:0", "model:1")
WARM_UP = 300
"""Rows before measurement: chains of the slower model forget their start in 100."""


class _Memory:
    """A journal that forgets: its state is all that is asked for."""

    def append(self, *records: Record) -> None:
        """Take records."""


def rehearsal_spec(
    model: ExactModel,
    seed: int,
    budget: Mapping[str, float],
    *,
    prior: Literal["off"] | tuple[float, float] = "off",
) -> CampaignSpec:
    """Return the spec of a rehearsal: the defaults of a scan, over the range of the model."""
    base = CampaignSpec(theory=Lattice(volumes=(DIMS,), beta_min=model.low, beta_max=model.high))
    return msgspec.structs.replace(
        base,
        name=model.name,
        seed=seed,
        budget=msgspec.convert(dict(budget), type(base.budget)),
        # A model's peak is where its constants put it, not where the transition curve has that of a lattice.
        steering=Steering(steerer="gaussian-process", prior=prior),
        running=Running(deterministic=True, block=base.steering.visit),
    )


def rehearse(model: ExactModel, specs: Sequence[CampaignSpec], seed: int) -> Iterator[CampaignState]:
    """Give the state of each campaign when it has ended, in the order of the specs."""
    chains = ExactChains(model, np.random.default_rng([seed, 15]))
    running = [_campaign(spec) for spec in specs]
    orders = {i: next(campaign) for i, campaign in enumerate(running)}
    states: dict[int, CampaignState] = {}
    number: dict[tuple[int, str], int] = {}
    while orders:
        asked = [
            _Place(i, order, state.chains[order.chain])
            for i, (state, wanted) in orders.items()
            for _, order in wanted.values()
        ]
        fresh = [place for place in asked if place.key not in number]
        for place in fresh:
            number[place.key] = chains.add(place.log.coordinate, place.log.start)
        warm = chains.advance([number[p.key] for p in fresh], WARM_UP) if fresh else None
        column = {place.key: k for k, place in enumerate(fresh)}
        # The last visit of a budget may be shorter: its chain then goes on unseen, and is not asked for again.
        longest = max(place.order.until - place.log.measured for place in asked)
        measured = chains.advance([number[place.key] for place in asked], longest)
        made: dict[int, dict[int, Block]] = {}
        for k, place in enumerate(asked):
            segments = []
            at = place.log.rows
            if warm is not None and place.key in column:
                segments.append(_segment("warmup", at, warm, column[place.key], WARM_UP))
                at += WARM_UP
            rows = place.order.until - place.log.measured
            segments.append(_segment("measure", at, measured, k, rows))
            visit, chain = place.order.visit, place.log.id
            block = Block(visit=visit, chain=chain, segments=segments, step=at + rows, done=True)
            made.setdefault(place.campaign, {})[visit] = block
        for i in list(orders):
            try:
                orders[i] = running[i].send(made[i])
            except StopIteration as ended:
                states[i] = ended.value
                del orders[i]
    yield from (states[i] for i in range(len(specs)))


class _Place(NamedTuple):
    """A chain that an order moves."""

    campaign: int
    order: Order
    log: ChainLog

    @property
    def key(self) -> tuple[int, str]:
        return self.campaign, self.log.id


_Wanted = dict[int, tuple[str, Order]]
"""By visit: an order, and who has it."""


def _campaign(spec: CampaignSpec) -> Generator[tuple[CampaignState, _Wanted], dict[int, Block], CampaignState]:
    """Give orders, take the blocks that they gave, until the campaign stops; return its state."""
    ticks = count()
    opened = Opened(
        at=0.0, spec=spec, spec_sha256=spec.sha256, package_version="", isa="", command=(), ordering="C", silicon=(),
        python="",
    )  # fmt: skip
    book = Book(cast("Journal", _Memory()), fold([opened]), clock=lambda: float(next(ticks)))
    planner = Planner(
        spec,
        book,
        [Assignee(name, spec.theory.systems) for name in LANES],
        stop=lambda: "target" if target_met(book.state) else None,
        estimate=Estimator(book),
    )
    orders = _to_run(planner, planner.begin())
    while orders:
        made = yield book.state, orders
        done, orders = sorted(orders.items()), {}
        for visit, (substrate, _) in done:
            answer = Answer(substrate=substrate, blocks=[made[visit]])
            book.write(*records_of(answer, made[visit]))
            orders |= _to_run(planner, planner.take(answer))
    stopped = planner.stopped_by or "exhausted"
    book.write(Finished(stopped_by=stopped, trajectories=book.state.trajectories, seconds=0.0))
    return book.state


def _to_run(planner: Planner, volleys: Sequence[Volley]) -> _Wanted:
    """Return the orders that run chains: chains have no lane here and are released at once."""
    wanted: _Wanted = {}
    for volley in volleys:
        for order in volley.orders:
            if order.release:
                free = Block(visit=order.visit, chain=order.chain, held=False, released=True)
                wanted |= _to_run(planner, planner.take(Answer(substrate=volley.substrate, blocks=[free])))
            else:
                wanted[order.visit] = volley.substrate, order
    return wanted


def _segment(phase: Phase, first: int, rows: ExactRows, k: int, count: int) -> Segment:
    plaquette, loop = (column[:count, k] for column in rows)
    columns = {"plaquette": plaquette, "polyakov_re": loop, "polyakov_im": np.zeros_like(loop)}
    return Segment(phase, first, {name: tuple(values.tolist()) for name, values in columns.items()})
