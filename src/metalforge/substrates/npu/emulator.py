"""The AKD1000 without the board: its integers, its room, and the time and energy that a profile says it would take.

Results are exact and the same on every machine. Several programs may be on the device, each in its own slot: what
happens to one never changes another. A slot has an image (what the host wrote last and saw acknowledged) and memory
(what the chip holds); faults and register writes part the two, `verify` tells, `reload` makes them one again.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from metalforge.core.arrays import Array
from metalforge.core.closing import Closing
from metalforge.substrates.profiles import DeviceProfile
from metalforge.substrates.profiles import profile as find_profile

from . import costs, registers
from .certificate import overflow_certificate
from .device import (
    DEFAULT_SLOT,
    DeviceGoneError,
    DeviceTimeoutError,
    Handle,
    NpuError,
    Outputs,
    PowerMode,
    Spent,
    Statistics,
    as_rows,
    check_linear,
    image_bytes,
    slot_limit,
    variable,
    with_variable,
)
from .faults import BitFlip, FaultPlan, Timeout, Vanish, flip_bits, partly
from .ledger import Ledger, VirtualClock
from .mesh import Placement, plan
from .products import CompiledProgram, check_inputs
from .program import Activation, Program, ProgramError

T = TypeVar("T")


@dataclass(slots=True)
class _Resident:
    """One slot: its program twice, its place (None while the chip does not hold it), and what its calls cost."""

    image: Program
    placement: Placement | None
    address: int | None
    memory: Program = field(init=False)
    run: Callable[[NDArray[np.uint8]], Outputs] | None = None
    """What the memory computes; made when it is first asked for."""
    prices: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = self.image

    def write(self, memory: Program) -> None:
        """Let the chip hold another program."""
        self.memory, self.run = memory, None


class _Spared(NamedTuple):
    """Slots whose calls may be computed elsewhere, until the device changes; what rounds of them cost, by rows."""

    residents: tuple[_Resident, ...]
    programs: tuple[Program, ...]
    prices: dict[
        tuple[tuple[int, ...], tuple[str, ...]], tuple[list[float], list[float], int, list[tuple[str, float, float]]]
    ]


class EmulatedDevice(Closing):
    """An `NpuDevice` on the CPU; see `device` for what the protocol's methods give back.

    `clock` is shared by devices that take turns in one virtual time. `faults` says what shall go wrong and when.
    `n_slots` is how many programs it holds at a time; a board holds one. Methods that the protocol has not are its own.
    """

    def __init__(
        self,
        profile: DeviceProfile | str = "akd1000-published",
        *,
        clock: VirtualClock | None = None,
        faults: FaultPlan | None = None,
        n_slots: int | None = None,
    ) -> None:
        if n_slots is not None and n_slots < 1:
            raise NpuError(f"a device has at least one slot. Got {n_slots}")
        self.n_slots = n_slots
        self.profile = find_profile(profile)
        self.clock = clock or VirtualClock()
        self.ledger = Ledger(self.profile.name, self.clock)
        self._faults = faults or FaultPlan()
        self._lock = threading.RLock()
        self._residents: dict[str, _Resident] = {}
        self._spared: dict[tuple[str, ...], _Spared] = {}
        self._mode = PowerMode.PERFORMANCE
        self._gone = self._closed = False
        self._n_calls = self._n_updates = 0

    # Programs.

    def load(self, program: Program, slot: str = DEFAULT_SLOT, *, address: int | None = None) -> Handle:
        """Put a copy of a program in a slot, in place of the one there; `ResourceError` where it does not fit."""
        with self._lock:
            self._ready()
            others = {name: r.placement for name, r in self._residents.items() if name != slot and r.placement}
            if self.n_slots is not None and len(others) >= self.n_slots:
                raise slot_limit(self.n_slots, tuple(others))
            placement = plan(program, self.profile, beside=others.values(), address=address)
            self._check_steps(program)
            image = _own(program)
            self._residents[slot] = _Resident(image, placement, address)
            self._changed()
            price = costs.load_cost(image, self.profile, self._mode)
            seconds, joules = (q.value if q else 0.0 for q in (price.latency, price.energy))
            self.ledger.enter(seconds, joules, slot, loads=1, bytes_pushed=image_bytes(image))
            return Handle(slot=slot, program=image.name, fingerprint=image.fingerprint())

    def program_external(self, data: bytes, address: int = 0) -> Handle:
        """Put a program that comes as bytes at an address; address 0 is the default slot, others name theirs in hex."""
        from .wire import from_bytes  # the wire format's library is loaded when bytes come, not before

        program = from_bytes(data)
        return self.load(program, DEFAULT_SLOT if address == 0 else f"{address:#x}", address=address)

    def unload(self, slot: str = DEFAULT_SLOT) -> None:
        """Take a program off the device and forget it; nothing happens when there is none."""
        with self._lock:
            self._residents.pop(slot, None)
            self._changed()

    def reload(self, slot: str = DEFAULT_SLOT) -> Handle:
        """Write a slot's image to the chip again: after a fault, a register write or a reset."""
        with self._lock:
            if slot not in self._residents:
                raise NpuError(self._no_program(slot))
            resident = self._residents[slot]
            return self.load(resident.image, slot, address=resident.address)

    def reset(self) -> None:
        """Bring the device back to how it is after power-on. Images stay with the host: `reload` brings them back."""
        with self._lock:
            self._gone = False
            self._mode = PowerMode.PERFORMANCE
            self._changed()
            for resident in self._residents.values():
                resident.placement = None
                resident.write(resident.image)

    def slots(self) -> tuple[str, ...]:
        """Return the slots whose programs are on the chip, oldest first."""
        with self._lock:
            return tuple(name for name, resident in self._residents.items() if resident.placement)

    def placement(self, slot: str = DEFAULT_SLOT) -> Placement:
        """Return where a program is."""
        with self._lock:
            return self._on_chip(slot)[1]

    def fingerprint(self, slot: str = DEFAULT_SLOT) -> str:
        """Return the fingerprint of what the chip holds."""
        with self._lock:
            return self._on_chip(slot)[0].memory.fingerprint()

    def verify(self, slot: str = DEFAULT_SLOT) -> bool:
        """Return whether the chip holds what the host wrote last."""
        with self._lock:
            return self.fingerprint(slot) == self._residents[slot].image.fingerprint()

    # Inference.

    def infer(self, x: NDArray[np.uint8], slot: str = DEFAULT_SLOT) -> Outputs:
        """Return what the last layer gives for one input or a batch."""
        rows, single = as_rows(x)
        with self._lock:
            resident, _ = self._on_chip(slot)
            if self._faults.faults:
                check_inputs(resident.memory.layers[0], rows)  # what is refused is no call; running checks too
                self._next_call()
            if resident.run is None:
                chip = self.profile.arithmetic
                resident.run = CompiledProgram(
                    resident.memory,
                    potential_bits=chip.accumulator_bits.value,
                    steps_per_unit=chip.steps_per_unit.value,
                ).run
            values = resident.run(rows)
            self.ledger.enter(*self._price(resident, len(rows)), slot, calls=1, inferences=len(rows))
        return values[0] if single else values

    def infer_linear(self, x: NDArray[np.uint8], slot: str = DEFAULT_SLOT) -> NDArray[np.int32]:
        """Return signed potentials; raises `NpuError` where the last layer rectifies."""
        with self._lock:
            check_linear(self._on_chip(slot)[0].image)
            return cast("NDArray[np.int32]", self.infer(x, slot))

    def compute(
        self,
        slots: tuple[str, ...],
        work: Callable[[tuple[Program, ...]], T | None],
        rows: tuple[int, ...],
        rounds: int = 1,
        turns: tuple[str, ...] = (),
    ) -> T | None:
        """Return what `work` makes of the programs that the chip holds in some slots, in place of calling them.

        It stands for `rounds` calls to each slot, with its number of `rows`, by turns (in the order of `turns`, where
        that is another): the books are those of the calls. None, and nothing happened, where only a call would do: a
        fault is planned, a layer rectifies or could saturate, or `work` gives None. As long as nothing is written to
        the device `work` is given the same tuple.
        """
        with self._lock:
            if (spared := self._spared.get(slots)) is None:
                if self._faults.faults:
                    return None
                residents = tuple(self._on_chip(slot)[0] for slot in slots)
                if not all(map(self._computes_exactly, residents)):
                    return None
                spared = self._spared[slots] = _Spared(residents, tuple(r.memory for r in residents), {})
            found = work(spared.programs)
            if found is not None:
                if (prices := spared.prices.get((rows, turns))) is None:
                    asked = zip(slots, spared.residents, rows, strict=True)
                    by_slot = {slot: self._price(resident, n) for slot, resident, n in asked}
                    by_turns = [by_slot[slot] for slot in turns or slots]
                    seconds, joules = [price[0] for price in by_turns], [price[1] for price in by_turns]
                    charged = [(slot, *price) for slot, price in by_slot.items()]
                    prices = spared.prices[rows, turns] = seconds, joules, sum(rows), charged
                seconds, joules, inferences, charged = prices
                self.ledger.enter_calls(seconds, joules, rounds * len(slots), rounds * inferences, charged, rounds)
            return found

    # Variables and registers.

    def set_variable(self, name: str, values: Array, slot: str = DEFAULT_SLOT) -> None:
        """Replace a variable by one of the same type and shape; the slot's image follows once it is acknowledged."""
        with self._lock:
            resident, _ = self._on_chip(slot)
            image = with_variable(resident.image, name, values)  # refuses what is wrong before anything is sent
            self._check_steps(image)
            self._changed()
            self._n_updates += 1
            if fault := self._faults.at_update(self._n_updates):
                old = variable(resident.memory, name)
                resident.write(with_variable(resident.memory, name, partly(old, values, fault.fraction)))
                self.ledger.enter(failures=1)
                raise DeviceTimeoutError(
                    f"the update of `{name}` stopped after {int(fault.fraction * old.size)} of {old.size} entries: "
                    f"slot `{slot}` holds neither the old nor the new\nhint: reload(`{slot}`) brings back the old"
                )
            same = resident.memory is resident.image
            resident.write(image if same else with_variable(resident.memory, name, values))
            resident.image = image
            price = costs.update_cost(values.nbytes, self.profile, self._mode)
            if price.latency and price.energy:
                spent = price.latency.value, price.energy.value
                self.ledger.enter(*spent, slot, weight_updates=1, bytes_pushed=values.nbytes)

    def get_variable(self, name: str, slot: str = DEFAULT_SLOT) -> Array:
        """Return a copy of a variable as the chip holds it."""
        with self._lock:
            return variable(self._on_chip(slot)[0].memory, name)

    def bar0_write(self, address: int, value: int) -> None:
        """Write a threshold register (see `registers`) behind the program's back: `reload` undoes it."""
        with self._lock:
            resident, name, unit = self._register(address)
            thresholds = variable(resident.memory, name)
            thresholds[unit] = registers.word_to_threshold(value)
            resident.write(with_variable(resident.memory, name, thresholds))
            self._changed()

    def bar0_read(self, address: int) -> int:
        """Return a threshold register as an unsigned 64-bit word."""
        with self._lock:
            resident, name, unit = self._register(address)
            return int(variable(resident.memory, name)[unit]) % (1 << 64)

    # The device itself.

    def statistics(self) -> Statistics:
        """Return counts with modelled seconds and joules."""
        return self.ledger.statistics()

    def spent(self, slot: str) -> Spent:
        """Return the modelled seconds and joules of one slot, whatever programs were in it."""
        return self.ledger.spent_by(slot)

    @property
    def power_mode(self) -> PowerMode:
        """The clock mode: it changes what calls cost, never what they give."""
        return self._mode

    @power_mode.setter
    def power_mode(self, mode: PowerMode) -> None:
        with self._lock:
            self._ready()
            self.profile.mode(mode)  # refuses a mode that the profile has no figures for
            self._mode = PowerMode(mode)
            self._changed()

    def close(self) -> None:
        """Forget every program; the device answers no more calls."""
        with self._lock:
            self._residents.clear()
            self._closed = True
            self._changed()

    def _ready(self) -> None:
        if self._closed:
            raise NpuError("the device is closed\nhint: make another one")
        if self._gone:
            raise DeviceGoneError("the device is not on the bus any more\nhint: reset(), then reload or load")

    def _on_chip(self, slot: str) -> tuple[_Resident, Placement]:
        self._ready()
        resident = self._residents.get(slot)
        if resident is None or resident.placement is None:
            raise NpuError(self._no_program(slot))
        return resident, resident.placement

    def _no_program(self, slot: str) -> str:
        there = ", ".join(f"`{name}`" for name in self.slots()) or "none"
        if slot in self._residents:
            return f"slot `{slot}` lost its program in a reset\nhint: reload(`{slot}`) brings it back"
        return f"no program in slot `{slot}`; there are: {there}\nhint: load(program, `{slot}`)"

    def _price(self, resident: _Resident, batch: int) -> tuple[float, float]:
        key = (batch, self._mode.value)  # a plain string: the hash of an enum's member is computed in Python
        if (price := resident.prices.get(key)) is None:
            seconds = costs.call_seconds(resident.image, batch, self.profile, self._mode)
            price = resident.prices[key] = seconds, seconds * costs.power_w(self.profile, self._mode)
        return price

    def _computes_exactly(self, resident: _Resident) -> bool:
        """Return whether its calls are plain products: one linear layer that no input saturates."""
        (layer, *others), bits = resident.memory.layers, self.profile.arithmetic.accumulator_bits.value
        linear = not others and layer.activation is Activation.LINEAR
        return linear and overflow_certificate(layer, bits=bits).safe

    def _changed(self) -> None:
        """Look again, before anybody is spared a call: what the chip holds, or what calls cost, is not what it was."""
        self._spared.clear()

    def _register(self, address: int) -> tuple[_Resident, str, int]:
        self._ready()
        processor, unit = registers.locate(address)
        for resident in self._residents.values():
            if resident.placement and processor in resident.placement.processors:
                layer = resident.image.layers[resident.placement.processors.index(processor)]
                if unit < layer.units:
                    return resident, f"{layer.name}/threshold", unit
                raise NpuError(
                    f"processor {processor} holds layer `{layer.name}` of {layer.units} units. Got unit {unit}"
                )
        raise NpuError(f"no program is on processor {processor}: nothing answers at {address:#x}")

    def _next_call(self) -> None:
        """Count an inference call and let its faults happen."""
        self._n_calls += 1
        for fault in self._faults.at_call(self._n_calls):
            match fault:
                case Timeout():
                    self.ledger.enter(failures=1)
                    raise DeviceTimeoutError(f"call {self._n_calls} got no answer\nhint: try again, or reset()")
                case Vanish():
                    self._gone = True
                    for resident in self._residents.values():
                        resident.placement = None
                    self.ledger.enter(failures=1)
                    self._ready()
                case BitFlip(bits=bits):
                    self._flip(bits)

    def _flip(self, bits: int) -> None:
        rng = self._faults.generator(self._n_calls)
        loaded = [resident for resident in self._residents.values() if resident.placement]
        struck = loaded[int(rng.integers(len(loaded)))]
        struck.write(flip_bits(struck.memory, bits, rng))

    def _check_steps(self, program: Program) -> None:
        finest = 1 / self.profile.arithmetic.steps_per_unit.value
        for layer in program.layers:
            if layer.activation is Activation.BOUNDED_RELU and layer.act_step.min() < finest:
                raise ProgramError(
                    f"layer `{layer.name}`: steps on {self.profile.name} are at least {finest:g}. "
                    f"Got {layer.act_step.min():g}"
                )


def _own(program: Program) -> Program:
    """Return a copy that shares no memory with the caller's."""
    layers = tuple(
        replace(w, weights=w.weights.copy(), threshold=w.threshold.copy(), act_step=w.act_step.copy())
        for w in program.layers
    )
    return replace(program, layers=layers)
