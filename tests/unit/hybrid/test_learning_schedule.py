"""When to push: what profiles cost, and schedules with reasons."""

import msgspec
import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured, Modelled
from metalforge.hybrid.learning import (
    DeviceNetwork,
    GradientStep,
    OnlineTrainer,
    UpdatePlan,
    plan_updates,
)
from metalforge.hybrid.learning.trainer import step_seconds
from metalforge.reservoir import make_esn
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.profiles import profile

PROFILES = ("akd1000-published", "akd1000-claimed")


def weights(units=128):
    return make_esn(units, 2, seed=1, connectivity=1.0).with_readout(np.zeros((1, units)))


@pytest.mark.parametrize("name", PROFILES)
def test_a_planned_step_costs_what_the_emulator_charges(name):
    device = EmulatedDevice(name)
    with DeviceNetwork(weights(), device, precision="W8A12", readout="W12A8") as net:
        before = device.statistics().busy.value
        net.forward([0.1, 0.2])
        assert device.statistics().busy.value - before == pytest.approx(step_seconds(net, name))
        plan = plan_updates(name, net)
        before = device.statistics().busy.value
        net.push(np.ones((1, 128)), np.zeros(1))
        assert device.statistics().busy.value - before == pytest.approx(plan.update.value)


def test_the_best_schedule_depends_on_the_profile():
    with DeviceNetwork(weights(), EmulatedDevice()) as net:
        published, claimed = (plan_updates(name, net) for name in PROFILES)
    assert claimed.every == 1
    assert published.every >= 8
    assert "14 ms" in published.reason
    assert f"every {published.every} steps" in published.reason
    assert "86 us" in claimed.reason
    assert published.rate.value > 4 / (published.forward.value + published.update.value)
    assert msgspec.json.decode(msgspec.json.encode(published), type=UpdatePlan) == published


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("name", PROFILES)
def test_updates_take_their_share_and_no_fewer_steps_would_do(name, share):
    plan = plan_updates(name, share=share)
    device = profile(name)
    assert plan.forward.value == device.call.call_s.value
    assert plan.update_share <= share * (1 + 1e-9)
    if plan.every > 1:
        often = device.call.weight_update_s.value / (plan.every - 1)
        assert often / (often + device.call.call_s.value) > share
    assert plan.rate.value == pytest.approx(
        1 / (device.call.call_s.value + device.call.weight_update_s.value / plan.every)
    )


def test_a_share_lies_between_nothing_and_all():
    for wrong in (0, 1):
        with pytest.raises(SpecError):
            plan_updates("akd1000-published", share=wrong)


def test_a_trainer_tells_measured_from_modelled_seconds():
    device = EmulatedDevice()
    with DeviceNetwork(weights(16), device) as net:
        plan = plan_updates("akd1000-published", net)
        trainer = OnlineTrainer(net, GradientStep(rate=0.1), push_every=plan.every)
        trainer.step([0.1, 0.1], [0.5])
        said = trainer.statistics()
    assert isinstance(said.host, Measured)
    assert isinstance(said.device, Modelled)
    assert said.device.profile == "akd1000-published"
