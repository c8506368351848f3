"""A GPU as an engine: the buffers and kernels of gauge fields (gauge.cu), for a card that launches and copies."""

import math
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core import PlacementError
from metalforge.native.engine import ActionKernel, BufferKind, Dims, Floats, Precision

from .batch import CudaBatch
from .card import (
    BLOCK,
    CHAIN_ROW,
    LATTICE,
    LINK_THREADS,
    SITE_THREADS,
    SUMS,
    Card,
    DeviceBuffer,
    Launcher,
)
from .particles import CudaParticles
from .precision import Fp64Choice, Fp64Strategy, choose
from .staggered import ColourKernels, CudaStaggered
from .walker import Walker, action_of, stages_of

SWEEP_THREADS = 64
"""Threads of a block of the kernels that have a thread per site of one parity."""
WORK = np.dtype(
    [
        *LATTICE,
        ("parity", "i4"),
        ("mu", "i4"),
        ("rows", "u8"),
        ("one", CHAIN_ROW),
        ("times", "u4"),
        ("ahead", "u4"),
        *((name, "u8") for name in ("links", "to", "momenta", "pairs", "pairs_to", "pair_momenta", "host")),
        *SUMS,
        *((name, "f8") for name in ("keep", "coefficient", "eps", "c1")),
        *((name, "u8") for name in ("energies", "next_slot")),
        *((name, "u4") for name in ("slots", "always", "pair_share")),
    ],
    align=True,
)
"""The record of motion.cuh."""
FORMS = ("kick_wilson", "kick_move")
"""Kernels with a second form for few sites: more registers per thread, the same arithmetic for each link."""
SITES_OF_A_MULTIPROCESSOR = 496
"""In flight, that keep one busy: 32 chains of 8^3x4 on the 132 of an H200, beyond which nothing is gained."""
MOST_SITES = 1 << 29
"""Of a lattice: kernels count sites of all chains in 31 bits."""
MEASURED = (16, 16, 16, 16)
"""The lattice that strategies are measured on: it fills a card."""
STEPS = 10
"""Kicks and moves of a walk that is measured."""


class CudaEngine:
    """A card as an engine: links of quenched chains have the bits of CPUs that fuse multiply-adds.

    By another strategy than `native` (precision.py) trajectories have bits of their own, and the engine another name.
    """

    threads = 1

    def __init__(
        self,
        card: Card,
        reopen: tuple[Callable[..., "CudaEngine"], tuple[Any, ...]],
        fp64: Fp64Choice = Fp64Choice(),  # noqa: B008 - a value
    ) -> None:
        self.card, self.fp64 = card, fp64
        self.name = card.name + fp64.suffix
        self.family = fp64.suffix.removeprefix(":") or "fma"
        self._reopen = reopen

    def __reduce__(self) -> tuple[Callable[..., "CudaEngine"], tuple[Any, ...]]:
        return self._reopen

    @property
    def remark(self) -> str:
        """How it computes double precision, with the measurement that rests on; nothing unless that was asked."""
        return "" if self.fp64.asked == Fp64Strategy.NATIVE else f"double precision: {self.fp64.line}"

    @property
    def busy_sites(self) -> int:
        """Sites of all chains together below which part of the card has nothing to do."""
        return SITES_OF_A_MULTIPROCESSOR * self.card.limits.multiprocessors

    def grid(self, dims: Dims, precision: Precision) -> "CudaGrid":
        """Return a lattice in one precision, with its kernels."""
        if math.prod(dims) > MOST_SITES:
            raise PlacementError(
                f"{self.name}: a lattice of {'x'.join(map(str, dims))} has more than 2^29 sites, the most kernels count"
            )
        return _grid(self, dims, precision, threading.get_ident())

    def batch(self, dims: Dims, precision: Precision, chains: int) -> CudaBatch:
        """Return room for so many quenched chains of one lattice, which move together."""
        sites = math.prod(dims) * 4 * 18 * (8 if precision == "f64" else 4)
        return CudaBatch(lambda n: CudaGrid(self, dims, precision, n), chains, self.card.cache_bytes, sites)

    def particles(
        self, replicas: int, n: int, length: float, kappa: float, cutoff: float, skin: float, precision: Precision
    ) -> CudaParticles:
        """Return room for so many boxes of particles, which move in one launch."""
        return CudaParticles(self.card, replicas, n, length, kappa, cutoff, skin, precision)


def measured_choice(card: Card, asked: str, dims: Dims = MEASURED) -> Fp64Choice:
    """Return the fastest strategy that `asked` allows on a card, by walks on `dims`."""

    def walk_with(choice: Fp64Choice) -> Callable[[], None]:
        grid = CudaGrid(CudaEngine(card, (CudaEngine, ()), choice), dims, "f64")
        links, momenta = grid.new("links"), grid.new("momenta")
        grid.set_hot(links, 1, 0, 0)
        grid.refresh_momenta(momenta, 1, 0, 0)
        stages = np.array([[1.0, 1e-4], [0.0, 1e-4]] * STEPS)  # an even number: links end where they began
        work = partial(grid.evolve, links, momenta, 5.7, stages, None)
        work()
        replay = card.capture(work)

        def walk() -> None:
            replay()
            card.wait()

        return walk

    return choose(asked, walk_with)


@lru_cache(maxsize=32)
def _grid(engine: CudaEngine, dims: Dims, precision: Precision, thread: int) -> "CudaGrid":
    """One a thread: sums and spare links are the grid's, and two chains must not use them at a time."""
    return CudaGrid(engine, dims, precision)


class CudaGrid:
    """One lattice in one precision."""

    def __init__(self, engine: CudaEngine, dims: Dims, precision: Precision, chains: int = 1) -> None:
        self.engine, self.dims, self.precision, self.chains = engine, dims, precision, chains
        self.card = card = engine.card
        self._real = np.dtype(np.float64 if precision == "f64" else np.float32)
        self.volume = math.prod(dims)
        self.half = half = self.volume // 2
        self.padded = padded = -(-half // BLOCK) * BLOCK
        self._numbers: dict[BufferKind, int] = {
            "links": chains * 2 * padded * 4 * 18,
            "momenta": chains * 2 * padded * 4 * 8,
            "colours": chains * padded * 6,
        }
        self.link_blocks = 2 * padded // BLOCK
        self.site_blocks = 2 * -(-half // SITE_THREADS)
        self.line_blocks = 2 * -(-half // dims[3] // SITE_THREADS)
        self._sweep_blocks = -(-half // SWEEP_THREADS)
        self._few = chains * self.link_blocks <= card.limits.multiprocessors
        # No kernel has more blocks than those with a thread per link, nor more than four sums.
        self.sums = {
            "partial": DeviceBuffer(card, chains * 4 * self.link_blocks, np.float64),
            "sums": DeviceBuffer(card, chains * 4, np.float64),
            "arrived": DeviceBuffer(card, chains, np.uint32),
        }
        self.launch = Launcher(self, "gauge.cu", WORK)
        self.launch.record["times"] = 1
        self.walker = Walker(self, engine.fp64, WORK)
        self._colours = ColourKernels(self)
        self._staging: DeviceBuffer | None = None

    # Buffers.

    def memory(self, kind: BufferKind) -> DeviceBuffer:
        """Return room for a field."""
        return DeviceBuffer(self.card, self._numbers[kind], self._real)

    def new(self, kind: BufferKind) -> DeviceBuffer:
        buffer = self.memory(kind)
        if kind == "links":
            self.on_links("set_unit", links=buffer)
        return buffer

    def assign(self, target: DeviceBuffer, source: DeviceBuffer) -> None:
        self.card.copy(target.memory, source.memory)

    def clear(self, buffer: DeviceBuffer) -> None:
        self.card.clear(buffer.memory)

    def upload(self, kind: BufferKind, buffer: DeviceBuffer, host: NDArray[Any], parity: int = 0) -> None:
        staging = self._stage()
        numbers = np.ascontiguousarray(host, np.float64 if kind == "momenta" else np.complex128).reshape(-1)
        self.card.write(staging.memory[: numbers.view(np.float64).size], numbers.view(np.float64))
        self._move(f"pack_{kind}", kind, buffer, parity)

    def download(self, kind: BufferKind, buffer: DeviceBuffer, parity: int = 0) -> NDArray[Any]:
        staging, shape = self._stage(), self.dims[::-1]
        numbers = staging.memory[: self.volume * _HOST_NUMBERS[kind]]
        if kind == "colours":
            self.card.clear(numbers)
        self._move(f"unpack_{kind}", kind, buffer, parity)
        host = self.card.read(numbers)
        if kind == "momenta":
            return host.reshape(*shape, 4, 8)
        return host.view(np.complex128).reshape(*shape, *((4, 3, 3) if kind == "links" else (3,)))

    def _move(self, kernel: str, kind: BufferKind, buffer: DeviceBuffer, parity: int) -> None:
        if kind == "colours":
            self._colours.on_sites(kernel, out=buffer, host=self._stage(), parity=parity)
        else:
            self.on_links(kernel, host=self._stage(), **{kind: buffer})

    def _stage(self) -> DeviceBuffer:
        """Numbers on their way, in file order."""
        if self._staging is None:
            self._staging = DeviceBuffer(self.card, self.volume * _HOST_NUMBERS["links"], np.float64)
        return self._staging

    # Kernels.

    def on_links(self, kernel: str, **values: Any) -> None:
        """Launch a kernel with a thread per link."""
        # Where no multiprocessor has two blocks, a thread may have all its registers.
        form = "_few" if self._few and kernel in FORMS else ""
        self.launch(kernel + form, self.link_blocks, LINK_THREADS, **values)

    def sum(self, kernel: str, **values: Any) -> None:
        """Launch a kernel that sums over sites."""
        self.launch(f"sum_{kernel}", self.site_blocks, SITE_THREADS, **values)

    def summed(self, numbers: int) -> NDArray[np.float64]:
        """Return what the last kernel summed."""
        return self.card.read(self.sums["sums"].memory)[:numbers]

    # Links.

    def set_hot(self, links: DeviceBuffer, seed: int, stream: int, step: int) -> None:
        self.on_links("set_hot", links=links, one=(0.0, seed, stream, step))

    def heatbath(self, links: DeviceBuffer, beta: float, seed: int, stream: int, step: int, selection: int) -> None:
        self.sweep("heatbath", links, selection, one=(beta, seed, stream, step))

    def overrelax(self, links: DeviceBuffer, selection: int) -> None:
        self.sweep("overrelax", links, selection)

    def sweep(self, kernel: str, links: DeviceBuffer, selection: int, **values: Any) -> None:
        """One launch per direction and parity, so that no link changes while its staple is in use."""
        for mu in range(4):
            for parity in range(2):
                if selection >> (2 * mu + parity) & 1:
                    self.launch(kernel, self._sweep_blocks, SWEEP_THREADS, links=links, mu=mu, parity=parity, **values)

    def reunitarise(self, links: DeviceBuffer) -> None:
        self.on_links("reunitarise", links=links)

    def plaquette_sums(self, links: DeviceBuffer) -> tuple[float, float]:
        self.sum("plaquettes", links=links)
        spatial, temporal = self.summed(2)
        return float(spatial), float(temporal)

    def action_energy(self, links: DeviceBuffer, action: ActionKernel) -> float:
        self.sum_energies(action, links=links)
        return float(self.summed(1)[0])

    def sum_energies(self, action: ActionKernel, **values: Any) -> None:
        """Launch the sums of S / beta and, with momenta, of their energy."""
        name, c1 = action_of(action)
        self.sum(name, c1=c1, **values)

    def polyakov(self, links: DeviceBuffer) -> complex:
        self.launch("sum_polyakov", self.line_blocks, SITE_THREADS, links=links)
        return complex(*self.summed(2))

    def clover_sums(self, links: DeviceBuffer) -> tuple[float, float]:
        self.sum("clover", links=links)
        energy, charge = self.summed(2)
        return float(energy), float(charge)

    def distance(self, links: DeviceBuffer, others: DeviceBuffer, room: DeviceBuffer | None = None) -> float:
        return float(np.max(np.abs(self.card.read(links.memory) - self.card.read(others.memory))))

    # Momenta.

    def refresh_momenta(self, momenta: DeviceBuffer, seed: int, stream: int, step: int) -> None:
        self.on_links("refresh_momenta", momenta=momenta, one=(0.0, seed, stream, step))

    def kinetic(self, momenta: DeviceBuffer) -> float:
        self.sum("kinetic", momenta=momenta)
        return float(self.summed(1)[0])

    def evolve(
        self, links: DeviceBuffer, momenta: DeviceBuffer, beta: float, stages: Floats, action: ActionKernel
    ) -> None:
        there = self.walker.walk(links, momenta, stages, action, keep=False, one=(beta, 0, 0, 0))
        if there is not links:
            links.memory, there.memory = there.memory, links.memory

    def kick_momenta(
        self, links: DeviceBuffer, momenta: DeviceBuffer, keep: float, coefficient: float, action: ActionKernel
    ) -> None:
        for kernel, values in stages_of(np.array([[1.0, coefficient]]), action):
            self.on_links(kernel, links=links, momenta=momenta, one=(1.0, 0, 0, 0), keep=keep, **values)

    def move_links(self, links: DeviceBuffer, momenta: DeviceBuffer, eps: float) -> None:
        self.on_links("move_links", links=links, to=links, momenta=momenta, eps=eps)

    # Colours.

    def gaussian(self, colours: DeviceBuffer, parity: int, seed: int, stream: int, step: int, draw: int) -> None:
        self._colours.on_sites("gaussian", out=colours, parity=parity, one=(0.0, seed, stream, step), draw=draw)

    def dot(self, a: DeviceBuffer, b: DeviceBuffer) -> complex:
        self._colours.on_sites("sum_dots", source=a, x=b)
        return complex(*self.summed(2))

    def norm2(self, colours: DeviceBuffer) -> float:
        return self.dot(colours, colours).real

    def combine(self, out: DeviceBuffer, colours: DeviceBuffer, keep: complex, factor: complex) -> None:
        numbers = {name: (z.real, z.imag) for name, z in (("keep", complex(keep)), ("factor", complex(factor)))}
        self._colours.on_sites("blend_colours", out=out, source=colours, **numbers)

    def narrow_colours(self, narrow: DeviceBuffer, wide: DeviceBuffer, factor: float, parity: int) -> None:
        self._colours.on_sites("narrow_colours", out=narrow, source=wide, factor=(factor, 0.0))

    def widen_colours(self, wide: DeviceBuffer, narrow: DeviceBuffer, keep: float, factor: float, parity: int) -> None:
        self._colours.on_sites("widen_colours", out=wide, source=narrow, keep=(keep, 0.0), factor=(factor, 0.0))

    def staggered(self) -> CudaStaggered:
        return CudaStaggered(self._colours, DeviceBuffer(self.card, self._numbers["links"] * 2 // 3, self._real))


_HOST_NUMBERS: dict[BufferKind, int] = {"links": 72, "momenta": 32, "colours": 6}
"""Reals of a site, in file order."""
