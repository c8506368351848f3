"""Learning on a stream: against least squares and finite differences, through bad rows, failing devices, divergence."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.quantities import Measured, Modelled
from metalforge.hybrid.learning import (
    DeviceNetwork,
    GradientStep,
    OnlineTrainer,
    RecursiveLeastSquares,
    RidgeRefit,
    online_training_step,
    rules,
)
from metalforge.hybrid.learning import trainer as learning_trainer
from metalforge.hybrid.model.ops import Gradient
from metalforge.hybrid.model.software import evaluate
from metalforge.reservoir import make_esn, nrmse
from metalforge.reservoir.datasets import narma
from metalforge.reservoir.least_squares import LeastSquares, absorb
from metalforge.reservoir.losses import as_targets, loss_and_slope
from metalforge.reservoir.online import Rls, learn
from metalforge.reservoir.series import DivergenceError, SeriesError
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.npu.device import DeviceGoneError
from reference.faulty_npu import BitFlip, FaultyDevice, PartialUpdate, Timeout, Vanish

SEED = 12
UNITS = 30


def network(*faults, outputs=1, inputs=1, profile="akd1000-published", units=UNITS, **options):
    weights = make_esn(units, inputs, seed=SEED, connectivity=1.0, input_scaling=0.5, bias_scaling=0.2)
    start = np.random.default_rng(SEED).normal(0, 0.1, (outputs, units + inputs * options.pop("passthrough", 0)))
    weights = weights.with_readout(start, passthrough=start.shape[1] > units)
    device = FaultyDevice(profile, faults=faults)
    return DeviceNetwork(weights, device, **options)


def stream(n=300, outputs=1, seed=SEED):
    u, y = narma(n, seed=seed)
    return 2 * (u - 0.25), np.tile(y, outputs) * np.arange(1, outputs + 1)


def features(net, u):
    twin = DeviceNetwork(net.weights, EmulatedDevice())
    return np.stack([twin.advance(row) for row in u])


# Losses and rules.


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_slopes_are_central_differences_and_those_of_the_graph_op(loss):
    rng = np.random.default_rng(SEED)
    y, t, x = rng.normal(size=4), rng.dirichlet(np.ones(4)), rng.normal(size=6)
    value, slope = loss_and_slope(y, t, loss)
    for k in range(4):
        step = 1e-6 * np.eye(4)[k]
        difference = (loss_and_slope(y + step, t, loss).value - loss_and_slope(y - step, t, loss).value) / 2e-6
        assert slope[k] == pytest.approx(difference, abs=1e-8)
    of_graph = evaluate(Gradient(of="w", loss=loss), [x[None], y[None], t[None]], call=0)[0]
    assert np.allclose(np.outer(slope, x), of_graph, atol=1e-12)
    others = rng.normal(size=(3, 4))
    together = loss_and_slope(others, np.tile(t, (3, 1)), loss)
    alone = [loss_and_slope(row, t, loss) for row in others]
    assert together.value == pytest.approx(np.mean([one.value for one in alone]))
    assert np.allclose(together.slope, [one.slope / 3 for one in alone])
    assert value > 0


def test_classes_are_probabilities_of_one():
    assert np.array_equal(as_targets(np.int64(2), (4,), "cross_entropy"), [0, 0, 1, 0])
    with pytest.raises(SeriesError, match=r"0 \.\. 3"):
        as_targets(4, (4,), "cross_entropy")
    with pytest.raises(SeriesError, match=r"shape \(4,\)"):
        as_targets(2, (4,), "mse")


def test_a_gradient_step_goes_down_the_loss_of_the_device():
    net = network(outputs=2, readout="W12A12")
    u, y = stream(outputs=2)
    for row in u[:20]:
        net.forward(row)
    old, state = net.master(), net.state
    loss = online_training_step(net, u[20], y[20], 0.05)
    new = net.master()
    x = net.state
    predicted = old(x)
    assert loss == pytest.approx(np.mean((predicted - y[20]) ** 2), rel=2e-2)
    # W - W' = lr dL/dW, with dL/dW by central differences of the float loss
    slope = np.zeros_like(old.w_out)
    for index in np.ndindex(slope.shape):
        step = np.zeros_like(slope)
        step[index] = 1e-6
        up, down = (np.mean(((old.w_out + s * step) @ x + old.out_bias - y[20]) ** 2) for s in (1, -1))
        slope[index] = (up - down) / 2e-6
    assert np.allclose((old.w_out - new.w_out) / 0.05, slope, atol=5e-3 * np.abs(slope).max() + 1e-8)
    net.state = state
    assert np.mean((net.forward(u[20]).output - y[20]) ** 2) < loss


def test_recursive_least_squares_is_ridge_towards_its_start():
    """After every row the master is argmin |y - W [x; 1]|^2 + alpha |W - W_0|^2, whatever the device rounds."""
    net = network(outputs=2)
    u, y = stream(120, outputs=2)
    start = np.column_stack([net.master().w_out, net.master().out_bias])
    x = np.column_stack([features(net, u), np.ones(len(u))])
    trainer = OnlineTrainer(net, RecursiveLeastSquares(alpha=0.1), push_every=7, guard=False)
    trainer.run(u, y)
    solved = np.linalg.solve(x.T @ x + 0.1 * np.eye(x.shape[1]), x.T @ y + 0.1 * start.T).T
    assert np.allclose(trainer.master.w_out, solved[:, :-1], atol=1e-7)
    assert np.allclose(trainer.master.out_bias, solved[:, -1], atol=1e-7)


def test_least_squares_go_on_from_rows_that_were_seen_elsewhere():
    """Fitted to the first rows by ridge, with their inverse, then the rest as a stream: the ridge of all rows."""
    net = network()
    u, y = stream(120)
    x = np.column_stack([features(net, u), np.ones(len(u))])
    penalty = 0.1 * np.eye(x.shape[1])
    first, inverse = x[:70], np.linalg.inv(x[:70].T @ x[:70] + penalty)
    fitted = (inverse @ first.T @ y[:70]).T
    net.push(fitted[:, :-1], fitted[:, -1])
    for row in u[:70]:
        net.advance(row)
    trainer = OnlineTrainer(net, RecursiveLeastSquares(inverse=inverse), push_every=9)
    trainer.run(u[70:], y[70:])
    solved = np.linalg.solve(x.T @ x + penalty, x.T @ y).T
    assert np.allclose(trainer.master.w_out, solved[:, :-1], atol=1e-6)
    with pytest.raises(SpecError, match="features and one"):
        OnlineTrainer(net, RecursiveLeastSquares(inverse=np.eye(3)))
    with pytest.raises(SpecError, match="square matrix"):
        RecursiveLeastSquares(inverse=np.eye(3)[:2])


@pytest.mark.parametrize("forgetting", [1.0, 0.97])
@pytest.mark.parametrize("blocks", [[1] * 40, [7, 1, 20, 12], [40]])
def test_rows_at_once_give_what_they_give_one_by_one(forgetting, blocks):
    rng = np.random.default_rng(SEED)
    x, y, start = rng.normal(size=(40, 6)), rng.normal(size=(40, 2)), rng.normal(size=(2, 6))
    one_by_one = Rls(alpha=0.5, forgetting=forgetting, fit_bias=False)
    peer, _ = learn(one_by_one, x, y, one_by_one.init(6, 2)._replace(w_out=start))
    state = LeastSquares(start, np.eye(start.shape[1]) / 0.5, 0)
    for rows in np.split(np.arange(40), np.cumsum(blocks)[:-1]):
        state = absorb(state, x[rows], y[rows], forgetting)
    assert np.allclose(state.w_out, peer.w_out, atol=1e-10)
    assert np.allclose(state.inverse, peer.inverse, atol=1e-10)
    assert state.rows == 40


def test_least_squares_that_are_lost_are_rolled_back(monkeypatch):
    lost = LeastSquares(np.zeros((1, 3)), -np.eye(3), 0)
    with pytest.raises(DivergenceError, match=r"row 2(.|\n)*forgetting"):
        absorb(lost, np.ones((2, 3)), np.ones((2, 1)), 0.5)
    u, y = stream(200)
    net = network()
    rule = RecursiveLeastSquares(alpha=1e-9, forgetting=0.3)  # a memory of one row: the inverse grows without bound
    trainer = OnlineTrainer(net, rule, push_every=10)
    monkeypatch.setattr(learning_trainer, "MOST", 1000)
    done = trainer.run(u, y)
    assert done.statistics.rollbacks > 0
    assert np.all(np.isfinite(net.master().w_out))
    assert net.verify()


def test_a_refit_is_the_ridge_of_its_window():
    net = network()
    u, y = stream(105)
    x = features(net, u)
    trainer = OnlineTrainer(net, RidgeRefit(window=60, every=20, ridge=1e-3), guard=False)
    trainer.run(u, y)
    peer = Ridge(alpha=1e-3).fit(x[40:100], y[40:100])  # the last multiple of 20, and the 60 rows before it
    assert np.allclose(trainer.master.w_out, peer.coef_, atol=1e-8)
    assert np.allclose(trainer.master.out_bias, peer.intercept_, atol=1e-8)


def test_a_refit_waits_for_its_window():
    u, y = stream(40)
    for window, learned in ((60, False), (40, True)):
        net = network()
        start = net.master().w_out
        OnlineTrainer(net, RidgeRefit(window=window, every=10)).run(u, y)
        assert (not np.array_equal(net.master().w_out, start)) == learned


def test_digits_decide_what_regression_is_worth():
    """A plain int4 readout breaks NARMA10, two digits mend it, three are as good as floats."""
    u, y = stream(700)
    errors = {}
    for precision in ("W4A8", "W8A8", "W12A12"):
        net = network(units=60, precision="W8A8", readout=precision, calibration=u)
        trainer = OnlineTrainer(net, RecursiveLeastSquares(alpha=1e-4), push_every=10, washout=50)
        outputs = trainer.run(u, y).outputs
        errors[precision] = nrmse(y[400:], outputs[400:])
    assert errors["W4A8"] > 0.8
    assert errors["W8A8"] < errors["W12A12"] + 0.06
    assert errors["W12A12"] < 0.5


def test_cross_entropy_learns_classes():
    rng = np.random.default_rng(SEED)
    classes = np.repeat(rng.integers(0, 3, 150), 4)
    u = np.eye(3)[classes] * 0.5 + rng.normal(0, 0.15, (600, 3))
    net = network(inputs=3, outputs=3, readout="W8A8", calibration=u)
    trainer = OnlineTrainer(net, GradientStep(rate=0.3), loss="cross_entropy")
    done = trainer.run(u, classes)
    late = slice(300, None)
    assert np.mean(np.argmax(done.outputs[late], axis=1) == classes[late]) > 0.9
    assert np.mean(done.losses[late]) < 0.6 * np.mean(done.losses[:50])
    for rule in (RecursiveLeastSquares(), RidgeRefit(window=9, every=3)):
        with pytest.raises(SpecError, match="learns mse"):
            OnlineTrainer(net, rule, loss="cross_entropy")


def test_force_keeps_a_loop_of_feedback_going():
    """A network that hears only its own output learns to be an oscillator; RLS inside the loop is FORCE."""
    weights = make_esn(80, 1, seed=3, spectral_radius=0.95, connectivity=1.0, leak=0.4, bias_scaling=0.3, feedback=1)
    weights = weights.with_readout(np.zeros((1, 80)))
    wave = 0.6 * np.sin(2 * np.pi * np.arange(700) / 25)[:, None]
    silence = np.zeros((700, 1))
    with DeviceNetwork(weights, EmulatedDevice(), precision="W8A12", readout="W12A12") as net:
        trainer = OnlineTrainer(net, RecursiveLeastSquares(alpha=1.0), guard=False)
        trainer.run(silence[:500], wave[:500])
        alone = np.stack([net.forward(row).output for row in silence[500:600]])
    assert nrmse(wave[500:600], alone) < 0.35
    with pytest.raises(SpecError, match="feedback"):
        DeviceNetwork(weights, EmulatedDevice(), calibration=silence)


# Pushes.


def test_pushes_and_bytes_are_the_devices_own():
    net = network()
    u, y = stream(100)
    before = net.device.statistics()
    trainer = OnlineTrainer(net, GradientStep(rate=0.2, normalised=True), push_every=8)
    done = trainer.run(u, y).statistics
    after = net.device.statistics()
    assert done.pushes == after.weight_updates - before.weight_updates == 13  # 12 and what was left
    assert done.bytes_pushed == after.bytes_pushed - before.bytes_pushed == 13 * net.readout.variable_bytes
    assert isinstance(done.device, Modelled)
    assert isinstance(done.host, Measured)
    assert done.device.value == pytest.approx(after.busy.value - before.busy.value)
    assert (done.steps, done.learned, done.rollbacks) == (100, 100, 0)
    assert net.verify()
    assert np.array_equal(trainer.master.w_out, net.master().w_out)


def test_pushes_may_wait_until_integers_have_changed():
    u, y = stream(200)
    counts = {}
    for changed in (0.01, 0.3):
        trainer = OnlineTrainer(
            network(readout="W4A8"),
            GradientStep(rate=0.01, normalised=True),
            push_changed=changed,
        )
        for row, target in zip(u, y, strict=True):
            pending = trainer.network.readout.changed(trainer.master.w_out) / UNITS
            assert pending < changed
            trainer.step(row, target)
        counts[changed] = trainer.statistics().pushes
    assert counts[0.01] > 3 * counts[0.3] > 0


def test_between_pushes_a_gradient_corrects_the_master_and_not_an_old_answer(monkeypatch):
    """With a rate that is fine for the master, the device's stale output, corrected 20 times over, would diverge."""
    u, y = stream(400)
    errors = {}
    for corrected in ("master", "device"):
        trainer = OnlineTrainer(network(), GradientStep(rate=0.4, normalised=True), push_every=20, guard=False)
        if corrected == "device":
            monkeypatch.setattr(trainer, "_from_device", lambda: True)
        errors[corrected] = nrmse(y[200:], trainer.run(u, y).outputs[200:])
    assert errors["master"] < 1
    assert errors["device"] > 3 * errors["master"]


# Bad rows.


def test_rows_that_are_not_finite_are_skipped_and_counted():
    net = network()
    u, y = stream(60)
    clean = OnlineTrainer(network(), GradientStep(rate=0.1)).run(u[10:], y[10:])
    u, y = np.concatenate([u[:10], u[10:]]), y.copy()
    bad = u.copy()
    bad[:10] = np.nan
    trainer = OnlineTrainer(net, GradientStep(rate=0.1))
    done = trainer.run(bad, y)
    assert done.statistics.skipped_inputs == 10
    assert done.statistics.learned == 50
    assert np.all(np.isnan(done.outputs[:10]))
    assert np.array_equal(done.outputs[10:], clean.outputs)  # a skipped input leaves no trace
    y[::2] = np.inf
    before = trainer.statistics()
    half = trainer.run(u, y).statistics
    assert half.skipped_targets - before.skipped_targets == 30
    assert half.learned - before.learned == 30


def test_or_they_end_the_run_before_anything_moved():
    net = network()
    u, y = stream(5)
    trainer = OnlineTrainer(net, GradientStep(rate=0.1), on_nan="stop")
    trainer.step(u[0], y[0])
    state, master = net.state, trainer.master
    for bad_u, bad_y, which in ((u[1] * np.nan, y[1], "input"), (u[1], y[1] * np.nan, "target")):
        with pytest.raises(SeriesError, match=f"step 1: .*{which}.*finite"):
            trainer.step(bad_u, bad_y)
        assert np.array_equal(net.state, state)
        assert np.array_equal(trainer.master.w_out, master.w_out)
    assert trainer.statistics().steps == 1
    with pytest.raises(SeriesError, match="finite"):
        online_training_step(net, u[0], [np.nan], 0.1)
    assert np.array_equal(net.state, state)


@pytest.mark.parametrize("target", [[1.0, 2.0], 1.0, [], [[1.0]], ["a"]])
def test_targets_of_another_width_are_refused(target):
    net = network()
    trainer = OnlineTrainer(net, GradientStep(rate=0.1))
    state = net.state
    for attempt in (
        lambda: trainer.step([0.1], target),
        lambda: online_training_step(net, [0.1], target, 0.1),
    ):
        with pytest.raises(SeriesError, match=r"shape \(1,\)"):
            attempt()
    assert np.array_equal(net.state, state)


def test_inputs_of_another_width_and_bad_settings_are_refused():
    net = network()
    trainer = OnlineTrainer(net, GradientStep(rate=0.1))
    for wrong in ([0.1, 0.2], 0.1, [[0.1]]):
        with pytest.raises(SeriesError, match="1 real"):
            trainer.step(wrong, [0.0])
    with pytest.raises(SeriesError, match="target"):
        trainer.run(np.zeros((3, 1)), np.zeros((2, 1)))
    for attempt in (
        lambda: GradientStep(rate=0),
        lambda: RidgeRefit(window=1, every=1),
        lambda: RecursiveLeastSquares(forgetting=1.1),
        lambda: OnlineTrainer(net, GradientStep(rate=1), push_every=0),
        lambda: OnlineTrainer(net, GradientStep(rate=1), push_changed=1.5),
        lambda: OnlineTrainer(net, GradientStep(rate=1), on_nan="ignore"),
        lambda: online_training_step(net, [0.0], [0.0], -1),
        lambda: DeviceNetwork(replace(net.weights, w_out=None, out_bias=None), net.device),
    ):
        with pytest.raises(SpecError):
            attempt()
    with pytest.raises(UnknownNameError, match="hinge"):
        OnlineTrainer(net, GradientStep(rate=1), loss="hinge")


# Devices that fail.


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("in_a_row", [1, 2])
def test_a_device_that_fails_in_an_update_agrees_with_its_master_afterwards(fraction, in_a_row):
    u, y = stream(60)
    smooth = OnlineTrainer(network(), GradientStep(rate=0.1)).run(u, y)
    faults = [PartialUpdate(at=20 + i, fraction=fraction) for i in range(in_a_row)] + [Timeout(at=50)]
    net = network(*faults)
    trainer = OnlineTrainer(net, GradientStep(rate=0.1))
    rough = trainer.run(u, y)
    assert rough.statistics.push_failures == in_a_row
    assert net.device.statistics().failures == in_a_row + 1
    assert net.verify()
    assert np.array_equal(rough.outputs, smooth.outputs)  # and nothing was ever computed with half an update
    assert net.readout.changed(trainer.master.w_out) == 0


def test_a_device_that_leaves_is_reset_and_written_again_or_the_error_comes_through():
    u, y = stream(60)
    smooth = OnlineTrainer(network(), GradientStep(rate=0.1)).run(u, y)
    net = network(Vanish(at=41))
    again = OnlineTrainer(net, GradientStep(rate=0.1)).run(u, y)
    assert net.reconnects == 1
    assert np.array_equal(again.outputs, smooth.outputs)
    assert net.verify()
    stern = network(Vanish(at=41), on_gone="raise")
    trainer = OnlineTrainer(stern, GradientStep(rate=0.1))
    with pytest.raises(DeviceGoneError):
        trainer.run(u, y)
    master = trainer.master
    stern.reconnect()
    assert stern.verify()
    assert np.array_equal(stern.master().w_out, master.w_out)
    assert stern.readout.changed(master.w_out) == 0


def test_an_update_that_fails_for_good_is_made_good_at_the_next_use():
    """The device goes between a call and the update: the master has learned, the device is behind, until it is back."""
    u, y = stream(30)
    net = network(on_gone="raise")
    trainer = OnlineTrainer(net, GradientStep(rate=0.1))
    trainer.run(u[:10], y[:10])
    forward = net.forward

    def and_gone(row):
        made = forward(row)
        net.device.gone = True  # faults strike at calls only
        return made

    net.forward = and_gone
    with pytest.raises(DeviceGoneError):
        trainer.step(u[10], y[10])
    net.forward = forward
    assert net.readout.stale
    net.device.reset()
    net.reservoir.restore()
    trainer.step(u[11], y[11], learn=False)
    assert net.verify()
    assert net.readout.changed(trainer.master.w_out) == 0


def test_silent_damage_is_found_by_reading_back():
    u, y = stream(40)
    net = network(BitFlip(at=21, bits=20))
    done = OnlineTrainer(net, GradientStep(rate=0.1), push_every=40, verify_every=5).run(u, y)
    assert done.statistics.mended == 1
    assert net.verify()


# Divergence.


def test_divergence_is_rolled_back_on_the_device_too():
    u, y = stream(500)
    net = network(readout="W12A12")
    good = OnlineTrainer(net, RecursiveLeastSquares()).run(u, y)
    known = net.master()
    rate = 2.5 / float(np.mean(np.sum(features(net, u) ** 2, axis=1)))  # beyond what is stable
    trainer = OnlineTrainer(net, GradientStep(rate=rate))
    done = trainer.run(u, y)
    assert done.statistics.rollbacks >= 1
    assert trainer.rule.rate <= 0.5 * rate
    assert np.all(np.isfinite(done.outputs))
    assert nrmse(y[300:], done.outputs[300:]) < 2 * nrmse(y[300:], good.outputs[300:])
    assert net.verify()
    assert known.w_out.shape == net.master().w_out.shape
    unguarded = OnlineTrainer(network(), GradientStep(rate=50 * rate), guard=False)
    with pytest.raises((SpecError, DivergenceError)):
        unguarded.run(u, y)
    with pytest.raises(DivergenceError, match="rollbacks before"):
        OnlineTrainer(network(), GradientStep(rate=1e6 * rate)).run(u, y)


def test_least_squares_learn_on_while_the_device_holds_the_kept_readout(monkeypatch):
    """Noise without a law, and a tiny pull: with rows about as many as features the readout is worse than none."""
    rng = np.random.default_rng(SEED)
    u, y = rng.uniform(-1, 1, (250, 1)), rng.normal(size=(250, 1))
    losses = {}
    monkeypatch.setattr(rules, "FACTOR", 2)
    for guard in (True, False):
        net = network()
        net.push(np.zeros((1, UNITS)), np.zeros(1))
        trainer = OnlineTrainer(net, RecursiveLeastSquares(alpha=1e-9), guard=guard)
        done = trainer.run(u, y)
        losses[not guard] = done.losses
        if guard:
            assert done.statistics.rollbacks >= 1
            guarded = trainer.master
        else:
            free = trainer.master
    assert np.mean(losses[False][:80]) < 0.5 * np.mean(losses[True][:80])
    assert np.allclose(guarded.w_out, free.w_out)  # nothing that was learned is lost


def test_a_shift_of_the_world_is_not_divergence():
    """Targets move: the loss rises many times, for the kept readout too. Learning goes on."""
    u, y = stream(600)
    net = network(readout="W12A12")
    trainer = OnlineTrainer(net, RecursiveLeastSquares(forgetting=0.98))
    first = trainer.run(u[:300], y[:300])
    second = trainer.run(u[300:], 3 - y[300:])
    assert np.mean(second.losses[:10]) > 5 * np.mean(first.losses[-100:])
    assert second.statistics.rollbacks == 0
    assert np.mean(second.losses[-100:]) < 3 * np.mean(first.losses[-100:])


@pytest.mark.parametrize("passthrough", [False, True])
def test_a_network_that_learns_steps_and_runs_as_any_other(passthrough):
    w_out = np.random.default_rng(1).normal(size=(2, 20 + 3 * passthrough)) * 0.1
    weights = make_esn(20, 3, seed=1).with_readout(w_out, passthrough=passthrough)
    u = np.random.default_rng(2).uniform(-1, 1, (9, 3))
    with EmulatedDevice() as device, DeviceNetwork(weights, device) as net:
        said = np.stack([net.forward(row).output for row in u])
        state = net.state
        net.reset()
        assert np.array_equal(net.run(u), said)
        assert np.array_equal(net.state, state)
        net.reset()
        assert np.array_equal([net.step(row) for row in u], said)
        with pytest.raises(SpecError, match="push"):
            net.with_weights(weights)
