r"""When weights are pushed: what a push costs under a profile, and how many steps should share one.

With F the device's seconds of one step's calls and U those of an update, a push every k steps makes F + U / k a step.
`plan_updates` takes the smallest k for which updates are at most a `share` of the device's time,

    U / k <= share (F + U / k)    <=>    k >= U (1 - share) / (share F),

Under `akd1000-published` an update is 14 ms and a call 0.65 ms: many steps share a push. Under `akd1000-claimed` it is
86 us and 54 us: about every step has its own.
"""

from math import ceil

import msgspec

from metalforge.core import Modelled, SpecError
from metalforge.hybrid.routing.plan import short
from metalforge.substrates import DeviceProfile, call_seconds, update_cost
from metalforge.substrates import profile as find_profile

from .network import DeviceNetwork


class UpdatePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often to push under a profile, and why. All seconds and rates are the device's, modelled."""

    profile: str
    every: int
    forward: Modelled
    """The calls of one step."""
    update: Modelled
    rate: Modelled
    """Steps a second with this schedule."""
    update_share: float
    """Part of the device's time that updates take."""
    reason: str


def step_seconds(network: DeviceNetwork, profile: DeviceProfile | str) -> float:
    """Return the modelled seconds of one step's calls: the reservoir's rows, then the readout's."""
    device = find_profile(profile)
    return sum(
        call_seconds(matrix.compiled.program, matrix.rows_per_sample, device)
        for matrix in (network.reservoir, network.readout)
    )


def plan_updates(
    profile: DeviceProfile | str, network: DeviceNetwork | None = None, *, share: float = 0.5
) -> UpdatePlan:
    """Return how often to push under a profile.

    Without a network, a step is one call of a small program, as the design documents count it.
    """
    if not 0 < share < 1:
        raise SpecError(f"`share` must lie between 0 and 1. Got {share}")
    device = find_profile(profile)
    forward = device.call.call_s.value if network is None else step_seconds(network, device)
    priced = update_cost(0 if network is None else network.readout.variable_bytes, device).latency
    update = device.call.weight_update_s.value if priced is None else priced.value
    # At least 1; rounding of the quotient does not add one.
    every = max(1, ceil(update * (1 - share) / (share * forward) * (1 - 1e-12)))
    call, push = (Modelled(value=seconds, unit="s", profile=device.name) for seconds in (forward, update))
    why = f"an update of {short(push)} is {update / forward:.1f} times the {short(call)} of a step's calls"
    how_often = f"every {every} steps" if every > 1 else "pushing every step"
    why += f": {how_often} keeps updates within {share:.0%} of the device's time"
    per_step = forward + update / every
    return UpdatePlan(
        profile=device.name,
        every=every,
        forward=call,
        update=push,
        rate=Modelled(value=1 / per_step, unit="Hz", profile=device.name),
        update_share=update / every / per_step,
        reason=f"{device.name}: {why}",
    )
