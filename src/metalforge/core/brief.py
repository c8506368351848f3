"""A `repr` that fits a screen: records of arrays show shapes where dataclasses would print every number."""

from dataclasses import fields
from reprlib import Repr
from typing import Any

LONGEST = 100
"""Characters of one field."""


class _Shortened(Repr):
    """Arrays by type and shape, everything else on one line and cut in its middle."""

    def repr_instance(self, x: Any, level: int) -> str:
        return super().repr_instance(x, level) if not hasattr(x, "shape") else self.repr_ndarray(x, level)

    def repr_ndarray(self, x: Any, level: int) -> str:
        extents = " x ".join(map(str, x.shape))
        return f"<{x.dtype} {extents}>" if extents and hasattr(x, "dtype") else repr(x)


_SHORTENED = _Shortened()
_SHORTENED.maxother = _SHORTENED.maxstring = LONGEST
_SHORTENED.maxtuple = _SHORTENED.maxlist = _SHORTENED.maxdict = 3
_SHORTENED.maxlevel = 2


class BriefRepr:
    """Base of a dataclass (made with ``repr=False``) whose `repr` is short whatever it holds."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the fields that are not None, each of them shortened."""
        shown = ((f.name, getattr(self, f.name, None)) for f in fields(self) if f.repr)  # type: ignore[arg-type]
        inside = ", ".join(f"{name}={_SHORTENED.repr(value)}" for name, value in shown if value is not None)
        return f"{type(self).__name__}({' '.join(inside.split())})"
