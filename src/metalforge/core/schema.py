"""What goes into a network and what comes out, by name: features with their scaling, heads with their place.

Both travel with the weights, so that a file made for other features or other heads is refused instead of misread.
"""

import hashlib
from typing import Literal, TypeAlias

import msgspec

from .errors import SpecError, UnknownNameError

__all__ = ["Feature", "FeatureSchema", "HeadActivation", "HeadLayout", "HeadSpec"]

HeadActivation: TypeAlias = Literal["identity", "sigmoid", "softmax", "relu", "tanh"]


class Feature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One input: the network sees (value - offset) / scale."""

    name: str
    unit: str = ""
    offset: float = 0.0
    scale: float = 1.0


class FeatureSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named, versioned list of features, in the order of the network's inputs."""

    name: str
    version: int = 1
    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        _distinct(f"feature schema `{self.name}`", [f.name for f in self.features])
        for f in self.features:
            if not (f.scale and abs(f.scale) < float("inf") and abs(f.offset) < float("inf")):
                raise SpecError(f"feature `{f.name}` wants a finite offset and a finite scale that is not zero")

    def __len__(self) -> int:
        return len(self.features)

    def fingerprint(self) -> str:
        """Return 16 hex digits that change with any name, unit, order or scaling."""
        return _fingerprint(self)


class HeadSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head: `width` neighbouring outputs and what the host applies to them."""

    name: str
    width: int = 1
    activation: HeadActivation = "identity"


class HeadLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named, versioned set of heads, in the order of the readout's rows. Heads are addressed by name only."""

    name: str
    version: int = 1
    heads: tuple[HeadSpec, ...]

    def __post_init__(self) -> None:
        _distinct(f"head layout `{self.name}`", [h.name for h in self.heads])
        for head in self.heads:
            if head.width < 1:
                raise SpecError(f"head `{head.name}` must have a width of at least 1. Got {head.width}")

    @property
    def width(self) -> int:
        """Outputs of all heads together."""
        return sum(head.width for head in self.heads)

    def span(self, name: str) -> slice:
        """Return where a head's outputs are."""
        start = 0
        for head in self.heads:
            if head.name == name:
                return slice(start, start + head.width)
            start += head.width
        raise UnknownNameError(f"head of layout {self.name}", name, [h.name for h in self.heads])

    def fingerprint(self) -> str:
        """Return 16 hex digits that change with any name, width, order or activation."""
        return _fingerprint(self)


def _distinct(what: str, names: list[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise SpecError(f"{what} wants at least one name, and no name twice. Got {', '.join(names) or 'none'}")


def _fingerprint(record: msgspec.Struct) -> str:
    # Converted once: 5 and 5.0 are the same offset and must have the same digits.
    same = msgspec.convert(msgspec.to_builtins(record), type(record))
    return hashlib.sha256(msgspec.json.encode(same, order="deterministic")).hexdigest()[:16]
