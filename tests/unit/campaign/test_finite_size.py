"""The line through the peaks of several volumes."""

import msgspec
import numpy as np
import pytest
from scipy.optimize import curve_fit

from metalforge.campaign.analysis.finite_size import analyse_volumes as analysed
from metalforge.campaign.analysis.transition import Transition
from metalforge.lattice.campaign.theory import FirstOrderLaw

LAW = FirstOrderLaw()


def analyse_volumes(peaks):
    return analysed(peaks, LAW)


BASE = Transition(
    system=(8, 8, 8, 4),
    result=5.69,
    error=0.001,
    height=1.0,
    height_error=0.1,
    b4=2.5,
    b4_error=0.1,
    chains=4,
    samples=4000,
    n_effective=100.0,
    tau_int=20.0,
    coordinates=(5.68, 5.7),
    left_out=(),
    n_bootstrap=100,
)


def peak(ns, beta_c, error=0.001, nt=4):
    return msgspec.structs.replace(BASE, system=(ns, ns, ns, nt), result=beta_c, error=error)


def on_line(ns, h=0.12, beta_c=5.6925):
    return beta_c - h * (4 / ns) ** 3


def test_a_line_is_found_exactly():
    found = analyse_volumes([peak(24, on_line(24)), peak(12, on_line(12)), peak(16, on_line(16), 0.0005)])
    assert found.fit.result == pytest.approx(5.6925, abs=1e-9)
    assert found.fit.h == pytest.approx(0.12, abs=1e-7)
    assert found.fit.chi2 == pytest.approx(0, abs=1e-9)
    assert found.fit.dof == 1
    assert [p.system[0] for p in found.peaks] == [12, 16, 24]
    assert found.cautions == ()


def test_the_fit_is_scipys():
    """With a next term q x^2 of unknown sign and 16 h in the covariance; h as far as it is known."""
    rng = np.random.default_rng(1)
    sizes, errors = [12, 16, 20, 24], np.array([0.001, 0.002, 0.0015, 0.0008])
    values = np.array([on_line(n) for n in sizes]) + errors * rng.normal(size=4)
    fit = analyse_volumes([peak(n, v, e) for n, v, e in zip(sizes, values, errors, strict=True)]).fit
    x = (4 / np.array(sizes)) ** 3

    def line(x, b, h):
        return b - h * x

    _, plain = curve_fit(line, x, values, sigma=errors, absolute_sigma=True)
    scatter = np.diag(errors**2) + 16**2 * (fit.h**2 + plain[1, 1]) * np.outer(x**2, x**2)
    best, covariance = curve_fit(line, x, values, sigma=scatter, absolute_sigma=True)
    assert (fit.result, fit.h) == pytest.approx(tuple(best), rel=1e-4)
    assert (fit.error, fit.h_error) == pytest.approx(tuple(np.sqrt(np.diag(covariance))), rel=1e-4)


def test_two_volumes_determine_the_line_and_are_said_to():
    found = analyse_volumes([peak(12, on_line(12), 0.002), peak(16, on_line(16))])
    assert found.fit.result == pytest.approx(5.6925, abs=1e-9)
    assert found.fit.dof == 0
    assert any("nothing confirms" in caution for caution in found.cautions)


def test_volumes_that_do_not_scale_take_no_part():
    three = analyse_volumes([peak(8, 5.6916), peak(12, on_line(12)), peak(16, on_line(16))])
    assert three.fit.systems == ((12, 12, 12, 4), (16, 16, 16, 4))
    assert any("8x8x8x4 left out" in caution for caution in three.cautions)
    four = analyse_volumes([peak(8, 5.6916), *(peak(n, on_line(n)) for n in (12, 16, 24))])
    assert four.fit.result == pytest.approx(5.6925, abs=1e-9)
    few = analyse_volumes([peak(8, 5.6916), peak(12, on_line(12))])
    assert few.fit is None
    assert any("no extrapolation" in caution for caution in few.cautions)
    assert [LAW.holds((n, n, n, 4)) for n in (6, 8, 10, 12)] == [False, False, True, True]
    assert not LAW.holds((8, 16, 16, 4))


def test_two_shapes_of_one_size_are_no_line():
    shapes = [(12, 12, 24, 4), (12, 24, 12, 4)]
    same = [msgspec.structs.replace(BASE, system=dims) for dims in shapes]
    assert analyse_volumes(same).fit is None
    assert analyse_volumes([*same, peak(12, on_line(12))]).fit is not None


def test_peaks_that_are_not_on_one_line_are_said_and_the_odd_one_is_named():
    bent = analyse_volumes([peak(12, on_line(12)), peak(16, on_line(16) + 0.006), peak(24, on_line(24))])
    assert any("not on one line" in caution for caution in bent.cautions)
    assert not any("contradicts" in caution for caution in bent.cautions)
    good = [peak(n, on_line(n)) for n in (12, 20, 24)]
    odd = analyse_volumes([*good, peak(16, on_line(16) + 0.006)])
    assert any("16x16x16x4 contradicts" in caution for caution in odd.cautions)
    assert not any("contradicts" in c for c in analyse_volumes([*good, peak(16, on_line(16) + 0.002)]).cautions)


def test_every_volume_adds_its_part_to_the_variance():
    sizes, errors = [12, 16, 24], [0.001, 0.0015, 0.002]
    fit = analyse_volumes([peak(n, on_line(n), e) for n, e in zip(sizes, errors, strict=True)]).fit
    assert sum(fit.variances) + fit.bend**2 == pytest.approx(fit.error**2)
    # By moving one peak at a time: near a line, beta_c is linear in them.
    for i, n in enumerate(sizes):
        moved = [peak(m, on_line(m) + 1e-6 * (m == n), e) for m, e in zip(sizes, errors, strict=True)]
        slope = (analyse_volumes(moved).fit.result - fit.result) / 1e-6
        assert fit.variances[i] == pytest.approx((slope * errors[i]) ** 2, rel=1e-4)


@pytest.mark.parametrize(
    ("nt", "sizes", "h", "error", "bend"),
    [
        (4, (12, 16, 24), 0.12, 1e-4, 8),
        (4, (12, 16, 24), 0.12, 1e-4, 0),
        (2, (6, 8, 12), 0.33, 2e-4, 13),
        (6, (18, 24, 32), 0.1, 3e-4, -8),
    ],
)
def test_errors_hold_where_the_peaks_are_on_a_curve(nt, sizes, h, error, bend):
    """A plain line is within its error once in thirty times for the first of these curves."""
    rng = np.random.default_rng([nt, bend + 8])
    pulls = []
    for _ in range(200):
        x = (nt / np.array(sizes)) ** 3
        values = 5.7 - h * x + bend * h * x**2 + error * rng.normal(size=len(sizes))
        fit = analyse_volumes([peak(n, v, error, nt) for n, v in zip(sizes, values, strict=True)]).fit
        pulls.append((fit.result - 5.7) / fit.error)
    assert 0.58 < np.mean(np.abs(pulls) < 1) < 0.88
    assert np.mean(np.abs(pulls) < 2) > 0.9


def test_three_volumes_of_n_t_2_give_the_published_coupling():
    """2 million updates each: a straight line has chi2 = 27 for one degree of freedom, and ends 0.0019 lower."""
    found = analyse_volumes(
        [peak(6, 5.08772, 0.00017, 2), peak(8, 5.09020, 0.00012, 2), peak(12, 5.09298, 0.00020, 2)]
    ).fit
    assert found.consistent
    assert abs(found.result - 5.0948) < 2 * np.hypot(found.error, 0.0006)
    assert found.error < 0.0005


def test_where_the_bend_is_most_of_the_error_a_larger_volume_is_asked_for():
    few = analyse_volumes([peak(12, on_line(12), 0.0002), peak(16, on_line(16), 0.0002)])
    assert few.fit.bend > 0.0005
    assert any("larger system" in caution for caution in few.cautions)
    more = analyse_volumes([peak(n, on_line(n), 0.0002) for n in (12, 16, 24)])
    assert not any("larger system" in caution for caution in more.cautions)
    assert more.fit.error < 0.4 * few.fit.error
