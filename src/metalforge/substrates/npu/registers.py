"""Threshold registers, and the linear probe of Experiment 004 that shows what they cannot do.

The design documents hoped to switch the rectifier off by its thresholds: at their maximum through the program (Approach
A) or by writing registers behind it (Approach C, ``bar0_write``). A threshold only moves the corner of the rectifier,
ceil((p - T) / step) clipped at 0. High, it silences the unit; low, it saturates it; nowhere does a negative number come
out. A last layer without activation gives signed potentials and needs no trick.

The vendor's register map is not public. The one here is the emulator's own: one 64-bit word for each unit of each
processor.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .device import NpuDevice, NpuError
from .program import POTENTIAL_BITS, Activation, Encoding, FullyConnected, Program

BASE = 0x10000
STRIDE = 0x4000
"""Bytes between processors. 1000 of them, the most any profile has, end below the 16 MB of BAR0 (silicon spec)."""
WORD = 8
PROBE_LINES = 50
"""Inputs of Experiment 004's probe."""
PROBE_LIMIT = -0.1
"""Experiment 004, success criteria: the output for an input of -1 must be below this."""
LEVELS = 15
"""The largest 4-bit input: it stands for 1.0."""


def threshold_address(processor: int, unit: int) -> int:
    """Return where the threshold of a unit of a processor is."""
    if processor < 0 or not 0 <= unit < STRIDE // WORD:
        raise NpuError(f"a processor has threshold registers for units 0 .. {STRIDE // WORD - 1}. Got unit {unit}")
    return BASE + processor * STRIDE + unit * WORD


def locate(address: int) -> tuple[int, int]:
    """Return the processor and unit whose threshold is at an address."""
    if address < BASE or (address - BASE) % WORD:
        raise NpuError(
            f"no threshold register at {address:#x}: they begin at {BASE:#x} and are {WORD} bytes apart"
            "\nhint: `threshold_address(processor, unit)` gives the address"
        )
    processor, offset = divmod(address - BASE, STRIDE)
    return processor, offset // WORD


def word_to_threshold(value: int) -> int:
    """Return the threshold that a 64-bit word means: read in two's complement, then clamped to the accumulator.

    So the design documents' ``u64::MAX`` is -1 and shifts the corner by one, and their ``2^51 - 1`` is the largest
    threshold.
    """
    if not 0 <= value < 1 << 64:
        raise NpuError(f"a register takes an unsigned 64-bit word. Got {value}")
    signed = value - (1 << 64) if value >> 63 else value
    most = (1 << (POTENTIAL_BITS - 1)) - 1
    return max(-most - 1, min(most, signed))


def maximum_threshold(units: int) -> NDArray[np.int32]:
    """Return the threshold variable of Approach A: every unit at the largest value there is."""
    return np.full(units, (1 << (POTENTIAL_BITS - 1)) - 1, np.int32)


def probe_program(activation: Activation) -> Program:
    """Return the identity on 50 signed numbers, as layer ``probe``.

    Each number has two lines, one for its positive and one for its negative part, with weights +1 and -1. A zero
    point would not do: it shifts every input to a positive integer, the identity's potentials are then never negative,
    and a rectifier passes them unharmed.
    """
    eye = np.eye(PROBE_LINES, dtype=np.int8)
    layer = FullyConnected(name="probe", weights=np.concatenate([eye, -eye]), activation=activation)
    scales = np.full(PROBE_LINES, 1 / LEVELS)
    return Program(name="linear-probe", layers=(layer,), encoding=Encoding(signed="two_rail"), scales=scales)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What came back for inputs of -1 and of +1: the largest output of the first, the smallest of the second."""

    negative: float
    positive: float

    @property
    def linear(self) -> bool:
        """Whether the sign came through: every output for -1 is below -0.1."""
        return self.negative < PROBE_LIMIT


def linear_probe(device: NpuDevice) -> Probe:
    """Return what a device that holds a `probe_program` answers to -1 and +1 on every number."""
    none, full = np.zeros(PROBE_LINES, np.uint8), np.full(PROBE_LINES, LEVELS, np.uint8)
    outputs = device.infer(np.stack([np.concatenate([none, full]), np.concatenate([full, none])]))
    values = outputs.astype(np.float64) / LEVELS
    return Probe(negative=float(values[0].max()), positive=float(values[1].min()))
