"""A limit on the size of arrays: a few bytes of a file can ask for any extent."""

from math import prod

from metalforge.core.errors import SpecError

__all__ = ["LARGEST", "sized"]

LARGEST = 2**27
"""Numbers that one array may have: 1 GB of float64."""


def sized(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that is not too large; raises `SpecError` before anything of it is made."""
    if prod(shape) > LARGEST:
        raise SpecError(f"an array of {shape} has more than {LARGEST} numbers")
    return shape
