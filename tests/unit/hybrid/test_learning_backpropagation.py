"""The whole network in software: gradients by differences, descent that follows them, weights that reach the device."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from metalforge.core.errors import MetalforgeError, SpecError, UnknownNameError
from metalforge.hybrid.learning import BackpropagationTrainer, DeviceNetwork
from metalforge.reservoir import make_esn, predict
from metalforge.reservoir.gradient import loss_gradient
from metalforge.reservoir.series import SeriesError
from metalforge.substrates.npu import EmulatedDevice

SEED = 17
UNITS, OUTPUTS, STEPS = 8, 2, 12


def weights(units=UNITS, **changes):
    w = make_esn(units, 1, seed=SEED, connectivity=1.0, leak=0.7, input_scaling=0.5, bias_scaling=0.2)
    rng = np.random.default_rng(SEED)
    return replace(w.with_readout(rng.normal(0, 0.5, (OUTPUTS, units)), rng.normal(0, 0.1, OUTPUTS)), **changes)


def window(steps=STEPS, seed=SEED):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (steps, 1)), rng.normal(size=(steps, OUTPUTS))


def mean_square(w, u, y):
    return np.mean((predict(w, u) - y) ** 2)


@pytest.mark.parametrize("part", ["w_in", "w_res", "bias", "w_out", "out_bias"])
def test_a_plain_step_is_the_difference_quotient(part):
    """With rate r and no clipping the part moves by -r dL/dpart, here by central differences of the whole network."""
    w, (u, y) = weights(), window()
    trainer = BackpropagationTrainer(w, rate=0.5, parts=(part,), optimiser="plain", clip=None)
    assert trainer.step(u, y) == pytest.approx(mean_square(w, u, y))
    moved = (getattr(w, part) - getattr(trainer.weights, part)) / 0.5
    slope = np.zeros_like(moved)
    for index in np.ndindex(slope.shape):
        step = np.zeros_like(slope)
        step[index] = 1e-6
        up, down = (mean_square(replace(w, **{part: getattr(w, part) + s * step}), u, y) for s in (1, -1))
        slope[index] = (up - down) / 2e-6
    assert np.allclose(moved, slope, atol=1e-8)
    for other in {"w_in", "w_res", "bias", "w_out", "out_bias"} - {part}:
        assert np.array_equal(getattr(trainer.weights, other), getattr(w, other))


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("passthrough", [False, True])
def test_a_step_is_that_of_the_reservoirs_own_gradient(loss, passthrough):
    rng = np.random.default_rng(SEED)
    w, (u, _) = weights(), window()
    w = w.with_readout(rng.normal(size=(OUTPUTS, UNITS + passthrough)), passthrough=passthrough)
    targets = rng.integers(0, OUTPUTS, STEPS - 3) if loss == "cross_entropy" else rng.normal(size=(STEPS - 3, OUTPUTS))
    trainer = BackpropagationTrainer(w, rate=1.0, loss=loss, optimiser="plain", clip=None)
    value, slopes = loss_gradient(w, u, targets, loss=loss, washout=3)
    assert trainer.step(u, targets, washout=3) == pytest.approx(value)
    for part in trainer.parts:
        assert np.allclose(getattr(w, part) - getattr(trainer.weights, part), getattr(slopes, part), atol=1e-12)
    for wrong in (targets[:-1], np.full((STEPS - 3, OUTPUTS), np.nan), np.full(STEPS - 3, OUTPUTS)):
        with pytest.raises(SeriesError, match="must be"):
            trainer.step(u, wrong, washout=3)
    with pytest.raises(SeriesError, match="washout"):
        trainer.step(u, targets, washout=STEPS)


def test_adams_steps_are_those_of_its_paper():
    w, (u, y) = weights(), window()
    plain = BackpropagationTrainer(w, rate=1.0, parts=("out_bias",), optimiser="plain", clip=None)
    adam = BackpropagationTrainer(w, rate=0.1, parts=("out_bias",), clip=None)
    m = v = np.zeros(OUTPUTS)
    for t in range(1, 4):
        plain.weights, before = adam.weights, adam.weights.out_bias
        plain.reset()
        adam.reset()
        plain.step(u, y)
        g = before - plain.weights.out_bias
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        adam.step(u, y)
        wanted = before - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        assert np.allclose(adam.weights.out_bias, wanted, atol=1e-12)


def test_the_state_goes_on_from_window_to_window():
    w, (u, y) = weights(), window(20)
    trainer = BackpropagationTrainer(w, rate=1e-12, optimiser="plain")
    losses = [trainer.step(u[i : i + 5], y[i : i + 5]) for i in range(0, 20, 5)]
    whole = (predict(w, u) - y) ** 2
    assert losses == pytest.approx([whole[i : i + 5].mean() for i in range(0, 20, 5)], rel=1e-6)
    trainer.reset()
    assert trainer.step(u[5:10], y[5:10]) == pytest.approx(mean_square(w, u[5:10], y[5:10]), rel=1e-6)


def test_long_gradients_are_shortened():
    w, (u, y) = weights(), window()
    trainer = BackpropagationTrainer(w, rate=1.0, optimiser="plain", clip=0.01)
    trainer.step(u, 100 * y)
    parts = ("w_in", "w_res", "bias", "w_out", "out_bias")
    length = np.sqrt(sum(np.sum((getattr(trainer.weights, p) - getattr(w, p)) ** 2) for p in parts))
    assert length == pytest.approx(0.01)


def test_connections_that_are_not_there_do_not_grow():
    w = weights()
    holes = np.where(np.arange(UNITS**2).reshape(UNITS, UNITS) % 3, w.w_res, 0.0)
    trainer = BackpropagationTrainer(replace(w, w_res=csr_array(holes)), rate=0.01)
    for seed in range(5):
        trainer.step(*window(seed=seed))
    assert np.array_equal(trainer.weights.w_res == 0, holes == 0)
    assert not np.array_equal(trainer.weights.w_res, holes)


def test_a_trained_reservoir_beats_a_trained_readout_on_the_device_too():
    """A reservoir of so small a spectral radius forgets four steps back, until it is trained; both are pushed."""
    rng = np.random.default_rng(SEED)
    u = rng.uniform(-1, 1, (4000, 1))
    y = np.roll(u, 4, axis=0)
    start = make_esn(10, 1, seed=SEED, connectivity=1.0, spectral_radius=0.4, input_scaling=0.5, bias_scaling=0.2)
    start = start.with_readout(np.zeros((1, 10)))
    errors = {}
    for name, parts in {
        "readout": ("w_out", "out_bias"),
        "all": ("w_in", "w_res", "bias", "w_out", "out_bias"),
    }.items():
        trainer = BackpropagationTrainer(start, rate=0.01, parts=parts)
        for i in range(0, 3600, 20):
            trainer.step(u[i : i + 20], y[i : i + 20])
        with DeviceNetwork(start, EmulatedDevice(), precision="W12A12", readout="W12A12") as net:
            readout, reservoir = trainer.push(net)
            assert readout.bytes > 0
            assert (reservoir is None) == (name == "readout")
            assert net.verify()
            said = np.stack([net.forward(row).output for row in u[3600:]])
        software = predict(trainer.weights, u[3600:])
        assert np.abs(said - software).max() < 0.03
        errors[name] = float(np.mean((said - y[3600:]) ** 2) / y.var())
    assert errors["readout"] > 0.7
    assert errors["all"] < 0.6 * errors["readout"]


def test_a_push_leaves_a_reservoir_out_that_was_not_trained():
    readout = BackpropagationTrainer(weights(), rate=0.05, parts=("w_out", "out_bias"))
    trainer = BackpropagationTrainer(weights(), rate=0.05)
    with DeviceNetwork(weights(), EmulatedDevice()) as net:
        trainer.step(*window())
        before = net.reservoir.integers
        assert readout.push(net)[1] is None
        assert np.array_equal(net.reservoir.integers, before)
        trainer.push(net)
        assert not np.array_equal(net.reservoir.integers, before)
        with pytest.raises(SpecError, match="shapes, type, leak"):
            net.push_reservoir(weights(leak=0.5))


def test_classes_are_learned_by_cross_entropy():
    rng = np.random.default_rng(SEED)
    trainer = BackpropagationTrainer(weights(), rate=0.02, loss="cross_entropy")
    u = rng.uniform(-1, 1, (2000, 1))
    labels = (np.roll(u[:, 0], 1) > 0).astype(int)
    losses = [trainer.step(u[i : i + 20], labels[i : i + 20]) for i in range(0, 2000, 20)]
    assert np.mean(losses[-20:]) < 0.4 < np.mean(losses[:5])


def test_bad_settings_and_divergence_are_named():
    for attempt in (
        lambda: BackpropagationTrainer(weights(), rate=0),
        lambda: BackpropagationTrainer(weights(), rate=1, clip=0.0),
        lambda: BackpropagationTrainer(replace(weights(), w_out=None, out_bias=None), rate=1),
    ):
        with pytest.raises(SpecError):
            attempt()
    for wrong in ({"parts": ("w_fb",)}, {"parts": ("w_inn",)}, {"optimiser": "magic"}, {"loss": "hinge"}):
        with pytest.raises(UnknownNameError):
            BackpropagationTrainer(weights(), rate=1, **wrong)
    u, y = window()
    wild = BackpropagationTrainer(weights(), rate=1e300, optimiser="plain", clip=None)
    with np.errstate(all="ignore"):
        wild.step(u, y)
        with pytest.raises((MetalforgeError, OverflowError)):
            wild.step(u, y)
