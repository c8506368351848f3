"""Fits of the transport heads, in software and on the emulated NPU: ridges that leave out whole state points."""

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from experiments.heads import predictions as lattice
from experiments.heads.predictions import outputs_of, states_on_npu, without_memory
from experiments.heads.training import reservoir
from metalforge.conductor.plasma import HEADS, LAYOUT, SCHEMA, SETTLED, PlasmaFrames, mean_states, said_of
from metalforge.conductor.program import ConductorProgram
from metalforge.conductor.shipped import layout
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout
from metalforge.core.threads import one_thread
from metalforge.reservoir.activations import activation
from metalforge.reservoir.files import expect_features
from metalforge.reservoir.readout import NormalEquations, Readout
from metalforge.reservoir.weights import EsnWeights, Ranges
from metalforge.substrates.npu.emulator import EmulatedDevice

from .baselines import label_of_run
from .corpus import PlasmaRecord

RIDGES = tuple(10.0**k for k in range(-7, 5))
SHARES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
UNITS = 128
FOLDS = 8
BEGIN: tuple[Mapping[str, float], ...] = ({"msd_40": 1.0}, {"msd_0.4": 1.0, "msd_40": -1.0})
"""Where each readout begins: weights of features in their own units."""
Route: TypeAlias = lattice.Route | Literal["no-reservoir"]
ROUTES: tuple[Route, ...] = (*lattice.ROUTES, "no-reservoir")
"""Those of the lattice, and a ridge on the means of frames."""


class TransportFit(NamedTuple):
    """How a head was fitted: its ridge, and the weight of the states beside the features.

    `noise` is the root mean square of what it was off on training runs whose state point was left out.
    """

    ridge: float
    share: float
    noise: float


Fitted: TypeAlias = tuple[EsnWeights, tuple[TransportFit, ...]]
"""A network with the heads of plasma-2, and how each was fitted, in the order of HEADS."""


def inputs_of(run: PlasmaRecord, *, shuffled: bool = False) -> Doubles:
    """Return the frames of a run's window (frames, features), or of the one whose frames were put in another order."""
    columns = run.shuffled if shuffled else run.window
    if columns is None:
        raise SpecError("this run was not kept in another order\nhint: the first replica of every test point is")
    if columns.shape[1] <= SETTLED:
        raise SpecError(f"a window must be longer than {SETTLED} frames, its longest lag. Got {columns.shape[1]}")
    return PlasmaFrames(run.entry.particles).push(columns)


def begin_at(head: int, width: int) -> Doubles:
    """Return where a head's readout of [s; x], or of x alone, begins: zero for states."""
    start = np.zeros(width)
    for k, feature in enumerate(SCHEMA.features):
        start[width - len(SCHEMA) + k] = BEGIN[head].get(feature.name, 0.0) * feature.scale
    return start


def ridge_by_point(
    x: Doubles, y: Doubles, points: Sequence[object], start: Doubles | None = None
) -> tuple[Readout, TransportFit]:
    """Return a ridge from rows to values, drawn to `start`; its penalty is the best for state points left out.

    States are penalised by 1 / share^2 times as much as features, with `share` chosen beside the penalty: 0 is a head
    that has no use for its reservoir.
    """
    begin = np.zeros(x.shape[1]) if start is None else start
    rest_of = y - x @ begin
    order = {point: i % FOLDS for i, point in enumerate(sorted(set(points), key=str))}
    fold = np.array([order[point] for point in points])
    if len(order) < 2:
        raise SpecError(f"heads are fitted to runs of at least two state points. Got {len(order)}")
    states = x.shape[1] - len(SCHEMA)
    fits = []
    with one_thread():
        for share in SHARES if states else SHARES[:1]:
            scale = np.concatenate([np.full(states, share), np.ones(len(SCHEMA))])
            guesses = np.zeros((len(RIDGES), len(y)))
            for part in range(min(FOLDS, len(order))):
                others, here = fold != part, fold == part
                sums = NormalEquations.of([((x * scale)[others], rest_of[others, None])])
                for j, readout in enumerate(sums.solve(RIDGES)):
                    guesses[j, here] = readout((x * scale)[here])[:, 0]
            best = int(np.argmin(((guesses - rest_of) ** 2).mean(axis=1)))
            fits.append((float(((guesses[best] - rest_of) ** 2).mean()), RIDGES[best], share, scale))
        error, ridge, share, scale = min(fits, key=lambda fit: fit[0])
        found = NormalEquations.of([(x * scale, rest_of[:, None])]).solve([ridge])[0]
    made = Readout(w_out=found.w_out * scale + begin, out_bias=found.out_bias, ridge=ridge)
    return made, TransportFit(ridge, share, float(np.sqrt(error)))


def labels_of(runs: Sequence[PlasmaRecord]) -> Doubles:
    """Return ln D* and ln eta* of whole runs, (runs, 2)."""
    return np.array([label_of_run(run).value for run in runs])


def fit_transport(runs: Sequence[PlasmaRecord], x: Doubles, weights: EsnWeights) -> Fitted:
    """Return the network with its two heads fitted to the means `x` of runs."""
    made = layout(LAYOUT)
    labels, points = labels_of(runs), [run.entry.place for run in runs]
    found = [ridge_by_point(x, labels[:, k], points, begin_at(k, x.shape[1])) for k in range(len(HEADS))]
    heads = tuple(msgspec.structs.replace(head, trained=True) for head in made.heads)
    network = weights.with_readout(
        np.array([readout.w_out[0] for readout, _ in found], weights.dtype),
        np.array([readout.out_bias[0] for readout, _ in found], weights.dtype),
        passthrough=True,
        heads=HeadLayout(name=made.name, version=made.version, heads=heads),
    )
    return network, tuple(fit for _, fit in found)


def train_transport(runs: Sequence[PlasmaRecord], *, seed: int = 1) -> Fitted:
    """Return both heads fitted to the windows of training runs."""
    inputs = [inputs_of(run) for run in runs]
    network = reservoir(seed, UNITS, features=SCHEMA, leak=0.1, input_scaling=0.1, bias_scaling=0.5)
    largest = max(float(np.abs(one).max()) for one in inputs)
    network = with_fields(network, ranges=Ranges(largest, activation(network.activation).bound or 1.0))
    return fit_transport(runs, mean_states(network, inputs), network)


def heads_of(weights: EsnWeights, runs: Sequence[PlasmaRecord]) -> Fitted:
    """Return weights of a file with what they are off on the training runs they were fitted to, state points left out.

    Ridges and left-out answers are found again: a file has the readout alone.
    """
    expect_features(weights, SCHEMA)
    if weights.heads is None or weights.heads.names != HEADS:
        raise SpecError(f"these weights have no heads of {LAYOUT}\nhint: `heads train --layout {LAYOUT}` makes some")
    return weights, fit_transport(runs, mean_states(weights, [inputs_of(run) for run in runs]), weights)[1]


def said_on(route: Route, weights: EsnWeights, train: Sequence[PlasmaRecord], inputs: Sequence[Doubles]) -> Doubles:
    """Return what both heads say of windows on a route; whatever is fitted again sees training runs only."""
    if route == "f32-software":
        return said_of(weights, inputs)
    if route == "npu-w8a8":
        return _whole_on_device(weights, inputs)
    taught = [inputs_of(run) for run in train]
    if route == "no-memory":
        blind = without_memory(weights)
        return said_of(fit_transport(train, mean_states(blind, taught), blind)[0], inputs)
    if route == "no-reservoir":
        return _means_alone(train, taught, inputs)
    with states_on_npu(
        route, weights, taught, lambda seen: np.asarray(seen[:, SETTLED:].mean(axis=1, dtype=np.float64))
    ) as means:
        again, _ = fit_transport(train, np.array(means(taught)), weights)
        return outputs_of(again, np.array(means(inputs)))


def _means_alone(train: Sequence[PlasmaRecord], taught: Sequence[Doubles], inputs: Sequence[Doubles]) -> Doubles:
    """Return what a ridge on the means of frames says: what the reservoir adds is beyond this."""
    seen, asked = (np.array([one[SETTLED:].mean(axis=0) for one in some]) for some in (taught, inputs))
    labels, points = labels_of(train), [run.entry.place for run in train]
    found = [
        ridge_by_point(seen, labels[:, head], points, begin_at(head, seen.shape[1]))[0](asked)[:, 0]
        for head in range(len(HEADS))
    ]
    return np.stack(found, axis=1)


def _whole_on_device(weights: EsnWeights, inputs: Sequence[Doubles]) -> Doubles:
    """Return what both say with reservoir and heads on the emulated NPU: one pass a frame for both."""
    with EmulatedDevice() as device, ConductorProgram(weights, device, precision="W8A8") as running:
        said = []
        for one in inputs:
            running.reset()
            values = running.through(one)
            said.append([float(np.mean(values[name][SETTLED:])) for name in HEADS])
    return np.array(said)
