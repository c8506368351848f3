"""The sea quarks of a chain: what is asked of them, and the pseudofermions that stand for them, on their time scales.

One-link staggered quarks come in fours: four flavours of one mass are exact, one to three are a root of that, taken by
rational functions (RHMC), and more than four are several fields. The range of the rational functions,
[m^2, m^2 + bound], is the rigorous one (bound = 16) while a chain warms up; then it is 1.1 times the largest eigenvalue
of -H^2 seen so far, and a trajectory that leaves it is an error, since its action would be wrong.
"""

import math
from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any, Unpack

import msgspec

from metalforge.core.errors import MetalforgeError, SpecError

from .eigenvalues import LARGEST_POSSIBLE, largest_eigenvalue
from .field import Address, GaugeField, Momenta
from .integrators import GAUGE, Level, Scheme
from .observables import Observables, SeaObservables, measure_condensate
from .pseudofermion import FourFlavors, MassRatio, Pseudofermion, RootFlavors
from .solvers import Inverter

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
        counts = ("n_inner", "n_heavy", "max_iterations")
        if any(getattr(self, name) < 1 for name in counts) or self.chronological < 0 or self.noise_vectors < 0:
            raise SpecError(
                f"{', '.join(counts)} must be >= 1, chronological and noise_vectors >= 0. Got "
                f"{[getattr(self, name) for name in (*counts, 'chronological', 'noise_vectors')]}"
            )
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


RANGE_MARGIN = 1.1
"""What the range of a rational function exceeds the largest eigenvalue seen by; it moves by some percent in a chain."""

LIGHT, HEAVY = GAUGE + 1, GAUGE + 2
"""Time scales of the fermions."""


class SpectralRangeError(MetalforgeError):
    """An eigenvalue outside the range of a rational approximation."""


class Sea:
    """The pseudofermions of one field: their terms on two time scales, their range, and what their solves cost."""

    def __init__(self, field: GaugeField, spec: FermionSpec) -> None:
        if field.precision != "f64":
            raise SpecError(f"dynamical fermions need links in f64. Got {field.precision}")
        self.spec = spec
        self.inverter = Inverter(
            field, min(spec.masses), max_iterations=spec.max_iterations, mixed_precision=spec.mixed_precision
        )
        self.bound = LARGEST_POSSIBLE
        """The largest eigenvalue of -H^2 that the rational functions are made for."""
        self.seen = 0.0
        """The largest one seen so far."""
        self._roots: list[RootFlavors] = []
        self._terms: dict[int, list[Pseudofermion]] = {LIGHT: [], HEAVY: []}
        self._build()

    def _build(self) -> None:
        spec = self.spec
        solves: dict[str, Any] = {"tolerance": spec.tolerance, "force_tolerance": spec.force_tolerance}
        errors = {"action_error": spec.action_error, "force_error": spec.force_error}
        number = count()
        for flavors, mass in zip(spec.flavors, spec.masses, strict=True):
            if flavors < 4:
                root = RootFlavors(self.inverter, mass, flavors, field_number=next(number), **solves, **errors)
                self._roots.append(root)
                self._terms[LIGHT].append(root)
                continue
            masses = (mass, *spec.preconditioners)
            guessed = solves | {"chronological": spec.chronological}
            for light, heavy in pairwise(masses):
                ratio = MassRatio(self.inverter, light, heavy, field_number=next(number), **guessed)
                self._terms[LIGHT].append(ratio)
            last = FourFlavors(self.inverter, masses[-1], field_number=next(number), **guessed)
            self._terms[HEAVY if spec.preconditioners else LIGHT].append(last)

    @property
    def terms(self) -> Sequence[Pseudofermion]:
        """Every term of the action."""
        return (*self._terms[LIGHT], *self._terms[HEAVY])

    def levels(self, integrator: Scheme, n_steps: int) -> list[Level]:
        """Return the time scales, the fermions' outside and the gauge action's inside."""
        heavy = [Level(integrator, self.spec.n_heavy, HEAVY)] if self._terms[HEAVY] else []
        return [Level(integrator, n_steps, LIGHT), *heavy, Level(integrator, self.spec.n_inner, GAUGE)]

    def begin(self, **address: Unpack[Address]) -> None:
        """Draw the pseudofermions of a trajectory; the solves of the last one are forgotten."""
        self.inverter.solves = self.inverter.iterations = 0
        self.inverter.links_moved()
        self.check_range(**address)
        for root in self._roots:
            root.set_range(self.bound)
        for term in self.terms:
            term.refresh(**address)

    def action(self) -> float:
        """Return the sum of the terms."""
        return sum(term.action() for term in self.terms)

    def kick(self, part: int, momenta: Momenta, coefficient: float, *, remember: bool = True) -> None:
        """Set pi = pi - coefficient * dS/dw for the terms of one time scale."""
        for term in self._terms[part]:
            term.kick(momenta, coefficient, remember=remember)

    def observe(self, observed: Observables, **address: Unpack[Address]) -> Observables:
        """Return `observed` with the condensate of the first mass, or as it is where no noise vectors are asked for."""
        if self.spec.noise_vectors == 0:
            return observed
        self.inverter.links_moved()
        with self.inverter.uncounted():  # the counts are those of the last trajectory
            mass, count = self.spec.masses[0], self.spec.noise_vectors
            sample = measure_condensate(self.inverter, mass, n_vectors=count, **address)
        return SeaObservables(
            **msgspec.structs.asdict(observed),
            condensate=sample.mean,
            condensate_pairs=sample.pairs,
            condensate_connected=sample.mean_connected,
        )

    def check_range(self, **address: Unpack[Address]) -> None:
        """Raise when the spectrum is not within the range of the rational functions; nothing to do without roots."""
        if not self._roots:
            return
        self.inverter.take_up()
        found = largest_eigenvalue(self.inverter.operator, workspace=self.inverter.pool(3), **address)
        self.seen = max(self.seen, found)
        if not found <= self.bound:
            raise SpectralRangeError(
                f"the largest eigenvalue of -H^2 must be <= {self.bound:.4g}, the range of the rational functions. "
                f"Got {found:.4g} at step {address['step']}\n"
                "hint: warm the chain up (longer), the range is measured there"
            )

    def widen_range(self) -> None:
        """Set the range to what holds for any links."""
        self.bound = LARGEST_POSSIBLE

    def freeze_range(self, **address: Unpack[Address]) -> None:
        """Set the range to 1.1 times the largest eigenvalue seen, now or before; to leave it is an error then."""
        self.inverter.links_moved()
        self.check_range(**address)
        if self._roots:
            self.bound = min(RANGE_MARGIN * self.seen, LARGEST_POSSIBLE)
