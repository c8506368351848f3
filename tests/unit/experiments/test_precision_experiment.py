import math

import pytest

from experiments.precision import (
    DOUBLES,
    LINKS,
    STEPS,
    Accuracy,
    StrategySeen,
    accuracies,
    modelled,
    report,
    run,
)
from experiments.protocol import EXPERIMENTS, Settings, quiet, rows_of
from metalforge.core import PlacementError
from metalforge.native.cuda.engine import cuda_engine
from metalforge.native.cuda.precision import Fp64Choice
from reference.cuda_host import host_engine

GOOD = Accuracy(1e-13, 1e-10, 1e-12)
NAMES = ("native", "hybrid", "concurrent")


def seen(native_ms, one_ms, many_ms, hybrid_ms, accuracy=GOOD):
    walk = Fp64Choice(measured={0: native_ms / 1e3, 1: one_ms / 1e3, 16: many_ms / 1e3, 64: hybrid_ms / 1e3})
    slower = walk._replace(measured={share: 1.1 * took for share, took in walk.measured.items()})
    return StrategySeen("a card", 3e13, (walk, slower), dict.fromkeys(NAMES, accuracy))


def test_measured_and_modelled_stand_apart():
    result = report(seen(0.6, 0.7, 2.0, 4.0))
    assert {line[-1] for line in result.table[1:]} == {"measured", "modelled"}
    (native,) = rows_of(result.rows, task="a card", approach="native")
    (shared,) = rows_of(result.rows, task="a card", approach="concurrent")
    assert native.value == pytest.approx(0.63)
    assert native.low < native.value < native.high
    assert shared.value == pytest.approx(0.735)
    assert shared.gap > 0
    assert [line[2] for line in result.table[1:4]] == ["0/64", "64/64", "1/64"]
    assert all(holds for _, _, holds in result.checks)


def test_a_card_with_slow_doubles_is_modelled_from_instructions():
    native, hybrid, both = modelled(4e-3, 3e13, 64)
    assert native == pytest.approx(LINKS * STEPS * DOUBLES * 64 / 3e13)
    assert 1.5 < native / hybrid < 3
    assert both < hybrid
    at_half, *_ = modelled(4e-3, 3e13, 2)
    assert at_half < 4e-3


def test_a_strategy_that_is_wrong_or_slow_is_not_called_right():
    checks = {asked: holds for asked, _, holds in report(seen(0.6, 0.7, 2, 4, Accuracy(1e-6, 1, 1e-5))).checks}
    assert not checks["hybrid: links within 1e-11 of doubles"]
    assert not checks["hybrid: leads back to 1e-10"]


def test_without_a_card_the_experiment_says_so(monkeypatch):
    monkeypatch.setattr("experiments.precision.discover", lambda: type("Found", (), {"substrates": ()}))
    with pytest.raises(PlacementError, match="none is here"):
        EXPERIMENTS["precision"].run(Settings(quick=True), quiet)


@pytest.mark.long
def test_accuracies_of_the_host_as_a_card(tmp_path):
    engines = {name: host_engine(tmp_path, name, share) for name, share in zip(NAMES, (None, None, 9), strict=True)}
    found = accuracies(engines, 1, (4, 4, 4, 2))
    assert found["native"].links == 0
    for accuracy in found.values():
        assert accuracy.links < 1e-11
        assert accuracy.back < 1e-10


@pytest.mark.cuda
def test_the_first_card_is_measured():
    result = run(Settings(quick=True), quiet)
    assert all(holds for _, _, holds in result.checks)
    (native,) = rows_of(result.rows, metric="walk, ms", approach="native")
    assert 0 < native.value < math.inf
    assert cuda_engine(0).fp64.strategy == "native"
