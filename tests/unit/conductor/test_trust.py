"""Trust against its formula written out with NumPy; pairs by id, in whatever order outcomes come."""

import math

import msgspec
import numpy as np
import pytest

from metalforge.conductor.layouts import CONDUCTOR_11, layout
from metalforge.conductor.scores import HeadScore
from metalforge.conductor.trust import Trust, mark_scores, trust_of
from metalforge.core.errors import SpecError

LOSSES = {
    "squared": lambda p, y: (p - y) ** 2,
    "brier": lambda p, y: (p - y) ** 2,
    "log": lambda p, y: -np.where(y == 1, np.log(np.clip(p, 0.01, 0.99)), np.log(1 - np.clip(p, 0.01, 0.99))),
}


def _data(n, loss, seed=1, noise=0.1):
    rng = np.random.default_rng(seed)
    if loss == "squared":
        y = rng.normal(300, 50, n)
        return y + rng.normal(0, noise * 100, n), np.full(n, 300.0), y
    chance = rng.random(n)
    y = (rng.random(n) < chance).astype(float)
    return np.clip(chance + rng.normal(0, noise, n), 0, 1), (rng.random(n) < 0.5).astype(float), y


def _told(trust, data, loss, order=None, head="h"):
    p, b, y = data
    for i in range(len(y)):
        trust.expect(i, head, p[i], b[i], loss=loss)
    for i in range(len(y)) if order is None else order:
        assert trust.outcome(int(i), y[i])
    return trust


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [20, 57, 200])
def test_skill_is_one_minus_the_ratio_of_losses_over_the_window(loss, n):
    p, b, y = data = _data(n, loss)
    standing = _told(Trust(window=100), data, loss).standing("h")
    last = slice(-100, None)
    wanted = 1 - LOSSES[loss](p, y)[last].sum() / LOSSES[loss](b, y)[last].sum()
    assert standing.skill == pytest.approx(wanted, rel=1e-12)
    assert standing.pairs == min(n, 100)
    assert standing.trusted == (wanted > 0)
    assert standing.trusted


def test_pairs_go_by_id_whatever_the_order_of_outcomes():
    p, _, y = data = _data(60, "squared")
    order = np.random.default_rng(2).permutation(60)
    shuffled = _told(Trust(), data, "squared", order).standing("h").skill
    assert shuffled == pytest.approx(_told(Trust(), data, "squared").standing("h").skill, rel=1e-12)
    # Negative control, the published design's pairing: predictions and outcomes each in the order they came.
    origin = 1 - np.sum((p - y[order]) ** 2) / np.sum((300 - y[order]) ** 2)
    assert origin < -0.5 < 0.5 < shuffled


def test_nineteen_pairs_are_not_enough():
    p, b, y = _data(20, "squared")
    trust = Trust()
    assert trust.standing("h") == (False, None, 0, "0 of 20 pairs")
    for i in range(20):
        trust.expect(i, "h", p[i], b[i])
        assert trust.standing("h").why == f"{i} of 20 pairs"
        assert not trust.standing("h").trusted
        trust.outcome(i, y[i])
    assert trust.standing("h").trusted


def test_a_head_that_turns_bad_loses_trust_within_the_window():
    trust = Trust(window=40)
    _told(trust, _data(60, "squared"), "squared")
    assert trust.standing("h").trusted
    p, b, y = _data(40, "squared", seed=5)
    for i in range(40):
        trust.expect(100 + i, "h", p[i] + 500, b[i])
        trust.outcome(100 + i, y[i])
    assert not trust.standing("h").trusted
    assert trust.standing("h").skill < 0


def test_as_good_as_the_baseline_is_not_skill():
    trust = Trust()
    for i in range(30):
        trust.expect(i, "h", 1.0, 1.0)
        trust.outcome(i, 1.0)
    assert trust.standing("h") == (False, 0.0, 30, "skill 0 over 30 pairs")
    for i in range(30):
        trust.expect(100 + i, "perfect baseline", 2.0, 1.0)
        trust.outcome(100 + i, 1.0)
    assert trust.standing("perfect baseline").skill == -math.inf


def test_marked_heads_have_no_trust_whatever_they_did():
    trust = _told(Trust(), _data(60, "squared"), "squared")
    trust.mark("h", "untrained")
    assert not trust.standing("h").trusted
    assert trust.standing("h").why == "untrained"


def test_a_layouts_unavailable_and_untrained_heads_are_marked():
    heads = tuple(msgspec.structs.replace(h, trained=h.name != "quality") for h in CONDUCTOR_11.heads)
    trust = trust_of(msgspec.structs.replace(CONDUCTOR_11, heads=heads))
    assert trust.marked("transport_D").startswith("unavailable")
    assert trust.marked("quality") == "untrained"
    assert trust.marked("phase") is None
    assert trust_of(layout("gpu-prep-11")).marked("quenched_length") is None


def test_outcomes_without_a_prediction_are_counted_and_change_nothing():
    trust = _told(Trust(), _data(30, "brier"), "brier")
    before = trust.standing("h")
    trust.expect(99, "h", 0.5, 0.5, loss="brier")
    assert not trust.outcome(5, 1.0)  # told already
    assert not trust.outcome(1234, 1.0)
    assert not trust.outcome(99, math.nan)
    assert not trust.outcome(99, 7.0)  # not the outcome of a yes-or-no question
    assert trust.standing("h") == before
    assert trust.unmatched == 4
    assert trust.outcome(99, 1.0)  # it still waits


def test_predictions_that_wait_too_long_are_forgotten_and_counted():
    trust = Trust(capacity=3)
    for i in range(5):
        trust.expect(i, "h", 1.0, 2.0)
    assert [trust.outcome(i, 1.0) for i in range(5)] == [False, False, True, True, True]
    assert trust.forgotten == 2


@pytest.mark.parametrize("options", [{"window": 10}, {"capacity": 0}])
def test_bad_settings(options):
    with pytest.raises(SpecError):
        Trust(**options)


def test_bad_predictions_are_refused():
    trust = Trust()
    with pytest.raises(SpecError, match="finite"):
        trust.expect(0, "h", math.nan, 1.0)
    with pytest.raises(SpecError, match="finite"):
        trust.expect(0, "h", 1.0, math.inf)
    trust.expect(0, "h", 1.0, 1.0)
    with pytest.raises(SpecError, match="squared loss"):
        trust.expect(1, "h", 1.0, 1.0, loss="brier")


def test_heads_without_skill_on_held_out_chains_are_marked_on_their_route_only():
    def score(name, route, skill):
        return HeadScore(
            name=name, metric="rmse", value=1.0 - skill, low=0.0, high=2.0, baseline=1.0, skill=skill,
            baseline_name="coupling alone", trusted=skill > 0, route=route,
        )  # fmt: skip

    trust = Trust()
    scores = [score("beta_priority", "f32-software", -0.2), score("phase", "f32-software", 0.5)]
    mark_scores(trust, [*scores, score("phase", "npu-native", -1.0)])
    assert trust.marked("beta_priority") == "no skill on held-out chains: rmse 1.2, coupling alone has 1"
    assert trust.marked("phase") is None
    mark_scores(trust, [score("phase", "npu-native", -1.0)], route="npu-native")
    assert trust.marked("phase") is not None
    assert not trust.standing("phase").trusted
