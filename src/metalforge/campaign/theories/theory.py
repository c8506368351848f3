"""What a campaign must know of a physics before anything runs: its systems, its coordinate, its columns.

A *system* is what chains or trajectories are of (a lattice; a box of particles), named by a tuple of integers. A
*point* is a system at a value of the *coordinate* (beta; ln Gamma). A *target* is what the campaign is for: a peak, a
curve or a crossing. What moves chains is `campaign.running.points`, what is found from rows `campaign.findings`.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol, Self, TypeAlias

import msgspec

Dims: TypeAlias = tuple[int, ...]
"""Names a system: the four extents of a lattice, or the particles of a box."""
Start: TypeAlias = Literal["hot", "cold", "random", "bcc", "fcc", "two-phase"]
Target: TypeAlias = Literal["peak", "curve", "crossing"]


class TheoryWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a campaign is spoken of, on pages and in figures; symbols as text."""

    coordinate: str
    axis: str
    """The coordinate as the label of an axis."""
    coupling: str
    """What people give instead of the coordinate, and `coupling_like` some."""
    coupling_like: str
    system: str
    system_like: str
    found: str
    """What a campaign finds, and `missing` that it has not."""
    missing: str
    error_of: str
    """What a target error is the error of, after a number."""
    figure: str
    """The title of the main figure, and what its two halves show: "" for none."""
    shows: tuple[str, str]
    columns: tuple[str, str, str]
    """The coordinate and what is shown, as names of columns in files."""
    chain: str
    chains: str
    update: str


class WideWork(NamedTuple):
    """Updates of an order at least and at most, and how many times longer visits are than elsewhere."""

    least: int
    most: int
    visit: int


class Theory(Protocol):
    """A table of the spec that says which physics it is."""

    table: ClassVar[str]
    """Its name in the spec."""
    screened: ClassVar[bool]
    """Whether heads look at its chains, so that a campaign may have a screen."""
    wide: ClassVar[WideWork]
    """How work is cut up where many chains move at once."""

    @property
    def words(self) -> TheoryWords:
        """How it is spoken of."""
        ...

    @property
    def coordinate(self) -> str:
        """What points differ in, in words."""
        ...

    @property
    def target(self) -> Target:
        """What a campaign is for."""
        ...

    @property
    def systems(self) -> tuple[Dims, ...]:
        """What chains are of, in the order of the spec."""
        ...

    @property
    def low(self) -> float:
        """The smallest value of the coordinate."""
        ...

    @property
    def high(self) -> float:
        """The largest value of the coordinate."""
        ...

    @property
    def sums_matter(self) -> bool:
        """Whether the order of sums has a say in what comes next: then one kind of engine goes on with a chain."""
        ...

    def at(self, coupling: float) -> float:
        """Return the coordinate of a coupling as people give it."""
        ...

    def of(self, systems: Sequence[Dims]) -> Self:
        """Return it with other systems."""
        ...

    def with_more(self, systems: Sequence[Dims]) -> Self:
        """Return it with more systems beside its own; raises where they do not belong together."""
        ...

    def within(self, low: float, high: float) -> Self:
        """Return it with other ends of the coordinate."""
        ...

    def columns(self) -> tuple[str, ...]:
        """Return the observables that rows have."""
        ...

    def start_of(self, number: int) -> Start:
        """Return where the chain of this number begins, unless somebody wants another start."""
        ...

    def bytes_of(self, dims: Dims) -> int:
        """Return what one chain of a system takes in memory."""
        ...
