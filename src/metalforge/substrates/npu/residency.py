"""Programs of several users on one device: who is on the chip, who has to go, and who comes back.

Each user keeps `DevicePrograms`; all users of one device share one list of what is on it, so that their slots have
different names, and a program that had to make room for another is loaded again before it is called. Evicted is the
program that was used longest ago, whoever it belongs to.

Within a step a caller goes through his programs forwards and backwards by turns, for their order does not matter. Of n
equal programs of which c fit, each step then finds the last c of the step before still there and loads n - c: no order
can do with less. (Always forwards, the same rule would evict what is wanted next and load all n.)

A program that returns is what its user wrote last by `write` or `update`. Programs that were loaded without going
through here are left alone.
"""

import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Array, find

from .device import NpuDevice, Outputs, ResourceError, Spent, image_bytes, variable
from .program import Program

T = TypeVar("T")
POTENTIAL_BYTES = 4
"""Potentials come back as int32."""


class _Residents:
    """What all users of one device have on it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.names: set[str] = set()
        """Slots that are taken, on the chip or waiting for their turn."""
        self.on_chip: dict[str, None] = {}
        """Slots on the chip, the one used longest ago first."""
        self.tail: tuple[str, ...] = ()
        """Slots that were used together last, in this order; none where others were since, or one has gone."""

    def use(self, slot: str) -> None:
        """Put a slot on the chip last: it is used now."""
        self.tail = ()
        if next(reversed(self.on_chip), None) != slot:
            self.on_chip.pop(slot, None)
            self.on_chip[slot] = None

    def gone(self, *slots: str) -> None:
        """Take slots off the list."""
        self.tail = ()
        for slot in slots:
            self.on_chip.pop(slot, None)


_DEVICES: WeakKeyDictionary[NpuDevice, _Residents] = WeakKeyDictionary()
_LOCK = threading.Lock()


class DevicePrograms:
    """The programs that one user keeps on one device, by the slot that `add` gave them.

    A program that does not fit beside its user's others is refused when it is added, but for a device of few slots,
    where programs take turns; `by_turns` lets them do so on any device, and what does not fit then waits for its first
    call. `loads`, `reloads`, `reloaded_bytes` and `evictions` (programs, of whoever, that made room) count since it was
    made. The first load of a program is not a reload.
    """

    def __init__(self, device: NpuDevice, *, by_turns: bool = False) -> None:
        self.device = device
        self.by_turns = by_turns
        self.loads = self.reloads = self.reloaded_bytes = self.evictions = 0
        self.seconds = 0.0
        """Wall time inside the device's methods. For an emulator that is the time of emulating, and no more."""
        self.bytes_in = self.bytes_out = 0
        """What calls carried."""
        now = device.spent("")
        self._spent = now.since(now)
        """What slots that were given back had taken."""
        self._since: dict[str, Spent] = {}
        """What each slot had taken before it was given to a program here."""
        self._programs: dict[str, Program] = {}
        self._seen: set[str] = set()
        self._traffic: dict[tuple[tuple[str, ...], tuple[int, ...]], tuple[int, int]] = {}
        self._compute: Callable[..., Any] | None = getattr(device, "compute", None)
        with _LOCK:
            self._shared = _DEVICES.setdefault(device, _Residents())

    def add(self, name: str, program: Program) -> str:
        """Take a program in; return its slot, `name` or, where that is taken, `name#2` and so on."""
        with self._shared.lock:
            taken = self._shared.names.union(self.device.slots())
            slot, count = name, 1
            while slot in taken:
                count += 1
                slot = f"{name}#{count}"
            self._shared.names.add(slot)
            self._since[slot] = self.device.spent(slot)
            self._programs[slot] = program
            try:
                if not self.by_turns:
                    self._load(slot, spare=self._programs if self.device.n_slots is None else ())
                elif self._fits(slot):
                    self._entered(slot)
            except BaseException:
                self._forget(slot)
                raise
        return slot

    @property
    def resident(self) -> tuple[str, ...]:
        """These programs' slots on the device now; the one that was used longest ago comes first."""
        with self._shared.lock:
            return tuple(slot for slot in self._shared.on_chip if slot in self._programs)

    @property
    def programs(self) -> tuple[Program, ...]:
        """These programs as the host knows them, in the order in which they were added."""
        return tuple(self._programs.values())

    def program(self, slot: str) -> Program:
        """Return a program as the host wrote it last."""
        return find("program of this user on the device", slot, self._programs)

    def infer(self, slot: str, rows: NDArray[np.uint8]) -> Outputs:
        """Return what a program gives for chip inputs (rows, lines); loads it first where it is not there."""
        with self._shared.lock:
            self.bring(slot)
            values = self._ask(self.device.infer, rows, slot)
        self.bytes_in += rows.nbytes
        self.bytes_out += values.nbytes
        return values

    def compute(
        self,
        slots: tuple[str, ...],
        work: Callable[[tuple[Program, ...]], T | None],
        rows: tuple[int, ...],
        rounds: int = 1,
        orders: Sequence[tuple[str, ...]] = (),
    ) -> T | None:
        """Return what `work` makes of these programs in place of calling them; None where they must be called.

        It stands for `rounds` calls of each with its number of chip `rows`, in the `orders` by turns (as `slots` are,
        without). Only an emulator can be spared its calls (`EmulatedDevice.compute`), and only programs that are all on
        the chip already: the first call brings one there.
        """
        if self._compute is None:
            return None
        shared = self._shared
        with shared.lock:
            if shared.tail is not slots:  # else they are on the chip, and in this order
                for slot in slots:
                    if slot not in shared.on_chip:
                        return None
            start = perf_counter()
            turns = tuple([slot for order in orders for slot in order]) if orders else ()
            found: T | None = self._compute(slots, work, rows, rounds, turns)
            self.seconds += perf_counter() - start
            if found is None:
                return None
            bytes_in, bytes_out = self._carried(slots, rows)
            self.bytes_in += rounds * bytes_in
            self.bytes_out += rounds * bytes_out
            if shared.tail is not slots or orders:
                for slot in orders[(rounds - 1) % len(orders)] if orders else slots:
                    shared.use(slot)
                shared.tail = () if orders else slots
        return found

    def _carried(self, slots: tuple[str, ...], rows: tuple[int, ...]) -> tuple[int, int]:
        """Return the bytes in and out of a round of calls."""
        if (known := self._traffic.get((slots, rows))) is None:
            calls = [(n, self.program(slot).layers) for slot, n in zip(slots, rows, strict=True)]
            known = self._traffic[slots, rows] = (
                sum(n * layers[0].inputs for n, layers in calls),
                sum(n * layers[-1].units * POTENTIAL_BYTES for n, layers in calls),
            )
        return known

    def bring(self, slot: str) -> None:
        """Make a program resident, in place of those used longest ago; raises `ResourceError` where it never fits."""
        with self._shared.lock:
            on_chip = self._shared.on_chip
            if slot in on_chip and slot in self._programs:
                self._shared.use(slot)
                return
            self.program(slot)
            self._load(slot)

    def write(self, slot: str, program: Program) -> None:
        """Put a whole program in a slot, over what the device holds there."""
        with self._shared.lock:
            self.program(slot)
            self._programs[slot] = program
            self._load(slot)

    def update(self, slot: str, program: Program) -> int:
        """Replace the weights of a program of one layer; return the bytes that went over, none where they are equal.

        One that is not resident has them when it comes back.
        """
        layer, old = program.layers[0], self.program(slot).layers[0]
        if np.array_equal(layer.weights, old.weights):
            return 0
        with self._shared.lock:
            if slot in self._shared.on_chip:
                self._ask(self.device.set_variable, f"{old.name}/weights", layer.weights, slot)
            self._programs[slot] = program
        return layer.weights.nbytes

    def get_variable(self, slot: str, name: str) -> Array:
        """Return a variable as the device holds it, or will hold it while the program waits for its turn."""
        with self._shared.lock:
            on_chip = slot in self._shared.on_chip
            return self.device.get_variable(name, slot) if on_chip else variable(self.program(slot), name)

    def spent(self) -> Spent:
        """Return what the device is modelled to have taken for these programs: calls, updates and loads."""
        total = self._spent
        for slot in self._since:
            total = total.plus(self._spent_by(slot))
        return total

    def _spent_by(self, slot: str) -> Spent:
        return self.device.spent(slot).since(self._since[slot])

    def reload(self) -> None:
        """Put every program on the device again."""
        for slot, program in self._programs.items():
            self.write(slot, program)

    def reset_device(self) -> None:
        """Reset the device. Programs of all users are loaded again when they are called."""
        with self._shared.lock:
            self.device.reset()
            self._shared.gone(*self._shared.on_chip)

    def close(self) -> None:
        """Take these programs off the device; the device itself stays open for its other users."""
        with self._shared.lock:
            for slot in tuple(self._programs):
                if slot in self._shared.on_chip:
                    self.device.unload(slot)
                self._forget(slot)

    def _load(self, slot: str, spare: "dict[str, Program] | tuple[()]" = ()) -> None:
        """Load a program, in place of those used longest ago that are not spared."""
        while not self._fits(slot):
            others = [name for name in self._shared.on_chip if name != slot and name not in spare]
            if not others:
                self.device.load(self._programs[slot], slot)  # still too large: its own error says by how much
            self.device.unload(others[0])
            self._shared.gone(others[0])
            self.evictions += 1
        self._entered(slot)

    def _fits(self, slot: str) -> bool:
        """Load a program where there is room for it."""
        try:
            self._ask(self.device.load, self._programs[slot], slot)
        except ResourceError:
            return False
        return True

    def _ask(self, method: Callable[..., T], *arguments: Any) -> T:
        """Return what a method of the device gives, and count the time that it takes."""
        start = perf_counter()
        try:
            return method(*arguments)
        finally:
            self.seconds += perf_counter() - start

    def _entered(self, slot: str) -> None:
        self._shared.use(slot)
        self.loads += 1
        if slot in self._seen:
            self.reloads += 1
            self.reloaded_bytes += image_bytes(self._programs[slot])
        self._seen.add(slot)

    def _forget(self, slot: str) -> None:
        if slot in self._since:
            self._spent = self._spent.plus(self._spent_by(slot))
            del self._since[slot]
        self._programs.pop(slot, None)
        self._shared.names.discard(slot)
        self._shared.gone(slot)
        self._traffic.clear()
