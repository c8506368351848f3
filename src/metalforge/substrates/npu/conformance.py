"""Do two devices give the same integers? Random programs, random inputs, and a count of those on which they agree.

`compare(emulator, other, seed, n)` is for whoever owns the other device. The report holds counts and the numbers of the
cases that differ, nothing of what either device gave and nothing of how long it took.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from metalforge.core import MetalforgeError, SpecError

from .device import NpuDevice
from .program import Activation, FullyConnected, Program, weight_limits

BITS = (1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How many cases agreed; `differ` and `refused` hold the numbers of those that did not."""

    seed: int
    passed: int
    differ: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    """Cases that one device took and the other would not."""
    skipped: int = 0
    """Cases that neither took; they say nothing."""

    @property
    def failed(self) -> int:
        """Cases that did not agree."""
        return len(self.differ) + len(self.refused)

    @property
    def ok(self) -> bool:
        """Whether all agreed, and there were any."""
        return self.failed == 0 and self.passed > 0

    def __str__(self) -> str:
        verdict = "PASS" if self.ok else "FAIL"
        return f"{verdict}: {self.passed} of {self.passed + self.failed} programs agree (seed {self.seed})"


def compare(device_a: NpuDevice, device_b: NpuDevice, seed: int = 0, n: int = 100) -> Report:
    """Return on how many of `n` random programs two devices agree, before and after an update of the weights.

    Case i of a seed is always the same program and inputs: `random_program(seed, i)` gives it again.
    """
    if n < 1:
        raise SpecError(f"at least one program is compared. Got {n}")
    passed, skipped, differ, refused = 0, 0, [], []
    for case in range(n):
        program = random_program(seed, case)
        x, weights = random_inputs(program, seed, case), random_program(seed, case, variant=1).layers[-1].weights
        first, second = (_answers(device, program, x, weights) for device in (device_a, device_b))
        if first is None and second is None:
            skipped += 1
        elif first is None or second is None:
            refused.append(case)
        elif all(_equal(a, b) for a, b in zip(first, second, strict=True)):
            passed += 1
        else:
            differ.append(case)
    return Report(seed=seed, passed=passed, differ=tuple(differ), refused=tuple(refused), skipped=skipped)


def random_program(seed: int, case: int, variant: int = 0) -> Program:
    """Return program number `case` of a seed: 1 to 3 layers of any bits; a variant has the same shapes, other numbers.

    Every eighth case is one wide layer of extreme weights that drives potentials into saturation.
    """
    shape, values = np.random.default_rng([seed, case]), np.random.default_rng([seed, case, 1, variant])
    saturates = case % 8 == 7
    lines = [6000, 3] if saturates else [int(n) for n in shape.integers(1, 65, size=int(shape.integers(2, 5)))]
    bits = 4 if saturates else int(shape.choice(BITS))
    layers: list[FullyConnected] = []
    for i, (inputs, units) in enumerate(pairwise(lines)):
        weight_bits, act_bits = (4, 4) if saturates else (int(b) for b in shape.choice(BITS, size=2))
        low, high = weight_limits(weight_bits)
        last = i == len(lines) - 2
        rectifies = not last or bool(shape.integers(2))
        spread = sqrt(inputs) * high * ((1 << bits) - 1)  # of the potentials, roughly
        weights = values.integers(low, high + 1, (inputs, units))
        if saturates:
            weights = np.broadcast_to(np.array([low, high, 1])[:units], weights.shape)
        layers.append(
            FullyConnected(
                name=f"layer{i}",
                weights=np.ascontiguousarray(weights, np.int8),
                weight_bits=weight_bits,
                input_bits=bits,
                activation=Activation.BOUNDED_RELU if rectifies else Activation.LINEAR,
                activation_bits=act_bits,
                threshold=np.rint(values.uniform(-spread, spread, units) / 2).astype(np.int32),
                act_step=np.maximum(values.random(units) * spread / 8, 1 / 16).astype(np.float32),
            )
        )
        bits = act_bits
    return Program(name=f"case-{case}", layers=tuple(layers))


def random_inputs(program: Program, seed: int, case: int, batch: int = 5) -> NDArray[np.uint8]:
    """Return a batch of inputs over the program's whole range; its last row is all at the top."""
    most = (1 << program.layers[0].input_bits) - 1
    x = np.random.default_rng([seed, case, 2]).integers(0, most + 1, (batch, program.inputs)).astype(np.uint8)
    x[-1] = most
    return x


def _answers(
    device: NpuDevice, program: Program, x: NDArray[np.uint8], weights: NDArray[np.int8]
) -> tuple[NDArray[np.generic], ...] | None:
    """Return what a device gives for a batch, for its first row alone and after an update; None if it refuses."""
    try:
        device.load(program)
        answers = (device.infer(x), device.infer(x[0]))
        device.set_variable(f"{program.layers[-1].name}/weights", weights)
        return (*answers, device.infer(x))
    except MetalforgeError:
        return None
    finally:
        device.unload()


def _equal(a: NDArray[np.generic], b: NDArray[np.generic]) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b)
