"""Labels of chains whose equilibrium, memory and transient are known."""

from itertools import product

import msgspec
import numpy as np
import pytest

from experiments.heads.labels import (
    LABEL_OF,
    LABELS,
    NEAR,
    Labeller,
    Moments,
    equilibrium,
    examples,
    first_inside,
    frames_of,
    jittered,
    supposing,
)
from metalforge.conductor.curves import transition_curve, transition_of
from metalforge.conductor.shipped import CONDUCTOR_11, GPU_PREP_11
from reference.made_up_chains import TAU, chain, corpus, order, scan

BETAS = (4.6, 5.0, 5.2, 5.6)
DIMS = (4, 4, 4, 2)


@pytest.fixture(scope="module")
def made():
    return corpus(*scan(BETAS), *scan((5.1,), "test", first=50, seed=2027))


@pytest.fixture(scope="module")
def labeller(made):
    return Labeller(made, {(DIMS, 0.0): 5.09})


def by_beta(found, beta):
    return next(example for example in found if example.entry.beta == beta)


def test_the_first_update_from_which_averages_stay_inside():
    series = np.concatenate([np.full(20, 1.0), np.full(100, 0.0)])
    band = Moments(0.0, 0.1, 0.05)
    assert first_inside([series], [band], 4, 30) == 20
    assert first_inside([series, np.ones(120)], [band, band], 4, 30) is None
    assert first_inside([series[:40]], [band], 4, 30) is None  # too short to stay anywhere


def test_equilibrium_is_that_of_the_later_halves():
    found = equilibrium([chain(5.0, start, k, updates=2000) for k, start in enumerate(("hot", "cold"))])
    assert found.agrees
    assert found.plaquette.mean == pytest.approx(0.4, abs=4 * found.plaquette.error)
    assert found.loop.mean == pytest.approx(order(5.0, DIMS), abs=4 * found.loop.error)
    assert found.tau[1.0] == pytest.approx(TAU, rel=0.3)
    assert found.variance == pytest.approx(0.02**2, rel=0.2)
    apart = equilibrium([chain(5.0, "hot", 0), chain(5.0, "cold", 1, relaxes=400.0)])
    assert not apart.agrees


def test_thermalised_from_where_the_chain_stays_in_the_band(made, labeller):
    example = by_beta(examples(made, "train", labeller), 5.0)
    label = example.labels["thermalization"]
    length = labeller.length(example.chain)
    assert length is not None
    assert 5 < length < 60
    np.testing.assert_array_equal(label, example.rows + 1 >= length)
    slow = corpus(chain(5.0, "hot", 0), chain(5.0, "cold", 1, relaxes=400.0))
    assert "thermalization" not in examples(slow, "train")[0].labels
    assert Labeller(slow).unknown_equilibria() == ("4x4x4x2 at 5",)


def test_the_phase_is_cut_between_the_outermost_training_couplings(made, labeller):
    found = examples(made, "train", labeller)
    assert [by_beta(found, beta).labels["phase"][0] for beta in (4.6, 5.6)] == [0, 1]
    assert not by_beta(found, 4.6).ambiguous
    entry = found[0].entry
    assert labeller.cut(entry) == pytest.approx((order(4.6, DIMS) + order(5.6, DIMS)) / 2, abs=0.01)


def test_memory_and_order_are_labels_of_the_coupling(made, labeller):
    example = by_beta(examples(made, "test", labeller), 5.1)
    settled = example.rows >= 63
    for name, wanted in (("schedule", np.log(2 * TAU)), ("quality", -np.log(2 * TAU))):
        assert np.isnan(example.labels[name][~settled]).all()
        np.testing.assert_allclose(example.labels[name][settled], wanted, atol=0.5)
    np.testing.assert_allclose(example.labels["deconfinement"], np.log(order(5.1, DIMS) * 8), atol=0.1)
    assert 0 < example.labels["next_run"][-1] <= 1
    assert np.isfinite(example.labels["quenched_length"]).sum() == 1


def test_the_peak_is_counted_from_the_curve(made, labeller):
    example = by_beta(examples(made, "test", labeller), 5.1)
    there = transition_of(2, 4)
    label = example.labels["beta_priority"]
    np.testing.assert_allclose(label[example.rows >= 63], (5.09 - there.mean) / transition_curve().unit)
    assert "beta_priority" not in examples(made, "test")[0].labels  # without peaks there is none


def test_a_transition_that_is_off_changes_what_is_seen_and_the_label(made, labeller):
    example = by_beta(examples(made, "test", labeller), 5.1)
    there = transition_of(2, 4)
    same = supposing(example, there, 0.25)
    np.testing.assert_allclose(same.inputs, example.inputs, atol=1e-12)
    assert set(same.labels) == {"beta_priority"}
    moved = supposing(example, there._replace(mean=there.mean + 0.02), -0.5)
    changed = np.flatnonzero((moved.inputs != example.inputs).any(axis=0))
    assert len(changed) == 2
    far = supposing(example, there._replace(mean=5.1 + 2 * NEAR**2 * there.width), 1.0)
    assert np.isnan(far.labels["beta_priority"]).all()  # too far away to say anything
    several = jittered([example], unit=0.03, copies=40)
    off = np.array([one.labels["beta_priority"][-1] for one in several])
    assert 0.5 < np.nanstd(off) < 1.5


def test_trajectories_have_the_labels_of_their_tests_and_steps():
    def of(length, k, start):
        return chain(5.0, start, k, algorithm="hmc", length=length, warmup=60, updates=200)

    many = [of(length, k, start) for k, (length, start) in enumerate(product((0.5, 1.0), ("hot", "cold")))]
    found = examples(corpus(*many), "train")
    first = found[0]
    np.testing.assert_array_equal(first.rows, np.arange(200))
    rejected = first.labels["rejection"]
    assert np.isnan(rejected[:20]).all()  # the first third of a warm-up is not tested
    np.testing.assert_array_equal(rejected[20:], 1 - first.chain.column("accepted")[20:])
    assert first.labels["quality"][-1] == pytest.approx(-first.labels["schedule"][-1] - np.log(16))
    assert np.exp(first.labels["param_suggest"][0]) == pytest.approx(1.0 / 8, rel=0.01) or np.exp(
        first.labels["param_suggest"][0]
    ) == pytest.approx(0.5 / 8, rel=0.01)
    assert "cg_estimate" not in first.labels
    assert "anomaly" not in first.labels


def test_a_chain_with_a_fault_has_the_label_of_the_fault_only():
    goes_on = chain(5.0, fault="wrong_beta", fault_from=200, fault_length=64)
    once = chain(5.0, stream=1, fault="flip_low", fault_from=200, fault_length=64)
    lasting, short = examples(corpus(goes_on, once, *scan((5.0,), first=9)), "train")[:2]
    assert set(lasting.labels) == {"anomaly"}
    label = lasting.labels["anomaly"]
    assert np.isnan(label[lasting.rows < 160]).all()
    assert (label[(lasting.rows >= 200) & (lasting.rows < 264)] == 1).all()
    assert np.isnan(label[lasting.rows >= 280]).all()
    assert np.nansum(short.labels["anomaly"]) == 1


def test_every_head_that_can_be_fed_has_a_label():
    for layout in (CONDUCTOR_11, GPU_PREP_11):
        for head in layout.heads:
            assert (LABEL_OF.get(head.name, head.name) in LABELS) == head.available
            assert head.label


def test_a_frame_knows_nothing_of_what_comes_later():
    whole = chain(5.0)
    spoiled = whole.series.copy()
    spoiled[:, 200:] *= 0.5
    rows, seen = frames_of(whole)
    _, other = frames_of(type(whole)(entry=whole.entry, series=spoiled))
    before = rows < 200
    np.testing.assert_array_equal(seen[before], other[before])
    assert (seen[~before] != other[~before]).any()


def test_frames_end_where_numbers_end():
    broken = chain(5.0)
    broken.series[:, 170:] = np.nan
    rows, _ = frames_of(broken)
    assert rows[-1] == 159
    quenched = chain(5.0, algorithm="hmc", quenched=8, warmup=20, updates=40)
    entry = msgspec.structs.replace(quenched.entry, flavors=4, mass=0.1)
    series = chain(5.0, algorithm="hmc", quenched=8, warmup=20, updates=40, flavors=4, mass=0.1).series
    rows, seen = frames_of(type(quenched)(entry=entry, series=series))
    assert len(rows) == 40
    assert len(np.unique(seen[:8, 12])) == 1  # the flag of the quench
