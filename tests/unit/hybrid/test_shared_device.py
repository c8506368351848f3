"""Everything that runs on a device, beside others and on a device of one slot: the results are those of being alone."""

import tempfile
from dataclasses import replace

import numpy as np
import pytest

from metalforge.conductor.features import ChainContext, FrameMaker
from metalforge.conductor.program import ConductorProgram
from metalforge.conductor.shipped import shipped_weights
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.hybrid import HybridEsn, HybridExecutor, OperationRouter, deploy, graph_from_esn, load
from metalforge.hybrid.learning import DeviceNetwork, Evolution, GradientStep, OnlineTrainer, StreamWindow
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.weights import Ranges
from metalforge.substrates.npu import EmulatedDevice

U = np.random.default_rng(3).uniform(-1, 1, (12, 3))
TARGETS = U[:, :2] * 0.5
HEADS = HeadLayout(name="two", heads=(HeadSpec(name="a"), HeadSpec(name="b", activation="sigmoid")))


def weights(seed):
    made = make_esn(40, 3, seed=seed, leak=0.4, bias_scaling=0.2, connectivity=0.3)
    return made.with_readout(np.random.default_rng(seed).normal(size=(2, 40)) * 0.1)


def linear(device, seed=1):
    return HybridEsn.from_weights(weights(seed)).with_hardware_linear(device, precision="W4A8")


def native(device, seed=1):
    return HybridEsn.from_weights(weights(seed)).with_hardware_native(device)


def chunked(device, seed=1):
    return HybridEsn.from_weights(weights(seed)).with_chunks(device, chunk_units=7, overflow="swap")


def executor(device, seed=1):
    plan = OperationRouter(objective="hw_only").plan(graph_from_esn(weights(seed)), calibration={"input": U})
    return HybridExecutor(plan, device)


class _Conducted:
    """A conductor's passes, as something that is run and closed."""

    def __init__(self, device, seed=1):
        made = replace(weights(seed), ranges=Ranges(1.0, 1.0), heads=HEADS)
        self._passes = ConductorProgram(made, device, precision="W4A8")
        self.close = self._passes.close

    def run(self, u):
        said = [self._passes.run_conductor(row) for row in u]
        return np.stack([np.concatenate([heads["a"], heads["b"]]) for heads in said])


class _FromFile:
    """A network that was deployed, and loaded on the device."""

    def __init__(self, device, seed=1):
        with tempfile.TemporaryDirectory() as folder:
            deploy(linear(EmulatedDevice(), seed), f"{folder}/a.safetensors")
            self._model = load(f"{folder}/a.safetensors", device=device)
        self.close = self._model.close
        self.run = self._model.esn.run


class _Learner:
    """A network that learns on a stream, as something that is run and closed."""

    def __init__(self, device, seed=1):
        self._network = DeviceNetwork(weights(seed), device)
        self.close = self._network.close

    def run(self, u):
        return OnlineTrainer(self._network, GradientStep(rate=0.05)).run(u, TARGETS[: len(u)]).outputs


def evolved(device, seed=1):
    network = DeviceNetwork(weights(seed), device)
    stream = StreamWindow(network, len(U))
    for u, target in zip(U, TARGETS, strict=True):
        stream.take(u, target)
    found = Evolution(network, seed=1).run(stream.window(), 3)
    assert network.verify()
    return [(made.before, made.after) for made in found.generations]


KINDS = [linear, native, chunked, executor, _Learner, _Conducted, _FromFile]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_slots", [1, 2, None])
def test_two_networks_on_one_device_compute_with_their_own_weights(kind, n_slots):
    device = EmulatedDevice(n_slots=n_slots)
    alone = [kind(EmulatedDevice(), seed).run(U) for seed in (1, 2)]
    one, two = kind(device, 1), kind(device, 2)
    found = [[], []]
    for t in range(0, len(U), 4):  # by turns
        for network, parts in zip((one, two), found, strict=True):
            parts.append(network.run(U[t : t + 4]))
    if kind is not _Learner:  # each of its runs sees the first targets
        for parts, wanted in zip(found, alone, strict=True):
            assert np.array_equal(np.concatenate(parts), wanted)
    two.close()
    assert np.array_equal(kind(device, 1).run(U), alone[0])
    one.run(U)  # its programs are still there, or come back


def test_networks_of_every_kind_share_a_device_of_one_slot():
    device = EmulatedDevice(n_slots=1)
    networks = [kind(device) for kind in KINDS]
    for network, kind in zip(networks, KINDS, strict=True):
        assert np.array_equal(network.run(U), kind(EmulatedDevice()).run(U))
    for network in networks:
        network.close()
    assert device.slots() == ()


def test_the_shipped_conductor_runs_on_a_board_of_one_program():
    """Reservoir and heads take turns: every reading is that of a device with room for both, and reloads are counted."""
    seen = {name: [0.5] for name in ("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im")}
    contexts = [ChainContext(beta=beta, dims=(4, 4, 4, 4), algorithm="hmc") for beta in (5.3, 5.6, 5.9)]
    frames = [FrameMaker(context).push("warmup", seen).values for context in contexts]
    board, weights = EmulatedDevice(n_slots=1), shipped_weights()
    roomy, one = (ConductorProgram(weights, device) for device in (EmulatedDevice(), board))
    for frame in frames:
        assert np.array_equal(one.through(frame).vector, roomy.through(frame).vector)
    assert board.statistics().loads >= 2 * len(frames)
    one.close()
    assert board.slots() == ()


def test_evolution_takes_turns_on_one_slot():
    assert evolved(EmulatedDevice(n_slots=1)) == evolved(EmulatedDevice())


def test_closing_one_network_leaves_the_other_as_it_was():
    device = EmulatedDevice()
    a = linear(device, 1)
    before = a.run(U)
    b = linear(device, 2)
    a.reset()
    assert np.array_equal(a.run(U), before)
    b.close()
    a.reset()
    assert np.array_equal(a.run(U), before)
    assert a.statistics().fallbacks == 0


def test_what_shares_a_full_device_is_evicted_and_counted():
    device = EmulatedDevice("akd1000-claimed")  # five programs
    many = [linear(device, seed) for seed in range(1, 8)]
    wanted = [linear(EmulatedDevice(), seed).run(U) for seed in range(1, 8)]
    assert len(device.slots()) == 5
    for network, states in zip(many, wanted, strict=True):
        assert np.array_equal(network.run(U), states)
    assert device.statistics().loads > 7


def test_device_time_of_networks_on_one_device_adds_up():
    device = EmulatedDevice()
    shared = [linear(device, 1), native(device, 2), chunked(device, 3)]
    run = executor(device, 4)
    trainer = OnlineTrainer(DeviceNetwork(weights(5), device), GradientStep(rate=0.05))
    loaded = trainer.network.programs.spent()
    for i, network in enumerate((*shared, run)):
        for _ in range(i + 1):
            network.run(U)
    trainer.run(U, TARGETS)
    done = [network.statistics() for network in shared]
    busy = [one.device.value for one in done] + [run.statistics().device_busy.value]
    energy = [one.energy.value for one in done] + [run.statistics().device_energy.value]
    learned = trainer.statistics()
    whole = device.statistics()
    assert sum(busy) + loaded.busy.value + learned.device.value == pytest.approx(whole.busy.value, rel=1e-9)
    assert sum(energy) + loaded.energy.value + learned.energy.value == pytest.approx(whole.energy.value, rel=1e-9)
    alone = linear(EmulatedDevice(), 1)
    alone.run(U)
    assert done[0].device.value == pytest.approx(alone.statistics().device.value, rel=1e-9)


def test_evictions_and_reloads_are_counted_where_they_happen():
    device = EmulatedDevice(n_slots=1)
    a, b = linear(device, 1), linear(device, 2)
    assert (a.programs.loads, a.programs.reloads, a.programs.evictions) == (1, 0, 0)
    assert b.programs.evictions == 1  # a made room
    assert a.programs.resident == ()
    a.run(U)
    assert (a.programs.loads, a.programs.reloads, a.programs.evictions) == (2, 1, 1)
    assert a.programs.reloaded_bytes > 0
    b.close()
    assert len(a.programs.resident) == 1
    a.run(U)
    assert a.programs.reloads == 1  # nobody took its place
