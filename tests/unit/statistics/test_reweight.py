"""Reweighting against models that can be solved: E of a harmonic system, and two coexisting phases."""

import logging
import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import gammaincinv, ndtr

from metalforge.campaign.analysis.curve import curve_of
from metalforge.statistics import gamma_method
from metalforge.statistics.histograms import BINS_PER_SPREAD, ChainRows, join
from metalforge.statistics.mbar import free_energies, pair_overlap
from reference.statistics import ar1

MODES = 200
"""P(E | beta) ~ E^(MODES - 1) exp(-beta E): <E> = MODES / beta, var E = MODES / beta^2, f = MODES ln beta."""
ONE_ROW_A_BIN = 1e9
BETAS = (1.0, 1.05, 1.1, 1.15)
TARGETS = np.array([1.02, 1.075, 1.13])


class BetaRun(NamedTuple):
    """One chain: its beta, E and an observable, measured together."""

    beta: float
    action: np.ndarray
    observable: np.ndarray


def combine(runs, rng=1, n_bootstrap=100):
    """The runs joined, each with its own tau_int."""
    chains = []
    for run in sorted(runs, key=lambda run: run.beta):
        tau = max(gamma_method(run.action).tau_int, gamma_method(run.observable).tau_int)
        chains.append(ChainRows(run.beta, run.action, run.observable, tau))
    sizes = [chain.energy.size for chain in chains]
    blocks = [min(math.ceil(2 * (c.tau**2 * n) ** (1 / 3)), n // 5) for c, n in zip(chains, sizes, strict=True)]
    return join(chains, blocks, np.random.default_rng(rng), n_bootstrap)


def reweight(joint, betas, *, spatial_volume):
    return curve_of(joint, np.array(betas, float), spatial_volume)


def harmonic(beta, n, rng, a=0.0):
    """A run whose E has the exact distribution at every step and the autocorrelation of an AR(1) chain."""
    energies = gammaincinv(MODES, ndtr(ar1(a, n, rng))) / beta
    return BetaRun(beta=beta, action=energies, observable=energies)


def harmonic_runs(seed, n=1000, a=0.0, betas=BETAS):
    rng = np.random.default_rng(seed)
    return [harmonic(beta, n, rng, a) for beta in betas]


def changed(runs, function):
    return [BetaRun(beta=r.beta, action=function(r.action), observable=r.observable) for r in runs]


GAP, WIDTH, BETA_C, NOISE, VOLUME = 60.0, 12.0, 5.69, 0.2, 512.0
"""Two Gaussian densities of states GAP apart, equally likely at BETA_C; the observable is the phase plus NOISE."""


def two_phases(beta, n, rng, tau=5):
    high = 1 / (1 + math.exp(GAP * (beta - BETA_C)))
    fresh = rng.random(n) < 1 / tau
    fresh[0] = True
    # The phase is drawn anew with probability 1/tau a step: an exponential autocorrelation.
    phase = (rng.random(n) < high)[np.flatnonzero(fresh)][np.cumsum(fresh) - 1]
    energies = GAP * phase - beta * WIDTH**2 + WIDTH * rng.standard_normal(n)
    return BetaRun(beta=beta, action=energies, observable=phase + NOISE * rng.standard_normal(n))


def two_phase_susceptibility(beta):
    high = 1 / (1 + np.exp(GAP * (np.asarray(beta) - BETA_C)))
    return VOLUME * (high * (1 - high) + NOISE**2)


@pytest.mark.parametrize("a", [0.0, 0.8])
def test_means_and_susceptibility_of_the_harmonic_model(a):
    pulls = []
    for seed in range(20):
        joint = combine(harmonic_runs(seed, n=1000, a=a), rng=seed, n_bootstrap=60)
        curve = reweight(joint, TARGETS, spatial_volume=3.0)
        exact = np.stack([MODES / TARGETS, 3 * MODES / TARGETS**2])
        pulls.append((np.stack([curve.order, curve.chi]) - exact) / np.stack([curve.order_error, curve.chi_error]))
    # 20 independent pulls of each kind: their mean within 4 / sqrt(20), their spread within 4 / sqrt(40) of 1.
    assert np.all(np.abs(np.mean(pulls, axis=0)) < 0.9)
    assert np.all(np.abs(np.std(pulls, axis=0) - 1) < 0.63)


def test_the_joint_curve_is_more_precise_than_any_single_run():
    runs = harmonic_runs(30)
    joint, single = combine(runs, rng=1), combine(runs[1:2], rng=1)
    errors = [reweight(one, [1.075], spatial_volume=1).order_error[0] for one in (joint, single)]
    assert errors[0] < 0.8 * errors[1]
    assert joint.n_effective(np.array([1.075]))[0] > 2 * single.n_effective(np.array([1.075]))[0]


def oracle(betas, counts, energies):
    """pymbar's solution of the equations for samples, sorted by beta."""
    logging.getLogger("pymbar").setLevel(logging.ERROR)
    import pymbar

    # pymbar's own choice of solver first hands scipy options that scipy warns about; `adaptive` is its second choice.
    solver = [{"method": "adaptive", "options": {"min_sc_iter": 0}}]
    reduced = np.outer(betas, energies)
    return pymbar.MBAR(reduced, np.asarray(counts, int), solver_protocol=solver, relative_tolerance=1e-12)


def independent(runs, bins_per_spread, n_replicas=0):
    """The runs joined as samples without memory, which is how pymbar takes them."""
    chains = [ChainRows(r.beta, r.action, r.observable, 0.5) for r in runs]
    return join(chains, [1] * len(chains), np.random.default_rng(1), n_replicas, bins_per_spread)


def test_free_energies_match_theory_and_pymbar_expectations_match_ours():
    runs = harmonic_runs(31, n=500)
    joint = independent(runs, ONE_ROW_A_BIN, n_replicas=2)
    # f(beta) = -ln Z up to a constant, and counted from the energy origin.
    theory = MODES * np.log(joint.coordinates) - joint.coordinates * joint.origin
    assert joint.f - joint.f[0] == pytest.approx(theory - theory[0], abs=0.1)

    energies = np.concatenate([r.action for r in runs]) - joint.origin
    theirs = oracle(joint.coordinates, [500] * 4, energies)
    assert joint.f - joint.f[0] == pytest.approx(theirs.f_k - theirs.f_k[0], abs=1e-7)
    curve, binned = (
        reweight(one, TARGETS, spatial_volume=1.0)
        for one in (joint, independent(runs, BINS_PER_SPREAD, n_replicas=100))
    )
    for i, beta in enumerate(TARGETS):
        expected = theirs.compute_expectations_inner(
            (energies + joint.origin)[None, :], (beta * energies)[None, :], np.array([[0], [0]]), return_theta=False
        )
        mean = float(np.ravel(expected["observables"])[0])
        assert curve.order[i] == pytest.approx(mean, rel=1e-8)
        assert binned.order[i] == pytest.approx(mean, abs=1e-2 * binned.order_error[i])


@pytest.mark.parametrize("start", [[0.0, 10.0, 19.0, 28.0], [0.0, 3.0, -4.0, 5.0]], ids=["near", "far"])
def test_newton_solves_resampled_equations_like_pymbar_from_any_start(start):
    runs = harmonic_runs(32, n=300)
    betas, counts = np.array(BETAS), np.full(4, 300.0)
    energies = np.concatenate([r.action for r in runs]) - 190.0
    rng = np.random.default_rng(33)
    picks = [np.concatenate([300 * k + rng.integers(300, size=300) for k in range(4)]) for _ in range(5)]
    draws = np.array([np.bincount(some, minlength=1200) for some in picks], dtype=float)
    found = free_energies(betas, energies, np.tile(counts, (5, 1)), draws, np.array(start))
    for f, some in zip(found, picks, strict=True):
        theirs = oracle(betas, counts, energies[some]).f_k
        assert f - f[0] == pytest.approx(theirs - theirs[0], abs=1e-6)
    assert np.ptp(found, axis=0)[1:].min() > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_the_curve_of_two_phases_is_the_exact_one(seed):
    rng = np.random.default_rng(40 + seed)
    joint = combine([two_phases(b, 3000, rng) for b in (5.66, 5.68, 5.70, 5.72)], rng=seed)
    betas = np.linspace(5.66, 5.72, 13)
    curve = reweight(joint, betas, spatial_volume=VOLUME)
    assert np.all(np.abs(curve.chi - two_phase_susceptibility(betas)) < 4.5 * curve.chi_error)
    assert np.max(curve.chi_error) < 0.15 * VOLUME / 4
    assert np.all(curve.chi > 0)


def test_correlated_runs_count_less_and_are_resampled_in_blocks():
    joint = combine(harmonic_runs(93, n=6000, a=0.9), rng=1)
    # A block is about 2 (tau^2 n)^(1/3) = 163 rows.
    assert np.bincount(joint.chain_of_block) == pytest.approx(6000 / 163, rel=0.3)
    assert joint.n_effective(np.array([1.075]))[0] < 1.2 * 4 * 6000 / (2 * 9.5)


def test_ignoring_autocorrelation_gives_errors_that_are_too_small():
    runs = harmonic_runs(94, n=4000, a=0.9, betas=(1.05,))
    honest = reweight(combine(runs, rng=1), TARGETS, spatial_volume=1)
    # The same numbers in random order: the same averages, and no autocorrelation to be seen.
    shuffled = np.random.default_rng(95).permutation(runs[0].action)
    blind = combine([BetaRun(beta=1.05, action=shuffled, observable=shuffled)], rng=1)
    naive = reweight(blind, TARGETS, spatial_volume=1)
    assert np.all(naive.order_error < 0.4 * honest.order_error)


def test_the_wrong_sign_of_the_action_fails_the_exact_test():
    run = harmonic_runs(96, n=4000, betas=(1.0,))
    right = reweight(combine(run, rng=1), [1.05], spatial_volume=1)
    wrong = reweight(combine(changed(run, np.negative), rng=1), [1.05], spatial_volume=1)
    assert abs(right.order[0] - MODES / 1.05) < 4 * right.order_error[0]
    assert abs(wrong.order[0] - MODES / 1.05) > 20 * wrong.order_error[0]


def test_overlap_is_one_for_equal_runs_known_between_gaussians_and_zero_far_away():
    rng = np.random.default_rng(99)
    a, b = rng.standard_normal(20_000), rng.standard_normal(20_000)
    assert pair_overlap(1.0, a, 1.0, b) == pytest.approx(1.0, abs=1e-9)
    # exp(-beta E) tilts a unit Gaussian into one centred at -beta: two of them 1 apart.
    grid = np.linspace(-9, 9, 4001)
    p, q = np.exp(-(grid**2) / 2), np.exp(-((grid + 1) ** 2) / 2)
    exact = np.sum(2 * p * q / (p + q)) / np.sum(p)
    assert pair_overlap(0.0, a, 1.0, b - 1) == pytest.approx(exact, abs=0.01)
    assert pair_overlap(0.0, a[:5000], 1.0, b - 1) == pytest.approx(exact, abs=0.02)
    assert pair_overlap(0.0, a, 20.0, b - 20) < 1e-12


def test_neighbours_overlap_and_runs_far_apart_do_not():
    runs = harmonic_runs(100, betas=(1.0, 2.0))
    assert pair_overlap(1.0, runs[0].action, 2.0, runs[1].action) < 1e-6
    near = harmonic_runs(101)
    assert min(pair_overlap(a.beta, a.action, b.beta, b.action) for a, b in pairwise(near)) > 0.8


def test_effective_samples_fall_beyond_the_runs():
    joint = combine(harmonic_runs(102), rng=1)
    counts = joint.n_effective(np.array([1.1, 1.2, 1.3, 1.4]))
    assert all(near > 1.5 * far for near, far in pairwise(counts))


def test_the_order_of_runs_does_not_matter_and_the_seed_decides():
    runs = harmonic_runs(103)
    first = reweight(combine(runs, rng=5), TARGETS, spatial_volume=1)
    reverse = reweight(combine(runs[::-1], rng=5), TARGETS, spatial_volume=1)
    other = reweight(combine(runs, rng=np.random.default_rng(6)), TARGETS, spatial_volume=1)
    assert np.array_equal(first.order_error, reverse.order_error)
    assert np.array_equal(first.order, other.order)
    assert not np.array_equal(first.order_error, other.order_error)


def test_two_chains_at_one_beta_count_as_one_longer_chain():
    rng = np.random.default_rng(104)
    runs = [harmonic(b, 1000, rng) for b in (1.0, 1.05, 1.05)]
    merged = np.concatenate([runs[1].action, runs[2].action])
    split = reweight(combine(runs, rng=1), TARGETS[:1], spatial_volume=1)
    joined = [runs[0], BetaRun(beta=1.05, action=merged, observable=merged)]
    assert split.order[0] == pytest.approx(
        reweight(combine(joined, rng=1), TARGETS[:1], spatial_volume=1).order[0], rel=1e-3
    )


def test_adding_a_constant_to_the_action_changes_nothing():
    runs = harmonic_runs(105)
    plain = reweight(combine(runs, rng=1), TARGETS, spatial_volume=1)
    moved = reweight(combine(changed(runs, lambda e: e + 1e6), rng=1), TARGETS, spatial_volume=1)
    assert moved.order == pytest.approx(plain.order, rel=1e-6)
    assert moved.chi_error == pytest.approx(plain.chi_error, rel=1e-4)


def test_global_random_numbers_and_standard_error_are_left_alone(capfd):
    np.random.seed(7)
    expected = np.random.random(3)
    np.random.seed(7)
    combine(harmonic_runs(106, n=200), rng=1)
    assert np.array_equal(np.random.random(3), expected)
    assert capfd.readouterr() == ("", "")


def test_rows_at_the_ends_weigh_as_much_as_the_bins_they_are_in():
    """There are rows beyond the mean of the outermost bin; one of them once weighed as much as all others together."""
    rng = np.random.default_rng(8)
    energy = rng.normal(5600.0, 50.0, size=4000)
    energy[:40] = np.linspace(5400.0, 5401.9, 40)  # one bin, with rows on both sides of its mean
    joint = join([ChainRows(5.57, energy, energy.copy(), 0.5)], [10], np.random.default_rng(1))
    for beta in (5.56, 5.57, 5.58):
        weight = joint.row_weights(energy, beta)
        rows, first = joint.weigh(energy, (np.ones(energy.size), energy), np.array([beta]))[:, 0]
        assert weight @ energy / weight.sum() == pytest.approx(first / rows, abs=0.5)
        assert joint.centre + joint.moments(np.array([beta]))[1, 0, 0] == pytest.approx(first / rows, abs=0.5)


def test_samples_that_others_would_have_carry_what_they_carry_where_they_are_those_that_there_are():
    """Twice the samples carry twice as much, those elsewhere less, and none carry nothing."""
    runs = harmonic_runs(3, n=4000)
    joint = join(
        [ChainRows(r.beta, r.action, r.observable, 0.5) for r in runs], [50] * len(runs), np.random.default_rng(1)
    )
    at, betas, counts = 1.06, [r.beta for r in runs], [4000.0] * len(runs)
    own = joint.n_effective_of(at, betas, counts)
    assert own == pytest.approx(joint.n_effective(np.array([at]))[0], rel=0.02)
    assert joint.n_effective_of(at, betas, [2 * count for count in counts]) == pytest.approx(2 * own)
    assert joint.n_effective_of(at, [at], [1000.0]) == pytest.approx(1000.0)
    assert joint.n_effective_of(at, [1.15], [1000.0]) < 0.5 * joint.n_effective_of(at, [1.1], [1000.0]) < 500.0
    assert joint.n_effective_of(at, [], []) == 0.0
