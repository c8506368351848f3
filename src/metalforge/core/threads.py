"""Linear algebra on one core: for small problems in a process whose other cores are busy."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


@cache
def _threads() -> Any:
    import scipy.linalg  # noqa: F401  # brings a library of its own, which must be there to be limited
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # comes with scikit-learn

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which linear algebra keeps to one core.

    For small matrices: more threads are ten times slower on busy cores, and the cores belong to the chains. The limit
    is the process's, for as long as the block lasts.
    """
    limit: AbstractContextManager[object] = _threads().limit(limits=1)
    return limit
