"""How fast a device learns: steps per second measured on this machine, and modelled under each profile, side by side.

The design documents' line, "54 us forward, 1 us loss, 100 us backward, 86 us update: about 240 us, 4,200 steps a
second", is put together here from its parts: 241 us, 4,149 per second under `akd1000-claimed`, and 68 under
`akd1000-published`, where the update alone is 14 ms. The host's two parts are the design documents' own figures;
`measure_speed` measures them.
"""

from typing import NamedTuple

import msgspec

from metalforge.core.arrays import Doubles
from metalforge.core.quantities import Modelled
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.profiles import profile as find_profile

from .network import DeviceNetwork
from .rules import Rules
from .schedule import UpdatePlan, plan_updates
from .trainer import OnlineTrainer, TrainerStatistics

SEED_LOSS_S = 1e-6
"""Seed 000: loss computation in software, about 1 us."""
SEED_BACKWARD_S = 100e-6
"""Seed 000: backward pass of the readout in software, about 100 us for 128 units."""
BOTH = ("akd1000-published", "akd1000-claimed")


class SeedStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of one training step as the design counts them: one call, one update, its own host figures."""

    forward: Modelled
    loss: Modelled
    backward: Modelled
    update: Modelled

    @property
    def total(self) -> Modelled:
        """Seconds of a step."""
        return self.forward + self.loss + self.backward + self.update

    @property
    def rate(self) -> Modelled:
        """Steps a second."""
        return Modelled(value=1 / self.total.value, unit="Hz", profile=self.total.profile)


class SpeedRow(NamedTuple):
    """One profile: what was planned for it, and what the host took and the device would have taken with that."""

    plan: UpdatePlan
    done: TrainerStatistics


def seed_step(profile: str = "akd1000-claimed") -> SeedStep:
    """Return the design documents' training step under a profile."""
    device = find_profile(profile)
    seconds = {
        "forward": device.call.call_s.value,
        "loss": SEED_LOSS_S,
        "backward": SEED_BACKWARD_S,
        "update": device.call.weight_update_s.value,
    }
    return SeedStep(**{name: Modelled(value=s, unit="s", profile=device.name) for name, s in seconds.items()})


def measure_speed(weights: EsnWeights, inputs: Doubles, targets: Doubles, rule: Rules) -> tuple[SpeedRow, ...]:
    """Return a row per profile: the same stream (steps, inputs) learned with the schedule that suits each."""
    rows = []
    for name in BOTH:
        with EmulatedDevice(name) as device, DeviceNetwork(weights, device, calibration=inputs) as network:
            plan = plan_updates(name, network)
            done = OnlineTrainer(network, rule, schedule=plan.schedule()).run(inputs, targets).statistics
        rows.append(SpeedRow(plan, done))
    return tuple(rows)
