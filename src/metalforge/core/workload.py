"""A kind of work, described by what it needs and how much it is: what `route` places on a substrate."""

import msgspec

from .capabilities import Capability
from .substrate import Kind

__all__ = ["Workload"]


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workload profile.

    `flops` and `bytes_moved` count one call at the reference size named in `size`; a cost model turns them into time
    and energy. `precision` is the arithmetic those operations use.
    """

    name: str
    summary: str
    needs: tuple[Capability, ...]
    prefer: Kind | None = None
    size: str
    flops: float
    bytes_moved: float
    precision: str = "f64"

    def __post_init__(self) -> None:
        if not self.needs:
            raise ValueError(f"workload `{self.name}` must need at least one capability")
        if not (self.flops > 0 and self.bytes_moved > 0):
            raise ValueError(f"`flops` and `bytes_moved` of workload `{self.name}` must be positive")
