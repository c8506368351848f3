"""The least time that counted work can take, measured in turn with who does it."""

from benchmarks.rows import Turn, best_of
from metalforge.native import kernels


def arithmetic(flops: float, precision: str = "f64") -> tuple[str, Turn]:
    """The ceiling of multiply-adds in registers, on one thread."""
    peak, rounds = getattr(kernels(), f"fma_{precision}"), 1 << 15
    done = peak(rounds, 1)
    return "multiply-adds", lambda: flops / done * best_of(lambda: peak(rounds, 1), repeats=3, minimum_s=0.01)
