"""Readouts that learn beside the shipped ones, judged on what neither has seen, and are written over on a device."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from metalforge.conductor.adopting import TaughtChain, adopt
from metalforge.conductor.program import ConductorProgram
from metalforge.conductor.retrain import FEWEST, LEARNED, MeanFrames, Retrain
from metalforge.core.errors import SpecError
from metalforge.core.schema import Feature, FeatureSchema, HeadBase, HeadLayout, HeadSpec
from metalforge.reservoir import make_esn
from metalforge.reservoir.engine import Engine
from metalforge.reservoir.weights import Ranges
from metalforge.substrates.npu import EmulatedDevice

HEADS = HeadLayout(
    name="two",
    heads=(
        HeadSpec(name="schedule", unit=LEARNED["schedule"], scale=2.0, offset=1.0),
        HeadSpec(name="phase", width=2, activation="softmax"),
        HeadSpec(name="quality", trained=False),
    ),
)
INPUTS, UNITS = 6, 24


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(2)
    made = make_esn(UNITS, INPUTS, seed=3, connectivity=1.0, input_scaling=0.5, leak=0.5, dtype=np.float32)
    w_out = 0.2 * rng.normal(size=(HEADS.width, UNITS + INPUTS)).astype(np.float32)
    bias = np.zeros(HEADS.width, np.float32)
    return replace(made.with_readout(w_out, bias, passthrough=True, heads=HEADS), ranges=Ranges(4.0, 1.0))


def rows(weights, count, seed=5):
    """Chains whose label is linear in their mean input, which the shipped readout does not know."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        level = rng.normal(size=INPUTS)
        chain = MeanFrames(Engine(weights, threads=1))
        chain.take(level + 0.3 * rng.normal(size=(12, INPUTS)), counts=False)
        chain.take(level + 0.3 * rng.normal(size=(30, INPUTS)), counts=True)
        yield chain.mean, 3.0 * level[0] - level[1] + 0.1 * rng.normal()


def test_the_mean_frame_does_not_depend_on_how_frames_are_cut(weights):
    frames = np.random.default_rng(1).normal(size=(40, INPUTS))
    engine = Engine(weights, threads=1)
    at_once, in_parts = MeanFrames(engine), MeanFrames(engine)
    at_once.take(frames[:10], counts=False)
    at_once.take(frames[10:], counts=True)
    for begin, end in ((0, 3), (3, 10), (10, 11), (11, 40)):
        in_parts.take(frames[begin:end], counts=begin >= 10)
    assert in_parts.mean == pytest.approx(at_once.mean, rel=1e-12)
    assert in_parts.frames == 30
    with pytest.raises(SpecError, match="average"):
        MeanFrames(engine).mean  # noqa: B018


def test_heads_that_are_numbers_and_trained_are_learned(weights):
    assert Retrain(weights, HEADS.names).heads == ("schedule",)


def test_the_learned_readout_speaks_once_it_was_better_and_rows_told_again_give_the_same(weights):
    learning, again = (Retrain(weights, ["schedule"], alpha=5.0) for _ in range(2))
    told = list(rows(weights, 40))
    for i, (mean, label) in enumerate(told):
        assert learning.learned_speaks("schedule") is False or i >= FEWEST
        row = learning.learn("schedule", mean, label)
        assert row.outcome == label
    assert learning.learned_speaks("schedule")
    late = learning.judged("schedule")[-10:]
    ours, theirs = (np.mean([(getattr(r, of) - r.outcome) ** 2 for r in late]) for of in ("learned", "shipped"))
    assert ours < 0.2 * theirs
    for mean, label in told:
        again.learn("schedule", mean, label)
    assert all(np.array_equal(a, b) for a, b in zip(again.readout(), learning.readout(), strict=True))
    w_out, bias = learning.readout()
    untouched = slice(1, None)
    assert np.array_equal(w_out[untouched], weights.w_out[untouched])
    assert np.array_equal(bias[untouched], weights.out_bias[untouched])
    assert not np.array_equal(w_out[0], weights.w_out[0])


def test_a_readout_that_learns_nothing_of_use_does_not_speak(weights):
    learning, noise = Retrain(weights, ["schedule"], alpha=0.1), np.random.default_rng(8)
    for mean, _ in rows(weights, 40):
        x = np.append(mean, 1.0)
        w = np.append(weights.w_out[0], weights.out_bias[0])
        truth = 1.0 + 2.0 * float(w @ x)  # what the shipped readout says, and noise
        learning.learn("schedule", mean, truth + noise.normal())
    assert not learning.learned_speaks("schedule")
    assert np.array_equal(learning.readout()[0], weights.w_out)


def test_a_row_that_is_not_finite_is_refused(weights):
    with pytest.raises(SpecError, match="finite"):
        Retrain(weights, ["schedule"]).learn("schedule", np.full(UNITS + INPUTS, np.nan), 1.0)


@pytest.mark.parametrize("device", [None, EmulatedDevice], ids=["software", "device"])
def test_another_readout_is_written_over_the_one_that_runs(weights, device):
    frames = np.random.default_rng(4).uniform(-1, 1, size=(20, INPUTS)).astype(np.float32)
    learning = Retrain(weights, ["schedule"], alpha=5.0)
    for mean, label in rows(weights, 30):
        learning.learn("schedule", mean, label)
    w_out, bias = learning.readout(learned=["schedule"])
    other = weights.with_readout(w_out, bias, passthrough=True, heads=HEADS)
    with ConductorProgram(weights=weights).run_on(device and device()) as run:
        with ConductorProgram(weights=other).run_on(device and device()) as wanted:
            for i, frame in enumerate(frames):
                if i == 8:
                    sent = run.rewrite(w_out, bias)
                    assert (sent > 0) == (device is not None)
                said, new = run.run_conductor(frame), wanted.run_conductor(frame)
                assert np.array_equal(said["schedule"], new["schedule"]) == (i >= 8)
                assert np.array_equal(said["phase"], new["phase"])
        with pytest.raises(SpecError, match="shape"):
            run.rewrite(w_out[:1], bias)


def test_a_head_is_learned_as_the_residual_to_its_base(weights):
    schema = FeatureSchema(name="few", features=tuple(Feature(name=f"f{i}") for i in range(INPUTS)))
    base = HeadBase(feature="f0", knots=((-2.0, -6.0), (2.0, 6.0)))
    based = msgspec.structs.replace(HEADS, heads=(msgspec.structs.replace(HEADS.heads[0], base=base), *HEADS.heads[1:]))
    learning = Retrain(replace(weights, heads=based, features=schema), ["schedule"])
    mean, label = next(rows(weights, 1))
    curve = 1.0 + 3.0 * float(np.clip(mean[UNITS], -2, 2))
    plain = Retrain(weights, ["schedule"]).says("schedule", mean)[0]
    row = learning.learn("schedule", mean, label)
    assert (row.baseline, row.shipped) == pytest.approx((curve, plain + curve - 1.0))
    assert abs(learning.says("schedule", mean)[1] - label) < abs(row.shipped - label)


def taught(weights, seed, *, noise=False):
    """The chains of a campaign; with `noise` their labels are what the shipped readout says and chance."""
    says, rng = Retrain(weights, ["schedule"]).says, np.random.default_rng(seed)
    for mean, label in rows(weights, 12, seed=seed):
        yield TaughtChain(mean, {"schedule": says("schedule", mean)[0] + rng.normal() if noise else label})


def test_campaigns_are_adopted_where_they_help_one_that_was_left_out(weights):
    found = adopt(weights, [list(taught(weights, seed)) for seed in (1, 2, 3)])
    (head,) = found.heads
    assert (head.name, head.campaigns, head.chains, head.adopted) == ("schedule", 3, 36, True)
    assert head.skill_after > head.skill_before
    assert not np.array_equal(found.weights.w_out[0], weights.w_out[0])


@pytest.mark.parametrize(("count", "noise", "trusted"), [(6, False, True), (4, False, False), (6, True, False)])
def test_an_adopted_head_is_trusted_for_skill_beyond_its_interval_over_campaigns_enough(weights, count, noise, trusted):
    """Labels of noise are what no readout can say better than their mean: adopted by force, the head has no skill."""
    campaigns = [list(taught(weights, seed)) for seed in range(count)]
    if noise:
        rng = np.random.default_rng(4)
        campaigns = [[TaughtChain(chain.mean, {"schedule": rng.normal()}) for chain in one] for one in campaigns]
    (head,) = adopt(weights, campaigns, force=True).heads
    assert head.skill_low <= head.skill_after <= head.skill_high
    assert (head.skill_after > 0) == (not noise)
    assert head.trusted == trusted


def test_worse_weights_are_refused_unless_they_are_forced(weights):
    campaigns = [list(taught(weights, seed, noise=True)) for seed in (1, 2)]
    with pytest.raises(SpecError, match="force"):
        adopt(weights, campaigns)
    (head,) = adopt(weights, campaigns, force=True).heads
    assert head.after > head.before
    with pytest.raises(SpecError, match="left out"):
        adopt(weights, campaigns[:1])
