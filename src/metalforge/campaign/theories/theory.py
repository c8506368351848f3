"""What a campaign must know of a physics before anything runs: its systems, its coordinate, its columns.

A *system* is what chains or trajectories are of (a lattice; a box of particles), named by a tuple of integers. A
*point* is a system at a value of the *coordinate* (beta; ln Gamma). A *target* is what the campaign is for: a peak, a
curve or a crossing. What moves chains is `campaign.running.points`, what is found from rows `campaign.findings`.
"""

from typing import Literal, Protocol, TypeAlias

Dims: TypeAlias = tuple[int, ...]
"""Names a system: the four extents of a lattice, or the particles of a box."""
Start: TypeAlias = Literal["hot", "cold", "random", "bcc", "fcc", "two-phase"]
Target: TypeAlias = Literal["peak", "curve", "crossing"]


class Theory(Protocol):
    """A table of the spec that says which physics it is."""

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

    def columns(self) -> tuple[str, ...]:
        """Return the observables that rows have."""
        ...

    def start_of(self, number: int) -> Start:
        """Return where the chain of this number begins, unless somebody wants another start."""
        ...

    def bytes_of(self, dims: Dims) -> int:
        """Return what one chain of a system takes in memory."""
        ...
