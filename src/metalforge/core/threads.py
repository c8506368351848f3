"""Linear algebra on one core: for small problems, and in a process whose other cores are busy."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

SMALL = 1024
"""Features up to which sums and solutions keep to one core: more threads would mostly wait for each other."""


@cache
def _threads() -> Any:
    import scipy.linalg  # noqa: F401  # brings a library of its own, which must be there to be limited
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # comes with scikit-learn

    return ThreadpoolController()


def _for_this_thread() -> None:
    """Let the calling thread set limits: in later versions the first thread that did has that right alone.

    Others' wishes are passed over without a word, and a steerer's thread would wait for cores that chains have.
    """
    for library in _threads().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


class _Limit:
    """The limit of this process, and how many blocks are within it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.held: Any = None


_LIMIT = _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Return a context in which linear algebra keeps to one core.

    For small matrices: more threads are ten times slower on busy cores, and the cores belong to the chains. The limit
    is the process's, for as long as the block lasts; blocks may overlap, in one thread or in several: the first sets
    it and the last takes it back.
    """
    with _LIMIT.lock:
        if _LIMIT.blocks == 0:
            _for_this_thread()
            _LIMIT.held = _threads().limit(limits=1)
        _LIMIT.blocks += 1
    try:
        yield
    finally:
        with _LIMIT.lock:
            _LIMIT.blocks -= 1
            if _LIMIT.blocks == 0:
                _for_this_thread()
                _LIMIT.held.restore_original_limits()
                _for_this_thread()  # and for none after it


def cores_for(width: int) -> AbstractContextManager[object]:
    """Return a context for linear algebra of so many features: on one core where they are few."""
    return one_thread() if width <= SMALL else nullcontext()
