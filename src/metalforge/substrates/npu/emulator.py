"""The AKD1000 without the board: its integers, its room, and the time and energy that a profile says it would take.

Results are exact and the same on every machine. Several programs may be on the device, each in its own slot: what
happens to one never changes another.
"""

import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Array, Closing
from metalforge.substrates.profiles import DeviceProfile
from metalforge.substrates.profiles import profile as find_profile

from . import costs
from .certificate import overflow_certificate
from .device import (
    DEFAULT_SLOT,
    NpuError,
    Outputs,
    Spent,
    Statistics,
    as_rows,
    check_linear,
    image_bytes,
    slot_limit,
    variable,
    with_variable,
)
from .ledger import Ledger
from .mesh import Placement, plan
from .products import CompiledProgram
from .program import Activation, Program, ProgramError
from .wire import from_bytes

T = TypeVar("T")


@dataclass(slots=True)
class _Resident:
    """One slot: its program, its place, and what its calls cost."""

    program: Program
    placement: Placement
    run: Callable[[NDArray[np.uint8]], Outputs] | None = None
    """What the program computes; made when it is first asked for."""
    prices: dict[int, tuple[float, float]] = field(default_factory=dict)


class _Spared(NamedTuple):
    """Slots whose calls may be computed elsewhere, until the device changes; what rounds of them cost, by rows."""

    residents: tuple[_Resident, ...]
    programs: tuple[Program, ...]
    prices: dict[
        tuple[tuple[int, ...], tuple[str, ...]], tuple[list[float], list[float], int, list[tuple[str, float, float]]]
    ]


class EmulatedDevice(Closing):
    """An `NpuDevice` on the CPU; see `device` for what the protocol's methods give back.

    `n_slots` is how many programs it holds at a time; a board holds one. Methods that the protocol has not are its own.
    """

    def __init__(self, profile: DeviceProfile | str = "akd1000-published", *, n_slots: int | None = None) -> None:
        if n_slots is not None and n_slots < 1:
            raise NpuError(f"a device has at least one slot. Got {n_slots}")
        self.n_slots = n_slots
        self.profile = find_profile(profile)
        self.ledger = Ledger(self.profile.name)
        self._lock = threading.RLock()
        self._residents: dict[str, _Resident] = {}
        self._spared: dict[tuple[str, ...], _Spared] = {}
        self._closed = False

    # Programs.

    def load(self, program: Program, slot: str = DEFAULT_SLOT) -> None:
        """Put a copy of a program in a slot, in place of the one there; `ResourceError` where it does not fit."""
        with self._lock:
            self._ready()
            others = {name: r.placement for name, r in self._residents.items() if name != slot}
            if self.n_slots is not None and len(others) >= self.n_slots:
                raise slot_limit(self.n_slots, tuple(others))
            placement = plan(program, self.profile, beside=others.values())
            self._check_steps(program)
            own = deepcopy(program)  # shares no memory with the caller's
            self._residents[slot] = _Resident(own, placement)
            self._changed()
            price = costs.load_cost(own, self.profile)
            seconds, joules = (q.value if q else 0.0 for q in (price.latency, price.energy))
            self.ledger.enter(seconds, joules, slot, loads=1, bytes_pushed=image_bytes(own))

    def program_external(self, data: bytes) -> None:
        """Put a program that comes as bytes in the default slot."""
        self.load(from_bytes(data))

    def unload(self, slot: str = DEFAULT_SLOT) -> None:
        """Take a program off the device and forget it; nothing happens when there is none."""
        with self._lock:
            self._residents.pop(slot, None)
            self._changed()

    def reset(self) -> None:
        """Bring the device back to how it is after power-on: no program."""
        with self._lock:
            self._residents.clear()
            self._changed()

    def slots(self) -> tuple[str, ...]:
        """Return the slots that hold a program, oldest first."""
        with self._lock:
            return tuple(self._residents)

    def placement(self, slot: str = DEFAULT_SLOT) -> Placement:
        """Return where a program is."""
        with self._lock:
            return self._on_chip(slot).placement

    def fingerprint(self, slot: str = DEFAULT_SLOT) -> str:
        """Return the fingerprint of what the chip holds."""
        with self._lock:
            return self._on_chip(slot).program.fingerprint()

    # Inference.

    def infer(self, x: NDArray[np.uint8], slot: str = DEFAULT_SLOT) -> Outputs:
        """Return what the last layer gives for one input or a batch."""
        rows, single = as_rows(x)
        with self._lock:
            resident = self._on_chip(slot)
            if resident.run is None:
                chip = self.profile.arithmetic
                resident.run = CompiledProgram(
                    resident.program,
                    potential_bits=chip.accumulator_bits.value,
                    steps_per_unit=chip.steps_per_unit.value,
                ).run
            values = resident.run(rows)
            self.ledger.enter(*self._price(resident, len(rows)), slot, calls=1, inferences=len(rows))
        return values[0] if single else values

    def infer_linear(self, x: NDArray[np.uint8], slot: str = DEFAULT_SLOT) -> NDArray[np.int32]:
        """Return signed potentials; raises `NpuError` where the last layer rectifies."""
        with self._lock:
            check_linear(self._on_chip(slot).program)
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
        layer rectifies or could saturate, or `work` gives None. As long as nothing is written to the device `work` is
        given the same tuple.
        """
        with self._lock:
            if (spared := self._spared.get(slots)) is None:
                residents = tuple(map(self._on_chip, slots))
                if not all(map(self._computes_exactly, residents)):
                    return None
                spared = self._spared[slots] = _Spared(residents, tuple(r.program for r in residents), {})
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

    # Variables.

    def set_variable(self, name: str, values: Array, slot: str = DEFAULT_SLOT) -> None:
        """Replace a variable by one of the same type and shape."""
        with self._lock:
            resident = self._on_chip(slot)
            program = with_variable(resident.program, name, values)
            self._check_steps(program)
            resident.program, resident.run = program, None
            self._changed()
            price = costs.update_cost(values.nbytes, self.profile)
            if price.latency and price.energy:
                spent = price.latency.value, price.energy.value
                self.ledger.enter(*spent, slot, weight_updates=1, bytes_pushed=values.nbytes)

    def get_variable(self, name: str, slot: str = DEFAULT_SLOT) -> Array:
        """Return a copy of a variable as the chip holds it."""
        with self._lock:
            return variable(self._on_chip(slot).program, name)

    # The device itself.

    def statistics(self) -> Statistics:
        """Return counts with modelled seconds and joules."""
        return self.ledger.statistics()

    def spent(self, slot: str) -> Spent:
        """Return the modelled seconds and joules of one slot, whatever programs were in it."""
        return self.ledger.spent_by(slot)

    def close(self) -> None:
        """Forget every program; the device answers no more calls."""
        with self._lock:
            self._residents.clear()
            self._closed = True
            self._changed()

    def _ready(self) -> None:
        if self._closed:
            raise NpuError("the device is closed\nhint: make another one")

    def _on_chip(self, slot: str) -> _Resident:
        self._ready()
        if slot not in self._residents:
            there = ", ".join(f"`{name}`" for name in self._residents) or "none"
            raise NpuError(f"no program in slot `{slot}`; there are: {there}\nhint: load(program, `{slot}`)")
        return self._residents[slot]

    def _price(self, resident: _Resident, batch: int) -> tuple[float, float]:
        if (price := resident.prices.get(batch)) is None:
            seconds = costs.call_seconds(resident.program, batch, self.profile)
            price = resident.prices[batch] = seconds, seconds * self.profile.call.power_w.value
        return price

    def _computes_exactly(self, resident: _Resident) -> bool:
        """Return whether its calls are plain products: one linear layer that no input saturates."""
        (layer, *others), bits = resident.program.layers, self.profile.arithmetic.accumulator_bits.value
        linear = not others and layer.activation is Activation.LINEAR
        return linear and overflow_certificate(layer, bits=bits).safe

    def _changed(self) -> None:
        """Look again, before anybody is spared a call: what the chip holds, or what calls cost, is not what it was."""
        self._spared.clear()

    def _check_steps(self, program: Program) -> None:
        finest = 1 / self.profile.arithmetic.steps_per_unit.value
        for layer in program.layers:
            if layer.activation is Activation.BOUNDED_RELU and layer.act_step.min() < finest:
                raise ProgramError(
                    f"layer `{layer.name}`: steps on {self.profile.name} are at least {finest:g}. "
                    f"Got {layer.act_step.min():g}"
                )
