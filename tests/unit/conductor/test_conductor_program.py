"""Many heads of one pass: by name, on either substrate, and from older files."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import scipy.special

from metalforge.conductor.features import SCHEMA
from metalforge.conductor.program import ConductorProgram, untrained_network
from metalforge.conductor.shipped import CONDUCTOR_11, GPU_PREP_11, LAYOUTS, layout, migrate, shipped_weights
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.reservoir import load_weights, make_esn, save_weights
from metalforge.reservoir.heads import Decoder
from metalforge.substrates.npu import EmulatedDevice
from reference.esn import trajectory

CONDUCTOR = (
    "thermalization phase anomaly beta_priority cg_estimate rejection quality schedule deconfinement "
    "transport_D transport_eta"
)
GPU_PREP = (
    "beta_priority param_suggest therm_detect reject_predict phase_classify cg_estimate quality_score "
    "anomaly_detect next_run quenched_length quenched_therm"
)


def trained(heads, inputs=50, units=64, seed=1):
    rng = np.random.default_rng(seed)
    weights = make_esn(units, inputs, seed=seed, connectivity=1.0, input_scaling=0.3, leak=0.3)
    return weights.with_readout(rng.normal(size=(heads.width, units)), rng.normal(size=heads.width), heads=heads)


def test_the_presets_have_the_agreed_names():
    assert " ".join(CONDUCTOR_11.names) == CONDUCTOR
    assert " ".join(GPU_PREP_11.names) == GPU_PREP
    assert CONDUCTOR_11.width == 12
    assert GPU_PREP_11.width == 11
    assert set(LAYOUTS) == {"conductor-11", "gpu-prep-11", "plasma-2"}
    with pytest.raises(UnknownNameError, match="conductor-11"):
        layout("conductor-12")


def test_heads_without_a_producer_are_marked():
    assert [h.name for h in CONDUCTOR_11.heads if not h.available] == ["transport_D", "transport_eta"]
    assert all(h.label for h in (*CONDUCTOR_11.heads, *GPU_PREP_11.heads))
    assert all(h.baseline for h in (*CONDUCTOR_11.heads, *GPU_PREP_11.heads) if h.available)


def test_an_untrained_network_has_no_preference():
    weights = untrained_network(50, 128, CONDUCTOR_11)
    outputs = ConductorProgram(weights).run_conductor(np.ones(50))
    assert " ".join(outputs) == CONDUCTOR
    assert outputs["phase"].tolist() == [0.5, 0.5]
    assert not any(head.trained for head in weights.heads.heads)


def test_a_pass_is_the_equation():
    w = trained(CONDUCTOR_11)
    run = ConductorProgram(w)
    rng = np.random.default_rng(3)
    frames = rng.normal(size=(4, 50))
    found = [run.run_conductor(x) for x in frames][-1]
    y = trajectory(w, frames)[1][-1]
    assert found["thermalization"][0] == pytest.approx(1 / (1 + np.exp(-y[0])))
    assert np.allclose(found["phase"], np.exp(y[1:3]) / np.exp(y[1:3]).sum())
    assert found["cg_estimate"][0] == pytest.approx(500 * max(y[5], 0))
    assert found["transport_eta"][0] == pytest.approx(y[11])


def test_heads_are_decoded_by_name_whatever_their_order():
    """Against SciPy, head by head: every activation twice, softmax of two widths, offsets and scales."""
    kinds = ["softmax", "sigmoid", "relu", "tanh", "identity", "softmax", "sigmoid", "relu", "tanh", "softmax"]
    widths = [3, 1, 2, 1, 2, 2, 4, 1, 1, 3]
    layout = HeadLayout(
        name="mixed",
        heads=tuple(
            HeadSpec(name=f"head {i}", width=w, activation=kind, offset=i - 3.0, scale=0.5 + i)
            for i, (kind, w) in enumerate(zip(kinds, widths, strict=True))
        ),
    )
    functions = {
        "softmax": lambda x: scipy.special.softmax(x, axis=-1),
        "sigmoid": scipy.special.expit,
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
        "identity": lambda x: x,
    }
    for shape in [(), (8,), (3, 5)]:
        outputs = np.random.default_rng(1).normal(size=(*shape, layout.width)) * 30
        kept = outputs.copy()
        found = Decoder(layout)(outputs)
        assert list(found) == list(layout.names)
        for head in layout.heads:
            wanted = head.offset + head.scale * functions[head.activation](outputs[..., layout.span(head.name)])
            assert np.allclose(found[head.name], wanted, rtol=1e-13, atol=1e-13)
        assert np.array_equal(outputs, kept)


def test_frames_that_cannot_be_stepped_are_refused():
    run = ConductorProgram(trained(CONDUCTOR_11))
    with pytest.raises(SpecError, match=r"shape \(50,\). Got \(8, 50\)\nhint: reset\(batch=n\)"):
        run.run_conductor(np.zeros((8, 50)))
    with pytest.raises(SpecError, match="finite"):
        run.run_conductor(np.full(50, np.nan))
    with pytest.raises(SpecError, match=r"a state is finite, \(64,\)"):
        run.state = np.zeros(63)
    assert not run.state.any()


def test_the_device_agrees_with_software():
    weights = trained(CONDUCTOR_11)
    frames = np.random.default_rng(0).normal(size=(20, 50)) * 0.5
    with EmulatedDevice() as device, ConductorProgram(weights, device, calibration=frames) as chip:
        software = ConductorProgram(weights)
        for x in frames:
            a, b = software.run_conductor(x), chip.run_conductor(x)
        assert abs(a["thermalization"][0] - b["thermalization"][0]) < 0.02
        assert abs(a["deconfinement"][0] - b["deconfinement"][0]) < 0.1
        assert device.statistics().calls == 2 * len(frames)  # whatever the number of heads


def test_a_batch_of_eight_equals_eight_chains():
    weights = trained(CONDUCTOR_11)
    frames = np.random.default_rng(0).normal(size=(5, 8, 50))
    together = ConductorProgram(weights)
    together.reset(batch=8)
    for step in frames:
        found = together.run_conductor(step)
    for i in range(8):
        alone = ConductorProgram(weights)
        for step in frames:
            one = alone.run_conductor(step[i])
        assert all(np.allclose(one[name], found[name][i]) for name in one)


def test_nine_heads_of_a_file_without_names_become_eleven(tmp_path):
    """Seed 003's padding: the heads are named first; the new ones are zeros and marked."""
    nine = make_esn(64, 5, seed=1, dtype=np.float32)  # hotSpring's JSON: no layout, no bias, float32
    nine = nine.with_readout(np.random.default_rng(0).normal(size=(9, 64)).astype(np.float32))
    path = tmp_path / "nine.json"
    save_weights(nine, path)
    old = load_weights(path)
    with pytest.raises(SpecError, match="heads"):
        migrate(old, GPU_PREP_11)
    new = migrate(replace(old, heads=HeadLayout(name="nine", heads=GPU_PREP_11.heads[:9])), GPU_PREP_11)
    assert new.outputs == 11
    assert [h.name for h in new.heads.heads if not h.trained] == ["quenched_length", "quenched_therm"]
    assert np.array_equal(new.w_out[:9], old.w_out)
    assert not new.w_out[9:].any()


def test_heads_move_by_name_between_layouts():
    weights = trained(GPU_PREP_11)
    moved = migrate(weights, CONDUCTOR_11)
    shared = set(GPU_PREP_11.names) & set(CONDUCTOR_11.names)
    assert shared == {"beta_priority", "cg_estimate"}
    assert {h.name for h in moved.heads.heads if h.trained} == shared
    for name in shared:
        assert np.array_equal(moved.w_out[CONDUCTOR_11.span(name)], weights.w_out[GPU_PREP_11.span(name)])
    assert moved.heads.fingerprint() == CONDUCTOR_11.fingerprint()


def test_a_head_that_moves_keeps_the_curve_that_it_was_fitted_with():
    weights = shipped_weights("conductor-11")
    moved = migrate(weights, CONDUCTOR_11)
    assert {name: moved.heads[name].base for name in CONDUCTOR_11.names} == {
        name: weights.heads[name].base for name in CONDUCTOR_11.names
    }
    assert moved.heads["schedule"].base is not msgspec.UNSET


def test_a_batch_of_eight_on_the_device_is_two_calls_and_equals_eight_alone():
    weights = trained(CONDUCTOR_11)
    frames = np.random.default_rng(0).normal(size=(4, 8, 50)) * 0.5
    with EmulatedDevice() as device, ConductorProgram(weights, device, calibration=frames) as chip:
        chip.reset(batch=8)
        for step in frames:
            found = chip.run_conductor(step)
        assert device.statistics().calls == 2 * len(frames)
        assert found["phase"].shape == (8, 2)
        for i in (0, 7):
            chip.reset()
            for step in frames:
                one = chip.run_conductor(step[i])
            assert all(np.allclose(one[name], found[name][i], atol=1e-12) for name in one)


def test_weights_keep_their_features_and_heads_in_a_file(tmp_path):
    save_weights(untrained_network(len(SCHEMA), 32, CONDUCTOR_11, features=SCHEMA), tmp_path / "c.safetensors")
    again = load_weights(tmp_path / "c.safetensors")
    assert again.features == SCHEMA
    assert again.heads.names == CONDUCTOR_11.names


def test_bad_programs_are_refused():
    with pytest.raises(SpecError, match="layout"):
        ConductorProgram(make_esn(10, 3, seed=1))
