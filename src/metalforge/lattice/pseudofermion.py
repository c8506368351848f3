"""Pseudofermion actions of one-link staggered quarks: heat bath, action and force.

With A(m) = m^2 - H^2 on even sites, D^dagger D of mass m there, det A(m) is the weight of four flavours (tastes) of
that mass. Each term is a Gaussian integral over a field phi on even sites:

====================  =====================================  ====================================  =================
term                  S(phi)                                 heat bath from noise eta              weight
====================  =====================================  ====================================  =================
FourFlavors           phi^+ A(m)^-1 phi                      m eta_e - H eta_o                     det A(m)
ratio of masses       phi^+ A(M) A(m)^-1 phi                 see `refresh`                         det A(m) / A(M)
RootFlavors           phi^+ r(A) phi, r(x) = x^(-Nf/4)       s(A) eta_e, s(x) = x^(Nf/8)           det A(m)^(Nf/4)
====================  =====================================  ====================================  =================

Noise has <eta eta^+> = 1: variance 1/2 for each real component, since S has no factor 1/2.
Forces: d(phi^+ A^-1 phi) = -X^+ dA X with X = A^-1 phi, so a kick by it is a kick by the bilinear X^+ A X times -1.
"""

from collections import deque
from fractions import Fraction
from typing import Any, TypeAlias, Unpack

import numpy as np

from metalforge.core import SpecError

from .field import Address, Momenta
from .rational import Rational, rational_power
from .solvers import Inverter
from .staggered import ColourField

NOISE_DRAW = 5 << 28
"""Draws of pseudofermion noise: NOISE_DRAW + field * 256; one field takes three of them a site."""


class _Term:
    """A term of the action with a field `phi` of its own; `force_tolerance` is that of kicks."""

    def __init__(
        self,
        inverter: Inverter,
        mass: float,
        *,
        field_number: int,
        tolerance: float = 1e-11,
        force_tolerance: float = 1e-8,
    ) -> None:
        self._inverter, self._mass = inverter, mass
        self._tolerance, self._force_tolerance = tolerance, force_tolerance
        self._draw = NOISE_DRAW + 256 * field_number
        self.phi = inverter.fresh()


class Guesses:
    """First guesses from the last solutions of a trajectory: their combination of least residual in the norm of A^-1.

    Brower, Ivanenko, Levi and Orginos, Nucl. Phys. B 484 (1997) 353. A solve from such a guess depends on the past, so
    a trajectory is reversible only as far as its solves are exact: `force_tolerance` must be small.
    """

    def __init__(self, inverter: Inverter, mass: float, depth: int) -> None:
        self._inverter = inverter
        self._mass = mass
        self._past: deque[ColourField] = deque(maxlen=depth)
        self._guess = inverter.fresh() if depth else None

    def forget(self) -> None:
        """Begin a new trajectory."""
        self._past.clear()

    def remember(self, solution: ColourField) -> None:
        """Keep a copy of a solution."""
        if self._past.maxlen:
            self._past.append(solution.copy())

    def guess(self, source: ColourField) -> ColourField | None:
        """Return sum c_i v_i over the past solutions with V^+ A V c = V^+ source, or None when there are none."""
        if self._guess is None or not self._past:
            return None
        basis: list[ColourField] = []
        for solution in reversed(self._past):  # the newest matter most, so they come first
            vector = solution.copy()
            for other in basis:
                vector.add(other, -other.dot(vector))
            norm2 = vector.norm2()
            # What is left of a solution that the others nearly span is rounding.
            if norm2 > 1e-24 * solution.norm2():
                vector.scale(norm2**-0.5)
                basis.append(vector)
        matrix = np.empty((len(basis), len(basis)), complex)
        (image,) = self._inverter.pool(1)
        for j, vector in enumerate(basis):
            self._inverter.normal(image, vector, self._mass)
            matrix[:, j] = [other.dot(image) for other in basis]
        coefficients = np.linalg.solve(matrix, [vector.dot(source) for vector in basis])
        self._guess.zero()
        for vector, c in zip(basis, coefficients, strict=True):
            self._guess.add(vector, complex(c))
        return self._guess


class FourFlavors(_Term):
    """Four flavours of one mass, without a root: S = phi^+ A(m)^-1 phi.

    With a mass M = `heavy` > m it is the ratio of both (Hasenbusch, PLB 519 (2001) 177): A(M) = A(m) + M^2 - m^2, so
    S = phi^+ A(M) A(m)^-1 phi = phi^+ phi + (M^2 - m^2) phi^+ A(m)^-1 phi, and its force is small by M^2 - m^2.
    """

    def __init__(
        self, inverter: Inverter, mass: float, heavy: float | None = None, *, chronological: int = 0, **options: Any
    ) -> None:
        if heavy is not None and not heavy > mass:
            raise SpecError(f"the mass of a preconditioner must be larger than {mass}. Got {heavy}")
        super().__init__(inverter, mass, **options)
        self._heavy = heavy
        self._constant, self._weight = (0.0, 1.0) if heavy is None else (1.0, heavy**2 - mass**2)
        self._guesses = Guesses(inverter, mass, chronological)
        self._solution = inverter.fresh()
        self._odd = inverter.fresh(parity=1)

    def _draw_noise(self, **address: Unpack[Address]) -> None:
        """Set phi = eta_e, and the odd buffer to eta_o."""
        for noise in (self.phi, self._odd):
            noise.gaussian(draw=self._draw, **address)
        self._guesses.forget()

    def refresh(self, **address: Unpack[Address]) -> None:
        """Draw phi = (D^+ eta)_e = m eta_e - H eta_o, whose covariance is m^2 - H^2 = A(m).

        Of a ratio phi = [D(m)^+ D(M)^+^-1 eta]_e, whose covariance is A(m) / A(M):
        D(m)^+ D(M)^+^-1 = D(m)^+ D(M) A(M)^-1 = 1 - (M - m)(M + H) A(M)^-1.
        """
        self._draw_noise(**address)
        source, found = self._inverter.pool(2)
        self._inverter.hop(source, self._odd)
        if self._heavy is None:
            self.phi.scale(self._mass)
            self.phi.add(source, -1.0)
        else:
            source.add(self.phi, self._heavy)
            self._inverter.solve(source, found, mass=self._heavy, tolerance=self._tolerance)
            self.phi.add(found, -(self._heavy - self._mass))

    def action(self) -> float:
        """Return S."""
        self._inverter.solve(self.phi, self._solution, mass=self._mass, tolerance=self._tolerance)
        value = self._weight * self.phi.dot(self._solution).real
        return float(value + self._constant * self.phi.norm2())

    def kick(self, momenta: Momenta, coefficient: float, *, remember: bool = True) -> None:
        """Set pi = pi - coefficient * dS/dw; `remember` lets the solution guide the next solve, where that is on."""
        guess = self._guesses.guess(self.phi)
        self._inverter.solve(self.phi, self._solution, mass=self._mass, tolerance=self._force_tolerance, guess=guess)
        if remember:
            self._guesses.remember(self._solution)
        self._inverter.operator.force(momenta, [self._solution], [-coefficient * self._weight])


class RootFlavors(_Term):
    """One, two or three flavours of one mass by rational functions (Clark and Kennedy, PRL 98 (2007) 051601).

    The action is r(A) with an error of `action_error`; the trajectory follows a coarser one of `force_error`, which the
    accept test corrects. `set_range` must come first.
    """

    def __init__(
        self,
        inverter: Inverter,
        mass: float,
        flavors: int,
        *,
        action_error: float = 1e-10,
        force_error: float = 1e-6,
        **options: Any,
    ) -> None:
        if flavors not in (1, 2, 3):
            raise SpecError(f"a root is taken for 1, 2 or 3 flavours. Got {flavors}")
        super().__init__(inverter, mass, **options)
        self._flavors, self._errors = flavors, (action_error, force_error)
        self._noise = inverter.fresh()

    def set_range(self, largest: float) -> None:
        """Approximate for eigenvalues of A in [m^2, m^2 + largest]."""
        low = self._mass**2
        high = low + largest
        action_error, force_error = self._errors
        self.for_heat_bath = rational_power(Fraction(self._flavors, 8), low, high, action_error)
        self.for_action = rational_power(Fraction(-self._flavors, 4), low, high, action_error)
        self.for_force = rational_power(Fraction(-self._flavors, 4), low, high, force_error)

    def refresh(self, **address: Unpack[Address]) -> None:
        """Draw phi = A^(Nf/8) eta_e."""
        self._noise.gaussian(draw=self._draw, **address)
        self._inverter.apply(self.for_heat_bath, self._noise, self.phi, mass=self._mass, tolerance=self._tolerance)

    def action(self) -> float:
        """Return S = phi^+ r(A) phi."""
        return self._sum_of_poles(self.for_action)

    def _sum_of_poles(self, rational: Rational) -> float:
        parts = self._inverter.pool(len(rational.shifts))
        self._inverter.solve_shifted(self.phi, parts, rational.shifts, mass=self._mass, tolerance=self._tolerance)
        poles = sum(a * self.phi.dot(x).real for a, x in zip(rational.residues, parts, strict=True))
        return float(rational.constant * self.phi.norm2() + poles)

    def kick(self, momenta: Momenta, coefficient: float, *, remember: bool = True) -> None:
        """Set pi = pi - coefficient * dS/dw, S = sum_k a_k phi^+ (A + b_k)^-1 phi: every pole is a bilinear.

        Solutions of many shifts have no common guess, so there is nothing to remember.
        """
        rational = self.for_force
        parts = self._inverter.pool(len(rational.shifts))
        self._inverter.solve_shifted(self.phi, parts, rational.shifts, mass=self._mass, tolerance=self._force_tolerance)
        self._inverter.operator.force(momenta, parts, [-coefficient * a for a in rational.residues])


Pseudofermion: TypeAlias = FourFlavors | RootFlavors
