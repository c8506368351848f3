"""What is asked of a device, and how kernels are launched on one.

A kernel takes one record, which has the same members in C++ and here; each reads what it needs of it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.native.engine import Precision

if TYPE_CHECKING:
    from .grid import CudaGrid

Memory: TypeAlias = Any
"""What a card's `zeros` returns: it can be sliced."""

Meeting: TypeAlias = Literal["", "cluster", "grid"]
"""Which blocks of a launch meet: none, those of a cluster, all of them."""

BLOCK = 32
"""Sites of a block of memory (sites.cuh)."""
LINK_THREADS, SITE_THREADS = 4 * BLOCK, 128
"""Threads of a block of the kernels that have a thread per link or per site."""

LATTICE = [("extent", "4i4"), ("half", "i4"), ("padded", "i4")]
CHAIN_ROW = np.dtype([("beta", "f8"), ("seed", "u8"), ("stream", "u4"), ("step", "u4")], align=True)
"""What a kernel must know of a chain."""
SUMS = [*((name, "u8") for name in ("partial", "arrived", "sums", "slot")), ("width", "i4"), ("column", "i4")]
"""Where sums are made (sites.cuh)."""


class CardLimits(NamedTuple):
    """What a launch has room for."""

    multiprocessors: int
    shared_bytes: int
    """Of a block, at most."""
    clusters: bool


class Card(Protocol):
    """A device: memory, kernels, and one stream in which all that is asked for happens in turn.

    Any of it may raise a `DeviceLostError`, also for what was asked for before.
    """

    @property
    def name(self) -> str:
        """Kind and number, such as ``cuda:0``."""

    def zeros(self, count: int, kind: Any) -> Memory:
        """Return so many numbers of a NumPy type, all zero; raises a `PlacementError` when there is no room."""

    def address(self, memory: Memory) -> int:
        """Return where memory begins, as kernels see it."""

    def write(self, memory: Memory, host: NDArray[Any]) -> None:
        """Fill memory from the host."""

    def read(self, memory: Memory) -> NDArray[Any]:
        """Return a copy of memory, when everything asked for before is done."""

    def copy(self, target: Memory, source: Memory) -> None:
        """Copy memory to memory."""

    def clear(self, memory: Memory) -> None:
        """Set memory to zero."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return what repeats all launches, copies and clearings of `work`; they may be recorded without being done."""

    def wait(self) -> None:
        """Return when all that was asked for is done."""

    @property
    def cache_bytes(self) -> int:
        """The cache that all of it shares."""

    @property
    def limits(self) -> CardLimits:
        """What a launch has room for."""

    def launch(
        self,
        file: str,
        precision: Precision,
        kernel: str,
        blocks: tuple[int, int],
        threads: int,
        record: NDArray[Any],
        shared: int = 0,
        meeting: Meeting = "",
    ) -> None:
        """Start a kernel of a file of `native/cuda`, with so many bytes of shared memory a block besides its own."""


class DeviceBuffer:
    """Numbers of one field on a card. Links that move go to other memory, so what a buffer has may change."""

    __slots__ = ("_card", "memory")

    def __init__(self, card: Card, count: int, kind: Any) -> None:
        self._card, self.memory = card, card.zeros(count, kind)

    @property
    def address(self) -> int:
        """Where it begins, for kernels."""
        return self._card.address(self.memory)


class Launcher:
    """The kernels of one file on one lattice, and the record that says what they all need."""

    def __init__(self, grid: "CudaGrid", file: str, record: np.dtype[Any]) -> None:
        self._card, self._file, self._grid = grid.card, file, grid
        self.record = np.zeros((), record)
        self.record["extent"], self.record["half"], self.record["padded"] = grid.dims, grid.half, grid.padded
        for name, buffer in grid.sums.items():
            self.record[name] = buffer.address

    def __call__(
        self, kernel: str, blocks: int, threads: int, *, shared: int = 0, meeting: Meeting = "", **values: Any
    ) -> None:
        """Launch a kernel for every chain: blocks for each, their threads and bytes of shared memory, which meet."""
        record = self.record.copy()
        for name, value in values.items():
            record[name] = value.address if isinstance(value, DeviceBuffer) else value
        shape = (blocks, self._grid.chains)
        self._card.launch(self._file, self._grid.precision, kernel, shape, threads, record, shared, meeting)
