"""Readouts that learn from finished campaigns, judged on campaigns that were left out."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from metalforge.conductor.adopting import LEARNED, LearnedHead, TaughtChain, adopt, learnable
from metalforge.core.errors import SpecError
from metalforge.core.schema import Feature, FeatureSchema, HeadBase, HeadLayout, HeadSpec
from metalforge.reservoir import make_esn
from metalforge.reservoir.engine import EsnEngine, init
from metalforge.reservoir.weights import Ranges

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
    rng, engine = np.random.default_rng(seed), EsnEngine(weights, threads=1)
    for _ in range(count):
        level = rng.normal(size=INPUTS)
        frames = level + 0.3 * rng.normal(size=(42, INPUTS))
        states = engine.run(frames, init(weights))
        mean = np.concatenate([states[12:].mean(axis=0), frames[12:].mean(axis=0)])
        yield mean, 3.0 * level[0] - level[1] + 0.1 * rng.normal()


def test_heads_that_are_numbers_and_trained_are_learned(weights):
    assert learnable(weights) == ("schedule",)


def test_a_row_that_is_not_finite_is_refused(weights):
    with pytest.raises(SpecError, match="finite"):
        LearnedHead(weights, "schedule", [TaughtChain(np.full(UNITS + INPUTS, np.nan), {"schedule": 1.0})])


def test_a_head_is_learned_as_the_residual_to_its_base(weights):
    schema = FeatureSchema(name="few", features=tuple(Feature(name=f"f{i}") for i in range(INPUTS)))
    base = HeadBase(feature="f0", knots=((-2.0, -6.0), (2.0, 6.0)))
    based = msgspec.structs.replace(HEADS, heads=(msgspec.structs.replace(HEADS.heads[0], base=base), *HEADS.heads[1:]))
    with_base = replace(weights, heads=based, features=schema)
    mean, label = next(rows(weights, 1))
    curve = 1.0 + 3.0 * float(np.clip(mean[UNITS], -2, 2))
    (plain, _, usual), (shipped, _, said) = (
        LearnedHead(w, "schedule").says(mean[np.newaxis], 7.0)[0] for w in (weights, with_base)
    )
    assert (usual, said, shipped) == pytest.approx((7.0, curve, plain + curve - 1.0))
    learned = LearnedHead(with_base, "schedule", [TaughtChain(mean, {"schedule": label})])
    assert abs(learned.says(mean[np.newaxis], 7.0)[0, 1] - label) < abs(shipped - label)


def taught(weights, seed, *, noise=False):
    """The chains of a campaign; with `noise` their labels are what the shipped readout says and chance."""
    says, rng = LearnedHead(weights, "schedule").says, np.random.default_rng(seed)
    for mean, label in rows(weights, 12, seed=seed):
        yield TaughtChain(mean, {"schedule": says(mean[np.newaxis], 0.0)[0, 0] + rng.normal() if noise else label})


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
