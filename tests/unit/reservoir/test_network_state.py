"""A network's state: it goes on over calls, forks, resets, and is refused from files of another network."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.sparse import csr_array

from metalforge.core import SpecError
from metalforge.reservoir import EsnNetwork, EsnWeights, predict
from metalforge.reservoir.network import fingerprint

UNITS, INPUTS, OUTPUTS = 9, 2, 2
U = np.random.default_rng(1).normal(size=(20, INPUTS))


def _network(readout=True, feedback=False, dtype=np.float64, passthrough=True, seed=6):
    rng = np.random.default_rng(seed)
    w = EsnWeights(
        w_in=rng.uniform(-1, 1, (UNITS, INPUTS)),
        w_res=rng.normal(size=(UNITS, UNITS)) * 0.3,
        leak=0.5,
        w_fb=rng.normal(size=(UNITS, OUTPUTS)) * 0.3 if feedback else None,
        w_out=rng.normal(size=(OUTPUTS, UNITS + INPUTS * passthrough)) * 0.3 if readout else None,
        passthrough=passthrough,
    )
    return w.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("feedback", [False, True])
def test_steps_and_runs_continue_one_long_run(feedback, dtype):
    w = _network(feedback=feedback, dtype=dtype)
    parts = EsnNetwork(w)
    outputs = np.concatenate([[parts.step(u) for u in U[:3]], parts.run(U[3:10]), parts.run(U[10:])])
    assert outputs.dtype == parts.state.dtype == dtype
    assert outputs == pytest.approx(predict(w, U), rel=1e-5 if dtype == np.float32 else 1e-12, abs=1e-6)


def test_a_step_without_a_readout_returns_the_state():
    network = EsnNetwork(_network(readout=False, passthrough=False))
    assert np.array_equal(network.step(U[0]), network.state)


def test_the_state_is_a_copy_and_new_values_are_checked():
    network = EsnNetwork(_network())
    network.run(U)
    kept = network.state
    network.state[:] = 7
    assert np.array_equal(network.state, kept)
    mine = np.full(UNITS, 0.25)
    network.state = mine
    mine[:] = 9
    assert np.array_equal(network.state, np.full(UNITS, 0.25))
    for bad in (np.zeros(UNITS + 1), np.zeros((1, 1, UNITS)), np.full(UNITS, np.nan)):
        with pytest.raises(SpecError, match=str(UNITS)):
            network.state = bad
    assert np.array_equal(network.state, np.full(UNITS, 0.25))


def test_the_caller_may_overwrite_returned_states():
    network = EsnNetwork(_network(readout=False, passthrough=False))
    states = network.run(U)
    kept = states[-1].copy()
    states[:] = 5
    assert np.array_equal(network.state, kept)


@pytest.mark.parametrize(("readout", "feedback"), [(False, False), (True, True)])
def test_the_caller_may_overwrite_the_result_of_a_step(readout, feedback):
    one, other = (EsnNetwork(_network(readout, feedback, passthrough=readout)) for _ in range(2))
    for u in U:
        found, wanted = one.step(u), other.step(u)
        assert np.array_equal(found, wanted)
        found[:] = 7


@pytest.mark.parametrize("batch", [None, 2])
def test_a_fork_and_a_reset_are_independent(batch):
    network = EsnNetwork(_network(feedback=True))
    u = U if batch is None else np.stack([U, -U])
    network.reset(batch=batch)
    first = network.run(u)
    network.reset(batch=batch)
    assert not network.state.any()
    network.run(u[..., :5, :])
    kept = network.state
    twin = network.fork()
    ahead = twin.run(u[..., 5:, :])
    assert np.array_equal(network.state, kept)
    assert np.array_equal(network.run(u[..., 5:, :]), ahead)
    assert np.array_equal(ahead, first[..., 5:, :])


@pytest.mark.parametrize("feedback", [False, True])
def test_a_state_file_continues_the_run(tmp_path, feedback):
    network, other = (EsnNetwork(_network(feedback=feedback)) for _ in range(2))
    network.run(U[:7])
    network.save_state(tmp_path / "state.safetensors")
    other.load_state(tmp_path / "state.safetensors")
    assert np.array_equal(other.run(U[7:]), network.run(U[7:]))
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]


def test_states_of_other_networks_and_other_files_are_refused(tmp_path):
    path = tmp_path / "state.safetensors"
    w = _network(feedback=True)
    EsnNetwork(w).save_state(path)
    others = [
        replace(w, leak=0.4),
        replace(w, activation="relu"),
        replace(w, bias=np.full(UNITS, 0.1)),
        replace(w, w_res=w.w_res + 1e-9),
        replace(w, w_in=-w.w_in),
        replace(w, w_fb=-w.w_fb),
        w.astype(np.float32),
    ]
    for other in others:
        network = EsnNetwork(other)
        network.run(U)
        kept = network.state
        with pytest.raises(SpecError, match=r"state\.safetensors.*fingerprint"):
            network.load_state(path)
        assert np.array_equal(network.state, kept)
    EsnNetwork(w.with_readout(2 * w.w_out)).load_state(path)  # another readout, the same reservoir
    said = {"format": "metalforge reservoir state 1", "fingerprint": fingerprint(w)}
    for output in (np.zeros(OUTPUTS + 1), np.full(OUTPUTS, np.nan)):
        save_file({"state": np.zeros(UNITS), "output": output}, path, metadata=said)
        with pytest.raises(SpecError, match="`output`"):
            EsnNetwork(w).load_state(path)
    save_file({"state": np.zeros((0, UNITS)), "output": np.zeros((0, OUTPUTS))}, path, metadata=said)
    with pytest.raises(SpecError, match="`state`"):
        EsnNetwork(w).load_state(path)
    parts = {
        name: {"dtype": "BF16", "shape": [n], "data_offsets": [2 * first, 2 * (first + n)]}
        for name, first, n in (("state", 0, UNITS), ("output", UNITS, OUTPUTS))
    }
    header = json.dumps({"__metadata__": said, **parts}).encode()  # a type that NumPy does not have
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2 * (UNITS + OUTPUTS)))
    with pytest.raises(SpecError, match="BF16"):
        EsnNetwork(w).load_state(path)
    save_file({"state": np.zeros(UNITS)}, path)
    with pytest.raises(SpecError, match="state"):
        EsnNetwork(w).load_state(path)
    path.write_bytes(b"x" * 100)
    with pytest.raises(SpecError, match="safetensors"):
        EsnNetwork(w).load_state(path)
    with pytest.raises(SpecError, match="nothing"):
        EsnNetwork(w).load_state(tmp_path / "nothing")


def test_fingerprints_cover_a_sparse_matrix():
    w = _network()
    one = replace(w, w_res=csr_array(w.w_res))
    assert fingerprint(one) == fingerprint(replace(w, w_res=csr_array(w.w_res)))
    assert fingerprint(one) != fingerprint(replace(w, w_res=csr_array(2 * w.w_res)))


def test_bad_inputs_leave_the_state_alone():
    network = EsnNetwork(_network())
    network.run(U)
    kept = network.state
    for bad in (np.zeros(INPUTS + 1), np.full(INPUTS, np.nan), np.zeros((1, INPUTS))):
        with pytest.raises(SpecError, match="`u`"):
            network.step(bad)
    assert np.array_equal(network.state, kept)
    wild = EsnNetwork(EsnWeights(w_in=np.ones((1, 1)), w_res=np.full((1, 1), 1e200), activation="identity"))
    with pytest.raises(OverflowError, match="diverges"):
        wild.run(np.ones((5, 1)))
    assert not wild.state.any()
