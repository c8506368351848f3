"""Scores and losses with intervals: they cover what they say, and pairs are told apart better than two scores."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.hybrid.evaluation.report import Scorer
from metalforge.reservoir.metrics import nrmse


def _one_hot(codes, n=3):
    return np.eye(n)[codes]


def test_a_loss_of_classes_is_that_of_pairs():
    codes = np.arange(200) % 3
    said = codes.copy()
    said[:40] = (codes[:40] + 1) % 3  # both are wrong here
    chip = said.copy()
    chip[150:156] = (codes[150:156] + 1) % 3
    scorer = Scorer(codes, np.arange(200))
    before, after = scorer.score(_one_hot(said)), scorer.score(_one_hot(chip))
    lost = scorer.lost(_one_hot(said), _one_hot(chip))
    assert (before.value, after.value, lost.value) == pytest.approx((0.8, 0.77, 0.03))
    assert lost.low < 0.03 < lost.high
    assert lost.high - lost.low < 0.6 * (before.high - before.low)
    same = scorer.lost(_one_hot(said), _one_hot(said))
    assert same.value == 0
    assert same.low < 0 < same.high  # no difference was seen, which is not certainty


def test_intervals_of_a_loss_cover_the_truth():
    rng, hits, n, runs = np.random.default_rng(1), 0, 150, 300
    for _ in range(runs):
        codes = np.zeros(n, int)
        first = rng.random(n) < 0.1
        second = first ^ (rng.random(n) < 0.05)  # the chip changes one answer in twenty
        scorer = Scorer(codes, np.arange(n))
        lost = scorer.lost(_one_hot(first.astype(int)), _one_hot(second.astype(int)))
        hits += lost.low <= 0.05 * 0.8 <= lost.high
    assert hits / runs > 0.92


@pytest.mark.parametrize("series", [1, 40])
def test_an_nrmse_and_its_loss_have_intervals(series):
    rng = np.random.default_rng(2)
    y = rng.normal(size=(800, 2))
    groups = np.repeat(np.arange(series), 800 // series)
    close, far = y + 0.3 * rng.normal(size=y.shape), y + 0.5 * rng.normal(size=y.shape)
    scorer = Scorer(y, groups)
    score = scorer.score(close)
    assert score.value == pytest.approx(nrmse(y, close))
    assert score.low < 0.3 < score.high
    lost = scorer.lost(close, far)
    assert lost.value == pytest.approx(nrmse(y, far) - nrmse(y, close))
    assert 0.1 < lost.low < 0.2 < lost.high < 0.3


def test_errors_that_belong_together_widen_the_interval():
    rng = np.random.default_rng(3)
    slow = np.repeat(rng.normal(size=20), 40)[:, None]  # errors that stay for 40 steps
    y = rng.normal(size=(800, 1))
    together = Scorer(y, np.zeros(800, int)).score(y + slow)
    apart = Scorer(y, np.arange(800)).score(y + slow)
    assert together.high - together.low > 2 * (apart.high - apart.low)


def test_what_has_no_interval_is_refused():
    with pytest.raises(SpecError, match="10 held-out"):
        Scorer(np.zeros(9, int), np.arange(9))
    with pytest.raises(SpecError, match="never changes"):
        Scorer(np.ones((20, 1)), np.arange(20))
