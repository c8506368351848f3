"""Cards of NVIDIA through CuPy: memory, launches, one stream. The only place, besides discovery, that knows CuPy."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.util import find_spec
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core import DeviceLostError, MetalforgeError, PlacementError
from metalforge.native.engine import Precision

from .card import CardLimits, Meeting, Memory
from .grid import CudaEngine, measured_choice
from .nvrtc import compiled
from .precision import Fp64Choice

OLDEST = 70
"""The first compute capability with the warp operations that kernels use."""

FIRST_WITH_CLUSTERS = 90


class CupyCard:
    """A CUDA device. Everything is put into one stream of its own, in the order it is asked for."""

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self._cupy = cupy = importlib.import_module("cupy")
        self._device = cupy.cuda.Device(index)
        capability = self._device.compute_capability
        if int(capability) < OLDEST:
            raise PlacementError(f"{self.name} has compute capability {capability}; kernels need {OLDEST} or newer")
        self.architecture = f"sm_{capability}"
        with self._device:
            # Not the null stream: that one waits for others, and cannot be recorded.
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self._kernels: dict[tuple[str, str, str], Any] = {}
        # What another thread asks for while work is recorded would be recorded, too.
        self._turn = RLock()

    @contextmanager
    def _here(self) -> Iterator[None]:
        """The card and its stream; what the driver says against it is an error of ours."""
        cuda = self._cupy.cuda
        try:
            with self._turn, self._device, self._stream:
                yield
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
            raise DeviceLostError(
                f"{self.name} failed: {error}\nhint: a new process can open it again; checkpoints continue there "
                "and on cores"
            ) from error

    def zeros(self, count: int, kind: Any) -> Memory:
        needed = count * np.dtype(kind).itemsize
        with self._here():
            try:
                return self._cupy.zeros(count, kind)
            except self._cupy.cuda.memory.OutOfMemoryError as error:
                free, there = self._cupy.cuda.runtime.memGetInfo()
                raise PlacementError(
                    f"{self.name} has {free / 2**30:,.1f} of its {there / 2**30:,.1f} GiB free; "
                    f"a field would take {needed / 2**30:,.2f} GiB"
                ) from error

    def address(self, memory: Memory) -> int:
        return int(memory.data.ptr)

    def write(self, memory: Memory, host: NDArray[Any]) -> None:
        with self._here():
            memory.set(host)

    def read(self, memory: Memory) -> NDArray[Any]:
        with self._here():
            result: NDArray[Any] = memory.get()
            return result

    def copy(self, target: Memory, source: Memory) -> None:
        with self._here():
            target.data.copy_from_device_async(source.data, source.nbytes, self._stream)

    def clear(self, memory: Memory) -> None:
        with self._here():
            memory.data.memset_async(0, memory.nbytes, self._stream)

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
        function = self._kernels.get((file, precision, kernel))
        with self._here():
            if function is None:
                raw = self._module(file, precision).get_function(kernel)
                if meeting:  # more shared memory than a block has unasked
                    raw.max_dynamic_shared_size_bytes = int(self._properties["sharedMemPerBlockOptin"])
                function = self._kernels[file, precision, kernel] = raw.kernel
            # As plain bytes: asked where it lies, an array with named members describes them all first.
            plain = record.view(f"V{record.nbytes}")
            function(blocks, (threads,), (plain,), shared, None, meeting == "grid")

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return what repeats all the launches and copies of `work`, which are recorded and not done."""
        with self._here():
            self._stream.begin_capture()
            try:
                work()
            finally:
                graph = self._stream.end_capture()

        def replay() -> None:
            with self._here():
                graph.launch(self._stream)

        return replay

    @cached_property
    def _properties(self) -> dict[str, Any]:
        with self._device:
            return dict(self._cupy.cuda.runtime.getDeviceProperties(self._device.id))

    @property
    def cache_bytes(self) -> int:
        return int(self._properties["l2CacheSize"])

    @cached_property
    def limits(self) -> CardLimits:
        """What solvers go by; a test may say that a card has less."""
        return CardLimits(
            int(self._properties["multiProcessorCount"]),
            int(self._properties["sharedMemPerBlockOptin"]),
            int(self._device.compute_capability) >= FIRST_WITH_CLUSTERS,
        )

    def wait(self) -> None:
        """Return when all that was asked for is done."""
        with self._here():
            self._stream.synchronize()

    def _module(self, file: str, precision: Precision) -> Any:
        key = (file, precision, "")
        if key not in self._kernels:
            self._kernels[key] = self._cupy.RawModule(path=str(compiled(file, precision, self.architecture)))
        return self._kernels[key]


def cuda_engine(index: int = 0, strategy: str = "native", pair_share: int | None = None) -> CudaEngine:
    """Return the engine of a card; raises a `PlacementError` that says what is missing.

    The strategy, by its name in `Fp64Strategy`, is how trajectories in double precision use the card. `auto`, and
    `concurrent` without its share of 64 blocks, are measured, which takes seconds; `engine.fp64` says what was chosen
    and why. The same question has the same answer within a process; a chain that must go on bit for bit elsewhere
    opens `engine.fp64.strategy` and `pair_share` by name.
    """
    Fp64Choice.of(strategy, pair_share)
    return _engine(index, strategy, pair_share)


@cache
def _engine(index: int, strategy: str, pair_share: int | None) -> CudaEngine:
    card = _card(index)
    choice = Fp64Choice.of(strategy, pair_share) or measured_choice(card, strategy)
    share = choice.pair_share if choice.strategy == "concurrent" else None
    return CudaEngine(card, (cuda_engine, (index, str(choice.strategy), share)), choice)


@cache
def _card(index: int) -> CupyCard:
    """One stream a card, whatever the engines on it: what one wrote another may read."""
    if find_spec("cupy") is None:
        raise PlacementError(f"cuda:{index} needs cupy, which is not installed\nhint: pip install 'metalforge[cuda]'")
    try:
        return CupyCard(index)
    except MetalforgeError:
        raise
    except Exception as error:  # no driver, an old one, no such card: CuPy has an error of its own for each
        first = str(error).partition("\n")[0]
        raise PlacementError(f"cuda:{index} cannot be opened: {type(error).__name__}: {first}") from error
