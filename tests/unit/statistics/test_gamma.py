import math
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge.core.errors import PluginError, SpecError
from metalforge.statistics import (
    Estimate,
    autocorrelation,
    gamma_method,
    gamma_method_derived,
    to_obs,
    with_error,
)
from reference.statistics import ar1


def exact_tau(a):
    return (1 + a) / (2 * (1 - a))


@pytest.mark.parametrize("a", [0.0, 0.3, 0.6, 0.9, 0.97])
def test_tau_int_of_ar1_is_found_within_its_error(a):
    got = gamma_method(ar1(a, 40_000, seed=11))
    assert abs(got.tau_int - exact_tau(a)) < 3 * got.tau_int_error + 0.01
    assert got.tau_int_error < 0.2 * exact_tau(a)
    assert got.error == pytest.approx(math.sqrt(2 * exact_tau(a) / 40_000), rel=0.15)
    assert abs(got.mean) < 4 * got.error


@pytest.mark.parametrize("a", [0.0, 0.5, 0.9])
def test_one_sigma_covers_68_percent_and_ignoring_correlation_does_not(a):
    n_chains, n = 400, 2000
    chains = [ar1(a, n, seed=1000 + i) for i in range(n_chains)]
    covered = np.mean([abs(e.mean) < e.error for e in map(gamma_method, chains)])
    naive = np.mean([abs(e.mean) < e.error for e in (gamma_method(x, s=0) for x in chains)])
    four_sigma = 4 * math.sqrt(0.6827 * 0.3173 / n_chains)
    assert abs(covered - 0.6827) < four_sigma
    # The negative control: sqrt(var / n) is too small by sqrt(2 tau_int).
    if a > 0:
        assert naive < math.erf(1 / math.sqrt(4 * exact_tau(a))) + four_sigma
        assert naive < 0.6827 - four_sigma


def test_errors_of_errors_match_the_scatter():
    estimates = [gamma_method(ar1(0.6, 4000, seed=i)) for i in range(300)]
    for value, error in (("error", "error_error"), ("tau_int", "tau_int_error")):
        scatter = np.std([getattr(e, value) for e in estimates])
        assert np.mean([getattr(e, error) for e in estimates]) == pytest.approx(scatter, rel=0.3)


@pytest.mark.parametrize("n", [5, 6, 50, 1001, 4096])
@pytest.mark.parametrize("a", [-0.5, 0.0, 0.8])
@pytest.mark.parametrize("s", [0.0, 1.0, 2.0, 3.5])
def test_every_number_agrees_with_pyerrors(n, a, s):
    x = 3.0 + ar1(a, n, seed=5)
    ours, theirs = gamma_method(x, s), to_obs(x, "chain")
    theirs.gamma_method(S=s)
    assert ours.mean == pytest.approx(theirs.value, rel=1e-14)
    assert ours.error == pytest.approx(theirs.dvalue, rel=1e-10)
    assert ours.error_error == pytest.approx(theirs.ddvalue, rel=1e-10)
    assert ours.tau_int == pytest.approx(theirs.e_tauint["chain"], rel=1e-10)
    assert ours.tau_int_error == pytest.approx(theirs.e_dtauint["chain"], rel=1e-10, abs=1e-12)
    assert ours.window == theirs.e_windowsize["chain"]


def test_the_default_s_is_that_of_pyerrors():
    x = ar1(0.9, 3000, seed=6)
    theirs = to_obs(x, "chain")
    theirs.gamma_method()
    assert gamma_method(x).error == pytest.approx(theirs.dvalue, rel=1e-10)
    assert gamma_method(x, s=1.0).window < gamma_method(x).window


@pytest.mark.parametrize(
    ("function", "theirs"),
    [
        (lambda m: m[0] / m[1], lambda a, b: a / b),
        (lambda m: math.log(m[0]) * m[1] ** 2, lambda a, b: np.log(a) * b**2),
        (lambda m: m[0] - m[1], lambda a, b: a - b),
    ],
    ids=["ratio", "log times square", "difference"],
)
def test_derived_errors_agree_with_the_automatic_differentiation_of_pyerrors(function, theirs):
    common = ar1(0.8, 5000, seed=7)
    x = np.stack([4.0 + common + 0.3 * ar1(0.0, 5000, seed=8), 2.0 + 0.5 * common + 0.2 * ar1(0.5, 5000, seed=9)])
    expected = theirs(to_obs(x[0], "chain"), to_obs(x[1], "chain"))
    expected.gamma_method()
    got = gamma_method_derived(x, function)
    assert got.mean == pytest.approx(expected.value, rel=1e-12)
    assert got.error == pytest.approx(expected.dvalue, rel=1e-8)
    assert got.tau_int == pytest.approx(expected.e_tauint["chain"], rel=1e-6)
    assert got.window == expected.e_windowsize["chain"]


def test_derived_errors_use_the_covariance():
    x = ar1(0.5, 2000, seed=10)
    same = gamma_method_derived([x, x], lambda m: m[0] - m[1])
    assert (same.mean, same.error, same.tau_int) == (0.0, 0.0, 0.5)
    twice = gamma_method_derived([x, x], lambda m: m[0] + m[1])
    assert twice.error == pytest.approx(2 * gamma_method(x).error, rel=1e-8)


def test_a_constant_has_no_error_and_tau_int_one_half():
    # 0.1 is not a binary fraction: its mean over 1000 rounds, which must not count as a fluctuation.
    got = gamma_method(np.full(1000, 0.1))
    assert (got.error, got.error_error, got.tau_int, got.tau_int_error, got.window) == (0.0, 0.0, 0.5, 0.0, 0)
    assert gamma_method_derived([np.full(50, 0.1), np.full(50, 0.3)], lambda m: m[0] / m[1]).error == 0.0
    with pytest.raises(SpecError, match="constant"):
        autocorrelation(np.ones(10))


def test_autocorrelation_of_ar1():
    x = ar1(0.8, 100_000, seed=12)
    rho = autocorrelation(x)
    assert rho.size == 50_000
    assert rho[0] == 1.0
    assert rho[:6] == pytest.approx(0.8 ** np.arange(6), abs=0.03)
    assert autocorrelation(ar1(0.0, 100_000, seed=13))[1:50] == pytest.approx(0.0, abs=0.02)


@given(
    scale=st.floats(0.01, 100).flatmap(lambda v: st.sampled_from([v, -v])),
    shift=st.floats(-100, 100),
    seed=st.integers(0, 50),
)
def test_scaling_and_shifting_the_data_moves_nothing_else(scale, shift, seed):
    x = ar1(0.7, 500, seed)
    before, after = gamma_method(x), gamma_method(scale * x + shift)
    assert after.mean == pytest.approx(scale * before.mean + shift, abs=1e-11)
    assert after.error == pytest.approx(abs(scale) * before.error, rel=1e-6)
    assert after.tau_int == pytest.approx(before.tau_int, rel=1e-6)
    assert after.window == before.window


def test_replicas_become_one_ensemble_and_their_errors_combine():
    a, b = ar1(0.5, 4000, seed=14), ar1(0.5, 2000, seed=15)
    both = to_obs([a, b], "b5.69")
    both.gamma_method()
    assert both.names == ["b5.69|r0", "b5.69|r1"]
    assert both.value == pytest.approx((4000 * a.mean() + 2000 * b.mean()) / 6000)
    pooled = math.hypot(4000 * gamma_method(a).error, 2000 * gamma_method(b).error) / 6000
    assert both.dvalue == pytest.approx(pooled, rel=0.1)
    assert to_obs(a, "e").names == ["e"]
    assert to_obs(list(a), "e").value == pytest.approx(a.mean())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gamma_method([1.0, 2.0, math.nan, 4.0, 5.0, 6.0]), "the first at index 2"),
        (lambda: gamma_method([1.0, 2.0, math.inf, 4.0, 5.0, 6.0]), "finite"),
        (lambda: gamma_method([1.0, 2.0, 3.0, 4.0]), "at least 5 measurements. Got 4"),
        (lambda: gamma_method(np.ones((3, 7))), "one-dimensional"),
        (lambda: gamma_method(np.ones(9) + 1j), "real"),
        (lambda: gamma_method(np.array(["a", "b", "c", "d", "e"])), "numbers"),
        (lambda: gamma_method(np.arange(9.0), s=-1), "`s` must be"),
        (lambda: gamma_method(np.arange(9.0), s=math.nan), "`s` must be"),
        (lambda: gamma_method_derived([np.ones(9), np.ones(8)], sum), "one length"),
        (lambda: gamma_method_derived(np.ones(9), sum), "shape"),
        (lambda: gamma_method_derived([np.arange(9.0) - 4], lambda m: np.log(np.abs(m[0]) - 9e9)), "finite"),
        (lambda: to_obs(np.arange(9.0), "a|b"), "without"),
        (lambda: to_obs(np.arange(9.0), ""), "without"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in log")
def test_unfit_input_is_refused_in_words(call, message):
    with pytest.raises(SpecError, match=message):
        call()


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.549221, 0.000173, "0.54922(17)"),
        (1.327, 0.109, "1.33(11)"),
        (12.34, 2.31, "12.3(2.3)"),
        (123.4, 23.1, "123(23)"),
        (5178.0, 231.0, "5180(230)"),
        (0.5, 0.0996, "0.50(10)"),
        (-0.0004, 0.0044, "-0.0004(44)"),
        (7.25, 0.0, "7.25(0)"),
    ],
)
def test_short_form_with_error(value, error, text):
    assert with_error(value, error) == text


def test_an_estimate_reads_well_and_travels():
    got = gamma_method(5.0 + ar1(0.5, 1000, seed=16))
    text = str(got)
    assert "tau_int" in text
    assert f"window {got.window}, n 1000" in text
    assert msgspec.json.decode(msgspec.json.encode(got), type=Estimate) == got


def test_without_pyerrors_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyerrors", None)
    with pytest.raises(PluginError, match=r"pyerrors.*\n.*metalforge\[analysis\]"):
        to_obs(ar1(0.5, 100, seed=1), "chain")
