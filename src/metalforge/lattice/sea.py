"""The sea quarks of a chain: the pseudofermions that stand for them, on their time scales.

One-link staggered quarks come in fours: four flavours of one mass are exact, one to three are a root of that, taken by
rational functions (RHMC), and more than four are several fields. The range of the rational functions,
[m^2, m^2 + bound], is the rigorous one (bound = 16) while a chain warms up; then it is 1.1 times the largest eigenvalue
of -H^2 seen so far, and a trajectory that leaves it is an error, since its action would be wrong.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any, Unpack

import msgspec

from metalforge.core import MetalforgeError, SpecError

from .chain import FermionSpec
from .eigenvalues import LARGEST_POSSIBLE, largest_eigenvalue
from .field import Address, GaugeField, Momenta
from .integrators import GAUGE, Level, Scheme
from .observables import Observables, SeaObservables, measure_condensate
from .pseudofermion import FourFlavors, Pseudofermion, RootFlavors
from .solvers import Inverter

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
        self.frozen = False
        """Whether it is that of a measurement: to leave it is an error then."""
        self.seen = 0.0
        """The largest one seen so far."""
        self._roots: list[RootFlavors] = []
        self._terms: dict[int, list[Pseudofermion]] = {LIGHT: [], HEAVY: []}
        solves: dict[str, Any] = {"tolerance": spec.tolerance, "force_tolerance": spec.force_tolerance}
        errors = {"action_error": spec.action_error, "force_error": spec.force_error}
        number = count()
        guessed = solves | {"chronological": spec.chronological}
        for flavors, mass in zip(spec.flavors, spec.masses, strict=True):
            if flavors < 4:
                root = RootFlavors(self.inverter, mass, flavors, field_number=next(number), **solves, **errors)
                self._roots.append(root)
                self._terms[LIGHT].append(root)
                continue
            for light, heavy in zip((mass, *spec.preconditioners), (*spec.preconditioners, None), strict=True):
                part = HEAVY if spec.preconditioners and heavy is None else LIGHT
                four = FourFlavors(self.inverter, light, heavy, field_number=next(number), **guessed)
                self._terms[part].append(four)

    @property
    def terms(self) -> Sequence[Pseudofermion]:
        """Every term of the action."""
        return (*self._terms[LIGHT], *self._terms[HEAVY])

    def levels(self, integrator: Scheme, n_steps: int) -> list[Level]:
        """Return the time scales, the fermions' outside and the gauge action's inside."""
        heavy = [Level(integrator, 1, HEAVY)] if self._terms[HEAVY] else []
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

    def choose_range(self, adapting: bool, **address: Unpack[Address]) -> None:
        """Set the range to what holds for any links, or freeze it at 1.1 times the largest eigenvalue seen, once."""
        if adapting:
            self.bound, self.frozen = LARGEST_POSSIBLE, False
        elif not self.frozen:
            self.inverter.links_moved()
            self.check_range(**address)
            if self._roots:
                self.bound = min(RANGE_MARGIN * self.seen, LARGEST_POSSIBLE)
            self.frozen = True
