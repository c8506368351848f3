"""Evolution on the device: random mutations on the grid, losers reverted, better on a stream, an end in time."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.hybrid.learning import DeviceNetwork, Evolution, StreamWindow, Window
from metalforge.hybrid.learning.evolution import GROWTH, mutate
from metalforge.reservoir import make_esn
from metalforge.reservoir.losses import loss_and_slope
from metalforge.reservoir.series import SeriesError
from reference.faulty_npu import FaultyDevice, PartialUpdate

SEED = 8
UNITS = 16


def network(*faults, outputs=1, readout="W4A8", feedback=0):
    weights = make_esn(UNITS, 1, seed=SEED, connectivity=1.0, input_scaling=0.8, bias_scaling=0.3, feedback=feedback)
    start = np.random.default_rng(SEED).normal(size=(outputs, UNITS))
    device = FaultyDevice(faults=faults)
    return DeviceNetwork(weights.with_readout(start), device, readout=readout, precision="W4A8")


def window(net, rows=40, outputs=1, seed=SEED):
    rng = np.random.default_rng(seed)
    u = rng.uniform(-1, 1, (rows, 1))
    y = np.stack([np.roll(u[:, 0], k + 1) for k in range(outputs)], axis=1)
    stream = StreamWindow(net, rows)
    for row, target in zip(u, y, strict=True):
        stream.take(row, target)
    return stream.window()


def held(net, name="readout"):
    return net.device.get_variable(f"{name}/weights", f"learning/{name}")


def test_mutations_are_random_and_the_same_for_the_same_seed():
    """The published design's were a function of the byte's number: all children of a parent were the same."""
    parent = np.zeros((4, 25), np.int64)
    rng = np.random.default_rng(SEED)
    children = [mutate(parent, 7, 0.1, 0.2, rng) for _ in range(40)]
    assert len({child.tobytes() for child in children}) == 40
    moved = np.stack([child != parent for child in children])
    assert moved.any(axis=(1, 2)).all()
    assert moved.mean() == pytest.approx(0.1, abs=0.02)
    assert moved.any(axis=0).mean() > 0.95  # no entry is out of reach
    up = np.stack(children)[moved] > 0
    assert up.mean() == pytest.approx(0.5, abs=0.1)
    again = np.random.default_rng(SEED)
    assert np.array_equal(mutate(parent, 7, 0.1, 0.2, again), children[0])
    assert np.array_equal(parent, np.zeros((4, 25)))


def test_a_generation_never_loses_and_the_device_holds_its_winner():
    net = network()
    rows = window(net)
    evolution = Evolution(net, seed=1, children=3, rate=0.1)
    for _ in range(30):
        before, evaluations, pushes = evolution.integers, evolution.evaluations, evolution.pushes
        made = evolution.generation(rows)
        assert made.after <= made.before
        assert evolution.evaluations - evaluations == 4
        assert 3 <= evolution.pushes - pushes <= 4
        assert net.verify()
        now = evolution.integers
        if made.after == made.before and not made.improved and np.array_equal(now, before):
            assert np.array_equal(held(net), net.readout.compiled.program.layers[0].weights)
        measured = loss_and_slope(net.read(rows.features), rows.targets, "mse").value
        assert measured == pytest.approx(made.after, rel=1e-9)


def test_losers_are_reverted():
    """From an optimum that no child can beat, the device comes back to it after every generation."""
    net = network()
    rows = window(net)
    perfect = Window(features=rows.features, targets=net.read(rows.features))
    best, known = net.readout.integers, held(net)
    evolution = Evolution(net, seed=2, children=3, rate=0.2)
    for _ in range(8):
        pushes = evolution.pushes
        made = evolution.generation(perfect)
        assert not made.improved
        assert evolution.pushes - pushes == 4  # three children, and the parent back
        assert np.array_equal(evolution.integers, best)
        assert np.array_equal(held(net), known)
    assert evolution.sigma == pytest.approx(0.1 * GROWTH ** (-8 / 4))


@pytest.mark.parametrize("readout", ["W4A8", "W8A8"])
def test_it_learns_without_a_gradient(readout):
    net = network(readout=readout)
    rows = window(net)
    info = Evolution(net, seed=3, children=4, rate=0.1, sigma=0.3).run(rows, 120)
    losses = [g.after for g in info.generations]
    assert losses[-1] < 0.15 * info.generations[0].before
    assert np.all(np.diff(losses) <= 1e-12)
    assert info.ended == "generations"


def test_it_ends_at_a_goal():
    net = network()
    rows = window(net)
    start = loss_and_slope(net.read(rows.features), rows.targets, "mse").value
    goal = Evolution(net, seed=3, rate=0.1, sigma=0.3).run(rows, 500, goal=0.3 * start)
    assert goal.ended == "goal"
    assert goal.generations[-1].after <= 0.3 * start < goal.generations[-2].after


def test_windows_may_move_on_with_the_stream():
    net = network()
    evolution = Evolution(net, seed=5, rate=0.1, sigma=0.3)
    made = [evolution.generation(window(net, seed=seed)) for seed in range(60)]
    assert np.mean([g.before for g in made[-10:]]) < 0.5 * made[0].before


def test_classes_and_several_outputs():
    net = network(outputs=3)
    rng = np.random.default_rng(SEED)
    rows = window(net, rows=60, outputs=3)
    one_hot = np.eye(3)[rng.integers(0, 3, 60)]
    labelled = Window(features=rows.features, targets=one_hot)
    info = Evolution(net, seed=6, loss="cross_entropy", rate=0.1, sigma=0.3).run(labelled, 60)
    assert info.generations[-1].after < info.generations[0].before - 0.2


def test_a_failing_update_does_not_change_what_evolves():
    smooth, rough = network(), network(*(PartialUpdate(at=i, fraction=0.5) for i in (3, 11, 12, 40)))
    runs = [Evolution(net, seed=9, children=2).run(window(net), 20) for net in (smooth, rough)]
    assert [g.after for g in runs[0].generations] == [g.after for g in runs[1].generations]
    assert rough.device.statistics().failures == 4
    assert rough.verify()


def test_costs_are_those_of_the_device():
    net = network()
    rows = window(net)
    before = net.device.statistics()
    evolution = Evolution(net, seed=1, children=4)
    evolution.run(rows, 10)
    after = net.device.statistics()
    assert evolution.pushes == after.weight_updates - before.weight_updates
    assert evolution.bytes_pushed == after.bytes_pushed - before.bytes_pushed
    assert evolution.evaluations == 50 == after.calls - before.calls


def test_bad_settings_are_refused():
    net = network()
    rows = window(net)
    for wrong in ({"children": 0}, {"rate": 0.0}, {"sigma": 2.0}):
        with pytest.raises(SpecError):
            Evolution(net, seed=1, **wrong)
    with pytest.raises(SpecError, match="`generations`"):
        Evolution(net, seed=1).run(rows, 0)
    with pytest.raises(SeriesError, match="finite"):
        Window(features=rows.features, targets=rows.targets * np.nan)
    with pytest.raises(SeriesError, match="as many"):
        Window(features=rows.features, targets=rows.targets[1:])
    with pytest.raises(SpecError, match="feedback"):
        StreamWindow(network(feedback=1), 5)
    with pytest.raises(SpecError, match="rows"):
        StreamWindow(net, 0)
