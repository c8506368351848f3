import math

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.statistics import block_length, bootstrap, gamma_method, gamma_method_derived, jackknife
from metalforge.statistics.resample import block_indices
from reference.statistics import ar1


def ratio(sample):
    return float(np.mean(sample[0]) / np.mean(sample[1]))


PAIR = np.stack([5.0 + ar1(0.8, 8000, 1), 3.0 + 0.5 * ar1(0.8, 8000, 1) + ar1(0.5, 8000, 2)])


@pytest.mark.parametrize(
    "method",
    [
        jackknife,
        lambda x, f: bootstrap(x, f, rng=3, n_resamples=400),
    ],
    ids=["jackknife", "bootstrap"],
)
def test_resampling_and_the_gamma_method_agree_on_a_nonlinear_function(method):
    linear = gamma_method_derived(PAIR, lambda m: m[0] / m[1])
    got = method(PAIR, ratio)
    assert got.value == pytest.approx(linear.mean, rel=1e-12)
    # Each error is known to about sqrt(b / 2n) = 7 %, the bootstrap's spread to another 3.5 %.
    assert got.error == pytest.approx(linear.error, rel=0.25)
    assert abs(got.bias) < got.error


def test_single_measurement_bins_give_the_standard_error_exactly():
    x = ar1(0.0, 500, 4)
    got = jackknife(x, np.mean, bin_size=1)
    assert got.error == pytest.approx(np.std(x, ddof=1) / math.sqrt(500), rel=1e-10)
    assert got.bias == pytest.approx(0.0, abs=1e-12)
    assert (got.n_blocks, got.n_resamples, got.method) == (500, 500, "jackknife")


def test_the_jackknife_knows_the_bias_of_the_plain_variance():
    x = ar1(0.0, 400, 5)
    got = jackknife(x, np.var, bin_size=1)
    assert got.value - got.bias == pytest.approx(np.var(x, ddof=1), rel=1e-10)


def test_leftover_measurements_are_dropped_from_the_old_end():
    x = np.concatenate([[1e6] * 3, ar1(0.0, 100, 6)])
    assert jackknife(x, np.mean, bin_size=10).error < 1.0
    assert jackknife(x, np.mean, bin_size=10).value == np.mean(x)


def test_the_error_of_a_correlated_mean_is_right_and_single_measurements_fail():
    n, a = 3000, 0.8
    truth = math.sqrt((1 + a) / (1 - a) / n)
    chains = [ar1(a, n, 100 + i) for i in range(25)]
    errors = [bootstrap(x, np.mean, rng=i, n_resamples=80).error for i, x in enumerate(chains)]
    # The blocks in use hold about 18 tau_int: the error comes out some 3 % low, and no more.
    assert 0.9 * truth < np.mean(errors) < 1.03 * truth
    ignorant = [bootstrap(x, np.mean, rng=i, n_resamples=80, block=1).error for i, x in enumerate(chains)]
    assert np.mean(ignorant) < 0.45 * truth
    # Two tau_int are not enough, as the module says.
    short = [bootstrap(x, np.mean, rng=i, n_resamples=80, block=9).error for i, x in enumerate(chains)]
    assert 0.6 * truth < np.mean(short) < 0.85 * truth


def test_an_estimator_that_has_no_gradient_gets_an_error():
    errors = [bootstrap(ar1(0.0, 2000, 70 + i), np.median, rng=i).error for i in range(10)]
    assert np.mean(errors) == pytest.approx(math.sqrt(math.pi / 2 / 2000), rel=0.15)


def test_few_blocks_do_not_make_the_error_small():
    # Without the factor sqrt(5/4) the mean square of the errors would be a fifth too small.
    squares = [
        bootstrap(ar1(0.0, 200, 300 + i), np.mean, rng=i, block=40, n_resamples=60).error ** 2 for i in range(150)
    ]
    # Each is uncertain by sqrt(2/4 x 2/3), so their mean by 5 %.
    assert np.mean(squares) == pytest.approx(1 / 200, rel=0.15)


def test_the_seed_decides_and_a_generator_works_too():
    x = ar1(0.5, 500, 9)
    first = bootstrap(x, np.mean, rng=1)
    assert bootstrap(x, np.mean, rng=1) == first
    assert bootstrap(x, np.mean, rng=2).error != first.error
    assert bootstrap(x, np.mean, rng=np.random.default_rng(1)) == first


def test_block_length_follows_tau_and_length():
    assert block_length(10.0, 10_000) == 200
    assert block_length(2.0, 8 * 2000) == 2 * block_length(2.0, 2000)
    assert block_length(0.5, 100) == 6
    x = ar1(0.9, 5000, 10)
    assert jackknife(x, np.mean).block == block_length(gamma_method(x).tau_int, 5000)
    # The slowest series sets the blocks for all.
    assert jackknife([x, ar1(0.0, 5000, 11)], ratio_of_squares).block == jackknife(x, np.mean).block


@pytest.mark.parametrize("tau", [0.5, 0.9, 3.3, 40.0])
def test_short_chains_get_five_blocks_or_are_refused_with_advice(tau):
    enough = math.ceil(15 * tau)
    assert enough // block_length(tau, enough) >= 5
    assert block_length(tau, enough) >= 2 * tau
    with pytest.raises(SpecError, match=f"hint: {enough} measurements"):
        block_length(tau, enough - 1)


def ratio_of_squares(sample):
    return float(np.mean(sample[0] ** 2) / np.mean(sample[1] ** 2))


@pytest.mark.parametrize("n", [10, 1000])
@pytest.mark.parametrize("block", [1, 4, 9])
def test_fixed_blocks_are_runs_of_neighbours(n, block):
    indices = block_indices(n, block, np.random.default_rng(12))
    assert indices.shape == (n,)
    assert set(indices) <= set(range(n))
    inside = np.arange(1, n) % block != 0
    assert np.all((np.diff(indices) % n == 1)[inside])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: block_length(50.0, 300), "at least 15 tau_int"),
        (lambda: bootstrap(np.arange(9.0), np.mean, rng=1, n_resamples=1), "n_resamples"),
        (lambda: bootstrap(np.arange(9.0), np.mean, rng=1, block=5), "between 1 and 4"),
        (lambda: jackknife(np.arange(9.0), np.mean, bin_size=0), "between 1 and 4"),
        (lambda: jackknife(ar1(0, 99, 1), lambda x: math.nan), "finite number on every resample"),
        (lambda: jackknife([1.0, math.nan, 3.0, 4.0, 5.0], np.mean), "finite"),
        (lambda: jackknife([np.ones(9), np.ones(8)], ratio), "one length"),
    ],
)
def test_unfit_input_is_refused_in_words(call, message):
    with pytest.raises(SpecError, match=message):
        call()
