"""The stateful shell: it carries on, forks, goes back, and takes no state of another network."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.sparse import csr_array

from metalforge.core.errors import SpecError
from metalforge.reservoir.reservoir import Reservoir, fingerprint
from metalforge.reservoir.running import predict
from metalforge.reservoir.series import SeriesError
from metalforge.reservoir.training import collect
from metalforge.reservoir.weights import EsnWeights

UNITS, INPUTS, OUTPUTS = 9, 2, 2


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


U = np.random.default_rng(1).normal(size=(20, INPUTS))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("feedback", [False, True])
def test_steps_runs_and_one_long_run_are_the_same(feedback, dtype):
    w = _network(feedback=feedback, dtype=dtype)
    whole = Reservoir(w)
    states = whole.run(U)
    parts = Reservoir(w)
    outputs = [parts.step(u) for u in U[:3]]
    rest = np.concatenate([parts.run(U[3:10]), parts.run(U[10:])])
    assert states.dtype == parts.state.dtype == dtype
    assert rest == pytest.approx(states[3:], rel=1e-5 if dtype == np.float32 else 1e-12, abs=1e-6)
    assert parts.state == pytest.approx(states[-1], rel=1e-7, abs=1e-6)
    wanted = predict(w, U)
    assert outputs == pytest.approx(wanted[:3], rel=1e-7, abs=1e-6)
    assert whole.output == pytest.approx(wanted[-1], rel=1e-7, abs=1e-6)


def test_a_step_without_readout_gives_the_state():
    reservoir = Reservoir(_network(readout=False, passthrough=False))
    assert np.array_equal(reservoir.step(U[0]), reservoir.state)
    assert reservoir.output.shape == (0,)


def test_the_state_is_a_copy_and_what_is_set_is_checked():
    reservoir = Reservoir(_network())
    reservoir.run(U)
    kept = reservoir.state
    reservoir.state[:] = 7
    assert np.array_equal(reservoir.state, kept)
    mine = np.full(UNITS, 0.25)
    reservoir.state = mine
    mine[:] = 9
    assert np.array_equal(reservoir.state, np.full(UNITS, 0.25))
    for bad in (np.zeros(UNITS + 1), np.zeros((1, UNITS)), np.full(UNITS, np.nan)):
        with pytest.raises(SeriesError, match="`state` must"):
            reservoir.state = bad
    assert np.array_equal(reservoir.state, np.full(UNITS, 0.25))


def test_what_a_run_returned_is_not_its_state():
    reservoir = Reservoir(_network())
    states = reservoir.run(U)
    kept = states[-1].copy()
    states[:] = 5
    assert np.array_equal(reservoir.state, kept)


def test_reset_goes_back_to_rest_or_to_a_state():
    reservoir = Reservoir(_network(feedback=True))
    first = reservoir.run(U)
    reservoir.reset()
    assert not reservoir.state.any()
    assert not reservoir.output.any()
    assert np.array_equal(reservoir.run(U), first)
    reservoir.reset()
    reservoir.run(U[:5])
    middle = reservoir.state, reservoir.output
    reservoir.run(U)
    reservoir.reset(*middle)
    assert reservoir.run(U[5:]) == pytest.approx(first[5:], rel=1e-12)


def test_a_fork_goes_its_own_way():
    reservoir = Reservoir(_network(feedback=True))
    reservoir.run(U[:5])
    kept = reservoir.state, reservoir.output
    twin = reservoir.fork()
    ahead = twin.run(U[5:])
    assert np.array_equal(reservoir.state, kept[0])
    assert np.array_equal(reservoir.output, kept[1])
    assert np.array_equal(reservoir.run(U[5:]), ahead)


def test_a_teacher_is_heard_in_place_of_the_outputs():
    w = _network(feedback=True)
    said = np.random.default_rng(2).normal(size=(20, OUTPUTS))
    forced = next(iter(collect(w, U, said, passthrough=False)))[0]
    assert Reservoir(w).run(U, teacher=said) == pytest.approx(forced, rel=1e-12)
    stepped = Reservoir(w)
    for u, y in zip(U, said, strict=True):
        stepped.step(u, teacher=y)
    assert stepped.state == pytest.approx(forced[-1], rel=1e-12)
    assert np.array_equal(stepped.output, said[-1])
    untaught = Reservoir(_network(readout=False, feedback=True, passthrough=False))
    with pytest.raises(SeriesError, match="exactly 20 steps"):
        untaught.run(U, teacher=said[:19])
    with pytest.raises(SeriesError, match="exactly 1 steps"):
        untaught.step(U[0])
    with pytest.raises(SeriesError, match="has none"):
        Reservoir(_network()).run(U, teacher=said)


@pytest.mark.parametrize("readout", [True, False])
def test_a_state_goes_through_a_file(tmp_path, readout):
    w = _network(readout=readout, passthrough=readout)
    reservoir = Reservoir(w)
    reservoir.run(U)
    reservoir.save_state(tmp_path / "state.safetensors")
    other = Reservoir(w)
    other.load_state(tmp_path / "state.safetensors")
    assert np.array_equal(other.state, reservoir.state)
    assert np.array_equal(other.output, reservoir.output)
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]


def test_states_of_other_networks_and_other_files_are_refused(tmp_path):
    path = tmp_path / "state.safetensors"
    w = _network(feedback=True)
    Reservoir(w).save_state(path)
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
        reservoir = Reservoir(other)
        reservoir.run(U)
        kept = reservoir.state
        with pytest.raises(SpecError, match=r"state\.safetensors.*another network"):
            reservoir.load_state(path)
        assert np.array_equal(reservoir.state, kept)
    Reservoir(w.with_readout(2 * w.w_out)).load_state(path)  # another readout, the same reservoir
    save_file({"state": np.zeros(UNITS)}, path)
    with pytest.raises(SpecError, match="holds state"):
        Reservoir(w).load_state(path)
    path.write_bytes(b"x" * 100)
    with pytest.raises(SpecError, match="safetensors"):
        Reservoir(w).load_state(path)
    with pytest.raises(SpecError, match="cannot be read"):
        Reservoir(w).load_state(tmp_path / "nothing")


def test_fingerprints_see_a_sparse_matrix_too():
    w = _network()
    one = replace(w, w_res=csr_array(w.w_res))
    assert fingerprint(one) == fingerprint(replace(w, w_res=csr_array(w.w_res)))
    assert fingerprint(one) != fingerprint(replace(w, w_res=csr_array(2 * w.w_res)))


def test_bad_inputs_leave_the_state_alone():
    reservoir = Reservoir(_network())
    reservoir.run(U)
    kept = reservoir.state
    for bad in (np.zeros(INPUTS + 1), np.full(INPUTS, np.nan), np.zeros((1, INPUTS))):
        with pytest.raises(ValueError, match="`u` must"):
            reservoir.step(bad)
    assert np.array_equal(reservoir.state, kept)
    wild = Reservoir(EsnWeights(w_in=np.ones((1, 1)), w_res=np.full((1, 1), 1e200), activation="identity"))
    with pytest.raises(OverflowError, match="diverges"):
        wild.run(np.ones((5, 1)))
    assert not wild.state.any()
