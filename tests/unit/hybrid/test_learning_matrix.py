"""A matrix that is written while it is used: near its master, sent when integers move, whole again after a failure."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.hybrid.learning.network import ATTEMPTS, MOST_LINES, WrittenMatrix, requantise
from metalforge.substrates.npu import EmulatedDevice, ResourceError
from metalforge.substrates.npu.certificate import overflow_certificate
from metalforge.substrates.npu.device import DeviceGoneError, DeviceTimeoutError
from metalforge.substrates.npu.program import Encoding, FullyConnected
from metalforge.substrates.npu.residency import DevicePrograms
from reference.faulty_npu import BitFlip, FaultyDevice, PartialUpdate, Vanish

SEED = 31
RNG = np.random.default_rng(SEED)
W = RNG.normal(size=(3, 40))
X = RNG.uniform(-1, 1, (25, 40))


def opened(*faults, digits=2, bits=8, matrix=W, ranges=1.0):
    device = FaultyDevice(faults=faults)
    encoding = Encoding(digits=digits, activation_bits=bits, signed="zero_point")
    return device, WrittenMatrix("m", matrix, DevicePrograms(device), encoding=encoding, ranges=ranges)


def held(device):
    return device.get_variable("m/weights", "learning/m")


@pytest.mark.parametrize(("digits", "bits", "error"), [(1, 8, 0.2), (2, 8, 0.01), (3, 12, 1e-3)])
def test_a_product_is_as_near_as_its_digits(digits, bits, error):
    _, matrix = opened(digits=digits, bits=bits)
    exact = X @ W.T
    relative = np.sqrt(np.mean((matrix(X) - exact) ** 2) / np.mean(exact**2))
    assert error / 8 < relative < error
    assert np.abs(matrix.integers).max() == matrix.limit == {1: 7, 2: 112, 3: 1687}[digits]


def test_ranges_are_folded_in_and_taken_out_again():
    ranges = np.linspace(0.1, 3, 40)
    _, matrix = opened(digits=3, bits=12, ranges=ranges)
    assert np.allclose(matrix.real(), W, atol=2e-3 * np.abs(W * ranges).max() / ranges.min() / 2)
    assert np.allclose(matrix(X * ranges), (X * ranges) @ W.T, atol=0.02)


def test_integers_that_do_not_move_are_not_sent():
    device, matrix = opened()
    before = device.statistics()
    still = matrix.push(W * (1 + 1e-6))
    assert still == (0, 0, 0)
    assert device.statistics() == before
    moved = W.copy()
    moved[1, 7] = -moved[1, 7]
    assert matrix.changed(moved) == 1
    push = matrix.push(moved)
    assert push == (1, 2 * 40 * 3, 0)
    assert device.statistics().weight_updates == before.weight_updates + 1
    assert device.statistics().bytes_pushed - before.bytes_pushed == push.bytes
    assert matrix.verify()


def test_a_row_keeps_its_scale_until_it_leaves_or_wastes_the_grid():
    integers, scales = requantise(W, 1)
    largest = np.abs(W).max()
    inside, same = requantise(0.9 * W, 1, scales)
    assert np.array_equal(same, scales)
    assert np.array_equal(inside, np.rint(0.9 * W / scales[:, None]))
    for factor in (0.5, 1.5):
        fresh, other = requantise(factor * W, 1, scales)
        assert np.allclose(other, factor * scales)
        assert np.array_equal(fresh, integers)
    assert largest > 0
    assert np.array_equal(requantise(np.zeros((2, 3)), 2)[0], np.zeros((2, 3)))


@pytest.mark.parametrize("failures", [1, ATTEMPTS - 1])
@pytest.mark.parametrize("fraction", [0.0, 0.4])
def test_an_update_that_stops_midway_is_sent_again_until_it_is_whole(failures, fraction):
    device, matrix = opened(*(PartialUpdate(at=i + 1, fraction=fraction) for i in range(failures)))
    new = -W
    push = matrix.push(new)
    assert push.failures == failures
    assert device.statistics().failures == failures
    assert matrix.verify()
    assert np.array_equal(held(device), matrix.compiled.program.layers[0].weights)
    assert np.allclose(matrix(X), X @ new.T, atol=0.2)


def test_half_an_update_is_never_computed_with():
    """The device goes while an update is under way; what comes after it is the new matrix, whole."""
    device, matrix = opened(*(PartialUpdate(at=i + 1) for i in range(2)), Vanish(at=1))
    with pytest.raises(DeviceGoneError):
        matrix(X)
    with pytest.raises(DeviceGoneError):
        matrix.push(-W)
    assert matrix.stale
    device.reset()
    assert not matrix.verify()
    assert np.allclose(matrix(X), X @ -W.T, atol=0.2)
    assert not matrix.stale
    assert matrix.verify()


def test_a_push_to_a_stale_device_writes_all_of_it():
    device, matrix = opened(Vanish(at=1))
    with pytest.raises(DeviceGoneError):
        matrix(X)
    with pytest.raises(DeviceGoneError):
        matrix.push(-W)
    device.reset()
    matrix.push(W)  # the old integers: nothing would be sent if the device were trusted
    assert matrix.verify()
    assert np.allclose(matrix(X), X @ W.T, atol=0.2)


def test_silent_damage_is_seen_and_mended():
    _, matrix = opened(BitFlip(at=1, bits=4))
    matrix(X)
    assert not matrix.verify()
    matrix.restore()
    assert matrix.verify()


def test_a_device_of_one_program_takes_two_matrices_by_turns():
    programs = DevicePrograms(EmulatedDevice(n_slots=1))
    encoding = Encoding(digits=2, activation_bits=8, signed="zero_point")
    one, two = (WrittenMatrix(n, W, programs, encoding=encoding, ranges=1.0) for n in ("one", "two"))
    one.push(-W)  # not resident: it is written when its turn comes
    assert one.verify()
    assert np.allclose(two(X), X @ W.T, atol=0.2)
    assert np.allclose(one(X), X @ -W.T, atol=0.2)
    assert one.verify()


def test_two_users_have_slots_of_their_own():
    device = EmulatedDevice()
    encoding = Encoding(digits=2, activation_bits=8, signed="zero_point")
    one, two = (WrittenMatrix("m", W, DevicePrograms(device), encoding=encoding, ranges=1.0) for _ in range(2))
    one.push(-W)
    assert np.allclose(two(X), X @ W.T, atol=0.2)
    assert one.verify()
    assert two.verify()


def test_no_weights_of_so_many_lines_can_saturate():
    worst = FullyConnected(name="w", weights=np.full((MOST_LINES, 1), 7, np.int8))
    one_more = FullyConnected(name="w", weights=np.full((MOST_LINES + 1, 1), 7, np.int8))
    assert overflow_certificate(worst).safe
    assert not overflow_certificate(one_more).safe
    with pytest.raises(ResourceError, match="without saturating"):
        opened(matrix=np.ones((1, MOST_LINES + 1)))


def test_bad_matrices_are_named():
    device, matrix = opened()
    known = held(device)
    for wrong in (np.zeros((2, 40)), np.zeros(3), np.full((3, 40), np.nan)):
        with pytest.raises(SpecError, match="`m` must"):
            matrix.push(wrong)
    for wrong in (np.full((3, 40), 113), np.zeros((3, 40)), np.zeros((40, 3), np.int64)):
        with pytest.raises(SpecError, match="takes integers"):
            matrix.write(wrong)
    assert np.array_equal(held(device), known)
    assert not matrix.stale


def test_time_outs_without_end_come_through_and_leave_a_matrix_that_restores_itself():
    device, matrix = opened(*(PartialUpdate(at=i + 1) for i in range(10)))
    load = device.load
    device.load = lambda program, slot: (_ for _ in ()).throw(DeviceTimeoutError("no"))
    with pytest.raises(DeviceTimeoutError):
        matrix.push(-W)
    assert matrix.stale
    device.load = load
    assert np.allclose(matrix(X), X @ -W.T, atol=0.2)
    assert matrix.verify()
