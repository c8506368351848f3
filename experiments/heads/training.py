r"""Readouts of all heads from one reservoir: chains with labels go in, a network with a head layout comes out.

The state is carried along every chain; a head sees [s; u], the state and the inputs, and is a ridge of its own:

    w = argmin sum_t (y_t - base(x_t) - w x_t - b)^2 + ridge |w|^2         over the rows where the head has a label

with `ridge` chosen by leaving out clusters, all chains of a coupling on a lattice at a time, in `FOLDS` parts. `base`
is the curve over the scaled coupling where that beats a constant on clusters left out: the head is then the residual to
it, and the curve travels with the head. Sigmoid and softmax heads are fitted to scores of +-2, whose least squares are
4 (p - 1/2), the tangent of the logit; what was said of the clusters left out fixes a slope and an offset by the
logarithmic loss (J. Platt, 1999), which go into the readout. Others are fitted in the units of their activation.

The base is piecewise linear between knots at equal shares of the values that occur, a least squares fit that is
smoothed by its second differences. Beyond its ends it is constant.
"""

from collections.abc import Sequence
from dataclasses import replace as with_fields
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from scipy.optimize import minimize

from metalforge.conductor.features import SCHEMA
from metalforge.conductor.shipped import CONDUCTOR_11, PEAK
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.core.schema import FeatureSchema, HeadBase, HeadLayout, HeadSpec
from metalforge.core.threads import one_thread
from metalforge.reservoir.activations import activation
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.readout import NormalEquations, Readout
from metalforge.reservoir.training import collect
from metalforge.reservoir.weights import EsnWeights, Ranges

from .labels import TRAJECTORIES, Example, label_of

KNOTS = 16
SMOOTH = 1e-3
"""Weight of squared second differences, for every row."""


def in_own_unit(feature: str, inputs: Doubles) -> Doubles:
    """Return a feature of inputs (rows, features) in its own unit."""
    place = [f.name for f in SCHEMA.features].index(feature)
    return np.asarray(inputs[:, place] * SCHEMA.features[place].scale + SCHEMA.features[place].offset)


def curve_at(curve: HeadBase, inputs: Doubles) -> Doubles:
    """Return a curve's values for inputs (rows, features)."""
    at, values = zip(*curve.knots, strict=True)
    return np.asarray(np.interp(in_own_unit(curve.feature, inputs), at, values))


def fit_curve_over(feature: str, inputs: Doubles, labels: Doubles, *, knots: int = KNOTS) -> HeadBase:
    """Return the curve over a feature that is nearest to labels of rows of inputs."""
    x = in_own_unit(feature, inputs)
    at = np.unique(np.quantile(np.unique(x), np.linspace(0, 1, knots)))
    if len(at) < 2:
        return HeadBase(feature=feature, knots=((float(at[0]), float(labels.mean())),))
    i = np.clip(np.searchsorted(at, x, side="right") - 1, 0, len(at) - 2)
    share = np.clip((x - at[i]) / (at[i + 1] - at[i]), 0.0, 1.0)
    matrix, right = np.zeros((len(at), len(at))), np.zeros(len(at))
    for a, wa in ((i, 1 - share), (i + 1, share)):
        np.add.at(right, a, wa * labels)
        for b, wb in ((i, 1 - share), (i + 1, share)):
            np.add.at(matrix, (a, b), wa * wb)
    bend = np.diff(np.eye(len(at)), 2, axis=0)
    values = np.linalg.solve(matrix + SMOOTH * len(x) * bend.T @ bend + 1e-9 * np.eye(len(at)), right)
    return HeadBase(feature=feature, knots=tuple((float(a), float(v)) for a, v in zip(at, values, strict=True)))


RIDGES = tuple(10.0**k for k in range(-1, 6))
UNITS = 128
FOLDS = 8
LEAST_ACROSS = 1e3
"""The least ridge of the peak's head, which is left out by N_t: a few are too few to choose a smaller one by."""
BASE = "x"
"""The feature that bases are curves over: the scaled coupling."""


class HeadFit(NamedTuple):
    """How a head was fitted: its ridge, the rows it had, and its error on clusters left out.

    `error` is the mean square in units of the targets' variance, `noise` its root in the head's own unit (of the
    probability for classes).
    """

    ridge: float
    rows: int
    error: float
    noise: float


Fitted: TypeAlias = tuple[EsnWeights, dict[str, HeadFit]]
"""A network with heads, and how each of them was fitted; heads without labels have no fit."""


def reservoir(seed: int = 1, units: int = UNITS, *, features: FeatureSchema = SCHEMA, **scales: float) -> EsnWeights:
    """Return a reservoir in float32 whose inputs are the features of a frame; by default the conductor's."""
    usual = {"leak": 0.3, "spectral_radius": 0.9, "input_scaling": 0.3, "bias_scaling": 0.2}
    made: dict[str, Any] = {"seed": seed, "connectivity": 1.0, "features": features} | usual | scales
    return make_esn(units, len(features), dtype=np.float32, **made)


def train_heads(examples: Sequence[Example], *, weights: EsnWeights, layout: HeadLayout = CONDUCTOR_11) -> Fitted:
    """Return the network with every head of the layout fitted to the chains that have its label."""
    inputs = [example.inputs.astype(weights.dtype) for example in examples]
    seen = [np.asarray(x, np.float64) for x, _ in collect(weights, inputs, passthrough=True)]
    return fit_heads(examples, seen, weights=_calibrated(weights, seen), layout=layout)


def _calibrated(weights: EsnWeights, seen: Sequence[Doubles]) -> EsnWeights:
    """Return the network with the ranges that a device needs: the largest inputs of these chains, states as bounded."""
    states, inputs = (
        max((float(np.abs(x[:, part]).max()) for x in seen), default=0.0) or 1.0
        for part in (slice(weights.units), slice(weights.units, None))
    )
    return with_fields(weights, ranges=Ranges(inputs, activation(weights.activation).bound or states))


def fit_heads(
    examples: Sequence[Example], seen: Sequence[Doubles], *, weights: EsnWeights, layout: HeadLayout = CONDUCTOR_11
) -> Fitted:
    """Return the network with heads fitted to `seen`, one array (frames, units + inputs) a chain.

    Where the states come from another substrate, these are its own: the readout is refitted to them.
    """
    if not examples:
        raise SpecError("heads are fitted to chains. Got none")
    width = seen[0].shape[1]
    w_out, bias = np.zeros((layout.width, width)), np.zeros(layout.width)
    fits: dict[str, HeadFit] = {}
    heads = []
    for head in layout.heads:
        # Hundreds of small factorisations: threads would spend their time waiting for each other.
        with one_thread():
            fitted = _fit_head(head, examples, seen) if head.available else None
        made = head
        if fitted is not None:
            rows = layout.span(head.name)
            readout, fits[head.name], base = fitted
            w_out[rows], bias[rows] = readout.w_out, readout.out_bias
            made = msgspec.structs.replace(head, base=msgspec.UNSET if base is None else base)
        heads.append(msgspec.structs.replace(made, trained=fitted is not None))
    marked = msgspec.structs.replace(layout, heads=tuple(heads))
    dtype = weights.dtype
    return weights.with_readout(w_out.astype(dtype), bias.astype(dtype), passthrough=True, heads=marked), fits


def label_rows(example: Example, head: str) -> Doubles:
    """Return a head's label for every frame, NaN where there is none, as on sweeps for a head of trajectories."""
    name = label_of(head)
    values = example.labels.get(name)
    moves = "hmc" if head in TRAJECTORIES else "heatbath"
    if values is None or example.entry.algorithm != moves or (name == "phase" and example.ambiguous):
        return np.full(len(example.inputs), np.nan)
    return values


class _Group(NamedTuple):
    """All rows of one cluster that have a head's label."""

    x: Doubles
    inputs: Doubles
    label: Doubles


def _groups(head: HeadSpec, examples: Sequence[Example], seen: Sequence[Doubles]) -> list[_Group]:
    """Return the rows with labels, in `FOLDS` parts that share no cluster, or one for each N_t."""
    labels = [label_rows(example, head.name) for example in examples]
    taken = [i for i, label in enumerate(labels) if np.isfinite(label).any()]
    # Clusters in order of their coupling are dealt out in turn: every part has some of every lattice.
    clusters = sorted({examples[i].entry.place for i in taken})
    fold = {cluster: k % FOLDS for k, cluster in enumerate(clusters)}
    extents = sorted({cluster[0][3] for cluster in clusters})
    if label_of(head.name) == PEAK and len(extents) > 1:
        # It is used on lattices of an N_t that is not in the corpus, so it must learn what holds for an N_t left out.
        fold = {cluster: extents.index(cluster[0][3]) for cluster in clusters}
    parts: dict[int, list[_Group]] = {}
    for i in taken:
        example, known = examples[i], np.isfinite(labels[i])
        group = _Group(seen[i][known], example.inputs[known], labels[i][known])
        parts.setdefault(fold[example.entry.place], []).append(group)
    return [_Group(*(np.concatenate(column) for column in zip(*part, strict=True))) for part in parts.values()]


def _base(groups: Sequence[_Group]) -> list[HeadBase] | None:
    """Return the curve without each part, and that of all; None where a constant is better on parts left out."""
    curves, errors = [], np.zeros(2)
    for i, group in enumerate(groups):
        others = [part for k, part in enumerate(groups) if k != i]
        inputs, label = (np.concatenate([getattr(part, name) for part in others]) for name in ("inputs", "label"))
        curve = fit_curve_over(BASE, inputs, label)
        curves.append(curve)
        for k, said in enumerate((curve_at(curve, group.inputs), label.mean())):
            errors[k] += float(np.sum((group.label - said) ** 2))
    everything = (np.concatenate([getattr(part, name) for part in groups]) for name in ("inputs", "label"))
    return [*curves, fit_curve_over(BASE, *everything)] if errors[0] < errors[1] else None


def _fit_head(
    head: HeadSpec, examples: Sequence[Example], seen: Sequence[Doubles]
) -> tuple[Readout, HeadFit, HeadBase | None] | None:
    """Return a head's readout; None where fewer than two clusters have its label, or all labels are alike."""
    groups = _groups(head, examples, seen)
    across = label_of(head.name) == PEAK
    ridges = [ridge for ridge in RIDGES if ridge >= (LEAST_ACROSS if across else 0.0)]
    label = np.concatenate([group.label for group in groups]) if groups else np.zeros(0)
    if len(groups) < 2 or np.ptp(label) == 0:
        return None
    curves = _base(groups) if head.activation == "identity" and head.width == 1 else None

    def residual(group: _Group, part: int) -> Doubles:
        # The base of a part that is left out must not have seen it, nor may the readout fitted to the residual.
        return group.label if curves is None else group.label - curve_at(curves[part], group.inputs)

    def sums(part: int, groups: Sequence[_Group]) -> NormalEquations:
        rows = [NormalEquations.of([(g.x, _score(head, residual(g, part))[:, None])]) for g in groups]
        return reduce(NormalEquations.merge, rows)

    guesses = np.zeros((len(ridges), len(label)))
    start = 0
    for i, group in enumerate(groups):
        others = [part for k, part in enumerate(groups) if k != i]
        for j, readout in enumerate(sums(i, others).solve(ridges)):
            guesses[j, start : start + len(group.x)] = readout(group.x)[:, 0]
        start += len(group.x)
    left = np.concatenate([residual(group, i) for i, group in enumerate(groups)])
    errors = ((guesses - _score(head, left)) ** 2).mean(axis=1) / max(float(_score(head, label).var()), 1e-12)
    best = int(np.argmin(errors))
    readout = sums(-1, groups).solve([ridges[best]])[0]
    slope, offset = 1.0, 0.0
    said = head.offset + head.scale * (np.maximum(guesses[best], 0) if head.activation == "relu" else guesses[best])
    said = said + label - left
    if head.activation in ("sigmoid", "softmax"):
        slope, offset = _platt(guesses[best], label)
        said = 1 / (1 + np.exp(-(slope * guesses[best] + offset)))
    fit = HeadFit(ridges[best], len(label), float(errors[best]), float(np.sqrt(np.mean((said - label) ** 2))))
    spread = _spread(head, slope * readout.w_out, slope * readout.out_bias + offset, readout.ridge)
    return spread, fit, None if curves is None else curves[-1]


def _score(head: HeadSpec, label: Doubles) -> Doubles:
    if head.activation in ("sigmoid", "softmax"):
        return np.asarray(4 * (label - 0.5))
    return np.asarray((label - head.offset) / head.scale)


def _spread(head: HeadSpec, w_out: Doubles, bias: Doubles, ridge: float) -> Readout:
    """Return the readout of a head's outputs; of two classes each takes half of the score, with its own sign."""
    if head.width == 1:
        return Readout(w_out=w_out, out_bias=bias, ridge=ridge)
    if head.activation != "softmax" or head.width != 2:
        raise SpecError(f"head `{head.name}`: only softmax heads of two classes, and heads of one output, are trained")
    signs = np.array([-0.5, 0.5])
    return Readout(w_out=signs[:, None] * w_out, out_bias=signs * bias[0], ridge=ridge)


def _platt(score: Doubles, label: Doubles) -> tuple[float, float]:
    """Return slope (not negative) and offset of the least logarithmic loss."""

    def loss(at: Doubles) -> tuple[float, Doubles]:
        z = at[0] * score + at[1]
        residual = 1 / (1 + np.exp(-np.clip(z, -50, 50))) - label
        value = float(np.mean(np.logaddexp(0, z) - label * z)) + 1e-4 * float(at @ at)
        return value, np.array([np.mean(residual * score), np.mean(residual)]) + 2e-4 * at

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0, 20), (-20, 20)])
    return float(found.x[0]), float(found.x[1])
