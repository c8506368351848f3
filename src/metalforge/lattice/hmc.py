"""Hybrid Monte Carlo: one trajectory, exact by the Metropolis test at its end (Duane et al., PLB 195 (1987) 216)."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np

from metalforge.core import SpecError
from metalforge.native import Stream

from .actions import WILSON, Action
from .chain import UpdateInfo
from .field import Address, GaugeField, Momenta
from .integrators import GAUGE, MOVE, Level, Scheme, TrajectoryPlan, nested

if TYPE_CHECKING:  # quenched chains load no solvers
    from .sea import Sea

METROPOLIS_DRAW = 4 << 28
"""Draws of the accept test; the kernels use 1 << 28 (momenta), 2 << 28 (hot start) and 3 << 28 (heat bath), fermions
5 << 28 (pseudofermion noise) and 6 << 28 (noise of estimators)."""


class MidEnergy(NamedTuple):
    """The energy on the way, where a step of the outermost scheme ends."""

    step: int
    fraction: float
    delta_h: float
    """H there minus H at the start."""


class EnergyProbe(NamedTuple):
    """Someone who wants the energy at fractions (0 to 1) of a trajectory; each is moved to the nearest step's end.

    The kick that is half done there is finished on a copy of the momenta, so the trajectory does not change by a bit;
    nor does the count of its iterations, which leaves those of the probe out.
    """

    fractions: Sequence[float]
    on_energy: Callable[[MidEnergy], None]


class Workspace:
    """Momenta and a copy of the links of a field, kept between trajectories so that none allocates."""

    def __init__(self, field: GaugeField) -> None:
        self.momenta, self.backup = Momenta(field), field.copy()


def hmc_trajectory(
    field: GaugeField,
    *,
    beta: float,
    tau: float,
    n_steps: int,
    integrator: Scheme,
    workspace: Workspace | None = None,
    accept_always: bool = False,
    sea: "Sea | None" = None,
    probe: EnergyProbe | None = None,
    action: Action = WILSON,
    **address: Unpack[Address],
) -> UpdateInfo:
    """Replace the links by the next state of the chain: fresh momenta, a trajectory of length `tau`, accept or restore.

    The energies are sums of doubles whatever the precision of the field. Step n of the chain (seed, stream) always uses
    the same random numbers. `accept_always` skips the test; for warm-up only. With a `sea` the steps are those of the
    fermions, and the gauge action's lie within. An error on the way (a solve that fails) leaves the links as they were.
    """
    workspace = workspace or Workspace(field)
    momenta, backup = workspace.momenta, workspace.backup
    system = _System(field, momenta, beta, action, sea)
    # Rounding takes the links off the group by about 1e-15 per trajectory; mended here, outside the reversible part.
    field.reunitarise()
    backup.assign(field)
    momenta.refresh(**address)
    plan = nested(tau, [Level(integrator, n_steps, GAUGE)] if sea is None else sea.levels(integrator, n_steps))
    try:
        if sea is not None:
            sea.begin(**address)
        energy_before = system.energy()
        _walk(plan, system, _probes(probe, plan, energy_before))
        if sea is not None:
            sea.check_range(**address)
        delta_h = system.energy() - energy_before
    except Exception:
        _restore(field, backup, sea)
        raise
    numbers = Stream(address["seed"], address["stream"])
    u = numbers.uniform(step=address["step"], sites=1, draws=2, first_draw=METROPOLIS_DRAW, threads=1)[0, 0]
    # A trajectory that went astray (overflow, NaN) is a rejection: the comparison is false for NaN.
    accepted = bool(math.log(u) < -delta_h) or (accept_always and math.isfinite(delta_h))
    if not accepted:
        _restore(field, backup, sea)
    iterations = None if sea is None else sea.inverter.iterations
    return UpdateInfo(step=address["step"], accepted=accepted, delta_h=delta_h, cg_iterations=iterations)


def _restore(field: GaugeField, backup: GaugeField, sea: "Sea | None") -> None:
    field.assign(backup)
    if sea is not None:
        sea.inverter.links_moved()


class _System(NamedTuple):
    """What moves in a trajectory, and by which action."""

    field: GaugeField
    momenta: Momenta
    beta: float
    action: Action
    sea: "Sea | None"

    def energy(self) -> float:
        gauge = self.field.action(self.beta, self.action)
        return gauge + self.momenta.kinetic() + (0.0 if self.sea is None else self.sea.action())

    def evolve(self, stages: list[tuple[float, float]]) -> None:
        """Walk moves and gauge kicks."""
        self.momenta.evolve(self.beta, np.array(stages, dtype=np.float64), self.action)
        if self.sea is not None:
            self.sea.inverter.links_moved()


Probes = dict[int, Callable[[_System], None]]


def _walk(plan: TrajectoryPlan, system: _System, probes: Probes) -> None:
    """Walk a plan: moves and gauge kicks in runs as long as can be, which the kernels walk themselves."""
    pending: list[tuple[float, float]] = []

    def flush() -> None:
        if pending:
            system.evolve(pending)
            pending.clear()

    for place, kicks in enumerate(plan.kicks):
        if place in probes:
            flush()
            probes[place](system)
        for part, coefficient in kicks:
            if part != GAUGE and system.sea is not None:
                flush()
                system.sea.kick(part, system.momenta, coefficient)
        pending += [(float(part), coefficient) for part, coefficient in kicks if part == GAUGE]
        pending += [(float(MOVE), move) for move in plan.moves[place : place + 1]]
    flush()


def _probes(probe: EnergyProbe | None, plan: TrajectoryPlan, energy_before: float) -> Probes:
    """What to do at which position of a plan."""
    if probe is None:
        return {}
    if any(not 0 <= fraction <= 1 for fraction in probe.fractions):
        raise SpecError(f"fractions of a trajectory must be in [0, 1]. Got {tuple(probe.fractions)}")
    n_steps = len(plan.borders) - 1

    def look(n: int, system: _System) -> None:
        copy, sea = Momenta(system.field), system.sea
        copy.assign(system.momenta)
        with nullcontext() if sea is None else sea.inverter.uncounted():
            for part, coefficient in plan.borders[n][1]:
                if part == GAUGE:
                    copy.kick(coefficient * system.beta, action=system.action)
                elif sea is not None:
                    sea.kick(part, copy, coefficient, remember=False)
            energy = system._replace(momenta=copy).energy()
        probe.on_energy(MidEnergy(n, n / n_steps, energy - energy_before))

    return {plan.borders[n][0]: partial(look, n) for n in {round(f * n_steps) for f in probe.fractions}}
