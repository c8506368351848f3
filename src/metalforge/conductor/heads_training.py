r"""Readouts of all heads from one reservoir: chains with labels go in, a network with a head layout comes out.

The state is carried along every chain; a head sees [s; u], the state and the inputs, and is a ridge of its own:

    w = argmin sum_t (y_t - w x_t - b)^2 + ridge |w|^2         over the rows where the head has a label

with `ridge` chosen by leaving out one coupling at a time. Sigmoid and softmax heads are fitted to scores of +-2, whose
least squares are 4 (p - 1/2), the tangent of the logit; the predictions for the couplings that were left out then fix
a slope and an offset by the logarithmic loss (J. Platt, 1999), which go into the readout. Others are fitted in the
units of their activation. What a head said of the couplings that were left out is kept: it is what intervals are
made from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import reduce
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.core.threads import one_thread
from metalforge.reservoir.activations import activation
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.readout import NormalEquations, Readout
from metalforge.reservoir.training import collect
from metalforge.reservoir.weights import EsnWeights, Ranges

from .chains import Doubles
from .features import FEATURES
from .labels import Example
from .layouts import CONDUCTOR_11, LABEL_OF

RIDGES = tuple(10.0**k for k in range(-1, 6))
UNITS = 128


class HeadFit(NamedTuple):
    """How a head was fitted: its ridge, the rows it had, and its error on couplings left out.

    `error` is the mean square in units of the targets' variance, `noise` its root in the head's own unit (of the
    probability for classes).
    """

    ridge: float
    rows: int
    error: float
    noise: float


class LeftOut(NamedTuple):
    """What a head said of rows whose coupling it was not fitted to, and their labels, in the head's unit.

    `chain` is the number of each row's chain among those that were given, `inside` whether its coupling lies between
    others of the same lattice.
    """

    said: Doubles
    label: Doubles
    chain: NDArray[np.int64]
    inside: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A network with heads, and how each of them was fitted; heads without labels are not in `fits`."""

    weights: EsnWeights
    fits: Mapping[str, HeadFit]
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)


def reservoir(seed: int = 1, units: int = UNITS) -> EsnWeights:
    """Return the conductor's reservoir: fifty features in, float32."""
    return make_esn(
        units,
        len(FEATURES),
        seed=seed,
        leak=0.3,
        spectral_radius=0.9,
        connectivity=1.0,
        input_scaling=0.15,
        bias_scaling=0.2,
        dtype=np.float32,
        features=FEATURES,
    )


def without_memory(weights: EsnWeights) -> EsnWeights:
    """Return the same network without recurrence and without leak: every step stands by itself."""
    return with_fields(weights, w_res=np.zeros((weights.units, weights.units), weights.dtype), leak=1.0)


def train_heads(examples: Sequence[Example], *, weights: EsnWeights, layout: HeadLayout = CONDUCTOR_11) -> Trained:
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
) -> Trained:
    """Return the network with heads fitted to `seen`, one array (trajectories, units + inputs) a chain.

    Where the states come from another substrate, these are its own: the readout is refitted to them.
    """
    if not examples:
        raise SpecError("heads are fitted to chains. Got none")
    width = seen[0].shape[1]
    w_out, bias = np.zeros((layout.width, width)), np.zeros(layout.width)
    fits: dict[str, HeadFit] = {}
    left_out: dict[str, LeftOut] = {}
    heads = []
    for head in layout.heads:
        # Hundreds of small factorisations: threads would spend their time waiting for each other.
        with one_thread():
            fitted = _fit_head(head, examples, seen) if head.available else None
        if fitted is not None:
            rows = layout.span(head.name)
            readout, fits[head.name], left_out[head.name] = fitted
            w_out[rows], bias[rows] = readout.w_out, readout.out_bias
        heads.append(msgspec.structs.replace(head, trained=fitted is not None))
    marked = msgspec.structs.replace(layout, heads=tuple(heads))
    dtype = weights.dtype
    network = weights.with_readout(w_out.astype(dtype), bias.astype(dtype), passthrough=True, heads=marked)
    return Trained(weights=network, fits=fits, left_out=left_out)


def label_rows(example: Example, head: str, *, ambiguous: bool = False) -> Doubles:
    """Return a head's label for every trajectory that has inputs, NaN where there is none.

    Chains of neither phase have no phase; with `ambiguous` they have the one that their mean is on the side of, and no
    other chain has any.
    """
    name = LABEL_OF.get(head, head)
    values = example.labels.values.get(name)
    if values is None or (name == "phase" and example.labels.ambiguous != ambiguous):
        return np.full(len(example.inputs), np.nan)
    return values[: len(example.inputs)]


class _Group(NamedTuple):
    """All rows of one coupling that have a head's label."""

    x: Doubles
    label: Doubles
    chain: NDArray[np.int64]
    inside: NDArray[np.bool_]


def _groups(head: HeadSpec, examples: Sequence[Example], seen: Sequence[Doubles]) -> list[_Group]:
    """Return the rows with labels by coupling."""
    labels = [label_rows(example, head.name) for example in examples]
    taken = [i for i, label in enumerate(labels) if np.isfinite(label).any()]
    lattices: dict[tuple[object, ...], list[float]] = {}
    for i in taken:
        lattices.setdefault(examples[i].lattice, []).append(examples[i].beta)
    parts: dict[float, list[_Group]] = {}
    for i in taken:
        beta, known, scan = examples[i].beta, np.isfinite(labels[i]), lattices[examples[i].lattice]
        inside = np.full(int(known.sum()), min(scan) < beta < max(scan))
        parts.setdefault(beta, []).append(_Group(seen[i][known], labels[i][known], np.full(inside.shape, i), inside))
    return [_Group(*(np.concatenate(column) for column in zip(*part, strict=True))) for part in parts.values()]


def _fit_head(
    head: HeadSpec, examples: Sequence[Example], seen: Sequence[Doubles]
) -> tuple[Readout, HeadFit, LeftOut] | None:
    """Return a head's readout; None where fewer than two couplings have its label, or all labels are alike."""
    groups = _groups(head, examples, seen)
    label = np.concatenate([group.label for group in groups]) if groups else np.zeros(0)
    if len(groups) < 2 or np.ptp(label) == 0:
        return None
    sums = [NormalEquations.of([(group.x, _score(head, group.label)[:, None])]) for group in groups]
    guesses = np.zeros((len(RIDGES), len(label)))
    start = 0
    for i, group in enumerate(groups):
        others = reduce(NormalEquations.merge, [part for k, part in enumerate(sums) if k != i])
        for j, readout in enumerate(others.solve(RIDGES)):
            guesses[j, start : start + len(group.x)] = readout(group.x)[:, 0]
        start += len(group.x)
    wanted = _score(head, label)
    errors = ((guesses - wanted) ** 2).mean(axis=1) / wanted.var()
    best = int(np.argmin(errors))
    readout = reduce(NormalEquations.merge, sums).solve([RIDGES[best]])[0]
    slope, offset = 1.0, 0.0
    said = head.offset + head.scale * (np.maximum(guesses[best], 0) if head.activation == "relu" else guesses[best])
    if head.activation in ("sigmoid", "softmax"):
        slope, offset = _platt(guesses[best], label)
        said = 1 / (1 + np.exp(-(slope * guesses[best] + offset)))
    fit = HeadFit(RIDGES[best], len(label), float(errors[best]), float(np.sqrt(np.mean((said - label) ** 2))))
    chain, inside = (np.concatenate([getattr(group, name) for group in groups]) for name in ("chain", "inside"))
    spread = _spread(head, slope * readout.w_out, slope * readout.out_bias + offset, readout.ridge)
    return spread, fit, LeftOut(said, label, chain, inside)


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


def fitted_before(weights: EsnWeights) -> Trained:
    """Return weights of a file as they were trained; how each head was fitted is not in the file, and so not known."""
    if weights.heads is None:
        raise SpecError("these weights have no head layout\nhint: make them with `metalforge conductor train`")
    unknown = HeadFit(float("nan"), 0, float("nan"), float("nan"))
    fits = {head.name: unknown for head in weights.heads.heads if head.trained}
    return Trained(weights=weights, fits=fits)
