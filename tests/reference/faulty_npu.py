"""An emulated NPU on which things go wrong at the calls that a test names: the same calls fail in the same way."""

from dataclasses import dataclass, replace

import numpy as np

from metalforge.substrates.npu.device import DeviceGoneError, DeviceTimeoutError
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.products import check_inputs


@dataclass(frozen=True)
class Timeout:
    """Inference call `at`, counted from 1, gets no answer; the program is unharmed."""

    at: int


@dataclass(frozen=True)
class Vanish:
    """The device leaves the bus at inference call `at`, and its programs with it."""

    at: int


@dataclass(frozen=True)
class BitFlip:
    """Just before inference call `at`, so many weights of a program on the device change."""

    at: int
    bits: int = 1


@dataclass(frozen=True)
class PartialUpdate:
    """Variable update `at` stops after this fraction of the entries."""

    at: int
    fraction: float = 0.5


class FaultyDevice(EmulatedDevice):
    """An `EmulatedDevice` with faults to come; while there are any, no call is spared by `compute`."""

    def __init__(self, *arguments, faults=(), seed=0, **options):
        super().__init__(*arguments, **options)
        self.faults, self.seed = faults, seed
        self.gone, self.calls, self.updates = False, 0, 0

    def _ready(self):
        super()._ready()
        if self.gone:
            raise DeviceGoneError("the device is not on the bus any more\nhint: reset(), then load again")

    def reset(self):
        self.gone = False
        super().reset()

    def compute(self, *arguments, **options):
        return None if self.faults else super().compute(*arguments, **options)

    def infer(self, x, slot="main"):
        check_inputs(self._on_chip(slot).program.layers[0], np.atleast_2d(x))  # what is refused is no call
        self.calls += 1
        for fault in self.faults:
            if fault.at == self.calls and not isinstance(fault, PartialUpdate):
                self._strike(fault)
        return super().infer(x, slot)

    def set_variable(self, name, values, slot="main"):
        self._ready()
        self.updates += 1
        for fault in self.faults:
            if isinstance(fault, PartialUpdate) and fault.at == self.updates:
                mixed = self.get_variable(name, slot)
                mixed.flat[: int(fault.fraction * mixed.size)] = values.flat[: int(fault.fraction * mixed.size)]
                super().set_variable(name, mixed, slot)
                self._fail(DeviceTimeoutError(f"update {self.updates} stopped on the way"))
        super().set_variable(name, values, slot)

    def _strike(self, fault):
        if isinstance(fault, Timeout):
            self._fail(DeviceTimeoutError(f"call {self.calls} got no answer"))
        elif isinstance(fault, Vanish):
            self.gone = True
            self._fail(DeviceGoneError("the device is not on the bus any more"))
        else:
            rng = np.random.default_rng([self.seed, self.calls])
            resident = list(self._residents.values())[rng.integers(len(self._residents))]
            first, *rest = resident.program.layers
            weights = first.weights.copy()
            for place in rng.choice(weights.size, min(fault.bits, weights.size), replace=False):
                value = weights.flat[place]
                weights.flat[place] = 1 - value if first.weight_bits == 1 else -value or 1
            layers = (replace(first, weights=weights), *rest)
            resident.program, resident.run = replace(resident.program, layers=layers), None

    def _fail(self, error):
        self.ledger.enter(failures=1)
        raise error
