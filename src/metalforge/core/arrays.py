"""Type names for arrays, and a `repr` for records of arrays that fits a screen.

`BriefRepr` shows shapes where dataclasses would print every number.
"""

from dataclasses import fields
from html import escape
from reprlib import Repr
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Doubles: TypeAlias = NDArray[np.float64]
Reals: TypeAlias = NDArray[np.floating[Any]]
"""float32 or float64."""

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

    def _brief(self) -> list[tuple[str, str]]:
        shown = ((f.name, getattr(self, f.name, None)) for f in fields(self) if f.repr)  # type: ignore[arg-type]
        brief = ((name, " ".join(_SHORTENED.repr(value).split())) for name, value in shown if value is not None)
        return [(name, text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...") for name, text in brief]

    def __repr__(self) -> str:
        """Return the fields that are not None, each of them shortened."""
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in self._brief())})"

    def _repr_html_(self) -> str:
        """Return a table for a notebook: a row for every field, as short as in `repr`."""
        rows = "".join(f"<tr><td>{name}</td><td><code>{escape(text)}</code></td></tr>" for name, text in self._brief())
        return f"<table><caption>{type(self).__name__}</caption><tbody>{rows}</tbody></table>"
