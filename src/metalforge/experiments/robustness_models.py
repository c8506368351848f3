"""The classifiers that the robustness experiment attacks: eight models of one task, trained on the same sequences.

Two networks, each in float and on the emulated chip, every readout fitted to its own states:

- `random`: normal weights, tanh. On the chip as W4A8 with inputs on the host, and as W4A4 with inputs on the chip too.
- `ring`: equal weights in a ring, input weights of random sign (A. Rodan, P. Tino, 2011), with a bounded ReLU. On the
  chip natively; a ring loses no weight to four bits, and random weights do not work there (experiment parity).

Where four bits change the weights, the float network with the changed ones is a model of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from metalforge.hybrid.attacks.victim import Victim, effective_weights
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task, refit
from metalforge.reservoir.datasets import LabelledSequences, sequence_classification, vowel_like
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.emulator import EmulatedDevice

from .standard_tasks import ring

__all__ = ["FLOAT_TWIN", "MODELS", "SAME_WEIGHTS", "TASKS", "Arena", "ClassTask", "open_arena"]

UNITS = 128
RADIUS = 0.9
MODELS: dict[str, tuple[str, str]] = {
    "tanh": ("tanh", "f32"),
    "host-tanh W4A8": ("host-tanh, inputs on the host", "W4A8"),
    "host-tanh W4A4": ("host-tanh, inputs on the chip", "W4A4"),
    "tanh, weights of W4A8": ("tanh, weights of W4A8", "f32"),
    "tanh, weights of W4A4": ("tanh, weights of W4A4", "f32"),
    "bounded ReLU": ("bounded ReLU", "f32"),
    "native W4A4": ("native", "W4A4"),
    "bounded ReLU, native weights": ("bounded ReLU, weights of native", "f32"),
}
"""Approach and precision of each model, for rows."""
FLOAT_TWIN = {name: "tanh" if "tanh" in name else "bounded ReLU" for name in MODELS}
"""The model in float, before any rounding, that each is compared with."""
SAME_WEIGHTS = {
    "host-tanh W4A8": "tanh, weights of W4A8",
    "host-tanh W4A4": "tanh, weights of W4A4",
    "native W4A4": "bounded ReLU, native weights",
}
"""The model in float with the rounded weights of each chip: only inputs and states are not rounded there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTask:
    """A maker of labelled sequences from (n, seed), how many train, and what suits the networks."""

    make: Callable[[int, int], LabelledSequences]
    train: int
    leak: float
    ridge: float


TASKS = {
    "patterns": ClassTask(make=lambda n, seed: sequence_classification(n, seed=seed), train=2000, leak=0.3, ridge=0.1),
    "vowel-like (synthetic)": ClassTask(make=lambda n, seed: vowel_like(n, seed=seed), train=270, leak=0.1, ridge=0.1),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arena:
    """One reservoir seed of a task: models by name, and test sequences that none has seen."""

    victims: dict[str, Victim]
    inputs: NDArray[np.floating[Any]]
    labels: NDArray[np.int64]
    spoken: NDArray[np.float32]
    """1 where there is a sequence, 0 in the rest before a short one, which is nobody's to change."""
    baseline: NDArray[np.bool_]
    """Which test sequences a logistic regression on the mean frame reads rightly: memory is worth what exceeds it."""


@contextmanager
def open_arena(task: ClassTask, seed: int, tested: int, profile: str) -> Iterator[Arena]:
    """Give all models of a task, trained; their devices are open inside the `with`."""
    data = task.make(task.train + tested, seed)
    x, y = data.inputs.astype(np.float32), data.labels
    training = Task(inputs=x[: task.train], targets=y[: task.train])

    def trained(esn: HybridEsn) -> HybridEsn:
        return refit(esn, training, ridge=task.ridge)

    def software(weights: EsnWeights) -> HybridEsn:
        return trained(HybridEsn.from_weights(weights, calibration=training.inputs))

    with ExitStack() as stack:

        def device() -> EmulatedDevice:
            return stack.enter_context(EmulatedDevice(profile))

        inputs = x.shape[2]
        leak, scaling = task.leak, 0.2 / np.sqrt(inputs)
        drawn = make_esn(
            UNITS, inputs, seed=seed, leak=leak, spectral_radius=RADIUS, input_scaling=0.3, connectivity=1.0
        )
        designed = ring(inputs, seed=seed, leak=leak, radius=RADIUS, input_scaling=scaling, units=UNITS)
        tanh, bounded = (software(weights.astype(np.float32)) for weights in (drawn, designed))
        wide = trained(tanh.with_hardware_linear(device(), "last-layer", "W4A8", inputs="host"))
        narrow = trained(tanh.with_hardware_linear(device(), "last-layer", "W4A4", inputs="device"))
        native = trained(bounded.with_hardware_native(device()))
        networks = {
            "tanh": tanh,
            "host-tanh W4A8": wide,
            "host-tanh W4A4": narrow,
            "tanh, weights of W4A8": software(effective_weights(wide)),
            "tanh, weights of W4A4": software(effective_weights(narrow)),
            "bounded ReLU": bounded,
            "native W4A4": native,
            "bounded ReLU, native weights": software(effective_weights(native)),
        }
        simple = LogisticRegression(max_iter=500).fit(x[: task.train].mean(axis=1), y[: task.train])
        yield Arena(
            victims={name: Victim(networks[name], name=name) for name in MODELS},
            inputs=x[task.train :],
            labels=y[task.train :],
            spoken=np.asarray(x[task.train :].any(axis=2, keepdims=True), np.float32),
            baseline=np.asarray(simple.predict(x[task.train :].mean(axis=1)) == y[task.train :]),
        )
