r"""Evolution on the device: a (1 + lambda) strategy over the integers of a matrix, by `set_variable` alone.

A generation scores the parent on the present window of the stream, then each of lambda children: the parent's integers
with a few of them moved,

    q_i <- q_i + d,   d = sign * (1 + floor(|N(0, sigma limit)|)),   clipped to the grid, never the same integer

each entry with probability `rate`, and one at least. A child is written to the device, scored there, and takes the
parent's place if it is no worse (ties move on, as plateaus of a coarse grid want). At the end of a generation the
device holds the new parent: losers are written over. sigma follows the one-fifth rule (I. Rechenberg, 1973): times 1.5
after a success, times 1.5^(-1/4) after a failure.

Nothing is differentiated, so the loss may be anything that the device's outputs decide. Fitness is measured on windows:
the last rows of a stream, and what the network says of them.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Doubles, SpecError, require_at_least, require_shares
from metalforge.reservoir import LossName, SeriesError, check_loss, loss_and_slope

from .network import DeviceNetwork

Integers: TypeAlias = NDArray[np.int64]
GROWTH = 1.5
"""Of sigma after a success; its fourth root after a failure, so that one success in five keeps it."""
SMALLEST_SIGMA = 1e-3


class EvolvedGeneration(NamedTuple):
    """What one generation did: the loss of the parent before and after it, on one window."""

    before: float
    after: float

    @property
    def improved(self) -> bool:
        """Whether a child was better than its parent."""
        return self.after < self.before


class EvolutionInfo(NamedTuple):
    """A run: its generations, and why it ended: `generations` (all were made), or `goal`."""

    generations: tuple[EvolvedGeneration, ...]
    ended: str


def mutate(integers: Integers, limit: int, rate: float, sigma: float, rng: np.random.Generator) -> Integers:
    """Return integers within +-limit of which at least one is another, by the module's rule."""
    chosen = rng.random(integers.shape) < rate
    if not chosen.any():
        chosen.flat[int(rng.integers(chosen.size))] = True
    old = integers[chosen]
    size = 1 + np.floor(np.abs(rng.normal(0, sigma * limit, old.size))).astype(np.int64)
    move = np.where(rng.random(old.size) < 0.5, -size, size)
    # At the edge of the grid the only way is back: clipping there would leave the integer as it was.
    move = np.where((old == limit) & (move > 0) | (old == -limit) & (move < 0), -move, move)
    child = integers.copy()
    child[chosen] = np.clip(old + move, -limit, limit)
    return child


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Rows of a stream: the features that the reservoir made of them, and targets."""

    features: Doubles
    targets: Doubles

    def __post_init__(self) -> None:
        if len(self.features) != len(self.targets) or not len(self.targets):
            raise SeriesError("a window has as many features and targets, and one row at least")
        if not np.all(np.isfinite(self.features)) or not np.all(np.isfinite(self.targets)):
            raise SeriesError("a window must hold finite numbers. Got NaN or infinity")


class StreamWindow:
    """Keeps the last `rows` of a stream that runs through a network."""

    def __init__(self, network: DeviceNetwork, rows: int) -> None:
        require_at_least(1, rows=rows)
        if network.weights.w_fb is not None:
            raise SpecError("a window asks a readout of rows that are past: with output feedback they would be others")
        self._network = network
        self._rows: deque[tuple[Doubles, Doubles]] = deque(maxlen=rows)

    def take(self, u: NDArray[np.floating], target: NDArray[np.floating]) -> Doubles:
        """Let one row run through the reservoir, keep it, and return its features."""
        features = self._network.advance(u)
        self._rows.append((features, np.asarray(target, np.float64)))
        return features

    def window(self) -> Window:
        """Return the rows that are kept."""
        features, targets = zip(*self._rows, strict=True)
        return Window(features=np.stack(features), targets=np.stack(targets))


class Evolution:
    """Evolves the readout of a network on its device.

    With mean squares every candidate gets the bias that suits its window best, on the host, where the bias is: the mean
    of what is left.
    """

    def __init__(
        self,
        network: DeviceNetwork,
        *,
        seed: int,
        children: int = 4,
        rate: float = 0.05,
        sigma: float = 0.1,
        loss: LossName = "mse",
    ) -> None:
        check_loss(loss)
        require_at_least(1, children=children)
        require_shares(rate=rate, sigma=sigma)
        self.children, self.rate, self.sigma = children, rate, sigma
        self.network, self.loss = network, loss
        self.evaluations = self.pushes = self.bytes_pushed = 0
        self._rng = np.random.default_rng(seed)

    @property
    def integers(self) -> Integers:
        """A copy of the parent."""
        return self.network.readout.integers

    def generation(self, window: Window) -> EvolvedGeneration:
        """Return what one generation on a window did; the device holds the better of parent and children after it."""
        parent, bias, limit = self.integers, self.network.master().out_bias, self.network.readout.limit
        first, best_bias = self._score(window)
        least, best = first, parent
        for _ in range(self.children):
            child = mutate(parent, limit, self.rate, self.sigma, self._rng)
            self._write(child, bias)
            found, own_bias = self._score(window)
            if found <= least:
                least, best, best_bias = found, child, own_bias
        self._write(best, best_bias)
        made = EvolvedGeneration(first, least)
        self.sigma = float(np.clip(self.sigma * (GROWTH if made.improved else GROWTH**-0.25), SMALLEST_SIGMA, 1.0))
        return made

    def run(self, window: Window, generations: int, *, goal: float | None = None) -> EvolutionInfo:
        """Return the generations made on a window; ends early when the loss reaches `goal`."""
        require_at_least(1, generations=generations)
        done: list[EvolvedGeneration] = []
        while len(done) < generations:
            done.append(self.generation(window))
            if goal is not None and done[-1].after <= goal:
                return EvolutionInfo(tuple(done), "goal")
        return EvolutionInfo(tuple(done), "generations")

    def _score(self, window: Window) -> tuple[float, Doubles]:
        """Return the loss of what the device holds, and the bias that it is with."""
        self.evaluations += 1
        bias = self.network.master().out_bias
        outputs = self.network.read(window.features)
        if self.loss == "mse":
            # What the device said is with the bias of the host; another bias is another sum.
            shift = (window.targets - outputs).mean(axis=0)
            outputs, bias = outputs + shift, bias + shift
        return loss_and_slope(outputs, window.targets, self.loss).value, bias

    def _write(self, integers: Integers, bias: Doubles) -> None:
        push = self.network.push_integers(integers, bias)
        self.pushes += push.bytes > 0
        self.bytes_pushed += push.bytes
