"""Experiment parity: whether weights, activation or precision make a reservoir fail on an int4 chip.

The published design compared tanh with a bounded ReLU on one matrix, all positive and unscaled (spectral radius 3.2),
and took the ReLU's failure for a property of the ReLU. Here the three are varied one by one:

- weights: `origin` (U(0, 0.5) on 10 % of the connections, as it was), `random` (normal, radius 0.9), `designed` (a
  ring of equal weights whose input weights differ in sign only: A. Rodan, P. Tino, IEEE Trans. Neural Netw. 22 (2011)
  131, with a bias that keeps a ReLU in the middle of its range);
- activation: tanh, bounded ReLU;
- precision: f32, and int4 on the chip (tanh: last layer W4A8; bounded ReLU: native).

The readout is fitted to each; accuracy is on the `patterns` task.
"""

import warnings
from dataclasses import replace

import numpy as np

from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import outputs, refit
from metalforge.reservoir.weights import EsnWeights, UnstableReservoirWarning, spectral_radius
from metalforge.substrates.npu.emulator import EmulatedDevice

from .hybrid_tanh import NATIVE, linear
from .problems import PROBLEMS, UNITS, Problem, Scores, ring
from .protocol import Progress, Result, ResultRow, Settings, experiment, words

INSTANCES = 5
RADIUS = 0.9
LEAK = 0.3
SIGNS = 31415
"""Seed of the designed network's input signs: part of its design, the same in every instance."""


def reservoirs(problem: Problem, seed: int) -> dict[str, EsnWeights]:
    """Return the three networks for a problem, by name; a caller gives them their activation."""
    rng = np.random.default_rng([seed, 7])
    inputs = problem.weights.inputs
    positive = np.where(rng.uniform(size=(UNITS, UNITS)) < 0.1, rng.uniform(0, 0.5, (UNITS, UNITS)), 0.0)
    origin = EsnWeights(w_in=rng.uniform(-1, 1, (UNITS, inputs)), w_res=positive, leak=LEAK)
    scaling = 0.2 / np.sqrt(inputs)
    designed = ring(inputs, signs=SIGNS, units=UNITS, radius=RADIUS, input_scaling=scaling, leak=LEAK)
    return {"origin": origin, "random": problem.weights, "designed": designed}


@experiment("parity", "Which of weights, activation and precision makes a reservoir fail on an int4 chip?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return the accuracy of every combination; the reference is random weights with tanh in f32."""
    instances = 1 if settings.quick else INSTANCES
    scores: Scores = {}
    radii: dict[str, list[float]] = {}
    for i in range(instances):
        progress(i, instances, f"instance {i + 1}")
        problem = PROBLEMS["patterns"](settings.seed + i, settings.quick)
        for name, weights in reservoirs(problem, settings.seed + i).items():
            radii.setdefault(name, []).append(spectral_radius(weights.w_res))
            for activation in ("tanh", "bounded_relu"):
                net = replace(weights, activation=activation).astype(np.float32)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UnstableReservoirWarning)  # the published design's is meant to be
                    software = HybridEsn.from_weights(net, calibration=problem.train.inputs)
                with EmulatedDevice(settings.profile) as device:
                    chip = (linear("last-layer", "W4A8") if activation == "tanh" else NATIVE)[2](software, device)
                    for precision, esn in (("f32", software), ("int4", chip)):
                        fitted = refit(esn, problem.train, ridge=problem.ridge)
                        found = problem.score(outputs(fitted, problem.test))
                        scores.setdefault((f"{name}, {activation}", precision, True), []).append(found)
    rows = list(problem.rows(scores, ("random, tanh", "f32", True)))
    drawn_with = [words("parity.radius", name=name, radius=np.mean(r))[0] for name, r in radii.items()]
    return Result.of(rows, words=drawn_with + _findings(rows))


def _findings(rows: list[ResultRow]) -> list[str]:
    """Return what one factor alone does to the accuracy, in points."""
    value = {(row.approach, row.precision): row.value for row in rows}

    base, relu = ("random, tanh", "f32"), ("random, bounded_relu", "f32")
    changes = {
        "int4": (base, ("random, tanh", "int4")),
        "relu": (base, relu),
        "designed": (relu, ("designed, bounded_relu", "f32")),
        "origin": (base, ("origin, tanh", "f32")),
    }
    said = {name: f"{100 * (value[after] - value[before]):+.1f} points" for name, (before, after) in changes.items()}
    return words("parity.findings", **said)
