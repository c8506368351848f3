"""beta_c from chains: right on a model that can be solved, with errors that hold, and no number where there is none."""

import numpy as np
import pytest

from metalforge.campaign.analysis import selection
from metalforge.campaign.analysis.curve import curve, curve_of
from metalforge.campaign.analysis.selection import block_lengths, prepare
from metalforge.campaign.analysis.transition import chain_errors, locate
from metalforge.core.errors import SpecError
from metalforge.statistics import ChainRows, NotLocated, gamma_method, join
from metalforge.statistics.gamma import pooled_tau
from metalforge.statistics.susceptibility import susceptibility
from reference.landau_chain import VOLUME, exact_chi, exact_peak, run_chains
from reference.loop_series import loop_series

PEAK, HEIGHT = exact_peak()
AROUND = [5.65, 5.665, 5.68, 5.695, 5.71, 5.73]


def points(betas, rows, seed=1):
    plaquette, loop = run_chains(betas, rows, np.random.default_rng(seed))
    return [loop_series(b, VOLUME, plaquette[:, i], loop[:, i].astype(complex)) for i, b in enumerate(betas)]


@pytest.fixture(scope="module")
def around():
    return points(AROUND, 3000)


def test_the_peak_of_a_solved_model_is_found(around):
    found = locate(around, seed=1).transition
    assert abs(found.result - PEAK) < 3 * found.error
    assert abs(found.height - HEIGHT) < 3 * found.height_error
    assert 0.001 < found.error < 0.01
    assert found.system == VOLUME
    assert found.chains == len(AROUND)
    assert found.samples == 3000 * len(AROUND)
    assert found.left_out == ()
    assert found.coordinates == tuple(AROUND)
    assert 1.5 < found.b4 < 4
    assert 10 < found.n_effective < 1000


def test_bins_of_energy_change_nothing_that_matters(around):
    """The solution without bins, with every chain's own tau_int, is the same within a part of the error."""
    targets = np.array([5.66, 5.68, 5.69, 5.71])
    ours = curve(around, targets, seed=2)
    taus = [max(gamma_method(p.energy).tau_int, gamma_method(p.order).tau_int) for p in around]
    runs = [ChainRows(p.coordinate, p.energy, p.order, tau) for p, tau in zip(around, taus, strict=True)]
    theirs = curve_of(join(runs, [100] * len(runs), np.random.default_rng(1), 4, bins_per_spread=1e9), targets, 512)
    # Theirs weighs the chains by other tau_int: the difference is well below the error.
    assert ours.chi == pytest.approx(theirs.chi, abs=0.6 * float(np.mean(ours.chi_error)))
    assert ours.order == pytest.approx(theirs.order, abs=0.6 * float(np.mean(ours.order_error)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_or_do_not_belong_together_are_refused(around, bad):
    spoiled = around[1].energy.copy()
    spoiled[7] = bad
    for chain in (around[1]._replace(energy=spoiled), around[1]._replace(order=around[1].order[:-1])):
        with pytest.raises(SpecError, match=r"5\.665"):
            locate([around[0], chain], seed=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"volume": 0},
        {"volume": np.nan},
        {"order": np.full(50, 0.1 + 0.2j), "energy": np.ones(50)},
        {"order": np.ones((50, 2)), "energy": np.ones((50, 2))},
        {"order": [[1.0], [1.0, 2.0]]},
        {"order": ["loop"] * 50, "energy": np.ones(50)},
    ],
)
def test_chains_that_cannot_be_reweighted_are_refused(around, wrong):
    for ask in (lambda runs: locate(runs, seed=1), lambda runs: curve(runs, [5.68], seed=1)):
        with pytest.raises(SpecError, match=r"5\.665"):
            ask([around[0], around[1]._replace(**wrong)])


@pytest.mark.parametrize("factor", [-1.0, 1e-3])
def test_runs_with_another_energy_are_not_joined_to_a_curve(around, factor):
    wrong = [one._replace(energy=factor * one.energy) for one in around]
    with pytest.raises(SpecError, match="standard errors"):
        curve(wrong, AROUND, seed=1)
    assert curve(wrong, AROUND, seed=1, largest_pull=np.inf).chi.size or factor < 0


def test_lists_of_rows_are_taken_as_arrays(around):
    lists = [one._replace(energy=one.energy.tolist(), order=one.order.tolist()) for one in around]
    assert curve(lists, [5.68], seed=1).chi == curve(around, [5.68], seed=1).chi


def test_a_curve_nowhere_and_an_error_of_one_replica_are_refused(around):
    for nowhere in ([], [np.nan], [5.68, np.inf]):
        with pytest.raises(SpecError, match="coordinates"):
            curve(around, nowhere, seed=1)
    with pytest.raises(SpecError, match="n_bootstrap"):
        locate(around, seed=1, n_bootstrap=1)


def test_the_curve_follows_the_exact_one_within_its_band(around):
    found = curve(around, np.linspace(5.5, 5.9, 81), seed=3)
    pulls = (np.array(found.chi) - exact_chi(found.coordinate)) / np.array(found.chi_error)
    assert len(found.coordinate) > 15
    assert min(found.coordinate) > 5.63
    assert max(found.coordinate) < 5.75
    assert np.abs(pulls).max() < 3.5
    assert set(found.segment) == {0}
    chains, _ = prepare(around)
    assert [chain.coordinate for chain in chains] == AROUND
    for chain in chains:
        assert abs(chain.chi - exact_chi(chain.coordinate)[0]) < 4 * chain.chi_error


def test_errors_hold_for_chains_of_thirty_tau():
    """60 campaigns of 700 updates a chain: the share inside one and two quoted errors is that of a Gaussian."""
    betas, n = np.linspace(5.66, 5.73, 6), 60
    plaquette, loop = run_chains(np.tile(betas, n), 700, np.random.default_rng(11))
    pulls = []
    for s in range(n):
        chains = [
            loop_series(b, VOLUME, plaquette[:, s * 6 + i], loop[:, s * 6 + i].astype(complex))
            for i, b in enumerate(betas)
        ]
        try:
            found = locate(chains, seed=s, n_bootstrap=40).transition
        except NotLocated:
            continue
        pulls.append((found.result - PEAK) / found.error)
    pulls = np.abs(pulls)
    assert len(pulls) > 0.8 * n
    assert np.mean(pulls < 1) > 0.5  # 0.68, less 2.8 of its own standard errors
    assert np.mean(pulls < 2) > 0.84  # 0.95, less 3.8
    # The negative control: errors three times too small would be seen.
    assert np.mean(pulls < 1 / 3) < 0.5


def test_errors_of_short_chains_hold_beside_long_ones(around):
    """Chains of 7 tau_int: their own Gamma-method error misses chi by many errors, that of all chains does not."""
    betas = np.linspace(5.66, 5.72, 7)
    off, own = [], []
    for seed in range(12):
        short = [p._replace(chain=f"short{i}") for i, p in enumerate(points(betas, 170, seed=100 + seed))]
        found = chain_errors([*around, *short], locate([*around, *short], seed=seed, n_bootstrap=10))
        for point, truth in zip(short, exact_chi(betas), strict=True):
            if (errors := found.get(point.chain)) is not None:
                alone = susceptibility(point.order, 512)
                off.append((errors.chi - truth) / errors.chi_error)
                own.append((alone.mean - truth) / alone.error)
    assert len(off) > 60
    assert np.mean(np.abs(off) > 3) < 0.03
    assert np.std(off) < 1.3
    assert np.mean(np.abs(own) > 3) > 0.1


def transition(chains, seed):
    return locate(chains, seed=seed, n_bootstrap=20).transition


def test_order_of_chains_does_not_matter_and_seeds_do(around):
    mixed = [around[i] for i in (3, 0, 5, 1, 4, 2)]
    assert transition(mixed, 1) == transition(around, 1)
    assert transition(around, 2).error != transition(around, 1).error


def test_several_chains_at_one_beta_join_and_all_lengths_count(around):
    extra = points([5.68, 5.68, 5.7], 400, seed=5)
    short = extra[0]._replace(coordinate=5.69).up_to(10)
    found = locate([*around, *extra, short], seed=1, n_bootstrap=30).transition
    assert found.chains == 9
    assert abs(found.result - PEAK) < 3 * found.error
    assert [(out.coordinate, out.rows) for out in found.left_out] == [(5.69, 10)]
    assert "fewer than" in found.left_out[0].reason


def test_runs_far_away_are_left_out_and_named(around):
    found = locate([*around, *points([5.2, 6.2], 500, seed=6)], seed=1, n_bootstrap=30).transition
    assert [out.coordinate for out in found.left_out] == [5.2, 6.2]
    assert all("does not overlap" in out.reason for out in found.left_out)


def test_a_chain_that_disagrees_stays_in_and_widens_the_error(around):
    drift = points([5.7], 1000, seed=7)[0]
    cold = drift._replace(energy=drift.energy - 6 * 2048 * 0.006)
    alone, found = transition(around, 1), transition([*around, cold], 1)
    assert found.left_out == ()
    assert found.chains == len(AROUND) + 1
    assert (alone.scatter, found.scatter > 1.5) == (1.0, True)
    assert found.error > 1.3 * alone.error


@pytest.mark.parametrize(
    ("betas", "rows", "words"),
    [
        ([5.6, 5.62, 5.64], 2000, "edge"),  # the peak lies above
        ([5.74, 5.76, 5.78], 2000, "edge"),
        ([5.4, 5.69, 6.0], 1000, "edge"),  # one run at the peak alone
        ([5.66, 5.69, 5.72], 15, "too short"),
    ],
)
def test_no_number_where_there_is_no_peak(betas, rows, words):
    with pytest.raises(NotLocated, match=words) as raised:
        locate(points(betas, rows, seed=8), seed=1)
    assert "hint:" in str(raised.value)


def test_nothing_measured_is_refused():
    with pytest.raises(NotLocated, match="no chain"):
        locate([], seed=1)


def test_a_higher_susceptibility_elsewhere_is_not_passed_over(around):
    """A run that cannot be joined fluctuates more than the peak that is found: no number."""
    far = points([6.2], 2000, seed=9)[0]
    loop = far.order
    scale = np.sqrt(1.5 * HEIGHT / (512 * loop.var()))
    wild = far._replace(order=1 + scale * (loop - loop.mean()))
    with pytest.raises(NotLocated, match="hint: add"):
        locate([*around, wild], seed=1, n_bootstrap=30)


def test_memory_of_short_chains_is_that_of_long_ones():
    """Thirty chains of 300 rows know tau_int together; one alone says too little."""
    _, loop = run_chains([5.69] * 31, 300, np.random.default_rng(3))
    _, long_loop = run_chains([5.69] * 8, 6000, np.random.default_rng(4))
    truth = np.mean([gamma_method(x).tau_int for x in long_loop.T])
    pooled = pooled_tau(np.full(31, 5.69), list(loop.T), 60.0)
    assert pooled[0] == pytest.approx(truth, rel=0.3)
    assert pooled_tau(np.array([5.69]), [np.ones(50)], 60.0)[0] == 0.5


def test_blocks_of_many_long_chains_are_thousands_and_not_more(around, monkeypatch):
    """They get longer all alike; place and error stay what they were, as far as that is known."""
    found = locate(around, seed=1).transition
    chains, _ = prepare(around)
    usual = sum(c.energy.size / b for c, b in zip(chains, block_lengths(chains), strict=True))
    monkeypatch.setattr(selection, "MOST_BLOCKS", usual / 4)
    fewer = sum(c.energy.size / b for c, b in zip(chains, block_lengths(chains), strict=True))
    assert fewer == pytest.approx(usual / 4, rel=0.1)
    coarse = locate(around, seed=1).transition
    assert coarse.result == pytest.approx(found.result, abs=0.01 * found.error)
    assert coarse.error == pytest.approx(found.error, rel=0.25)
