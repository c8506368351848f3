"""Silicon that moves many chains at once, made of this CPU: for what runs above batches, where there is no card."""

import copy

import numpy as np

from metalforge.core import Cost, Discovery, Kind, Modelled, PlacementError, SubstrateInfo
from metalforge.core.errors import DeviceLostError
from metalforge.native.cpu_engine import cpu_engine
from metalforge.substrates import workload
from metalforge.substrates.cpu import CpuSubstrate


class WideEngine:
    """The CPU's kernels under the name of a card, which loses its memory or itself when it is told to."""

    def __init__(self, name="cuda:0", busy_sites=512):
        self._cpu = cpu_engine(threads=1)
        self.name, self.family, self.threads, self.busy_sites = name, self._cpu.family, 1, busy_sites
        self.sizes, self.fits, self.lost_after = [], 1000, None

    def grid(self, dims, precision):
        grid = copy.copy(self._cpu.grid(dims, precision))
        grid.engine = self
        return grid

    def batch(self, dims, precision, chains):
        if chains > self.fits:
            raise PlacementError(f"{self.name} has no room for {chains} chains")
        return WideBatch(self, dims, precision, chains)

    def particles(self, replicas, *room):
        if replicas > self.fits:
            raise PlacementError(f"{self.name} has no room for {replicas} boxes")
        return WideBoxes(self, replicas, self._cpu.particles(replicas, *room))

    def work(self, size, updates):
        """Note that so many move at once; the card is lost when it has made what it was told to."""
        self.sizes.append(size)
        if self.lost_after is not None:
            self.lost_after -= updates
            if self.lost_after < 0:
                raise DeviceLostError(f"{self.name} failed: device unavailable\nhint: none")


class WideBoxes:
    """`ParticleBoxes` of the CPU's."""

    def __init__(self, engine, replicas, boxes):
        self._engine, self._replicas, self._boxes = engine, replicas, boxes

    def advance(self, *state, **looks):
        self._engine.work(self._replicas, 1)
        return self._boxes.advance(*state, **looks)


class WideBatch:
    """A `Batch` of chains that are moved one after the other."""

    def __init__(self, engine, dims, precision, chains):
        self._engine, self._grid = engine, engine.grid(dims, precision)
        self._links = [self._grid.new("links") for _ in range(chains)]
        self._rows = []

    def place(self, chains, links=()):
        self._chains = list(chains)
        for here, there in zip(self._links, links, strict=False):
            self._grid.assign(here, there)

    def fetch(self, number, links):
        self._grid.assign(links, self._links[number])

    def start(self, plan, updates):
        self._engine.work(len(self._links), updates)
        for _ in range(updates):
            self._rows.append([self._updated(n, plan) for n in range(len(self._links))])

    def rows(self):
        rows, self._rows = self._rows, []
        return np.array(rows, np.float64)

    def _updated(self, n, plan):
        grid, links, (beta, seed, stream, step) = self._grid, self._links[n], self._chains[n]
        for sweep in range(plan.heatbath):
            grid.heatbath(links, beta, seed, stream, step * plan.heatbath + sweep + 1, 255)
        for _ in range(plan.overrelax):
            grid.overrelax(links, 255)
        grid.reunitarise(links)
        loop, sums = grid.polyakov(links), grid.plaquette_sums(links)
        self._chains[n] = self._chains[n]._replace(step=step + 1)
        return [*sums, loop.real, loop.imag, 0.0, 0.0]


class WideCard:
    """A substrate with such an engine."""

    def __init__(self, engine):
        self.engine = engine
        needs = workload("lattice_cg").needs
        self.info = SubstrateInfo(kind=Kind.GPU, name=engine.name, model="a card", capabilities=needs)

    def cost(self, workload):
        return Cost(latency=Modelled(value=1e-9, unit="s", profile="test"), unknown="no power")

    def meter(self):
        return CpuSubstrate().meter()

    def open_engine(self, *, threads=None, variant=""):
        if not variant:
            return self.engine
        other = copy.copy(self.engine)
        other.name, other.family = f"{self.engine.name}:{variant}", variant
        return other


def with_cards(monkeypatch, *engines):
    """Let the machine have cards with these engines besides its cores."""
    from metalforge.campaign.running import lanes

    found = Discovery(substrates=(CpuSubstrate(), *(WideCard(engine) for engine in engines)))
    monkeypatch.setattr(lanes, "discover", lambda: found)
