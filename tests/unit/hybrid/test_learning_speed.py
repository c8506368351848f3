"""When to push: what profiles cost, schedules with reasons, and the published line of 4,200 steps put together."""

import msgspec
import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured, Modelled
from metalforge.hybrid.learning import (
    DeviceNetwork,
    GradientStep,
    OnlineTrainer,
    PushSchedule,
    UpdatePlan,
    measure_speed,
    plan_updates,
    seed_step,
)
from metalforge.hybrid.learning.schedule import step_seconds
from metalforge.reservoir import make_esn
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.profiles import profile

PROFILES = ("akd1000-published", "akd1000-claimed")


def weights(units=128):
    return make_esn(units, 2, seed=1, connectivity=1.0).with_readout(np.zeros((1, units)))


def test_the_seeds_line_under_the_claimed_profile():
    step = seed_step("akd1000-claimed")
    parts = [step.forward.value, step.loss.value, step.backward.value, step.update.value]
    assert parts == pytest.approx([54e-6, 1e-6, 100e-6, 86e-6])
    assert step.total.value == pytest.approx(241e-6)  # "about 240 us"
    assert step.rate.value == pytest.approx(4149, abs=1)
    assert round(1 / 240e-6, -2) == 4200  # which is how the design documents round it
    assert isinstance(step.rate, Modelled)
    assert step.rate.profile == "akd1000-claimed"


def test_and_under_the_published_one():
    step = seed_step("akd1000-published")
    assert step.rate.value == pytest.approx(67.8, abs=0.1)
    assert step.update.value > 0.9 * step.total.value


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
    assert published.rate.value > 4 * published.rate_each_step.value
    assert published.schedule() == PushSchedule(every=published.every, reason=published.reason)
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


def test_schedules_fall_due():
    every = PushSchedule(every=3)
    assert [every.due(n, None) for n in (1, 2, 3, 4)] == [False, False, True, True]
    moved = PushSchedule(every=None, changed=0.2)
    assert [moved.due(9, share) for share in (None, 0.1, 0.2)] == [False, False, True]
    both = PushSchedule(every=5, changed=0.2)
    assert both.due(1, 0.5)
    assert both.due(5, 0.0)
    assert not both.due(4, 0.1)


def test_speed_is_measured_here_and_modelled_there():
    rng = np.random.default_rng(1)
    u, y = rng.uniform(-1, 1, (66, 2)), rng.normal(size=(66, 1))
    rows = measure_speed(weights(32), u, y, GradientStep(rate=0.1, normalised=True))
    assert [row.plan.profile for row in rows] == list(PROFILES)
    for row in rows:
        assert isinstance(row.done.host_rate, Measured)
        assert isinstance(row.done.device_rate, Modelled)
        assert row.done.host_rate.value > 0
        assert 0 < row.done.learning.value / row.done.learned < 1
        assert row.done.pushes <= -(-66 // row.plan.every) + 1
        assert row.done.device_rate.value == pytest.approx(row.plan.rate.value, rel=0.15)
    assert rows[1].done.device_rate.value > 5 * rows[0].done.device_rate.value
    assert rows[1].done.pushes > 5 * rows[0].done.pushes


def test_the_trainer_says_why_it_pushes_when_it_does():
    device = EmulatedDevice()
    with DeviceNetwork(weights(16), device) as net:
        plan = plan_updates("akd1000-published", net)
        trainer = OnlineTrainer(net, GradientStep(rate=0.1), schedule=plan.schedule())
        trainer.step([0.1, 0.1], [0.5])
        said = trainer.statistics()
    assert said.schedule == plan.reason
    assert said.host_rate.value > 0
    assert said.device_rate.profile == "akd1000-published"
