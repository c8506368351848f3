"""Fields on a GPU: the buffers and kernels of a lattice, for a card that launches and copies.

A `Card` is all that is asked of a device; `cuda_engine` has the one that is CuPy. Kernels are in `native/cuda`: a file
is compiled once a precision, and each kernel takes one record, the same in C++ and here.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import PlacementError

from .engine import ActionKernel, BufferKind, Dims, Floats, Precision

__all__ = ["Card", "CudaEngine", "Memory"]

Memory: TypeAlias = Any
"""What a card's `zeros` returns."""

BLOCK = 32
"""Sites of a block of memory (cuda/sites.cuh)."""
LINK_THREADS, SITE_THREADS, SWEEP_THREADS = 4 * BLOCK, 128, 64
"""Threads of a block of the kernels that have a thread a link, a site, or a site of one parity (cuda/gauge.cu)."""
JOIN_THREADS = 128

LATTICE = [("extent", "4i4"), ("half", "i4"), ("padded", "i4")]
CHAIN_ROW = np.dtype([("beta", "f8"), ("seed", "u8"), ("stream", "u4"), ("step", "u4")], align=True)
"""What a kernel must know of a chain."""
WORK = np.dtype(
    [
        *LATTICE,
        *((name, "i4") for name in ("parity", "mu", "parts", "numbers")),
        ("rows", "u8"),
        ("one", CHAIN_ROW),
        *((name, "u8") for name in ("links", "to", "momenta", "host", "partial", "sums")),
        *((name, "f8") for name in ("keep", "coefficient", "eps", "c1")),
    ],
    align=True,
)
"""The record of cuda/gauge.cu."""


class Card(Protocol):
    """A device: memory, kernels, and one stream in which all that is asked for happens in turn."""

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

    def launch(
        self, file: str, precision: Precision, kernel: str, blocks: tuple[int, int], threads: int, record: NDArray[Any]
    ) -> None:
        """Start a kernel of a file of `native/cuda`."""


class CudaEngine:
    """A card as an engine: links of quenched chains have the bits of CPUs that fuse multiply-adds."""

    family, threads = "fma", 1

    def __init__(self, card: Card, reopen: tuple[Callable[..., "CudaEngine"], tuple[Any, ...]]) -> None:
        self.card = card
        self.name = card.name
        self._reopen = reopen

    def __reduce__(self) -> tuple[Callable[..., "CudaEngine"], tuple[Any, ...]]:
        return self._reopen

    def grid(self, dims: Dims, precision: Precision) -> "CudaGrid":
        """Return a lattice in one precision, with its kernels."""
        if math.prod(dims) > MOST_SITES:
            raise PlacementError(
                f"{self.name}: a lattice of {'x'.join(map(str, dims))} has more than 2^29 sites, the most kernels count"
            )
        return _grid(self, dims, precision)


MOST_SITES = 1 << 29


@lru_cache(maxsize=32)
def _grid(engine: CudaEngine, dims: Dims, precision: Precision) -> "CudaGrid":
    return CudaGrid(engine, dims, precision)


class DeviceBuffer:
    """Numbers of one field on the card. Links that move go to other memory, so what a buffer has may change."""

    __slots__ = ("memory",)

    def __init__(self, memory: Memory) -> None:
        self.memory = memory


class CudaGrid:
    """One lattice in one precision."""

    def __init__(self, engine: CudaEngine, dims: Dims, precision: Precision, chains: int = 1) -> None:
        self.engine, self.dims, self.precision, self.chains = engine, dims, precision, chains
        self._card = card = engine.card
        self._real = np.dtype(np.float64 if precision == "f64" else np.float32)
        self.volume = math.prod(dims)
        half = self.volume // 2
        padded = -(-half // BLOCK) * BLOCK
        self._numbers: dict[BufferKind, int] = {
            "links": chains * 2 * padded * 4 * 18,
            "momenta": chains * 2 * padded * 4 * 8,
            "colours": chains * padded * 6,
        }
        self._link_blocks = 2 * padded // BLOCK
        self._site_blocks = 2 * -(-half // SITE_THREADS)
        self._line_blocks = 2 * -(-half // dims[3] // SITE_THREADS)
        self._sweep_blocks = -(-half // SWEEP_THREADS)
        # A kernel has at most two sums, over link blocks at most.
        self._partial = card.zeros(chains * 2 * self._link_blocks, np.float64)
        self._sums = card.zeros(chains * 2, np.float64)
        self._elsewhere: Memory | None = None
        self._staging: Memory | None = None
        self._record = np.zeros((), WORK)
        self._record["extent"], self._record["half"], self._record["padded"] = dims, half, padded
        self._record["partial"], self._record["sums"] = card.address(self._partial), card.address(self._sums)

    # Buffers.

    def new(self, kind: BufferKind) -> DeviceBuffer:
        buffer = DeviceBuffer(self._card.zeros(self._numbers[kind], self._real))
        if kind == "links":
            self._on_links("set_unit", links=buffer)
        return buffer

    def assign(self, target: DeviceBuffer, source: DeviceBuffer) -> None:
        self._card.copy(target.memory, source.memory)

    def clear(self, buffer: DeviceBuffer) -> None:
        self._card.clear(buffer.memory)

    def upload(self, kind: BufferKind, buffer: DeviceBuffer, host: NDArray[Any], parity: int = 0) -> None:
        staging = self._stage()
        numbers = np.ascontiguousarray(host, np.float64 if kind == "momenta" else np.complex128).view(np.float64)
        self._card.write(staging[: numbers.size], numbers.reshape(-1))
        self._on_links(f"pack_{kind}", host=staging, **{kind: buffer})

    def download(self, kind: BufferKind, buffer: DeviceBuffer, parity: int = 0) -> NDArray[Any]:
        staging, shape = self._stage(), self.dims[::-1]
        self._on_links(f"unpack_{kind}", host=staging, **{kind: buffer})
        if kind == "momenta":
            return self._card.read(staging[: self.volume * 32]).reshape(*shape, 4, 8)
        return self._card.read(staging[: self.volume * 72]).view(np.complex128).reshape(*shape, 4, 3, 3)

    def _stage(self) -> Memory:
        """Memory for numbers on their way, in file order."""
        if self._staging is None:
            self._staging = self._card.zeros(self.volume * 72, np.float64)
        return self._staging

    # Kernels.

    def _launch(self, kernel: str, blocks: int, threads: int, **values: Any) -> None:
        record = self._record.copy()
        for name, value in values.items():
            if isinstance(value, DeviceBuffer):
                value = value.memory
            record[name] = value if np.ndim(value) == 0 or name == "one" else self._card.address(value)
        self._card.launch("gauge.cu", self.precision, kernel, (blocks, self.chains), threads, record)

    def _on_links(self, kernel: str, **values: Any) -> None:
        self._launch(kernel, self._link_blocks, LINK_THREADS, **values)

    def _summed(self, kernel: str, blocks: int, threads: int, numbers: int, **values: Any) -> NDArray[np.float64]:
        """The sums of a kernel, after all of its blocks."""
        self._launch(kernel, blocks, threads, **values)
        self._launch("join", 1, JOIN_THREADS, parts=blocks, numbers=numbers)
        return self._card.read(self._sums)[:numbers]

    # Links.

    def set_hot(self, links: DeviceBuffer, seed: int, stream: int, step: int) -> None:
        self._on_links("set_hot", links=links, one=(0.0, seed, stream, step))

    def heatbath(self, links: DeviceBuffer, beta: float, seed: int, stream: int, step: int, selection: int) -> None:
        self._sweep("heatbath", links, selection, one=(beta, seed, stream, step))

    def overrelax(self, links: DeviceBuffer, selection: int) -> None:
        self._sweep("overrelax", links, selection)

    def _sweep(self, kernel: str, links: DeviceBuffer, selection: int, **values: Any) -> None:
        for mu in range(4):
            for parity in range(2):
                if selection >> (2 * mu + parity) & 1:
                    self._launch(
                        kernel, self._sweep_blocks, SWEEP_THREADS, links=links, mu=mu, parity=parity, **values
                    )

    def reunitarise(self, links: DeviceBuffer) -> None:
        self._on_links("reunitarise", links=links)

    def plaquette_sums(self, links: DeviceBuffer) -> tuple[float, float]:
        spatial, temporal = self._summed("sum_plaquettes", self._site_blocks, SITE_THREADS, 2, links=links)
        return float(spatial), float(temporal)

    def action_energy(self, links: DeviceBuffer, action: ActionKernel) -> float:
        kernel, c1 = _action(action)
        return float(self._summed(f"sum_{kernel}", self._site_blocks, SITE_THREADS, 1, links=links, c1=c1)[0])

    def polyakov(self, links: DeviceBuffer) -> complex:
        re, im = self._summed("sum_polyakov", self._line_blocks, SITE_THREADS, 2, links=links)
        return complex(re, im)

    def clover_sums(self, links: DeviceBuffer) -> tuple[float, float]:
        energy, charge = self._summed("sum_clover", self._site_blocks, SITE_THREADS, 2, links=links)
        return float(energy), float(charge)

    def distance(self, links: DeviceBuffer, others: DeviceBuffer) -> float:
        return float(np.max(np.abs(self._card.read(links.memory) - self._card.read(others.memory))))

    # Momenta.

    def refresh_momenta(self, momenta: DeviceBuffer, seed: int, stream: int, step: int) -> None:
        self._on_links("refresh_momenta", momenta=momenta, one=(0.0, seed, stream, step))

    def kinetic(self, momenta: DeviceBuffer) -> float:
        return float(self._summed("sum_kinetic", self._link_blocks, LINK_THREADS, 1, momenta=momenta)[0])

    def evolve(
        self, links: DeviceBuffer, momenta: DeviceBuffer, beta: float, stages: Floats, action: ActionKernel
    ) -> None:
        kernel, c1 = _action(action)
        one = (beta, 0, 0, 0)
        steps = [(bool(kind), float(coefficient)) for kind, coefficient in stages]
        while steps:
            is_kick, coefficient = steps.pop(0)
            if not is_kick:
                self._on_links("move_links", links=links, momenta=momenta, eps=coefficient)
                continue
            move = kernel == "wilson" and bool(steps) and not steps[0][0]
            if not move:
                self._on_links(
                    f"kick_{kernel}", links=links, momenta=momenta, one=one, keep=1.0, coefficient=coefficient, c1=c1
                )
                continue
            # Kick and move in one pass: links go to other memory, which the buffer then has.
            if self._elsewhere is None:
                self._elsewhere = self._card.zeros(self._numbers["links"], self._real)
            self._on_links(
                "kick_move",
                links=links,
                to=self._elsewhere,
                momenta=momenta,
                one=one,
                keep=1.0,
                coefficient=coefficient,
                eps=steps.pop(0)[1],
            )
            links.memory, self._elsewhere = self._elsewhere, links.memory

    def kick_momenta(
        self, links: DeviceBuffer, momenta: DeviceBuffer, keep: float, coefficient: float, action: ActionKernel
    ) -> None:
        kernel, c1 = _action(action)
        self._on_links(
            f"kick_{kernel}",
            links=links,
            momenta=momenta,
            one=(1.0, 0, 0, 0),
            keep=keep,
            coefficient=coefficient,
            c1=c1,
        )

    def move_links(self, links: DeviceBuffer, momenta: DeviceBuffer, eps: float) -> None:
        self._on_links("move_links", links=links, momenta=momenta, eps=eps)


def _action(action: ActionKernel) -> tuple[str, float]:
    """The kernels of an action, by their name, and its coefficient."""
    return ("wilson", 0.0) if action is None or action[0] == "wilson" else (action[0], float(action[1][0]))
