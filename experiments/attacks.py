r"""Attacks on classifiers of sequences: inputs and a network go in, perturbed inputs come out.

Attacks by slopes or by questions, and a control: perturbed sequences u', |u' - u| <= epsilon in every number.

    fgsm           u' = u + epsilon sign(dL/du)                                       (I. Goodfellow et al., ICLR 2015)
    pgd            u' <- clip(u' + step sign(dL/du'), u - epsilon, u + epsilon), many times, from several starts
                                                                                      (A. Madry et al., ICLR 2018)
    random_signs   u' = u + epsilon times fair coins: the size of an attack without its direction

A loss of accuracy is the attack's only as far as it exceeds that of `random_signs`. `epsilon` is a number, or an array
that broadcasts to `u`: 0 where nothing may change, such as the rest before a short sequence.

`square_attack` is a random search that asks for scores only, after the Square attack, for sequences.
(M. Andriushchenko, F. Croce, N. Flammarion, M. Hein, "Square attack", ECCV 2020.) Every number is always moved by
+epsilon or -epsilon. The start has one sign for each input line through all of time, their stripes. Each query then
gives new signs, one per line, to a block: neighbouring steps, and lines chosen at random, as lines have no neighbours.
What raises the margin stays. The block's share of a sequence shrinks on their schedule.

It needs no slopes, so that nothing which hides slopes can hold it off: where it does better than an attack by slopes,
these were masked (A. Athalye et al., 2018; F. Croce, M. Hein, 2020).

The class is read from the last state, z = W_out s_T + b_out, wherever that state was computed. Losses, a sequence:

    cross_entropy   -log softmax(z)_y
    margin          max over k != y of z_k, less z_y: above 0 the attack has won (N. Carlini, D. Wagner, 2017)

Slopes go through the float twin (`effective_weights`), which has the network's own weights after rounding, at the
states that the substrate really had: exact in software, the best known estimate on a device. A slope through the
weights before rounding points the wrong way where four bits changed them much; an attack that stops there would credit
rounding with hiding. These weights are what the chip multiplies with, and a network in software with them tells apart
what rounded weights do (they are another network) from what rounded states do.

The recursion of `reservoir.gradient` goes back through states that came from anywhere. Where they are the network's own
in float this is the exact gradient. Where a device with rounding made them, the derivative of rounding is zero almost
everywhere and tells an attacker nothing; taking it for one, at the states that the device really had, is the
straight-through estimate (Y. Bengio, N. Leonard, A. Courville, "Estimating or propagating gradients through stochastic
neurons", 2013; as an attack, A. Athalye, N. Carlini, D. Wagner, "Obfuscated gradients give a false sense of security",
ICML 2018).
"""

import math
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from metalforge.core.arrays import Reals
from metalforge.core.errors import SpecError, require_at_least, require_known
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import INPUT_LEVELS, NativeLayer
from metalforge.hybrid.routing.jobs import LEVELS
from metalforge.reservoir.gradient import backwards
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.ladder import group_ranges

Labels: TypeAlias = NDArray[np.integer[Any]]
Objective: TypeAlias = Literal["cross_entropy", "margin"]


def effective_weights(esn: HybridEsn) -> EsnWeights:
    """Return the float network of a substrate: in software its own, on a device with the device's weights.

    In native mode its activation is the bounded ReLU, and a unit's weights and bias are larger by what the chip lost
    when it cut the unit's step to sixteenths.
    """
    if esn.mode == "software":
        return esn.weights
    return _native(esn) if esn.mode == "hardware-native" else _linear(esn)


def _linear(esn: HybridEsn) -> EsnWeights:
    """Ask the path: a line at the end of its range is on the grid of any encoding, so the answers are its weights."""
    weights, ranges = esn.weights, esn.ranges
    assert esn.path is not None  # a network on a device has one
    inputs, units, dtype = weights.inputs, weights.units, weights.dtype
    w_in = esn.path(ranges.u * np.eye(inputs), np.zeros((inputs, units))).T / ranges.u
    w_res = esn.path(np.zeros((units, inputs)), ranges.s * np.eye(units)).T / ranges.s
    return replace(weights, w_in=w_in.astype(dtype), w_res=w_res.astype(dtype))


def _native(esn: HybridEsn) -> EsnWeights:
    weights, inputs, dtype = esn.weights, esn.weights.inputs, esn.weights.dtype
    assert esn.path is not None  # a network on a device has one
    layer = esn.path.blocks[0].product
    assert isinstance(layer, NativeLayer)
    gain = 1 / (LEVELS * layer.quantized.scales * layer.step)
    line_units = group_ranges((inputs, esn.ranges.u / INPUT_LEVELS), (weights.units, 1 / LEVELS))
    lines = gain[:, np.newaxis] * layer.quantized.dequantize() / line_units
    return replace(
        weights,
        activation="bounded_relu",
        w_in=lines[:, :inputs].astype(dtype),
        w_res=lines[:, inputs:].astype(dtype),
        bias=(gain * weights.bias).astype(dtype),
    )


def input_slope(weights: EsnWeights, u: Reals, states: Reals, last: Reals) -> Reals:
    """Return dL/du (series, steps, inputs) from dL/ds of the last states (series, units), all series from rest.

    `u` is (series, steps, inputs) and `states` (series, steps, units): those after each step, on whatever substrate.
    """
    if weights.w_fb is not None:
        raise SpecError("slopes in the inputs are for networks without output feedback")
    if states.shape != (*u.shape[:2], weights.units) or last.shape != (len(u), weights.units):
        raise SpecError(
            f"`states` must be {(*u.shape[:2], weights.units)} and `last` {(len(u), weights.units)}. "
            f"Got {states.shape} and {last.shape}"
        )
    before, slope = np.zeros_like(states), np.zeros_like(states)
    before[:, 1:], slope[:, -1] = states[:, :-1], last
    _, _, deltas, _ = backwards(weights, u, before, slope)
    return np.asarray(deltas @ weights.w_in)


class Victim:
    """A trained network on its substrate. `queries` counts the sequences it was shown, the attacker's bill."""

    def __init__(self, esn: HybridEsn, *, name: str = "") -> None:
        if esn.weights.outputs < 2:
            raise SpecError(
                f"a classifier has a readout of two classes or more. Got {esn.weights.outputs}\nhint: refit(esn, task)"
            )
        self.esn = esn
        self.name = name or f"{esn.mode} {esn.precision or esn.weights.dtype}"
        self.queries = 0
        self.twin: EsnWeights = effective_weights(esn)
        """The float network whose derivatives are taken."""

    def scores(self, u: Reals) -> Reals:
        """Return scores (series, classes) of sequences (series, steps, inputs)."""
        return self._read(u, self._states(u))

    def predict(self, u: Reals) -> NDArray[np.int64]:
        """Return the class of each sequence."""
        return np.asarray(self.scores(u).argmax(axis=1), np.int64)

    def loss(self, u: Reals, labels: Labels, objective: Objective = "margin") -> Reals:
        """Return the loss of each sequence, without slopes: as an attacker without access to the network sees it."""
        return _loss(self.scores(u), self._checked(u, labels), objective)[0]

    def loss_and_slope(self, u: Reals, labels: Labels, objective: Objective = "cross_entropy") -> tuple[Reals, Reals]:
        """Return the loss of each sequence (series,) and its slope in that sequence (series, steps, inputs)."""
        labels = self._checked(u, labels)
        states = self._states(u)
        losses, in_scores = _loss(self._read(u, states), labels, objective)
        twin = self.twin
        assert twin.w_out is not None  # checked when the victim was made
        seen = in_scores @ twin.w_out
        slope = input_slope(twin, u, states, seen[:, : twin.units])
        if twin.passthrough:
            slope[:, -1] += seen[:, twin.units :]
        return losses, slope

    def _states(self, u: Reals) -> Reals:
        if u.ndim != 3 or u.shape[2] != self.esn.weights.inputs or 0 in u.shape:
            raise SpecError(f"`u` must be (series, steps, {self.esn.weights.inputs}), not empty. Got {u.shape}")
        self.queries += len(u)
        return self.esn.states(u)

    def _read(self, u: Reals, states: Reals) -> Reals:
        return self.esn.weights.output(states[:, -1], np.asarray(u[:, -1], self.esn.weights.dtype))

    def _checked(self, u: Reals, labels: Labels) -> Labels:
        classes = self.esn.weights.outputs
        if labels.dtype.kind not in "iu" or labels.shape != (len(u),) or labels.min() < 0 or labels.max() >= classes:
            raise SpecError(
                f"`labels` must be {len(u)} whole numbers of 0 .. {classes - 1}. Got {labels.dtype} {labels.shape}"
            )
        return labels


def _loss(scores: Reals, labels: Labels, objective: Objective) -> tuple[Reals, Reals]:
    """Return losses (series,) and their slopes in the scores (series, classes)."""
    require_known("objective", objective, get_args(Objective))
    rows = np.arange(len(labels))
    right = np.zeros_like(scores)
    right[rows, labels] = 1
    if objective == "cross_entropy":
        logs = log_softmax(scores, axis=1)
        return -logs[rows, labels], np.exp(logs) - right
    others = np.where(right > 0, -np.inf, scores)
    rival = others.argmax(axis=1)
    slope = -right
    slope[rows, rival] += 1
    return others[rows, rival] - scores[rows, labels], slope


Size: TypeAlias = float | Reals
SIGNS = np.array([-1.0, 1.0])
STEP = 2.5
"""Madry et al.: steps add up to 2.5 epsilon, so that every point of the cube can be reached from every other."""


def fgsm(victim: Victim, u: Reals, labels: Labels, epsilon: Size, *, objective: Objective = "cross_entropy") -> Reals:
    """Return sequences one step of the slope's sign away."""
    size = checked_epsilon(u, epsilon)
    _, slope = victim.loss_and_slope(u, labels, objective)
    return np.asarray(u + size * np.sign(slope))


def pgd(
    victim: Victim,
    u: Reals,
    labels: Labels,
    epsilon: Size,
    *,
    steps: int = 20,
    restarts: int = 2,
    seed: int = 0,
    objective: Objective = "margin",
) -> Reals:
    """Return, for each sequence, the one of largest loss met in `restarts` projected climbs of `steps` steps.

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
        for _ in range(steps):
            losses, slope = victim.loss_and_slope(at, labels, objective)
            _keep(best, best_loss, at, losses)
            at = np.clip(at + STEP / steps * size * np.sign(slope), low, high)
        _keep(best, best_loss, at, victim.loss(at, labels, objective))
    return best


def random_signs(u: Reals, epsilon: Size, *, seed: int = 0) -> Reals:
    """Return sequences with every number moved by epsilon, up or down by a coin."""
    size = checked_epsilon(u, epsilon)
    return np.asarray(u + size * np.random.default_rng(seed).choice(SIGNS.astype(u.dtype), u.shape))


def checked_epsilon(u: Reals, epsilon: Size) -> Reals:
    """Return the size of a perturbation for every number of `u`; raises unless it can be one."""
    size = np.asarray(epsilon, u.dtype)
    if not np.all((size >= 0) & (size < np.inf)):
        raise SpecError(f"`epsilon` must be 0 or more, and finite. Got {epsilon}")
    try:
        return np.broadcast_to(size, u.shape)
    except ValueError:
        raise SpecError(f"`epsilon` must be a number, or broadcast to {u.shape}. Got shape {size.shape}") from None


def _keep(best: Reals, best_loss: Reals, found: Reals, losses: Reals) -> None:
    """Take over what is better, sequence by sequence."""
    better = losses > best_loss
    best[better], best_loss[better] = found[better], losses[better]


HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Where, in parts of the budget, the share is halved: the paper's 10, 50, 200, ... of 10 000 queries."""
SHARE = 0.8
"""Of a sequence, that the first block has."""


def square_attack(
    victim: Victim, u: Reals, labels: Labels, epsilon: Size, *, queries: int = 200, seed: int = 0
) -> Reals:
    """Return perturbed sequences after at most `queries` questions for each; a sequence once misread is left alone."""
    size = checked_epsilon(u, epsilon)
    require_at_least(1, queries=queries)
    rng, coin = np.random.default_rng(seed), SIGNS.astype(u.dtype)
    n, steps, inputs = u.shape
    at: Reals = u + size * rng.choice(coin, (n, 1, inputs))
    best = victim.loss(at, labels)
    for query in range(1, queries):
        active = np.flatnonzero(best <= 0)
        if not len(active):
            break
        part = math.sqrt(SHARE / 2 ** sum(query / queries > h for h in HALVINGS))
        tried = at[active]
        long, wide = max(1, round(part * steps)), max(1, round(part * inputs))
        begin = rng.integers(0, steps - long + 1, len(active))
        lines = np.argsort(rng.uniform(size=(len(active), inputs)), axis=1)[:, :wide]
        signs = rng.choice(coin, (len(active), wide))
        rows = np.arange(len(active))[:, None, None]
        times = (begin[:, None] + np.arange(long))[:, :, None]
        block = rows, times, lines[:, None, :]
        tried[block] = u[active][block] + size[active][block] * signs[:, None, :]
        losses = victim.loss(tried, labels[active])
        better = losses > best[active]
        at[active[better]], best[active[better]] = tried[better], losses[better]
    return at
