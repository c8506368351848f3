"""Symplectic integrators as coefficient lists, walked by one stepper.

A scheme is one step of unit length: a list of (kind, coefficient), kind "P" kicks the momenta by
-coefficient * eps * dS/dw, kind "U" moves the links by coefficient * eps. All are time-reversible (palindromes).

Where an action has parts, cheap ones with large forces and dear ones with small, they are nested: the moves of an outer
scheme, which kicks by one part, are whole trajectories of an inner scheme, which kicks by the next (Sexton and
Weingarten, Nucl. Phys. B 380 (1992) 665).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.core import find, require_at_least

MOVE, GAUGE = 0, 1
"""Codes of the stages that the gauge kernels walk themselves; other parts of an action have codes from 2 on."""

LAMBDA_2MN = 0.1931833275037836
"""Minimises the norm of the leading error (Omelyan, Mryglod, Folk, Comput. Phys. Commun. 151 (2003) 272, eq. 31)."""

# 4MN5FV, ibid. eq. 63 and table 2; the velocity version of Takaishi and de Forcrand, hep-lat/0505020.
_RHO, _THETA = 0.2539785108410595, -0.03230286765269967
_VARTHETA, _LAMBDA_4 = 0.08398315262876693, 0.6822365335719091


class Scheme(NamedTuple):
    """A named integrator: its step as (kind, coefficient), and its order."""

    name: str
    order: int
    step: tuple[tuple[str, float], ...]

    def stages(self, tau: float, n_steps: int) -> NDArray[np.float64]:
        """Return a trajectory of length `tau` in `n_steps` steps for the stepper, neighbours of one kind joined."""
        plan = nested(tau, [Level(self, n_steps, GAUGE)])
        stages = [stage for run, move in zip(plan.kicks, plan.moves, strict=False) for stage in (*run, (MOVE, move))]
        return np.array([*stages, *plan.kicks[-1]], dtype=np.float64)


class Level(NamedTuple):
    """A time scale: a scheme, its steps, and the part of the action that it kicks by."""

    scheme: Scheme
    n_steps: int
    part: int


class TrajectoryPlan(NamedTuple):
    """A trajectory: kicks by parts of the action, a move, kicks, ... kicks.

    Kicks between two moves commute, so each part has one at most. `borders[k]` is where the k-th step of the outermost
    scheme ends: the position among the kicks, and how much of those there belongs to the steps done.
    """

    kicks: tuple[tuple[tuple[int, float], ...], ...]
    moves: tuple[float, ...]
    borders: tuple[tuple[int, tuple[tuple[int, float], ...]], ...]


def nested(tau: float, levels: Sequence[Level]) -> TrajectoryPlan:
    """Return a trajectory of length `tau`, the outermost level first: its moves are trajectories of the next level."""
    for level in levels:
        require_at_least(1, n_steps=level.n_steps)
    kicks: list[dict[int, float]] = [{}]
    moves: list[float] = []
    borders: list[tuple[int, tuple[tuple[int, float], ...]]] = [(0, ())]

    def walk(depth: int, length: float) -> None:
        step, n_steps, part = levels[depth].scheme.step, levels[depth].n_steps, levels[depth].part
        eps = length / n_steps
        for _ in range(n_steps):
            for kind, coefficient in step:
                if kind == "P":
                    kicks[-1][part] = kicks[-1].get(part, 0.0) + coefficient * eps
                elif depth + 1 < len(levels):
                    walk(depth + 1, coefficient * eps)
                else:
                    moves.append(coefficient * eps)
                    kicks.append({})
            if depth == 0:
                borders.append((len(moves), tuple(kicks[-1].items())))

    walk(0, tau)
    return TrajectoryPlan(tuple(tuple(run.items()) for run in kicks), tuple(moves), tuple(borders))


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
    return find("integrator", name, SCHEMES)
