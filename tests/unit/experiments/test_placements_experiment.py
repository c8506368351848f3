"""Experiment 020: its judge of warm-ups is right on chains with known answers, and its quick form says what it must."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from experiments import placements
from experiments.heads.corpus_file import TRAJECTORIES, ChainEntry, ChainRecord, Corpus
from experiments.heads.corpus_grids import corpus_spec
from experiments.heads.labels import Example
from experiments.placement_rules import WarmUps, bootstrap, offset_for, pooled_mean
from experiments.protocol import Settings, quiet, rows_of
from metalforge.conductor.features import SCHEMA

PUBLISHED = {
    "A": ("83.3 %", "390 of 1800 (21.7 %)"),
    "B": ("95.8 %", "0"),
    "C": ("83.3 %", "0"),
    "D": ("45.5 %", "0"),
    "E": ("50.0 %", "0"),
    "F": ("87.5 %", "390 of 1800 (21.7 %)"),
}
QUICK = corpus_spec("quick-trajectories")
FAR = {"train": (4.3, 4.6, 5.4, 5.6), "test": (4.4, 4.5, 5.1), "lengths": (1.0,), "seeds": 2, "updates": 48}
SMALL = msgspec.structs.replace(QUICK, grids=(msgspec.structs.replace(QUICK.grids[0], **FAR),))
"""The quick corpus with shorter chains of one kind of trajectory, at couplings whose phase short chains know."""
TRUTH, NOISE, LENGTH = 0.5, 0.01, 200


def relaxing(k, *, accepted=1.0, tau=5.0):
    """Return a chain whose plaquette relaxes as exp(-t / tau) to the truth, from below or from above."""
    start = "hot" if k % 2 else "cold"
    t = np.arange(LENGTH)
    rng = np.random.default_rng(k)
    away = (-1 if start == "hot" else 1) * 0.4 * np.exp(-t / tau)
    plaquette = TRUTH + away + NOISE * rng.standard_normal(LENGTH)
    series = np.full((len(TRAJECTORIES), LENGTH), np.nan)
    series[0] = series[1] = plaquette
    series[TRAJECTORIES.index("accepted")] = accepted
    entry = ChainEntry(
        part="test", beta=5.1, dims=(4, 4, 4, 2), start=start, seed=1, stream=k, updates=LENGTH, algorithm="hmc"
    )
    length = int(np.ceil(tau * np.log(0.4 / NOISE)))
    return Example(
        chain=ChainRecord(entry=entry, series=series),
        rows=t,
        inputs=np.zeros((LENGTH, len(SCHEMA))),
        length=length,
    )


@pytest.fixture(scope="module")
def warmups():
    chains = [relaxing(k) for k in range(60)] + [relaxing(100, accepted=0.1)]
    equilibrium = SimpleNamespace(plaquette=SimpleNamespace(mean=TRUTH))
    return WarmUps.of(chains, SimpleNamespace(known=lambda entry: equilibrium))


def test_chains_that_do_not_move_are_left_out(warmups):
    assert len(warmups.chains) == 60
    assert (warmups.standard, warmups.measured) == (50, 100)


def test_the_standard_start_saves_and_adds_nothing(warmups):
    judged = warmups.judge(warmups.starts(lambda e: 50))
    assert judged.saved == (0, 0, 0)
    assert judged.added == (0, 0, 0)
    assert judged.premature.value == 0
    assert judged.left.low < 0 < judged.left.high


def test_an_early_start_is_seen_and_its_bias_is_the_geometric_sum(warmups):
    start, tau = 3, 5.0
    judged = warmups.judge(warmups.starts(lambda e: start))
    assert judged.saved.value == 47
    assert judged.premature.value == 1
    # Mean over the measurement of 0.4 exp(-t / tau), in errors of a mean of 100 independent values.
    left = 0.4 * np.exp(-start / tau) / (1 - np.exp(-1 / tau)) / 100
    assert judged.added.value == pytest.approx(left / (NOISE / np.sqrt(100)), rel=0.15)
    assert judged.added.low > 3


def test_predictions_that_know_save_and_constant_ones_do_not(warmups):
    # A part that can be known, and up to ten trajectories of chance.
    known_part = np.where(np.arange(60) % 2, 45.0, 10.0)
    labels = np.floor(known_part + np.random.default_rng(3).uniform(0, 10, 60))
    known = [replace(e, length=int(length)) for e, length in zip(warmups.chains, labels, strict=True)]
    mixed = WarmUps(chains=tuple(known), truth=warmups.truth, sigma=warmups.sigma)
    assert 0 < np.mean(labels > 50) < 0.5
    assert mixed.at_equal_premature(np.full(60, 7.0)) == (0, 0, 0)
    informed = mixed.at_equal_premature(known_part)
    assert 10 < informed.low <= informed.value < 20  # half the chains end 35 earlier, less what chance costs


def test_offsets_leave_the_share_that_was_asked_for():
    labels, lengths = np.arange(100.0), np.zeros(100)
    for share in (0.0, 0.1, 0.5):
        more = offset_for(lengths, labels, share)
        assert np.mean(lengths + more < labels) <= share < np.mean(lengths + more - 1 < labels)


def test_intervals_draw_whole_chains():
    # Rows of a chain are alike: ten chains of a hundred equal rows know no more than ten rows.
    chains = [np.full(100, float(k)) for k in range(10)]
    found = bootstrap(pooled_mean(chains), 10)
    assert found.value == 4.5
    expected = np.std(np.arange(10)) / np.sqrt(10)
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(expected, rel=0.15)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METALFORGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(placements, "corpus_spec", lambda grid: SMALL)
        yield placements.run(Settings(quick=True), quiet)


def test_every_placement_stands_beside_what_was_published(result):
    head, *lines = result.table
    assert [line[0] for line in lines] == list("ABCDEF")
    assert {line[0]: line[1:3] for line in lines} == PUBLISHED
    assert all(line[-1] for line in lines)
    assert {len(line) for line in lines} == {len(head)}
    assert {row.task[-1] for row in result.rows} == set("ABCDEF")


def test_rows_have_intervals_and_baselines(result):
    for row in result.rows:
        assert np.isfinite([row.value, row.low, row.high, row.reference]).all()
        assert row.low - 1e-9 <= row.high
    (rejection,) = rows_of(result.rows, task="placement B", metric="accuracy")
    assert 0.5 <= rejection.reference <= 1  # the majority, never the published design's acceptance by another name
    (phase,) = rows_of(result.rows, task="placement C", metric="accuracy")
    assert phase.gap == pytest.approx(phase.reference - phase.value)
    ratios = rows_of(result.rows, task="placement D", metric="trajectory_ratio")
    assert [row.approach for row in ratios] == ["gaussian-process, 4.7 .. 5.5", "gaussian-process, 4.9 .. 5.3"]
    assert min(row.value for row in ratios) > 0


def test_the_standard_is_the_reference_and_the_control_is_biased(result):
    (standard,) = rows_of(result.rows, approach="standard", metric="bias_added")
    assert standard.value == 0
    answers = {asked: passed for asked, _, passed in result.checks}
    assert answers["the control is seen to be biased"]


def test_the_standard_is_judged_too_and_its_bias_is_in_the_table(result):
    (left,) = rows_of(result.rows, approach="standard", metric="bias_left")
    (asked,) = [(came, passed) for what, came, passed in result.checks if "standard warm-up" in what]
    assert asked == (f"leaves {left.low:.2f} .. {left.high:.2f}", max(-left.low, left.high) < placements.ALLOWED)
    shown = f"{left.value:+.2f} ({left.low:+.2f} .. {left.high:+.2f})"
    assert any(shown in name for name in result.table[0])
    (said,) = [line for line in result.words if line.startswith("the standard of")]
    assert shown in said
    assert ("itself biased" in said) == (left.low > 0)


def test_a_corpus_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("METALFORGE_CACHE", str(tmp_path))
    made = []
    grid = "quick-trajectories"

    def build(name, spec):
        made.append((name, spec))
        return Corpus(grid=name, spec_json="{}", chains=())

    monkeypatch.setattr(placements, "make_corpus", build)
    first, second = placements.corpus_of(grid), placements.corpus_of(grid)
    spec = placements.corpus_spec(grid)
    assert made == [(grid, spec)]
    assert first.sha256 == second.sha256
    (file,) = tmp_path.glob("conductor-corpus-*.h5")
    file.write_bytes(b"damaged")
    placements.corpus_of(grid)
    assert made == [(grid, spec)] * 2
