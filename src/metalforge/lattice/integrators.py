"""Symplectic integrators as coefficient lists, walked by one stepper.

A scheme is one step of unit length: a list of (kind, coefficient), kind "P" kicks the momenta by
-coefficient * eps * dS/dw, kind "U" moves the links by coefficient * eps. All are time-reversible (palindromes).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError, UnknownNameError

__all__ = ["SCHEMES", "Scheme", "scheme"]

LAMBDA_2MN = 0.1931833275037836
"""Minimises the norm of the leading error (Omelyan, Mryglod, Folk, Comput. Phys. Commun. 151 (2003) 272, eq. 31)."""

# 4MN5FV, ibid. eq. 63 and table 2; the velocity version of Takaishi and de Forcrand, hep-lat/0505020.
_RHO, _THETA = 0.2539785108410595, -0.03230286765269967
_VARTHETA, _LAMBDA_4 = 0.08398315262876693, 0.6822365335719091


class Scheme(NamedTuple):
    """A named integrator: its step as (kind, coefficient), its order, and its forces a step."""

    name: str
    order: int
    step: tuple[tuple[str, float], ...]

    @property
    def forces_per_step(self) -> int:
        """Force evaluations a step; the kicks at both ends of a step are one."""
        return sum(kind == "P" for kind, _ in self.step) - (self.step[0][0] == "P")

    def stages(self, tau: float, n_steps: int) -> NDArray[np.float64]:
        """Return a trajectory of length `tau` in `n_steps` steps for the stepper, neighbours of one kind joined."""
        if n_steps < 1:
            raise SpecError(f"`n_steps` must be at least 1. Got {n_steps}")
        eps = tau / n_steps
        joined: list[list[float]] = []
        for kind, coefficient in self.step * n_steps:
            code = 0.0 if kind == "U" else 1.0
            if joined and joined[-1][0] == code:
                joined[-1][1] += coefficient * eps
            else:
                joined.append([code, coefficient * eps])
        return np.array(joined)


def _palindrome(half: list[tuple[str, float]], middle: tuple[str, float]) -> tuple[tuple[str, float], ...]:
    return (*half, middle, *reversed(half))


SCHEMES = {
    s.name: s
    for s in (
        Scheme("leapfrog", 2, _palindrome([("P", 0.5)], ("U", 1.0))),
        Scheme("omelyan2", 2, _palindrome([("P", LAMBDA_2MN), ("U", 0.5)], ("P", 1 - 2 * LAMBDA_2MN))),
        Scheme(
            "omelyan4",
            4,
            _palindrome(
                [("P", _VARTHETA), ("U", _RHO), ("P", _LAMBDA_4), ("U", _THETA), ("P", 0.5 - _LAMBDA_4 - _VARTHETA)],
                ("U", 1 - 2 * (_THETA + _RHO)),
            ),
        ),
    )
}


def scheme(name: str) -> Scheme:
    """Return an integrator by name."""
    if name not in SCHEMES:
        raise UnknownNameError("integrator", name, SCHEMES)
    return SCHEMES[name]
