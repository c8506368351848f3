import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.statistics import hot_cold_agreement, mser
from reference.statistics import ar1


def transient(n, height, length):
    return height * np.exp(-np.arange(n) / length)


def brute_force_mser(x):
    values = [np.sum((x[d:] - x[d:].mean()) ** 2) / (x.size - d) ** 2 for d in range(x.size - 5)]
    return int(np.argmin(values)), min(values)


@pytest.mark.parametrize("seed", range(5))
def test_mser_is_its_definition(seed):
    x = 100.0 + ar1(0.5, 200, seed) + transient(200, 8.0, 15)
    cut, value = brute_force_mser(x)
    got = mser(x)
    assert got.start == cut
    assert got.statistic == pytest.approx(value, rel=1e-9)
    batched = x.reshape(40, 5).mean(axis=1)
    assert mser(x, batch=5).start == 5 * brute_force_mser(batched)[0]


@pytest.mark.parametrize("batch", [1, 5])
def test_mser_drops_a_step_and_keeps_a_stationary_chain(batch):
    step = np.concatenate([np.full(100, 9.0), np.zeros(900)]) + 0.1 * ar1(0.0, 1000, 1)
    assert mser(step, batch).start in range(100, 100 + 2 * batch)
    cuts = [mser(ar1(0.5, 1000, 50 + i), batch) for i in range(50)]
    assert np.median([c.start for c in cuts]) <= 10
    assert np.mean([c.found for c in cuts]) > 0.95


def test_mser_says_when_there_is_no_cut():
    assert not mser(np.linspace(0, 10, 500) + 0.1 * ar1(0.0, 500, 2)).found
    assert mser(np.ones(100)).start == 0


def test_mser_keeps_the_bias_of_the_mean_within_a_few_errors():
    x = [ar1(0.5, 4000, 200 + i) + transient(4000, 10.0, 60) for i in range(30)]
    assert abs(np.mean([np.mean(s) for s in x])) > 0.1
    assert abs(np.mean([np.mean(s[2 * mser(s, 5).start :]) for s in x])) < 0.03


def test_opposite_starts_agree_after_their_transients():
    n, length = 4000, 100
    pairs = [
        (ar1(0.8, n, 300 + i) + transient(n, 6.0, length), ar1(0.8, n, 600 + i) - transient(n, 6.0, length))
        for i in range(40)
    ]
    verdicts = [hot_cold_agreement(hot, cold) for hot, cold in pairs]
    agreed = [v for v in verdicts if v.agrees]
    # k = 2 refuses 5 % of good pairs; 4 binomial sigma of 40 are 14 % more.
    assert len(agreed) >= 0.81 * len(pairs)
    assert 50 < np.median([v.start for v in agreed]) < 600
    assert all(abs(v.difference) <= 2 * v.error for v in agreed)


def test_stationary_pairs_need_no_cut():
    verdicts = [hot_cold_agreement(ar1(0.8, 2000, 700 + i), ar1(0.8, 1500, 800 + i), k=3) for i in range(40)]
    assert np.mean([v.start == 0 for v in verdicts]) > 0.85


@pytest.mark.parametrize("a", [0.0, 0.8, 0.95])
def test_slow_drifts_towards_each_other_are_refused(a):
    n = 2000
    slow = transient(n, 5.0, 1500)
    verdicts = [hot_cold_agreement(ar1(a, n, 900 + i) + slow, ar1(a, n, 950 + i) - slow) for i in range(20)]
    assert not any(v.agrees for v in verdicts)
    assert all(v.start is None for v in verdicts)


def test_drifts_that_cross_are_refused():
    n = 2000
    rise = np.linspace(-3, 3, n)
    crossing = hot_cold_agreement(ar1(0.5, n, 1) + rise, ar1(0.5, n, 2) - rise)
    assert not crossing.agrees


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mser(np.arange(9.0)), "at least 10 batches"),
        (lambda: mser(np.arange(30.0), batch=5), "at least 50 measurements"),
        (lambda: mser(np.arange(30.0), batch=0), "batches"),
        (lambda: hot_cold_agreement(np.arange(9.0), np.arange(90.0)), "at least 10"),
    ],
)
def test_unfit_input_is_refused_in_words(call, message):
    with pytest.raises(SpecError, match=message):
        call()
