"""What a plan is asked for: a policy, an objective, how much rounding may err, and what prices both sides."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.substrates.prices import HostModel, Objective
from metalforge.substrates.profiles import DeviceProfile

__all__ = ["Policy", "Wishes"]

Policy: TypeAlias = Literal["default", "seed"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wishes:
    """`tolerance` is the relative error that a quantised op may have, `batch` the samples of one call."""

    policy: Policy
    objective: Objective
    profile: DeviceProfile
    tolerance: float
    host: HostModel
    batch: int

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise UnknownNameError("policy", self.policy, get_args(Policy))
        if self.objective not in get_args(Objective):
            raise UnknownNameError("objective", self.objective, get_args(Objective))
        if not 0 < self.tolerance < float("inf"):
            raise SpecError(f"`tolerance` must be a positive number. Got {self.tolerance}")
        if self.batch < 1:
            raise SpecError(f"`batch` must be at least 1. Got {self.batch}")
