"""What goes into a network and what comes out, by name: features with their scaling, heads with their place.

Both travel with the weights, so that a file made for other features or other heads is refused instead of misread.
"""

import hashlib
import itertools
from math import isfinite
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from .errors import SpecError, require_known

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .arrays import Doubles

HeadActivation: TypeAlias = Literal["identity", "sigmoid", "softmax", "relu", "tanh"]
HeadLoss: TypeAlias = Literal["squared", "log"]
"""Squared error, or the logarithmic loss of a probability."""
PEAK_HEAD = "beta_priority"
"""The head that says where a susceptibility peaks."""


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
        _distinct("feature schema", self.name, [f.name for f in self.features])
        for feature in self.features:
            _scaled("feature", feature)

    def __len__(self) -> int:
        return len(self.features)

    def scaled(self, values: "ArrayLike") -> "Doubles":
        """Return raw values (..., features) as the network sees them."""
        import numpy as np  # not before it is needed: importing metalforge stays quick

        offset, scale = zip(*((f.offset, f.scale) for f in self.features), strict=True)
        return np.asarray((np.asarray(values, np.float64) - np.array(offset)) / np.array(scale))

    def fingerprint(self) -> str:
        """Return 16 hex digits that change with any name, unit, order or scaling."""
        return _fingerprint(self)


class HeadBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A curve over one feature, in its own unit, that a head's value is counted from: knots joined by straight lines.

    Beyond the first and the last knot it is constant.
    """

    feature: str
    knots: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        at = [x for x, _ in self.knots]
        if not at or any(b <= a for a, b in itertools.pairwise(at)) or not all(map(isfinite, sum(self.knots, ()))):
            raise SpecError(f"a base over `{self.feature}` wants finite knots in rising order. Got {self.knots}")


class HeadSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head: `width` neighbouring outputs, what the host applies to them, and what they mean.

    The value is offset + scale * activation(output), in `unit`, and what `base` says of the inputs is added to it.
    `label` says what measurement it is trained on, `baseline` what it must beat. A head that is not `available` has no
    producer of its inputs; one that is not `trained` has a readout of zeros. Neither is trusted.
    """

    name: str
    width: int = 1
    activation: HeadActivation = "identity"
    unit: str = ""
    offset: float = 0.0
    scale: float = 1.0
    loss: HeadLoss = "squared"
    label: str = ""
    baseline: str = ""
    available: bool = True
    trained: bool = True
    base: HeadBase | msgspec.UnsetType = msgspec.UNSET


class HeadLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named, versioned set of heads, in the order of the readout's rows. Heads are addressed by name only."""

    name: str
    version: int = 1
    heads: tuple[HeadSpec, ...]

    def __post_init__(self) -> None:
        _distinct("head layout", self.name, [h.name for h in self.heads])
        for head in self.heads:
            if head.width < 1:
                raise SpecError(f"head `{head.name}` must have a width of at least 1. Got {head.width}")
            _scaled("head", head)

    @property
    def width(self) -> int:
        """Outputs of all heads together."""
        return sum(head.width for head in self.heads)

    @property
    def names(self) -> tuple[str, ...]:
        """The heads' names, in order."""
        return tuple(head.name for head in self.heads)

    def __getitem__(self, name: str) -> HeadSpec:
        """Return a head by name."""
        require_known(f"head of layout {self.name}", name, self.names)
        return self.heads[self.names.index(name)]

    def expect_no_base(self, what: str) -> None:
        """Refuse heads whose values are counted from a curve over inputs, which `what` cannot do."""
        if based := [head.name for head in self.heads if head.base is not msgspec.UNSET]:
            hint = "read it with `ConductorProgram`"
            raise SpecError(f"{what} cannot add the base curve of `{based[0]}`\nhint: {hint}")

    def span(self, name: str) -> slice:
        """Return where a head's outputs are."""
        width = self[name].width
        start = sum(head.width for head in self.heads[: self.names.index(name)])
        return slice(start, start + width)

    def fingerprint(self) -> str:
        """Return 16 hex digits that change with anything but whether heads are trained."""
        heads = tuple(msgspec.structs.replace(head, trained=True) for head in self.heads)
        return _fingerprint(msgspec.structs.replace(self, heads=heads))


def _distinct(what: str, title: str, names: list[str]) -> None:
    if strange := [name for name in (title, *names) if not name.isprintable()]:  # they are printed, and name values
        raise SpecError(f"names of a {what} must hold printable characters only. Got {strange[0]!r}")
    if not names or len(set(names)) != len(names):
        raise SpecError(
            f"{what} `{title}` wants at least one name, and no name twice. Got {', '.join(names) or 'none'}"
        )


def _scaled(what: str, one: Feature | HeadSpec) -> None:
    if not (one.scale and isfinite(one.scale) and isfinite(one.offset)):
        raise SpecError(f"{what} `{one.name}` wants a finite offset and a finite scale that is not zero")


def _fingerprint(record: msgspec.Struct) -> str:
    # Converted once: 5 and 5.0 are the same offset and must have the same digits.
    same = msgspec.convert(msgspec.to_builtins(record), type(record))
    return hashlib.sha256(msgspec.json.encode(same, order="deterministic")).hexdigest()[:16]
