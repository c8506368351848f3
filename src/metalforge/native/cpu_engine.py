"""The CPU as an engine: the compiled kernels of one build level, for any number of threads.

A buffer is a NumPy array in the layout of the kernels, (vectors, ..., lanes) as `bindings/layout.hpp` says.
"""

import atexit
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, lru_cache
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from metalforge.core import check_memory

from ._level import kernels, level, thread_count
from .engine import (
    PARTICLE_SUMS,
    Buffer,
    BufferKind,
    Dims,
    Grid,
    Iterated,
    Iterations,
    Motion,
    ParticleSamples,
    ParticleState,
    Precision,
)

Kernel = Callable[..., Any]
_REALS: dict[str, type[np.float64] | type[np.float32]] = {"f64": np.float64, "f32": np.float32}
_RADIX = 1024
"""Sites are numbered in two digits: the kernels refuse links with entries above a million."""
TAKE_ACTIONS = ("evolve", "kick_momenta")
"""Kernels whose last argument, after the threads, is an action."""


_GRID_KERNELS = {
    **{name: name for name in ("set_hot", "heatbath", "overrelax", "reunitarise", "plaquette_sums", "action_energy")},
    **{name: name for name in ("polyakov", "clover_sums", "refresh_momenta", "kinetic", "move_links", *TAKE_ACTIONS)},
    **{name: f"colour_{name}" for name in ("gaussian", "dot", "norm2", "combine")},
}
"""The kernels of a `Grid` by its methods."""


class CpuEngine:
    """The kernels of one build level with a number of threads; made by `cpu_engine`, one for each pair."""

    def __init__(self, build: str, threads: int) -> None:
        self.module = kernels(build)
        self.name = f"cpu:{build}"
        self.family = "fma" if self.module.has_fma else "plain"
        self.threads = threads

    def __reduce__(self) -> tuple[Kernel, tuple[str, int]]:
        return cpu_engine, (self.module.level, self.threads)

    def grid(self, dims: Dims, precision: Precision) -> Grid:
        """Return a lattice in one precision, with its kernels."""
        links = math.prod(dims) * 4 * 18 * np.dtype(_REALS[precision]).itemsize
        check_memory(f"`dims` {'x'.join(map(str, dims))}: their links in {precision}", links)
        return cast("Grid", _grid(self, dims, precision))  # its kernels are bound by name

    def particles(
        self, replicas: int, n: int, length: float, kappa: float, cutoff: float, skin: float, precision: Precision
    ) -> "_CpuParticles":
        """Return room for boxes; a neighbour takes a byte of list, a particle some hundred of everything else."""
        check_memory(f"{replicas} boxes of {n} particles", int(replicas * n * (300 + 8 * cutoff**3)))
        return _CpuParticles(self, replicas, (n, length, kappa, cutoff, skin), precision)


def cpu_engine(build: str | None = None, threads: int | None = None) -> CpuEngine:
    """Return the CPU's engine, at the level in use and with the default number of threads unless they are named."""
    return _engine(build or level(), thread_count(threads))


class _CpuGrid:
    """One lattice in one precision. Kernels are bound once: a call adds the layout and the threads to its arguments."""

    def __init__(self, engine: CpuEngine, dims: Dims, precision: Precision) -> None:
        self.engine, self.dims, self.precision = engine, dims, precision
        module = engine.module
        self._layout = layout = getattr(module, f"layout_{precision}")(dims)
        self._shapes: dict[BufferKind, tuple[int, ...]] = {
            "links": (layout.vectors, 4, 18, layout.lanes),
            "momenta": (layout.vectors, 4, 8, layout.lanes),
            "colours": (layout.vectors // 2, 6, layout.lanes),
        }
        bind = _binder(engine, precision, layout)
        for name, kernel in _GRID_KERNELS.items():
            setattr(self, name, bind(kernel))
        self._pack: dict[BufferKind, Kernel] = {"links": bind("pack"), "colours": bind("colour_pack")}
        self._unpack: dict[BufferKind, Kernel] = {"links": bind("unpack"), "colours": bind("colour_unpack")}

    def new(self, kind: BufferKind) -> NDArray[Any]:
        buffer = _aligned_zeros(self._shapes[kind], _REALS[self.precision])
        if kind == "links":
            buffer[:, :, [0, 8, 16], :] = 1  # the real parts of the diagonal
        return buffer

    def assign(self, target: Any, source: Any) -> None:
        np.copyto(target, source)

    def clear(self, buffer: Any) -> None:
        buffer.fill(0)

    def upload(self, kind: BufferKind, buffer: Any, host: NDArray[Any], parity: int = 0) -> None:
        if kind == "momenta":
            buffer[...] = np.moveaxis(host.reshape(-1, 4, 8)[self._sites], 1, 3)
        else:
            host = np.ascontiguousarray(host, dtype=np.complex128)
            self._pack[kind](_pairs(host), buffer, *([parity] if kind == "colours" else []))

    def download(self, kind: BufferKind, buffer: Any, parity: int = 0) -> NDArray[Any]:
        shape = self.dims[::-1]
        if kind == "momenta":
            momenta = np.empty((math.prod(shape), 4, 8))
            momenta[self._sites] = np.moveaxis(buffer, 3, 1)
            return momenta.reshape(*shape, 4, 8)
        host = np.zeros((*shape, 4, 3, 3) if kind == "links" else (*shape, 3), np.complex128)
        self._unpack[kind](buffer, _pairs(host), *([parity] if kind == "colours" else []))
        return host

    def distance(self, links: Any, others: Any, room: Any = None) -> float:
        off = np.subtract(links, others, out=room)
        return float(np.maximum(off.max(), -off.min()))

    def narrow_colours(self, narrow: Any, wide: Any, factor: float, parity: int) -> None:
        engine = self.engine
        engine.module.narrow_colours(_bridge(engine.module, self.dims), narrow, wide, factor, parity, engine.threads)

    def widen_colours(self, wide: Any, narrow: Any, keep: float, factor: float, parity: int) -> None:
        engine = self.engine
        bridge = _bridge(engine.module, self.dims)
        engine.module.widen_colours(bridge, wide, narrow, keep, factor, parity, engine.threads)

    def staggered(self) -> "_CpuStaggered":
        return _CpuStaggered(self)

    @cached_property
    def _sites(self) -> NDArray[np.int64]:
        """The site, x fastest, in each lane of each vector: numbered links go in and are looked up."""
        number = np.arange(math.prod(self.dims)).reshape(*self.dims[::-1], 1)
        links = np.zeros((*self.dims[::-1], 4, 3, 3), np.complex128)
        links[..., 0, 0] = number % _RADIX + 1j * (number // _RADIX)
        packed = self.new("links")
        self.upload("links", packed, links)
        return np.asarray(packed[:, 0, 0] + _RADIX * packed[:, 0, 1].astype(np.float64), np.int64)


class _CpuStaggered:
    """The staggered operator of one grid."""

    def __init__(self, grid: _CpuGrid) -> None:
        self._grid = grid
        self._operator = getattr(grid.engine.module, f"staggered_{grid.precision}")(grid._layout)
        bind = _binder(grid.engine, grid.precision, self._operator)
        self._refresh = bind("staggered_refresh")
        self.hop = bind("staggered_hop")
        self.normal = bind("staggered_normal")
        self.force = bind("staggered_force")

    def refresh(self, links: Any, precision: Precision) -> None:
        grid, engine = self._grid, self._grid.engine
        if precision == grid.precision:
            self._refresh(links)
        else:
            across = engine.module.staggered_narrow if precision == "f64" else engine.module.staggered_widen
            across(self._operator, _bridge(engine.module, grid.dims), links, engine.threads)

    def solver(self, shifts: int) -> "_CpuSolver":
        return _CpuSolver(self._grid, self._operator, shifts)


class _CpuSolver:
    """Conjugate gradients on one operator."""

    def __init__(self, grid: _CpuGrid, operator: Any, shifts: int) -> None:
        workspace = getattr(grid.engine.module, f"cg_{grid.precision}")(operator, shifts)
        bind = _binder(grid.engine, grid.precision, operator, workspace)
        self.begin = bind("cg_begin")
        self._iterate = bind("cg_iterate")

    def iterate(self, solutions: Sequence[Buffer], wanted: Iterations) -> Iterated:
        shifts, diagonal, parity, target2, most, every, since = wanted
        most = min(most, every - since)
        done, residual2, state, updates = self._iterate(solutions, shifts, diagonal, target2, most, parity)
        return Iterated(done, residual2, state, updates, [residual2] if done == every - since else [])


class _CpuParticles:
    """Boxes of particles, which share the threads: one each as long as there are fewer threads than boxes."""

    def __init__(
        self, engine: CpuEngine, replicas: int, room: tuple[int, float, float, float, float], precision: Precision
    ) -> None:
        self._n, length, *_ = room
        self._threads = min(engine.threads, replicas)
        each = cpu_engine(engine.module.level, max(1, engine.threads // replicas))
        self._kernels = [getattr(engine.module, f"plasma_{precision}")(*room) for _ in range(replicas)]
        binders = [_binder(each, precision, kernels, length) for kernels in self._kernels]
        self._measure, self._advance = ([bind(f"plasma_{name}") for bind in binders] for name in ("measure", "advance"))

    @property
    def listed(self) -> int:
        """Places of neighbours in the lists that were made last, filled or not."""
        return sum(int(kernels.listed) for kernels in self._kernels)

    def measure(self, positions: NDArray[Any], velocities: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        replicas = len(self._kernels)
        forces, sums = np.empty((replicas, self._n, 3)), np.empty((replicas, len(PARTICLE_SUMS)))
        for measure, *arrays in zip(self._measure, positions.copy(), velocities, forces, sums, strict=True):
            measure(*arrays)
        return forces, sums

    def advance(
        self, state: ParticleState, motions: Sequence[Motion], steps: int, *, samples: int = 0, frames: int = 0
    ) -> list[ParticleSamples]:
        def one(r: int) -> ParticleSamples:
            sums = np.empty((samples, len(PARTICLE_SUMS)))
            places, speeds = np.empty((2, frames, self._n, 3))
            seen = (sums if samples else None, *((places, speeds) if frames else (None, None)))
            positions, boxes, velocities, first = (each[r] for each in state)
            lists = self._advance[r](positions, boxes, velocities, steps, *motions[r], first, *seen)
            return ParticleSamples(sums, places, speeds, lists)

        numbers = range(len(self._kernels))
        if self._threads == 1:
            return [one(r) for r in numbers]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(one, numbers))


def _binder(engine: CpuEngine, precision: Precision, *subject: Any) -> Callable[[str], Kernel]:
    """Return what looks up kernels and binds them to what they work on and to the engine's threads."""
    module, threads = engine.module, engine.threads

    def bind(name: str) -> Kernel:
        kernel = getattr(module, f"{name}_{precision}")
        if name in TAKE_ACTIONS:
            return lambda *arguments: kernel(*subject, *arguments[:-1], threads, arguments[-1])
        return lambda *arguments: kernel(*subject, *arguments, threads)

    return bind


def _pairs(host: NDArray[np.complex128]) -> NDArray[np.float64]:
    return host.view(np.float64).reshape(*host.shape, 2)


def _aligned_zeros(shape: tuple[int, ...], real: type[np.float64] | type[np.float32]) -> NDArray[Any]:
    """Zeros that start on a cache line, so that no vector straddles two."""
    size = math.prod(shape) * np.dtype(real).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(real).reshape(shape)


@cache
def _engine(build: str, threads: int) -> CpuEngine:
    return CpuEngine(build, threads)


@lru_cache(maxsize=32)
def _grid(engine: CpuEngine, dims: Dims, precision: Precision) -> _CpuGrid:
    """A layout takes longer to make than a small field."""
    return _CpuGrid(engine, dims, precision)


@lru_cache(maxsize=8)
def _bridge(module: ModuleType, dims: Dims) -> Any:
    """The map between the single and the double precision layout of a lattice."""
    return module.precision_map(module.layout_f64(dims))


@atexit.register
def _let_go() -> None:
    # At the end of the process the extension goes before this module: what is cached must not outlive it.
    for cached in (_bridge, _grid):
        cached.cache_clear()
