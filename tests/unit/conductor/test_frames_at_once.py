"""A conductor reads frames in blocks as one by one, bit for bit; heads are counted from their base."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from metalforge.conductor.program import ConductorProgram
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.schema import Feature, FeatureSchema, HeadBase, HeadLayout, HeadSpec
from metalforge.reservoir.deploy.tables import on_raw
from metalforge.reservoir.files import load_weights, save_weights
from metalforge.reservoir.generate import make_esn
from metalforge.substrates.npu.emulator import EmulatedDevice

FEATURES = FeatureSchema(
    name="few",
    features=tuple(Feature(name=n, offset=2.0, scale=s) for n, s in zip("abc", (0.5, -0.5, 1.0), strict=True)),
)
BASE = HeadBase(feature="a", knots=((1.0, -1.0), (2.0, 0.0), (3.0, 4.0)))


def network(**base):
    rng = np.random.default_rng(5)
    heads = HeadLayout(
        name="three",
        heads=(
            HeadSpec(name="one", offset=1.0, scale=2.0, **base),
            HeadSpec(name="two", width=2, activation="softmax"),
            HeadSpec(name="three", activation="sigmoid"),
        ),
    )
    made = make_esn(32, 3, seed=2, features=FEATURES, dtype=np.float32)
    return made.with_readout(
        rng.standard_normal((4, 35)).astype(np.float32), np.zeros(4, np.float32), passthrough=True, heads=heads
    )


@pytest.mark.parametrize("where", ["software", "emulator"])
def test_blocks_give_what_frames_give_one_by_one(where):
    frames = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    weights = network(base=BASE)
    device = EmulatedDevice() if where == "emulator" else None
    with (
        ConductorProgram(weights, device, calibration=frames) as alone,
        ConductorProgram(weights, device, calibration=frames) as together,
    ):
        said = [alone.run_conductor(frame) for frame in frames]
        blocks = [together.through(frames[a:b]) for a, b in ((0, 1), (1, 1), (1, 30), (30, 40))]
        assert np.array_equal(np.concatenate([b.vector for b in blocks]), [s.vector for s in said])
        assert np.array_equal(alone.state, together.state)
        assert blocks[2]["two"].shape == (29, 2)
        for wrong in (np.zeros((4, 2)), np.zeros(3), np.full((4, 3), np.nan)):
            with pytest.raises(SpecError, match="frames"):
                together.through(wrong)
    if device is not None:
        device.close()


def test_a_base_is_added_to_its_head_alone_and_is_constant_beyond_its_knots():
    frames = np.array([[-2.0, 0, 0], [-1.0, 0, 0], [1.0, 0, 0], [4.0, 0, 0]])  # a = 1, 1.5, 2.5, 4
    plain, based = (ConductorProgram(network(**b)) for b in ({}, {"base": BASE}))
    without, with_base = plain.through(frames), based.through(frames)
    assert with_base["one"][:, 0] - without["one"][:, 0] == pytest.approx([-1.0, -0.5, 2.0, 4.0])
    assert np.array_equal(with_base["two"], without["two"])
    assert with_base["one"][0] == pytest.approx(ConductorProgram(network(base=BASE)).run_conductor(frames[0])["one"])
    turned = HeadBase(feature="b", knots=((1.0, 5.0), (3.0, 7.0)))
    moved = ConductorProgram(network(base=turned)).through(frames[:, [1, 0, 2]])
    usual = ConductorProgram(network()).through(frames[:, [1, 0, 2]])
    assert (moved["one"] - usual["one"])[:, 0] == pytest.approx([7.0, 6.5, 5.5, 5.0])


def test_a_base_travels_with_the_weights_and_is_refused_where_nobody_adds_it(tmp_path):
    weights = network(base=BASE)
    save_weights(weights, tmp_path / "w.safetensors")
    again = load_weights(tmp_path / "w.safetensors")
    assert again.heads["one"].base == BASE
    assert again.heads["two"].base is msgspec.UNSET
    with pytest.raises(SpecError, match="one"):
        on_raw(again)
    with pytest.raises(UnknownNameError, match="`a`"):
        ConductorProgram(replace(again, features=None))
    for knots in ((), ((1.0, 0.0), (1.0, 1.0)), ((0.0, np.inf),)):
        with pytest.raises(SpecError, match="knots"):
            HeadBase(feature="a", knots=knots)


def test_layouts_without_a_base_have_the_fingerprints_they_had():
    assert network().heads.fingerprint() == "84b061b9d330f8c9"
    assert network(base=BASE).heads.fingerprint() != "84b061b9d330f8c9"
