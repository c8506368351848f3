r"""Training of the whole network, in software: windows of a stream go in, other weights come out, by exact gradients.

Gradients are those of `reservoir.gradient`, backpropagation through time over the window; the state goes on from window
to window (truncated where one ends). Steps are plain, or Adam's:

    m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   w -= rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

(D. P. Kingma, J. Ba, arXiv:1412.6980.) Gradients longer than `clip` are shortened to it. `push` gives the result to a
network on a device, requantised: its readout, and its reservoir if that was trained.
"""

from dataclasses import replace
from typing import Literal, TypeAlias, get_args

import numpy as np

from metalforge.core import Array, Reals, SpecError, find, require_known
from metalforge.hybrid.running.device_matrix import Push
from metalforge.reservoir import DivergenceError, EsnWeights, Gradients, LossName, check_loss, loss_gradient, to_dense

from .network import DeviceNetwork, master_of

Part: TypeAlias = Literal["w_in", "w_res", "bias", "w_fb", "w_out", "out_bias"]
DECAY = (0.9, 0.999)
"""Adam's b1 and b2, as its authors have them."""
SMALL = 1e-8
"""Adam's eps."""


class BackpropagationTrainer:
    """Trains `parts` of a network with a dense recurrent matrix (a sparse one becomes dense, its zeros stay zero)."""

    def __init__(
        self,
        weights: EsnWeights,
        *,
        rate: float,
        loss: LossName = "mse",
        parts: tuple[Part, ...] = ("w_in", "w_res", "bias", "w_out", "out_bias"),
        optimiser: Literal["plain", "adam"] = "adam",
        clip: float | None = 1.0,
    ) -> None:
        check_loss(loss)
        master_of(weights)  # raises without a readout
        if not 0 < rate < float("inf") or (clip is not None and not clip > 0):
            raise SpecError(f"`rate` and `clip` must be positive numbers. Got {rate} and {clip}")
        require_known("optimiser", optimiser, ("plain", "adam"))
        known = {part: getattr(weights, part) for part in get_args(Part) if getattr(weights, part) is not None}
        for part in parts:
            find("part of the network", part, known)
        self._connected = None if isinstance(weights.w_res, np.ndarray) else to_dense(weights.w_res) != 0
        self.weights = replace(weights, w_res=to_dense(weights.w_res))
        """The network as trained so far."""
        self.loss, self.rate, self.parts, self.optimiser, self.clip = loss, rate, parts, optimiser, clip
        self._first: dict[str, Reals] = {}
        self._second: dict[str, Reals] = {}
        self._steps = 0
        self._state = np.zeros(weights.units, weights.dtype)

    def reset(self) -> None:
        """Begin the next window from rest."""
        self._state = np.zeros(self.weights.units, self.weights.dtype)

    def step(self, inputs: Reals, targets: Array, *, washout: int = 0) -> float:
        """Return the loss on a window, (steps, inputs) and (steps - washout, outputs), and learn it.

        Classes, (steps - washout,) whole numbers, are targets of cross-entropy too.
        """
        value, found = loss_gradient(self.weights, inputs, targets, loss=self.loss, washout=washout, state=self._state)
        self._state = found.end
        self._descend(found)
        return value

    def push(self, network: DeviceNetwork) -> tuple[Push, Push | None]:
        """Give the weights to a device, those of the reservoir where any of them is trained; return both pushes."""
        trained = {"w_in", "w_res", "bias", "w_fb"} & set(self.parts)
        inner = network.push_reservoir(self.weights) if trained else None
        return network.push(*master_of(self.weights)), inner

    def _descend(self, slopes: Gradients) -> None:
        found = {part: np.asarray(getattr(slopes, part)) for part in self.parts}
        if self._connected is not None and "w_res" in found:
            found["w_res"] = np.where(self._connected, found["w_res"], 0)
        length = float(np.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in found.values())))
        if not np.isfinite(length):
            raise DivergenceError(
                "backpropagation diverged: its gradient is not finite\nhint: a smaller rate, or `clip`"
            )
        shrink = 1.0 if self.clip is None or length <= self.clip else self.clip / length
        self._steps += 1
        changed = {
            part: np.asarray(getattr(self.weights, part) - self._move(part, shrink * g), self.weights.dtype)
            for part, g in found.items()
        }
        self.weights = replace(self.weights, **changed)  # type: ignore[arg-type]  # by name

    def _move(self, part: str, slope: Reals) -> Reals:
        if self.optimiser == "plain":
            return np.asarray(self.rate * slope)
        b1, b2 = DECAY
        first = self._first[part] = b1 * self._first.get(part, np.zeros_like(slope)) + (1 - b1) * slope
        second = self._second[part] = b2 * self._second.get(part, np.zeros_like(slope)) + (1 - b2) * slope**2
        size = np.sqrt(second / (1 - b2**self._steps)) + SMALL
        return np.asarray(self.rate * first / (1 - b1**self._steps) / size)
