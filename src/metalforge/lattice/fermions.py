"""Which sea quarks a chain has, as data: flavours, masses, and how exactly they are solved for."""

import math
from itertools import pairwise

import msgspec

from metalforge.core import SpecError, require_at_least

REVERSIBLE_TOLERANCE = 1e-9
"""The coarsest force tolerance for chronological guesses. A trajectory there and back misses its start (4^4, am = 0.1,
unit length) by as much as the tolerance then, and by a tenth of it where every solve starts from zero."""


class FermionSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sea quarks: `flavors[i]` (1 to 4) of mass `masses[i]` (am > 0), e.g. (2, 1) and (0.02, 0.05) for 2+1."""

    flavors: tuple[int, ...]
    masses: tuple[float, ...]
    n_inner: int = 2
    """Gauge steps within each move of the fermion scheme."""
    preconditioners: tuple[float, ...] = ()
    """Hasenbusch masses, ascending, for four flavours."""
    n_heavy: int = 1
    """Steps of the heaviest preconditioner within each move of the others, where there are preconditioners."""
    tolerance: float = 1e-11
    """Relative residual of the solves of heat bath, action and observables."""
    force_tolerance: float = 1e-8
    """Relative residual of the solves along the trajectory."""
    action_error: float = 1e-10
    """Relative error of the rational functions of heat bath and action."""
    force_error: float = 1e-6
    """Relative error of the rational function along the trajectory."""
    max_iterations: int = 10_000
    """A solve that takes more is an error."""
    chronological: int = 0
    """Solutions of a trajectory that the first guess of the next is made of; 0 starts every solve from zero."""
    mixed_precision: bool = False
    """Whether single solves run in float inside and in double outside."""
    noise_vectors: int = 4
    """Noise vectors a measurement of the condensate."""

    def __post_init__(self) -> None:
        if not self.flavors or len(self.flavors) != len(self.masses):
            raise SpecError(f"every entry of `flavors` needs a mass. Got {self.flavors} and {self.masses}")
        if any(n not in (1, 2, 3, 4) for n in self.flavors):
            raise SpecError(
                f"`flavors` must be 1, 2, 3 or 4 for each field. Got {self.flavors}\n"
                "hint: more flavours of one mass are several fields, e.g. (4, 4)"
            )
        if any(not 0 < mass < math.inf for mass in self.masses):
            raise SpecError(f"`masses` must be finite numbers > 0. Got {self.masses}")
        heavier = (self.masses[0], *self.preconditioners)
        if self.preconditioners and self.flavors != (4,):
            raise SpecError(f"`preconditioners` are for one field of four flavours. Got flavors {self.flavors}")
        if any(not b > a for a, b in pairwise(heavier)) or math.inf in heavier:
            raise SpecError(f"`preconditioners` must be ascending masses above the quark's. Got {heavier}")
        require_at_least(1, n_inner=self.n_inner, n_heavy=self.n_heavy, max_iterations=self.max_iterations)
        require_at_least(0, chronological=self.chronological, noise_vectors=self.noise_vectors)
        for name, least in (("tolerance", 0), ("force_tolerance", 0), ("action_error", 1e-12), ("force_error", 1e-12)):
            if not (getattr(self, name) > 0 and least <= getattr(self, name) <= 1e-2):
                raise SpecError(f"`{name}` must be > 0 and in [{least}, 0.01]. Got {getattr(self, name)}")
        if self.chronological and self.force_tolerance > REVERSIBLE_TOLERANCE:
            raise SpecError(
                f"chronological guesses need `force_tolerance` <= {REVERSIBLE_TOLERANCE:g}, or trajectories are not "
                f"reversible. Got {self.force_tolerance}\nhint: solve more exactly, or start every solve from zero"
            )

    @property
    def exact(self) -> bool:
        """Whether no root is taken, so that there is no approximation in the action."""
        return all(n == 4 for n in self.flavors)
