"""The classifier's defaults, on synthetic series and on recorded ones where they are installed."""

import pytest

from experiments.classifier import NONE, run
from experiments.protocol import Settings, find_experiment, quiet, rows_of
from metalforge.reservoir.datasets import vowel_like
from metalforge.reservoir.estimators import EsnClassifier
from metalforge.reservoir.metrics import wilson
from metalforge.reservoir.recorded import Recorded, recorded, recorded_names


@pytest.fixture(scope="module")
def result():
    return run(Settings(quick=True), quiet)


def test_defaults_are_better_on_every_set_and_no_part_is_in_vain(result):
    assert all(holds for _, _, holds in result.checks)
    tasks = list(dict.fromkeys(row.task for row in result.rows))
    assert len(result.checks) == len(tasks) >= 2
    for approach in {row.approach for row in result.rows} - {"defaults"}:
        ours, theirs = (
            sum(row.value for row in rows_of(result.rows, approach=a)) / len(tasks) for a in ("defaults", approach)
        )
        assert ours > theirs, approach
    assert rows_of(result.rows, approach=NONE)[0].gap == 0
    assert find_experiment("classifier").run is run


def _synthetic():
    x, y = vowel_like(640, seed=21)
    return Recorded(list(x[:270]), y[:270], list(x[270:]), y[270:])


REACHED = {"vowel-like": 0.9} | {
    name: least for name, least in (("JapaneseVowels", 0.98), ("GunPoint", 0.93)) if name in recorded_names()
}
"""Accuracies of 100 units on the usual split."""


@pytest.mark.parametrize(("name", "least"), REACHED.items())
def test_a_network_of_100_units_reaches_what_others_report(name, least):
    data = _synthetic() if name == "vowel-like" else recorded(name)
    hits = EsnClassifier(100, random_state=0).fit(data.train, data.train_labels).predict(data.test) == data.test_labels
    score = wilson(int(hits.sum()), hits.size)
    assert score.value >= least
    assert score.low > least - 0.06
