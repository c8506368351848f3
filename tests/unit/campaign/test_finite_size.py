"""The line through the peaks of several volumes."""

import msgspec
import numpy as np
import pytest
from scipy.optimize import curve_fit

from metalforge.campaign.physics.finite_size import analyse_volumes, scales
from metalforge.campaign.physics.transition import Transition
from metalforge.core.errors import SpecError

BASE = Transition(
    dims=(8, 8, 8, 4),
    beta_c=5.69,
    error=0.001,
    height=1.0,
    height_error=0.1,
    b4=2.5,
    b4_error=0.1,
    chains=4,
    samples=4000,
    n_effective=100.0,
    tau_int=20.0,
    betas=(5.68, 5.7),
    left_out=(),
    n_bootstrap=100,
)


def peak(ns, beta_c, error=0.001, nt=4):
    return msgspec.structs.replace(BASE, dims=(ns, ns, ns, nt), beta_c=beta_c, error=error)


def on_line(ns, h=0.12, beta_c=5.6925):
    return beta_c - h * (4 / ns) ** 3


def test_a_line_is_found_exactly():
    found = analyse_volumes([peak(24, on_line(24)), peak(12, on_line(12)), peak(16, on_line(16), 0.0005)])
    assert found.fit.beta_c == pytest.approx(5.6925, abs=1e-9)
    assert found.fit.h == pytest.approx(0.12, abs=1e-7)
    assert found.fit.chi2 == pytest.approx(0, abs=1e-9)
    assert found.fit.dof == 1
    assert [p.dims[0] for p in found.peaks] == [12, 16, 24]
    assert found.cautions == ()


def test_the_fit_is_scipys():
    rng = np.random.default_rng(1)
    sizes, errors = [12, 16, 20, 24], np.array([0.001, 0.002, 0.0015, 0.0008])
    values = np.array([on_line(n) for n in sizes]) + errors * rng.normal(size=4)
    fit = analyse_volumes([peak(n, v, e) for n, v, e in zip(sizes, values, errors, strict=True)]).fit
    x = (4 / np.array(sizes)) ** 3
    best, covariance = curve_fit(lambda x, b, h: b - h * x, x, values, sigma=errors, absolute_sigma=True)
    assert (fit.beta_c, fit.h) == pytest.approx(tuple(best), rel=1e-4)
    assert (fit.error, fit.h_error) == pytest.approx(tuple(np.sqrt(np.diag(covariance))), rel=1e-4)


def test_two_volumes_determine_the_line_and_are_said_to():
    found = analyse_volumes([peak(12, on_line(12), 0.002), peak(16, on_line(16))])
    assert found.fit.beta_c == pytest.approx(5.6925, abs=1e-9)
    assert found.fit.dof == 0
    assert any("nothing confirms" in caution for caution in found.cautions)


def test_volumes_that_do_not_scale_take_no_part():
    three = analyse_volumes([peak(8, 5.6916), peak(12, on_line(12)), peak(16, on_line(16))])
    assert three.fit.volumes == ((12, 12, 12, 4), (16, 16, 16, 4))
    assert any("8x8x8x4 left out" in caution for caution in three.cautions)
    four = analyse_volumes([peak(8, 5.6916), *(peak(n, on_line(n)) for n in (12, 16, 24))])
    assert four.fit.beta_c == pytest.approx(5.6925, abs=1e-9)
    few = analyse_volumes([peak(8, 5.6916), peak(12, on_line(12))])
    assert few.fit is None
    assert any("no extrapolation" in caution for caution in few.cautions)
    assert [scales((n, n, n, 4)) for n in (6, 8, 10, 12)] == [False, False, True, True]
    assert not scales((8, 16, 16, 4))


def test_two_shapes_of_one_size_are_no_line():
    shapes = [(12, 12, 24, 4), (12, 24, 12, 4)]
    same = [msgspec.structs.replace(BASE, dims=dims) for dims in shapes]
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
    assert sum(fit.variances) == pytest.approx(fit.error**2)
    # By moving one peak at a time: beta_c is linear in them.
    for i, n in enumerate(sizes):
        moved = [peak(m, on_line(m) + 1e-4 * (m == n), e) for m, e in zip(sizes, errors, strict=True)]
        slope = (analyse_volumes(moved).fit.beta_c - fit.beta_c) / 1e-4
        assert fit.variances[i] == pytest.approx((slope * errors[i]) ** 2, rel=1e-4)


def test_volumes_that_do_not_belong_together_are_refused():
    with pytest.raises(SpecError, match="one N_t"):
        analyse_volumes([peak(8, 5.69), peak(12, 5.89, nt=6)])
    with pytest.raises(SpecError, match="each appear once"):
        analyse_volumes([peak(8, 5.69), peak(8, 5.69)])
    with pytest.raises(SpecError, match="at least one"):
        analyse_volumes([])
    with pytest.raises(SpecError, match="error > 0"):
        analyse_volumes([peak(12, 5.69, 0.0), peak(16, 5.69), peak(24, 5.69)])
