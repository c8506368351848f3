"""A quick look at whether the kernels compute what they must: what `metalforge doctor` runs."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ._level import available_levels, default_threads, kernels
from .random import Stream
from .reduce import from_df64, ordered_sum, to_df64


class SelfCheck(NamedTuple):
    """One check, its verdict and what was seen."""

    name: str
    passed: bool
    detail: str


# Salmon et al., SC'11, Random123 release: kat_vectors, philox4x32-10 with all bits of counter and key set.
_ANSWER = (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


def _known_answer() -> tuple[bool, str]:
    ones = 0xFFFFFFFF
    out = np.zeros((1, 4), np.uint32)
    kernels().philox_blocks(np.full((1, 4), ones, np.uint32), np.full((1, 2), ones, np.uint32), out)
    return tuple(out[0].tolist()) == _ANSWER, "philox4x32-10(all ones) = " + " ".join(f"{w:08x}" for w in out[0])


def _same_everywhere() -> tuple[bool, str]:
    threads = max(2, default_threads())
    reference = Stream(1).normal(step=3, sites=100, draws=6, threads=1)
    same = []
    for name in available_levels():
        out = np.empty_like(reference)
        kernels(name).normal(out, 1, 0, 3, 0, 0, threads)
        same.append(bool(np.array_equal(out, reference)))
    return all(same), f"levels {', '.join(available_levels())}; 1 and {threads} threads"


def _ordered() -> tuple[bool, str]:
    x = Stream(2).normal(step=0, sites=50_000, draws=2).ravel()
    sums = {ordered_sum(x, threads=t) for t in (1, 2, 3)}
    error = abs(min(sums) - float(np.sum(x.astype(np.longdouble))))
    return len(sums) == 1 and error < 1e-9, f"{len(x)} numbers, 1-3 threads, off by {error:.1e}"


def _double_float() -> tuple[bool, str]:
    x = Stream(3).uniform(step=0, sites=1000, draws=2).ravel() + 0.5
    a = to_df64(x)
    out = np.empty_like(a)
    kernels().df64("mul", a, a, a, out, 1)
    exact = from_df64(a).astype(np.longdouble) ** 2
    error = np.abs(from_df64(out) - exact) / exact
    worst, typical = (-float(np.log2(x)) for x in (np.max(error), np.sqrt(np.mean(error**2))))
    passed = worst >= 45 and typical >= 48
    return passed, f"products right to {typical:.1f} bits (48 promised), to {worst:.1f} at the worst (45)"


_CHECKS: dict[str, Callable[[], tuple[bool, str]]] = {
    "random numbers: known answer": _known_answer,
    "random numbers: same bits everywhere": _same_everywhere,
    "sums: same bits for any threads": _ordered,
    "df64: precision": _double_float,
}


def selftest() -> list[SelfCheck]:
    """Run every check; takes milliseconds."""
    return [SelfCheck(name, *check()) for name, check in _CHECKS.items()]
