r"""A classifier of sequences under attack: inputs go in; scores, losses and the losses' slopes in the inputs come out.

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

from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from metalforge.core.arrays import Reals
from metalforge.core.errors import SpecError, require_known
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
