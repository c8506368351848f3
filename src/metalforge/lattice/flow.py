"""The gradient (Wilson) flow, and the scales t0 and w0 it defines.

dV/dt = -g0^2 (dS_W/dw) V, from V = U at t = 0, with S_W the Wilson action; in the units of this package the right-hand
side is -i T_a F_a V with F_a = dS/dw_a at beta = 6 (Luscher, arXiv:1006.4518, eq. 1.4). Integrated by the third-order
Runge-Kutta scheme of its appendix C; the step adapts by comparing two half steps with one whole.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metalforge.core import SpecError

from .field import GaugeField, Momenta


class FlowPoint(NamedTuple):
    """What is measured at one flow time; `energy` is the clover E, `charge` the clover Q."""

    t: float
    energy: float
    charge: float
    plaquette: float

    @property
    def t2_energy(self) -> float:
        """t^2 E, the dimensionless quantity that sets the scale."""
        return self.t * self.t * self.energy


MIN_TOLERANCE = 1e-12
"""Errors of a step cannot be seen below rounding; asking for less would shrink the step for ever."""

FLOW_BETA = 6.0
"""The flow is the gradient of S at g0 = 1, which is beta = 6."""


def _step(field: GaugeField, z: Momenta, eps: float) -> None:
    """One step of Luscher's scheme, in two registers.

    W1 = exp(Z0/4) W0, W2 = exp(8 Z1/9 - 17 Z0/36) W1, W3 = exp(3 Z2/4 - 8 Z1/9 + 17 Z0/36) W2: each exponent is a
    multiple of the last one plus the new force, so one set of momenta is enough.
    """
    z.kick(0.25 * FLOW_BETA, keep=0.0)
    z.move_links(eps)
    z.kick(8 / 9 * FLOW_BETA, keep=-17 / 9)
    z.move_links(eps)
    z.kick(0.75 * FLOW_BETA, keep=-1.0)
    z.move_links(eps)


def gradient_flow(
    field: GaugeField,
    t_max: float,
    *,
    eps: float = 0.01,
    measure_every: float = 0.05,
    tolerance: float | None = 1e-6,
    stop_at_t2_energy: float | None = None,
) -> list[FlowPoint]:
    """Return measurements along the flow of a copy of `field`, at t = 0 and every `measure_every` up to `t_max`.

    With a `tolerance`, the step adapts so that the largest entry of a link is off by at most that a step, starting from
    `eps`; with None the step is `eps` throughout. `stop_at_t2_energy` ends the flow once t^2 E has passed it.
    """
    if not all(0 < value < math.inf for value in (t_max, eps, measure_every)):
        raise SpecError(
            f"`t_max`, `eps` and `measure_every` must be positive and finite. Got {t_max}, {eps}, {measure_every}"
        )
    if tolerance is not None and not MIN_TOLERANCE <= tolerance < math.inf:
        raise SpecError(
            f"`tolerance` must be at least {MIN_TOLERANCE:g}, above rounding, or None for fixed steps. Got {tolerance}"
        )
    flowed = field.copy()
    z = Momenta(flowed)
    whole, backup = flowed.copy(), flowed.copy()
    z_whole = Momenta(whole)
    points = [_measure(flowed, 0.0)]
    t = 0.0
    for n in range(1, math.floor(t_max / measure_every + 1e-9) + 1):
        target = n * measure_every
        while target - t > 1e-12:
            step = min(eps, target - t)
            if tolerance is None:
                _step(flowed, z, step)
                t += step
                continue
            # Two half steps against one whole: their difference over 2^3 - 1 estimates the error of the halves.
            backup.assign(flowed)
            whole.assign(flowed)
            _step(whole, z_whole, step)
            _step(flowed, z, step / 2)
            _step(flowed, z, step / 2)
            error = flowed.distance(whole) / 7
            if error <= tolerance:
                t += step
            else:
                flowed.assign(backup)
            if step == eps or error > tolerance:  # a step cut short by the target says nothing of the next
                eps = step * min(2.0, max(0.3, 0.9 * (tolerance / max(error, 1e-300)) ** (1 / 3)))
        t = target
        points.append(_measure(flowed, t))
        if stop_at_t2_energy is not None and points[-1].t2_energy > stop_at_t2_energy:
            break
    return points


def _measure(field: GaugeField, t: float) -> FlowPoint:
    energy, charge = field.clover()
    return FlowPoint(t, energy, charge, sum(field.plaquette_sums()) / (6 * field.volume))


def scale_t0(points: Sequence[FlowPoint], reference: float = 0.3) -> float:
    """Return t0 where t^2 <E> = 0.3 (Luscher 2010), by linear interpolation; NaN when the flow did not reach it."""
    return _crossing([p.t for p in points], [p.t2_energy for p in points], reference)


def scale_w0(points: Sequence[FlowPoint], reference: float = 0.3) -> float:
    """Return w0 where t d/dt (t^2 <E>) = 0.3 at t = w0^2 (BMW, arXiv:1203.4469); NaN when the flow did not reach it."""
    if len(points) < 2:
        return math.nan
    t = np.array([p.t for p in points])
    slope = t * np.gradient(np.array([p.t2_energy for p in points]), t)
    crossing = _crossing(t.tolist(), slope.tolist(), reference)
    return math.sqrt(crossing) if crossing == crossing else math.nan


def _crossing(x: Sequence[float], y: Sequence[float], level: float) -> float:
    for x0, x1, y0, y1 in zip(x, x[1:], y, y[1:], strict=False):
        if y0 < level <= y1:
            return x0 + (x1 - x0) * (level - y0) / (y1 - y0)
    return math.nan
