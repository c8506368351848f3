"""Everything that runs on a device, beside others and on a device of one slot: the results are those of being alone."""

import numpy as np
import pytest

from metalforge.conductor.passes import DevicePass
from metalforge.hybrid import HybridEsn, HybridExecutor, OperationRouter, graph_from_esn
from metalforge.hybrid.chunking import ChunkedEsn
from metalforge.hybrid.learning import DeviceNetwork, Evolution, GradientStep, OnlineTrainer, StreamWindow
from metalforge.reservoir.generate import make_esn
from metalforge.substrates.npu import EmulatedDevice

U = np.random.default_rng(3).uniform(-1, 1, (12, 3))
TARGETS = U[:, :2] * 0.5


def weights(seed):
    made = make_esn(40, 3, seed=seed, leak=0.4, bias_scaling=0.2, connectivity=0.3)
    return made.with_readout(np.random.default_rng(seed).normal(size=(2, 40)) * 0.1)


def linear(device, seed=1):
    return HybridEsn.from_weights(weights(seed)).with_hardware_linear(device, precision="W4A8")


def native(device, seed=1):
    return HybridEsn.from_weights(weights(seed)).with_hardware_native(device)


def chunked(device, seed=1):
    return ChunkedEsn.from_weights(weights(seed), device, chunk_units=7, overflow="swap")


def executor(device, seed=1):
    plan = OperationRouter(objective="hw_only").plan(graph_from_esn(weights(seed)), calibration={"input": U})
    return HybridExecutor(plan, device)


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


KINDS = [linear, native, chunked, executor, _Learner]


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


def test_a_conductor_pass_takes_turns_on_one_slot():
    alone, turns = (DevicePass(weights(1), EmulatedDevice(n_slots=n), "W4A8", U) for n in (None, 1))
    for u in U:
        assert np.array_equal(alone.step(u), turns.step(u))


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
