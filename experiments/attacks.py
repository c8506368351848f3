r"""Attacks on classifiers of sequences, and their control: perturbed sequences u', |u' - u| <= epsilon in every number.

    pgd            u' <- clip(u' + step sign(dL/du'), u - epsilon, u + epsilon), many times, from several starts
                                                                                      (A. Madry et al., ICLR 2018)
    random_signs   u' = u + epsilon times fair coins: the size of an attack without its direction

A loss of accuracy is the attack's only as far as it exceeds that of `random_signs`. `epsilon` is a number, or an array
that broadcasts to `u`: 0 where nothing may change, such as the rest before a short sequence.

The class is read from the last state, z = W_out s_T + b_out, wherever that state was computed. The loss of a sequence
is the margin, max over k != y of z_k, less z_y: above 0 the attack has won (N. Carlini, D. Wagner, 2017).

Slopes go through the float twin (`effective_weights`), which has the network's own weights after rounding, at the
states that the substrate really had. In software this is the exact gradient. The derivative of rounding is zero almost
everywhere and tells an attacker nothing; taking it for one is the straight-through estimate (Y. Bengio, N. Leonard,
A. Courville, 2013; as an attack, A. Athalye, N. Carlini, D. Wagner, ICML 2018). A slope through the weights before
rounding points the wrong way where four bits changed them much; an attack that stops there would credit rounding with
hiding.
"""

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.arrays import Reals
from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.reservoir.gradient import backwards
from metalforge.reservoir.weights import EsnWeights

Labels: TypeAlias = NDArray[np.integer[Any]]
Size: TypeAlias = float | Reals
STEP = 2.5
"""Madry et al.: steps add up to 2.5 epsilon, so that every point of the cube can be reached from every other."""


def effective_weights(esn: HybridEsn) -> EsnWeights:
    """Return the float network of a substrate: in software its own, on a device with the device's weights."""
    weights, ranges = esn.weights, esn.ranges
    if esn.mode == "software":
        return weights
    if esn.mode == "hardware-native" or esn.path is None:
        raise SpecError(f"slopes are for networks whose activation is on the host. Got {esn.mode}")
    # A line at the end of its range is on the grid of any encoding, so what the path answers are its weights.
    inputs, units, dtype = weights.inputs, weights.units, weights.dtype
    w_in = esn.path(ranges.u * np.eye(inputs), np.zeros((inputs, units))).T / ranges.u
    w_res = esn.path(np.zeros((units, inputs)), ranges.s * np.eye(units)).T / ranges.s
    return replace(weights, w_in=w_in.astype(dtype), w_res=w_res.astype(dtype))


def input_slope(weights: EsnWeights, u: Reals, states: Reals, last: Reals) -> Reals:
    """Return dL/du (series, steps, inputs) from dL/ds of the last states (series, units), all series from rest.

    `u` is (series, steps, inputs) and `states` (series, steps, units): those after each step, on whatever substrate.
    """
    if weights.w_fb is not None:
        raise SpecError("slopes in the inputs are for networks without output feedback")
    before, slope = np.zeros_like(states), np.zeros_like(states)
    before[:, 1:], slope[:, -1] = states[:, :-1], last
    _, _, deltas, _ = backwards(weights, u, before, slope)
    return np.asarray(deltas @ weights.w_in)


class Victim:
    """A trained classifier on its substrate; `twin` is the float network whose derivatives are taken."""

    def __init__(self, esn: HybridEsn) -> None:
        if esn.weights.outputs < 2:
            raise SpecError(
                f"a classifier has a readout of two classes or more. Got {esn.weights.outputs}\nhint: refit(esn, task)"
            )
        self.esn, self.twin = esn, effective_weights(esn)

    def scores(self, u: Reals) -> Reals:
        """Return scores (series, classes) of sequences (series, steps, inputs)."""
        return self._read(u, self._states(u))

    def predict(self, u: Reals) -> NDArray[np.int64]:
        """Return the class of each sequence."""
        return np.asarray(self.scores(u).argmax(axis=1), np.int64)

    def loss(self, u: Reals, labels: Labels) -> Reals:
        """Return the margin of each sequence, without slopes: as an attacker without access to the network sees it."""
        return self._margin(self.scores(u), labels)[0]

    def loss_and_slope(self, u: Reals, labels: Labels) -> tuple[Reals, Reals]:
        """Return the margin of each sequence (series,) and its slope in that sequence (series, steps, inputs)."""
        states, twin = self._states(u), self.twin
        losses, in_scores = self._margin(self._read(u, states), labels)
        assert twin.w_out is not None  # checked when the victim was made
        seen = in_scores @ twin.w_out
        slope = input_slope(twin, u, states, seen[:, : twin.units])
        if twin.passthrough:
            slope[:, -1] += seen[:, twin.units :]
        return losses, slope

    def _states(self, u: Reals) -> Reals:
        if u.ndim != 3 or u.shape[2] != self.esn.weights.inputs or 0 in u.shape:
            raise SpecError(f"`u` must be (series, steps, {self.esn.weights.inputs}), not empty. Got {u.shape}")
        return self.esn.states(u)

    def _read(self, u: Reals, states: Reals) -> Reals:
        return self.esn.weights.output(states[:, -1], np.asarray(u[:, -1], self.esn.weights.dtype))

    def _margin(self, scores: Reals, labels: Labels) -> tuple[Reals, Reals]:
        """Return margins (series,) and their slopes in the scores (series, classes)."""
        n, classes = scores.shape
        if labels.dtype.kind not in "iu" or labels.shape != (n,) or labels.min() < 0 or labels.max() >= classes:
            raise SpecError(
                f"`labels` must be {n} whole numbers of 0 .. {classes - 1}. Got {labels.dtype} {labels.shape}"
            )
        rows, slope = np.arange(n), np.zeros_like(scores)
        slope[rows, labels] = -1
        others = np.where(slope < 0, -np.inf, scores)
        rival = others.argmax(axis=1)
        slope[rows, rival] += 1
        return others[rows, rival] - scores[rows, labels], slope


def pgd(
    victim: Victim, u: Reals, labels: Labels, epsilon: Size, *, steps: int = 20, restarts: int = 2, seed: int = 0
) -> Reals:
    """Return, for each sequence, the one of largest margin met in `restarts` projected climbs of `steps` steps.

    The first climb starts at `u`, the others at random points of the cube. No climb stops early when a sequence is
    misread: one that is misread by far is misread by other models too, and transfer is what is asked here.
    """
    size = checked_epsilon(u, epsilon)
    if steps < 1 or restarts < 1:
        raise SpecError(f"`steps` and `restarts` must be 1 or more. Got {steps} and {restarts}")
    rng = np.random.default_rng(seed)
    low, high = u - size, u + size
    best, best_loss = u.copy(), np.full(len(u), -np.inf)
    for restart in range(restarts):
        at = u.copy() if restart == 0 else np.clip(u + size * rng.uniform(-1, 1, u.shape).astype(u.dtype), low, high)
        for step in range(steps + 1):
            losses, slope = victim.loss_and_slope(at, labels)
            better = losses > best_loss
            best[better], best_loss[better] = at[better], losses[better]
            if step < steps:
                at = np.clip(at + STEP / steps * size * np.sign(slope), low, high)
    return best


def random_signs(u: Reals, epsilon: Size, *, seed: int = 0) -> Reals:
    """Return sequences with every number moved by epsilon, up or down by a coin."""
    size = checked_epsilon(u, epsilon)
    return np.asarray(u + size * np.random.default_rng(seed).choice(np.array([-1.0, 1.0], u.dtype), u.shape))


def checked_epsilon(u: Reals, epsilon: Size) -> Reals:
    """Return the size of a perturbation for every number of `u`; raises unless it can be one."""
    size = np.asarray(epsilon, u.dtype)
    if not np.all((size >= 0) & (size < np.inf)):
        raise SpecError(f"`epsilon` must be 0 or more, and finite. Got {epsilon}")
    try:
        return np.broadcast_to(size, u.shape)
    except ValueError:
        raise SpecError(f"`epsilon` must be a number, or broadcast to {u.shape}. Got shape {size.shape}") from None
