"""Labels from measurement, on made-up chains whose truth is known; and none of what makes a label is an input."""

import msgspec
import numpy as np
import pytest

from metalforge.conductor.chains import LABEL_SERIES, SERIES, ChainEntry, ChainRecord, Corpus, Reference
from metalforge.conductor.corpus_spec import CorpusGrid, CorpusSpec
from metalforge.conductor.features import FEATURES
from metalforge.conductor.labels import LABELS, Band, Labeller, first_inside, frames_of, meta_rows
from metalforge.conductor.layouts import CONDUCTOR_11, GPU_PREP_11, LABEL_OF

DIMS = (4, 4, 4, 2)
SPEC = CorpusSpec(grids=(CorpusGrid(dims=DIMS, train=(4.7, 5.5), test=(5.0,), far=(4.5, 5.8)),))
N = 80


def entry(**changes) -> ChainEntry:
    given = {
        "part": "train",
        "beta": 4.7,
        "dims": DIMS,
        "start": "hot",
        "tau": 1.0,
        "n_steps": 5,
        "stream": 0,
        "trajectories": N,
        "untested": 4,
        "seconds": 2.0,
    }
    return ChainEntry(**(given | changes))


def record(rng, *, relaxed: int = 0, loop: float = 0.1, noise: float = 0.02, **changes) -> ChainRecord:
    """A chain whose Wilson loop is at 0.5 from `relaxed` on and at 0 before."""
    rows = {name: rng.normal(0.5, 0.01, N) for name in SERIES}
    rows["wilson_loop"] = np.where(np.arange(N) < relaxed, 0.0, 0.5) + rng.normal(0, 0.01, N)
    rows["polyakov"] = loop + rng.normal(0, noise, N)
    rows["accepted"] = np.where(np.arange(N) < 4, np.nan, rng.random(N) < 0.7)
    rows["cg_iterations"] = np.full(N, np.nan)
    return ChainRecord(entry=entry(**changes), series=np.stack([rows[name] for name in SERIES], axis=1))


def corpus_of(rng, *chains: ChainRecord, apart: float = 0.0) -> Corpus:
    """Long runs at 0.5 with |L| from 0.05 to 0.55; at 4.7 those from hot and cold are `apart`."""
    references = []
    for beta, loop in ((4.5, 0.05), (5.8, 0.55), (4.7, 0.1), (5.5, 0.5), (5.0, 0.3)):
        place = entry(beta=beta).place
        series = rng.normal([0.5, loop, 0.55], 0.01, (2, 200, 3))
        series[1, :, 0] += apart if beta == 4.7 else 0.0
        references.append(Reference(place, series))
    return Corpus(spec_json=msgspec.json.encode(SPEC).decode(), chains=chains, references=tuple(references))


def test_the_first_index_from_which_averages_stay_inside() -> None:
    series = np.concatenate([np.zeros(20), np.ones(40)])
    assert first_inside(series, Band(0.9, 1.1), window=5) == 20
    assert first_inside(np.ones(30), Band(0.9, 1.1)) == 0
    # What passes through the band is not there yet; what leaves it for a moment, long after, fluctuates.
    passing = np.ones(80)
    passing[:10], passing[20:30] = 0, 2
    assert first_inside(passing, Band(0.9, 1.1)) == 30
    fluctuating = np.ones(80)
    fluctuating[:10], fluctuating[60:66] = 0, 2
    assert first_inside(fluctuating, Band(0.9, 1.1)) == 10
    assert first_inside(np.zeros(60), Band(0.9, 1.1)) is None
    assert first_inside(np.concatenate([np.zeros(55), np.ones(5)]), Band(0.9, 1.1)) is None


def test_thermalised_from_where_the_chain_stays_in_the_band() -> None:
    rng = np.random.default_rng(1)
    chain = record(rng, relaxed=23)
    labels = Labeller(corpus_of(rng, chain)).labels(chain)
    assert labels.length == 23
    np.testing.assert_array_equal(labels.values["thermalization"], np.arange(N) >= 23)


def test_no_band_and_no_label_where_hot_and_cold_runs_differ() -> None:
    rng = np.random.default_rng(2)
    chain = record(rng)
    labeller = Labeller(corpus_of(rng, chain, apart=0.1))
    assert labeller.unknown_equilibria() == (4.7,)
    assert np.isnan(labeller.labels(chain).values["thermalization"]).all()


def test_the_phase_is_cut_at_the_midpoint_and_what_covers_it_is_ambiguous() -> None:
    rng = np.random.default_rng(3)
    below, above, unclear = (record(rng, loop=x) for x in (0.1, 0.5, 0.3))
    labeller = Labeller(corpus_of(rng, below, above, unclear))
    assert labeller.cut(below.entry) == pytest.approx(0.3, abs=0.005)
    assert labeller.labels(below).values["phase"][0] == 0
    assert labeller.labels(above).values["phase"][0] == 1
    assert not labeller.labels(above).ambiguous
    wide = record(rng, loop=0.301, noise=0.2)
    assert labeller.labels(wide).ambiguous
    assert labeller.labels(above).values["deconfinement"][0] == pytest.approx(0.5, abs=0.02)


def test_rejection_quality_and_schedule_are_measured() -> None:
    rng = np.random.default_rng(4)
    chain = record(rng, relaxed=20)
    values = Labeller(corpus_of(rng, chain)).labels(chain).values
    np.testing.assert_array_equal(values["rejection"], 1 - chain.column("accepted"))
    tau = values["schedule"][0] / 2
    assert 0.5 <= tau < 1.5
    assert values["quality"][0] == pytest.approx((N / (2 * tau)) / 2.0)


def test_a_chain_with_a_fault_has_the_label_of_the_fault_only() -> None:
    rng = np.random.default_rng(5)
    chain = record(rng, fault="bad_links", fault_from=50, fault_length=6)
    values = Labeller(corpus_of(rng, chain)).labels(chain).values
    assert np.flatnonzero(values["anomaly"] == 1).tolist() == list(range(50, 56))
    assert np.isnan(values["anomaly"][57:]).all()
    assert all(np.isnan(values[name]).all() for name in values if name != "anomaly")
    stalled = record(rng, fault="cg_stall", fault_from=50, fault_length=6)
    seen = Labeller(corpus_of(rng, stalled)).labels(stalled).values["anomaly"]
    assert np.flatnonzero(seen == 1).tolist() == list(range(51, 57))


def test_every_head_that_can_be_fed_says_what_its_label_is_made_of() -> None:
    wanted = {LABEL_OF.get(head.name, head.name) for layout in (CONDUCTOR_11, GPU_PREP_11) for head in layout.heads}
    # Transport heads have no plasma to be fed from.
    assert set(LABELS) == wanted - {"transport_D", "transport_eta"}


def test_the_best_step_is_that_of_the_most_effective_samples_for_its_integration_steps() -> None:
    rng = np.random.default_rng(8)
    # Equally good chains: the one of fewer steps costs less. One that never gets there has no samples at all.
    coarse, fine = record(rng, n_steps=5), record(rng, n_steps=10)
    lost = record(rng, relaxed=N, n_steps=2)
    labeller = Labeller(corpus_of(rng, coarse, fine, lost))
    for chain in (coarse, fine, lost):
        assert labeller.labels(chain).values["param_suggest"][0] == pytest.approx(0.2)
    slow = record(rng, n_steps=5)
    slow.series[:, SERIES.index("wilson_loop")] = 0.5 + 0.01 * np.sin(np.arange(N) / 6)
    assert Labeller(corpus_of(rng, slow, fine)).labels(fine).values["param_suggest"][0] == pytest.approx(0.1)
    assert np.isnan(Labeller(corpus_of(rng, lost)).labels(lost).values["param_suggest"]).all()


def test_another_run_gains_most_where_the_susceptibility_is_known_worst() -> None:
    rng = np.random.default_rng(9)
    chain = record(rng)
    corpus = corpus_of(rng, chain)
    noisy = [r._replace(series=r.series * (3 if r.entry.beta == 4.7 else 1)) for r in corpus.references]
    made = Corpus(spec_json=corpus.spec_json, chains=corpus.chains, references=tuple(noisy))
    assert Labeller(made).labels(chain).values["next_run"][0] == 1.0
    elsewhere = record(rng, beta=5.5)
    assert 0 < Labeller(made).labels(elsewhere).values["next_run"][0] < 0.5


def test_what_makes_a_label_is_in_no_frame_of_the_same_or_an_earlier_trajectory() -> None:
    """Change a label's columns from trajectory t on: no frame up to t may move, for any head."""
    rng = np.random.default_rng(6)
    chain = record(rng)
    series = chain.series.copy()
    series[:, SERIES.index("cg_iterations")] = rng.normal(100, 5, N)
    chain = ChainRecord(entry=chain.entry, series=series)
    frames = frames_of(chain)
    t = 40
    for head, label in LABELS.items():
        for column in label.columns:
            changed = series.copy()
            at = SERIES.index(column)
            changed[t:, at] = changed[t:, at] + 50 if column == "cg_iterations" else 1 - changed[t:, at]
            again = frames_of(ChainRecord(entry=chain.entry, series=changed))
            assert again[: t + 1] == frames[: t + 1], (head, column)
            if column in LABEL_SERIES:
                assert again == frames, (head, column)
    # dH decides the test together with a random number: it too may show in later frames only.
    changed = series.copy()
    changed[t:, SERIES.index("delta_h")] += 10
    again = frames_of(ChainRecord(entry=chain.entry, series=changed))
    assert again[: t + 1] == frames[: t + 1]
    assert again[t + 1] != frames[t + 1]
    assert not {"polyakov", "wilson_loop", "accepted", "delta_h"} & {f.name for f in FEATURES.features}


def test_earlier_runs_are_those_at_other_training_couplings() -> None:
    rng = np.random.default_rng(7)
    chains = record(rng, beta=4.7), record(rng, beta=5.5), record(rng, beta=5.0, part="test")
    corpus = corpus_of(rng, *chains)
    assert [row.beta for row in meta_rows(corpus, chains[0])] == [5.5]
    assert [row.beta for row in meta_rows(corpus, chains[2])] == [4.7, 5.5]
