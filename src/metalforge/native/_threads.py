"""How many threads a kernel uses when the call does not say."""

import os

from metalforge.core.errors import SpecError

__all__ = ["default_threads", "thread_count"]


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
