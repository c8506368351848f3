"""Philox against numpy.random.Philox, and against the bandwidth of storing what it makes.

Floor: ten rounds of 2 products, 2 shifts and 4 xors for every two doubles (a vector makes 2 L of them at once). The
ceiling is that arithmetic alone on four independent blocks, so that no latency shows, measured in the same run; making
doubles of the bits, addresses and stores come on top. The store of 16 bytes per pair is far from binding.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.native import Stream, available_levels, kernels, level

SITES, DRAWS = 1 << 14, 8  # 1 MiB: stays in the second-level cache


def rate(seconds: float, size_bytes: int) -> Measured:
    return Measured(value=size_bytes / seconds / 1e9, unit="GB/s", how="best of 5, 1 thread, perf_counter")


def rounds_ceiling(name: str) -> Measured:
    """Bytes a second if only the ten rounds were to be done."""
    module, rounds = kernels(name), 100_000
    vectors = module.philox_rounds(rounds) / best_of(lambda: module.philox_rounds(rounds)) / 10
    value = 2 * module.vector_bytes * vectors / 1e9
    return Measured(value=value, unit="GB/s", how="ten rounds on independent blocks, best of 5, 1 thread")


def rows() -> Iterator[BenchRow]:
    out = np.empty((SITES, DRAWS))
    flat = np.empty(SITES * DRAWS)
    peer = np.random.Generator(np.random.Philox(1))
    peers = {
        "uniform": rate(best_of(lambda: peer.random(out=flat)), flat.nbytes),
        "normal": rate(best_of(lambda: peer.standard_normal(out=flat)), flat.nbytes),
    }
    for kind in ("uniform", "normal"):
        for name in available_levels():
            fill = getattr(kernels(name), kind)
            yield BenchRow(
                name=f"Philox {kind} doubles, level {name}",
                value=rate(best_of(lambda fill=fill: fill(out, 1, 0, 0, 0, 0, 1)), out.nbytes),
                peer_name="numpy Philox",
                peer=peers[kind],
                ceiling_name="rounds alone",
                ceiling=rounds_ceiling(name),
            )

    def through_python() -> None:
        Stream(1).uniform(step=0, sites=SITES, draws=DRAWS, threads=1, out=out)

    yield BenchRow(
        name=f"Stream.uniform through Python, level {level()}",
        value=rate(best_of(through_python), out.nbytes),
        peer_name="numpy Philox",
        peer=peers["uniform"],
    )
