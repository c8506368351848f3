"""A table of a spec: strict fields with bounds."""

from math import isfinite
from typing import ClassVar

import msgspec

from metalforge.core.errors import SpecError


class SpecTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; `LEAST` bounds its numbers from below."""

    LEAST: ClassVar[dict[str, float]] = {}

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if isinstance(value := getattr(self, name), float) and not isfinite(value):
                raise SpecError(f"`{name}` must be a finite number. Got {value}")
        for path, least in self.LEAST.items():
            value = getattr(self, path.rpartition(".")[2])
            if value is not None and not (isfinite(value) and value >= least):
                raise SpecError(f"`{path}` must be at least {least:g}. Got {value}")
