"""The stages of the streaming QCD graph: chains that can be steered, a screen on the NPU, a cross-check, a steerer."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from metalforge.lattice import Chain, ChainSpec, GaugeField, measure
from metalforge.pipeline import END, Source, Stage
from metalforge.substrates.npu import CompiledLinear, EmulatedDevice, Encoding, compile_linear


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
    """A heat-bath chain; a suggestion that comes back changes beta, and `warmup` updates at a new one do not count."""

    chain: int = 0
    extent: int = 4
    updates: int = 50
    beta: float = 5.5
    warmup: int = 10

    def init(self) -> dict[str, Any]:
        return {"n": 0, "beta": self.beta, "loops": [], "chain": None}

    def produce(self, state: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        if state["n"] == self.updates:
            return state, END
        chain = state["chain"]
        if chain is None or chain.spec.beta != state["beta"]:  # a new beta continues from the old links
            field = None if chain is None else chain.field
            chain = self._chain(state["beta"], stream=1000 * self.chain + state["n"], field=field)
        chain.update()
        state = {**state, "n": state["n"] + 1, "chain": chain}
        if chain.step <= self.warmup:
            return state, None
        seen = measure(chain.field)
        state["loops"] = loops = [*state["loops"][-7:], abs(seen.polyakov)]
        chi = self.extent**3 * float(np.var(loops))
        links = chain.field.copy()
        return state, Trajectory(self.chain, state["n"] - 1, state["beta"], seen.plaquette, loops[-1], chi, links)

    def step(self, state: dict[str, Any], item: Suggestion) -> tuple[dict[str, Any], None]:
        return ({**state, "beta": item.beta, "loops": []} if item.beta != state["beta"] else state), None

    def state(self, state: dict[str, Any]) -> dict[str, Any]:
        """As plain data, for a checkpoint or another process: the links, and where the chain is."""
        chain = state["chain"]
        if chain is None:
            return state
        plain = {"beta": chain.spec.beta, "stream": chain.spec.stream, "step": chain.step}
        return {**state, "chain": {**plain, "links": chain.field.to_links()}}

    def restore(self, saved: dict[str, Any]) -> dict[str, Any]:
        plain = saved["chain"]
        if plain is None:
            return saved
        field = GaugeField.from_links(plain["links"], threads=1)
        chain = self._chain(plain["beta"], stream=plain["stream"], field=field)
        chain.step = plain["step"]
        return {**saved, "chain": chain}

    def _chain(self, beta: float, *, stream: int, field: GaugeField | None) -> Chain:
        dims = (self.extent, self.extent, self.extent, 4)
        return Chain(ChainSpec(dims=dims, beta=beta, seed=7, stream=stream), field=field, threads=1)


EQUILIBRIUM = (0.5529, 0.2107, -0.2379)
"""The mean plaquette near beta = 5.7 on N_t = 4 as a + b (beta - 5.7) + c (beta - 5.7)^2: a fit to chains of 4^3x4 and
6^3x4 at 5.4, 5.5 ... 6.0 with 150 updates each. It is within 0.006 of them; configurations scatter by up to 0.015."""


@dataclass
class Screen(Stage[Trajectory, Trajectory]):
    """Pass on what is in equilibrium at its beta, as a linear layer on the NPU sees it; the state is (passed, refused).

    The layer has 12-bit inputs and three base-15 digits a weight; it gives the distance of the plaquette from its mean.
    """

    tolerance: float = 0.06

    def bind(self, substrate: Any) -> None:
        profile = "akd1000-published" if substrate is None else substrate.info.properties["cost_profile"]
        self._device = EmulatedDevice(profile)
        self._layer = self._compiled()
        self._device.load(self._layer.program)

    def _compiled(self) -> CompiledLinear:
        weights = [[1.0, *(-c for c in EQUILIBRIUM)]]
        encoding = Encoding(activation_bits=12, digits=3, signed="zero_point")
        return compile_linear("equilibrium", weights, encoding=encoding, ranges=[1.0, 1.0, 0.4, 0.16])

    def init(self) -> tuple[int, int]:
        return 0, 0

    def step(self, state: tuple[int, int], item: Trajectory) -> tuple[tuple[int, int], Trajectory | None]:
        x = item.beta - 5.7
        seen = [[item.plaquette, 1.0, x, x * x]]
        distance = self._layer.run(seen, lambda program, rows: self._device.infer(rows))[0, 0]
        passed, refused = state
        if abs(distance) > self.tolerance:
            return (passed, refused + 1), None
        return (passed + 1, refused), item

    def close(self) -> None:
        self._device.close()


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


@dataclass(frozen=True)
class Checked:
    """How far two measurements of one configuration are apart."""

    chain: int
    number: int
    difference: float


def check_precision(item: Trajectory) -> Checked:
    """Measure the plaquette again, by NumPy and in single precision; raises where the two do not agree."""
    again = plaquette(item.links.to_links().astype(np.complex64))
    difference = abs(again - item.plaquette)
    if difference > 1e-5:
        raise ValueError(f"the plaquette is {item.plaquette} by the kernel and {again} by NumPy in single precision")
    return Checked(item.chain, item.number, difference)


def plaquette(links: np.ndarray) -> float:
    """Return <Re tr P> / 3 of links of shape (Nt, Nz, Ny, Nx, 4, 3, 3)."""

    def ahead(mu: int, nu: int) -> np.ndarray:
        return links[..., mu, :, :] @ np.roll(links[..., nu, :, :], -1, axis=3 - mu)

    planes = [(mu, nu) for mu in range(4) for nu in range(mu)]
    loops = [np.einsum("...ij,...ij->...", ahead(mu, nu), ahead(nu, mu).conj()).real.mean() for mu, nu in planes]
    return float(np.mean(loops) / 3)
