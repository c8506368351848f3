"""Ordered sums and dots against NumPy's. Floor: 8 bytes and one addition a number; memory binds outside the cache.

The price of a fixed order is that the compiler may not choose one. numpy.dot is BLAS with all its threads, so
ordered_dot gets as many; numpy.sum has one.
"""

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.native import Stream, default_threads, ordered_dot, ordered_sum


def rate(work: Callable[[], object], size_bytes: int, threads: int) -> Measured:
    return Measured(value=size_bytes / best_of(work) / 1e9, unit="GB/s", how=f"best of 5, {threads} thread(s)")


def rows() -> Iterator[BenchRow]:
    threads = default_threads()
    for label, n in (("256 KiB", 1 << 15), ("64 MiB", 1 << 23)):
        x = Stream(1).normal(step=0, sites=n // 2, draws=2).ravel()
        y = x.copy()
        yield BenchRow(
            name=f"ordered_sum, {label}, 1 thread",
            value=rate(lambda x=x: ordered_sum(x, threads=1), x.nbytes, 1),
            peer_name="numpy.sum",
            peer=rate(lambda x=x: np.sum(x), x.nbytes, 1),
        )
        yield BenchRow(
            name=f"ordered_dot, {label}, {threads} threads",
            value=rate(lambda x=x, y=y: ordered_dot(x, y), 2 * x.nbytes, threads),
            peer_name="numpy.dot",
            peer=rate(lambda x=x, y=y: np.dot(x, y), 2 * x.nbytes, threads),
        )
