"""Stages of a module, so that files and processes can name them."""

import os
import signal
import threading
from dataclasses import dataclass

import numpy as np

from metalforge.core import Measured, MeterUnavailableError, SubstrateInfo
from metalforge.core.substrate import Kind
from metalforge.pipeline import END, Emit, Source, Stage


@dataclass(frozen=True)
class Sample:
    """An item with a header."""

    beta: float
    chi: float
    number: int


@dataclass
class Numbers(Source[int]):
    """0 .. count - 1."""

    count: int = 10

    def init(self):
        return 0

    def produce(self, state):
        return (state + 1, Emit(state)) if state < self.count else (state, END)


def samples() -> list[Sample]:
    return [Sample(beta=5.5 + 0.01 * i, chi=float(i), number=i) for i in range(40)]


def increment(x: int) -> int:
    return x + 1


def forget(x: int) -> None:
    return None


def shorten(x: str) -> str:
    return x[:1]


@dataclass
class RunningSum(Stage[int, int]):
    """Sends the sum so far; its process kills itself, once, on each number in `deadly` (notes in a folder)."""

    deadly: tuple[int, ...] = ()
    notes: str = ""

    def init(self):
        return 0

    def step(self, state, item):
        if item in self.deadly:
            note = os.path.join(self.notes, f"died-{item}")
            if not os.path.exists(note):
                open(note, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return state + item, state + item

    def configure(self, state, config):
        return state + config


@dataclass
class NeverReturns(Stage[int, int]):
    """Waits for ever on the first item."""

    def step(self, state, item):
        threading.Event().wait()


@dataclass
class AlwaysDies(Stage[int, int]):
    """Kills its process on odd numbers, every time."""

    def step(self, state, item):
        if item % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return state, item


def double_array(x: np.ndarray) -> np.ndarray:
    x *= 2  # in place: what arrives by shared memory is writable
    return x


def ancestry(x: int) -> int:
    return os.getpid()


@dataclass
class Relay(Stage[tuple, tuple]):
    """Passes items on; the state is how many."""

    def init(self):
        return 0

    def step(self, state, item):
        return state + 1, Emit(item)


@dataclass
class Endless(Source[int]):
    """0, 1, 2, ... for ever."""

    def init(self):
        return 0

    def produce(self, state):
        return state + 1, Emit(state)


@dataclass
class Hangs(Stage[int, int]):
    """Never comes back from odd numbers."""

    def step(self, state, item):
        if item % 2:
            threading.Event().wait()
        return state, item


@dataclass
class Frail(Stage[int, int]):
    """Kills its process while it begins: `at_first` times in `init`, `later` times in `restore`; hangs on `hangs`."""

    notes: str
    at_first: int = 0
    later: int = 0
    hangs: int = -1

    def _die(self, when, times):
        died = len([name for name in os.listdir(self.notes) if name.startswith(when)])
        if died < times:
            open(os.path.join(self.notes, f"{when}-{died}"), "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    def init(self):
        self._die("init", self.at_first)
        return 0

    def restore(self, saved):
        self._die("restore", self.later)
        return saved

    def step(self, state, item):
        if item == self.hangs:
            threading.Event().wait()
        return state + item, state + item


@dataclass
class Unsaveable(Stage[int, int]):
    """Its state has no bytes: from the beginning, or after the first item."""

    from_the_first: bool = True

    def init(self):
        return threading.Lock if self.from_the_first else None

    def step(self, state, item):
        return threading.Lock, item


def hang_on_odd(x: int) -> int:
    if x % 2:
        threading.Event().wait()
    return x


class MeteredChip:
    """A substrate that is its own meter: it has counted `joules`, or says the `reason` why it cannot."""

    name = "fake"

    def __init__(self, name, *capabilities, reason=None):
        self.info = SubstrateInfo(kind=Kind.GPU, name=name, model="fake", capabilities=capabilities)
        self.reason, self.joules = reason, 0.0

    def meter(self):
        return self

    def unavailable(self):
        return self.reason

    def total(self):
        if self.reason:
            raise MeterUnavailableError(self.reason)
        return Measured(value=self.joules, unit="J", how="a test")
