"""Hybrid Monte Carlo: one trajectory, exact by the Metropolis test at its end (Duane et al., PLB 195 (1987) 216)."""

import math
from typing import NamedTuple

from metalforge.native import Stream

from .field import GaugeField, Momenta
from .integrators import Scheme

__all__ = ["TrajectoryInfo", "hmc_trajectory"]

METROPOLIS_DRAW = 4 << 28
"""Draws of the accept test; the kernels use 1 << 28 (momenta), 2 << 28 (hot start) and 3 << 28 (heat bath)."""


class TrajectoryInfo(NamedTuple):
    """What a reader needs of one trajectory."""

    accepted: bool
    delta_h: float
    action: float
    """S of the configuration that the chain holds after the test."""


class Workspace(NamedTuple):
    """Momenta and a copy of the links, kept between trajectories so that none allocates."""

    momenta: Momenta
    backup: GaugeField


def make_workspace(field: GaugeField) -> Workspace:
    """Return the buffers that trajectories on `field` need."""
    return Workspace(Momenta(field), field.copy())


def hmc_trajectory(
    field: GaugeField,
    *,
    beta: float,
    tau: float,
    n_steps: int,
    integrator: Scheme,
    seed: int,
    stream: int,
    step: int,
    workspace: Workspace | None = None,
    accept_always: bool = False,
) -> TrajectoryInfo:
    """Replace the links by the next state of the chain: fresh momenta, a trajectory of length `tau`, accept or restore.

    The energies are sums of doubles whatever the precision of the field. Step n of the chain (seed, stream) always uses
    the same random numbers. `accept_always` skips the test; for warm-up only.
    """
    momenta, backup = workspace or make_workspace(field)
    # Rounding takes the links off the group by about 1e-15 a trajectory; mended here, outside the reversible part.
    field.reunitarise()
    backup.links[...] = field.links
    momenta.refresh(seed=seed, stream=stream, step=step)
    action_before = field.action(beta)
    energy_before = action_before + momenta.kinetic()
    momenta.evolve(beta, integrator.stages(tau, n_steps))
    action_after = field.action(beta)
    delta_h = action_after + momenta.kinetic() - energy_before
    u = Stream(seed, stream).uniform(step=step, sites=1, draws=2, first_draw=METROPOLIS_DRAW, threads=1)[0, 0]
    # A trajectory that went astray (overflow, NaN) is a rejection: the comparison is false for NaN.
    accepted = bool(math.log(u) < -delta_h) or (accept_always and math.isfinite(delta_h))
    if not accepted:
        field.links[...] = backup.links
    return TrajectoryInfo(accepted, delta_h, action_after if accepted else action_before)
