"""The robustness experiment: every model under every attack, and rows, table and sentences that agree."""

import numpy as np
import pytest

from experiments.markdown import to_markdown
from experiments.protocol import ResultRow, Settings, find_experiment, quiet, rows_of
from experiments.robustness import (
    CHIPS,
    FLOAT_TWIN,
    MODELS,
    SAME_WEIGHTS,
    TASKS,
    attack_arena,
    open_arena,
    run,
    verdicts,
)

QUICK = Settings(quick=True)


@pytest.fixture(scope="module")
def result():
    return run(QUICK, quiet)


def test_every_model_stands_under_every_attack(result):
    attacks = {"random signs", "fgsm own", "pgd own", "square own", "worst"}
    for model, (approach, precision) in MODELS.items():
        metrics = {r.metric.split(",")[0] for r in rows_of(result.rows, approach=approach, precision=precision)}
        assert attacks | {"clean"} <= metrics
        assert ("pgd transfer" in metrics) == (FLOAT_TWIN[model] != model)
        assert ("against same weights" in metrics) == (model in SAME_WEIGHTS)


def test_rows_hold_together(result):
    for row in result.rows:
        if np.isnan(row.value):
            assert "transfer" in row.metric  # nothing to carry over
            continue
        assert row.low <= row.value <= row.high
        assert row.gap == pytest.approx(row.reference - row.value)
        if not row.metric.startswith("against"):
            assert row.low >= 0
            assert row.high <= 1
    (baseline,) = [r for r in result.rows if r.approach.startswith("baseline")]
    for model in MODELS:
        (clean,) = rows_of(result.rows, approach=MODELS[model][0], precision=MODELS[model][1], metric="clean")
        assert clean.value > baseline.value + 0.2


def test_the_worst_case_is_below_all_that_it_is_made_of(result):
    for approach, precision in MODELS.values():
        own = {r.metric: r.value for r in rows_of(result.rows, approach=approach, precision=precision)}
        at = "epsilon 0.05"
        assert own[f"worst, {at}"] <= min(own["clean"], own[f"pgd own, {at}"], own[f"square own, {at}"])
        assert own[f"pgd own, {at}"] < own[f"random signs, {at}"]


def test_table_and_words_are_for_readers(result):
    assert len({len(line) for line in result.table}) == 1
    assert len(result.table) == 1 + 1 + len(MODELS)  # head, baseline, one epsilon
    assert [sentence.split(" against")[0] for sentence in result.words[1 : 1 + 2 * len(CHIPS)]] == [
        chip for chip in CHIPS for _ in range(2)
    ]
    page = to_markdown(find_experiment("robustness"), result, QUICK)
    assert page.startswith("# Experiment robustness\n")
    assert page.count("\n| vowel-like (synthetic) |") == 1 + len(MODELS)
    assert "robustness FILE --quick" in page


def _against(model, value, low, high, what="same weights"):
    approach, precision = MODELS[model]
    return ResultRow(
        task="t",
        approach=approach,
        precision=precision,
        refit=True,
        metric=f"against {what}, epsilon 0.1",
        value=value,
        low=low,
        high=high,
        reference=0.0,
        gap=-value,
    )


def test_verdicts_count_what_the_intervals_say():
    rows = [_against(m, 0.1, 0.05, 0.2, "twin") for m in CHIPS]
    for model in CHIPS:
        rows += [_against(model, 0.1, 0.05, 0.2), _against(model, -0.1, -0.2, -0.05), _against(model, 0.0, -0.1, 0.1)]
    said = verdicts(rows)
    assert said[0].startswith("Rounding to int4 is no defence here: of 9 worst cases")
    assert "in 3, weaker in 3" in said[0]
    assert "better in 1, worse in 1, not told apart in 1 of 3; on average +0.0 points, at best +10.0" in said[1]
    assert "better in 1, worse in 0, not told apart in 0 of 1" in said[2]


@pytest.fixture(scope="module")
def arena():
    with open_arena(TASKS["vowel-like (synthetic)"], 3, 10, "akd1000-published") as opened:
        yield opened


def test_rest_before_a_sequence_is_left_alone(arena):
    assert np.array_equal(arena.spoken[..., 0] > 0, arena.inputs.any(axis=2))
    assert 0 < arena.spoken.mean() < 1


def test_the_same_seed_repeats(arena):
    one, two = (attack_arena(arena, seed=3, quick=True) for _ in range(2))
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[key], two[key]) for key in one)


def test_a_ring_keeps_its_weights_on_the_chip_and_random_ones_do_not(arena):
    native, bounded = arena.victims["native W4A4"].twin, arena.victims["bounded ReLU"].twin
    narrow, tanh = arena.victims["host-tanh W4A4"].twin, arena.victims["tanh"].twin
    assert np.abs(native.w_res - bounded.w_res).max() < 0.02
    assert np.mean(narrow.w_res != 0) < 0.5  # inputs share four bits with states: most recurrent weights become 0
    assert np.mean(tanh.w_res != 0) == 1
