"""Which build level of the kernels runs (the best the CPU supports, or ``METALFORGE_ISA``), and how many threads."""

import importlib
import os
from functools import cache, lru_cache
from importlib.util import find_spec
from types import ModuleType

from metalforge.core import KernelError, SpecError, UnknownNameError

LEVELS = ("portable", "v2", "v3", "v4")
"""All build levels, slowest first. The v-levels are those of the x86-64 psABI."""


@lru_cache(maxsize=1)
def supported_levels() -> tuple[str, ...]:
    """Return the levels this CPU can run, slowest first."""
    try:
        from . import _cpu
    except ImportError as error:
        raise KernelError(
            f"the compiled kernels are not installed ({error})\nhint: run `make install` in the source tree"
        ) from error
    return tuple(_cpu.supported_levels())


@lru_cache(maxsize=1)
def available_levels() -> tuple[str, ...]:
    """Return the levels that are built and that this CPU can run, slowest first."""
    return tuple(name for name in supported_levels() if find_spec(f"{__package__}._kernels_{name}"))


def level() -> str:
    """Return the level in use."""
    levels = available_levels()
    asked = os.environ.get("METALFORGE_ISA", "")
    if not asked:
        if not levels:
            raise KernelError("no build of the kernels runs on this CPU; x86-64-v2 (2009) is the oldest supported")
        return levels[-1]
    if asked not in LEVELS:
        raise UnknownNameError("build level in METALFORGE_ISA", asked, LEVELS)
    if asked not in levels:
        raise KernelError(f"METALFORGE_ISA asks for `{asked}`, but this CPU and build have {', '.join(levels)}")
    return asked


@cache
def _load(name: str) -> ModuleType:
    # GCC's OpenMP spins for about a millisecond at each barrier. On a machine with other work that starves the thread
    # it waits for: a sweep on two busy cores was 30 times slower, two runs at once 10 times. A thousand turns are a few
    # microseconds, as long as a balanced loop needs; alone, nothing is lost. Read once, when the runtime is loaded; a
    # setting of the user's wins.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    return importlib.import_module(f"{__package__}._kernels_{name}")


def kernels(name: str | None = None) -> ModuleType:
    """Return the kernel module of one level, by default the one in use."""
    if name is not None and name not in available_levels():
        raise UnknownNameError("build level", name, available_levels())
    return _load(name or level())


def openmp() -> bool:
    """Whether the kernels can use more than one thread."""
    return bool(kernels().openmp)


MAX_THREADS = 1024
"""What the kernels accept (`max_threads` of the compiled module)."""


def default_threads() -> int:
    """Return ``METALFORGE_THREADS``, else ``OMP_NUM_THREADS``, else the cores this process may run on."""
    for variable in ("METALFORGE_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(variable, "").split(",")[0].strip()
        if text:
            if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
                raise SpecError(
                    f"environment variable {variable} must be an integer in [1, {MAX_THREADS}]. Got `{text}`"
                )
            return int(text)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count(threads: int | None) -> int:
    """Return the number to use: `threads`, or the default when it is None. The kernels check its range."""
    return default_threads() if threads is None else threads
