"""The stages of the streaming QCD graph: chains that can be steered, a screen, a cross-check, a steerer."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from metalforge.lattice import Chain, ChainSpec, GaugeField, measure
from metalforge.pipeline import END, Source, Stage


@dataclass(frozen=True)
class Trajectory:
    """One update of a chain: scalars, which filters see, and the links, which move only if somebody wants them."""

    chain: int
    number: int
    beta: float
    plaquette: float
    polyakov: float
    chi: float
    links: GaugeField


@dataclass(frozen=True)
class Suggestion:
    """Where to look next."""

    beta: float


@dataclass
class Producer(Source[Trajectory]):
    """A Markov chain on its own substrate; a suggestion that comes back changes beta for the updates after it."""

    chain: int = 0
    extent: int = 4
    updates: int = 50
    beta: float = 5.5

    def init(self) -> dict[str, Any]:
        return {"n": 0, "beta": self.beta, "loops": [], "chain": None}

    def produce(self, state: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        if state["n"] == self.updates:
            return state, END
        chain = state["chain"]
        if chain is None or chain.spec.beta != state["beta"]:  # a new beta continues from the old links
            dims = (self.extent, self.extent, self.extent, 4)
            spec = ChainSpec(dims=dims, beta=state["beta"], seed=7, stream=1000 * self.chain + state["n"])
            chain = Chain(spec, field=None if chain is None else chain.field, threads=1)
        chain.update()
        seen = measure(chain.field)
        loops = [*state["loops"][-7:], abs(seen.polyakov)]
        chi = self.extent**3 * float(np.var(loops))
        made = Trajectory(self.chain, state["n"], state["beta"], seen.plaquette, loops[-1], chi, chain.field.copy())
        return {"n": state["n"] + 1, "beta": state["beta"], "loops": loops, "chain": chain}, made

    def step(self, state: dict[str, Any], item: Suggestion) -> tuple[dict[str, Any], None]:
        return {**state, "beta": item.beta, "loops": []}, None


def screen(item: Trajectory) -> Trajectory:
    """Pass on what looks like a gauge field; the network of a campaign would stand here."""
    return item


@dataclass
class Steer(Stage[Trajectory, Suggestion]):
    """Widen the search around the beta with the largest susceptibility so far; the state is (beta, chi) of the best."""

    low: float = 5.4
    high: float = 6.0

    def init(self) -> tuple[int, float, float]:
        return 0, (self.low + self.high) / 2, 0.0

    def step(self, state: tuple[int, float, float], item: Trajectory) -> tuple[tuple[int, float, float], Any]:
        n, best, chi = state
        if item.chi > chi:
            best, chi = item.beta, item.chi
        offset = (0.1, -0.1, 0.0)[n // 8 % 3] * (self.high - self.low)
        beta = min(max(round(best + offset, 4), self.low), self.high)
        return (n + 1, best, chi), Suggestion(beta) if n % 8 == 7 else None


def check_precision(item: Trajectory) -> float:
    """Return what the same measurement in other hands would have to agree with: the plaquette, recomputed."""
    return abs(measure(item.links).plaquette - item.plaquette)
