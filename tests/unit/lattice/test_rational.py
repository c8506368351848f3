"""Rational approximations against mpmath and against Zolotarev's closed formula."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice.rational import MAX_POLES, Rational, rational_power

# What RHMC needs for one, two and three flavours: heat bath, action.
EXPONENTS = [Fraction(1, 8), Fraction(-1, 4), Fraction(1, 4), Fraction(-1, 2), Fraction(3, 8), Fraction(-3, 4)]


def errors(approximation, points=1500):
    """r(x) / x^p - 1 in 40 digits on a grid that is even in log x."""
    p = mpmath.mpf(approximation.exponent.numerator) / approximation.exponent.denominator
    with mpmath.workdps(40):
        out = []
        grid = np.geomspace(approximation.low, approximation.high, points)
        grid[[0, -1]] = approximation.low, approximation.high
        for x in map(mpmath.mpf, grid.tolist()):
            terms = zip(approximation.residues, approximation.shifts, strict=True)
            r = approximation.constant + sum(mpmath.mpf(a) / (x + mpmath.mpf(b)) for a, b in terms)
            out.append(float(r / x**p - 1))
    return np.array(out)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-10])
@pytest.mark.parametrize("exponent", EXPONENTS, ids=str)
def test_the_error_is_what_is_stated_and_level(exponent, tolerance):
    found = rational_power(exponent, 0.0025, 7.5, tolerance)
    e = errors(found)
    assert found.error < tolerance
    assert np.max(np.abs(e)) <= found.error
    # Minimax: the error alternates between its bounds 2n + 2 times.
    peaks = [part[np.argmax(np.abs(part))] for part in np.split(e, np.flatnonzero(np.diff(np.sign(e))) + 1)]
    assert len(peaks) == 2 * len(found.shifts) + 2
    assert np.min(np.abs(peaks)) > 0.97 * found.error
    # A pole less would not do: the error grows by q^-2 a pole, a little more or less for powers other than 1/2.
    ratio = found.low / found.high
    rate = float(mpmath.exp(2 * mpmath.pi * mpmath.ellipk(ratio) / mpmath.ellipk(1 - ratio)))
    assert 0.9 * rate * found.error > tolerance


@pytest.mark.parametrize("exponent", EXPONENTS, ids=str)
def test_poles_are_negative_and_residues_have_one_sign(exponent):
    """x^p with -1 < p < 0 is a Stieltjes function: every residue is positive; for 0 < p < 1 every one is negative."""
    found = rational_power(exponent, 1e-4, 8.0, 1e-10)
    assert all(b > 0 for b in found.shifts)
    assert sorted(found.shifts) == list(found.shifts)
    assert len(set(found.shifts)) == len(found.shifts)
    assert all(a * -exponent > 0 for a in found.residues)
    assert found.constant > 0


def test_the_square_root_is_zolotarevs():
    """Its error by theta functions, an exact formula: independent of every step of the algorithm.

    The best relative approximation of 1/sqrt(x) on [l^2, 1] gives the best y r(y^2) for the sign function on [l, 1],
    a quotient of elliptic functions whose modulus has the nome q^(2n + 1) (Akhiezer, Theory of Elliptic Functions).
    """
    low, high = 0.01, 7.7
    found = rational_power(Fraction(-1, 2), low, high, 1e-8)
    n = 2 * len(found.shifts) + 1
    with mpmath.workdps(40):
        ratio = mpmath.mpf(low) / high
        nome = mpmath.exp(-mpmath.pi * mpmath.ellipk(ratio) / mpmath.ellipk(1 - ratio)) ** n
        # Their complementary modulus k' bounds the quotient from below: the error is (1 - k') / (1 + k').
        complement = (mpmath.jtheta(4, 0, nome) / mpmath.jtheta(3, 0, nome)) ** 2
        exact = float((1 - complement) / (1 + complement))
    assert np.max(np.abs(errors(found, 6000))) == pytest.approx(exact, rel=1e-3)


def test_inverse_powers_of_an_interval_seen_in_the_mirror():
    """r(x) for x^p on [a, b] and s(x) for x^-p on [1/b, 1/a] describe the same error: s(1/x) = r(x)."""
    forward = rational_power(Fraction(-1, 4), 0.01, 4.0, 1e-8)
    mirrored = rational_power(Fraction(1, 4), 0.25, 100.0, 1e-8)
    x = np.geomspace(0.01, 4.0, 50)
    assert forward.error == pytest.approx(mirrored.error, rel=1e-3)
    assert mirrored(1 / x) == pytest.approx(forward(x), rel=1e-11)


def test_the_range_scales():
    base = rational_power(Fraction(1, 4), 0.01, 1.0, 1e-7)
    wide = rational_power(Fraction(1, 4), 0.16, 16.0, 1e-7)
    assert wide.shifts == pytest.approx([16 * b for b in base.shifts], rel=1e-12)
    assert wide.residues == pytest.approx([32 * a for a in base.residues], rel=1e-12)
    assert wide.constant == pytest.approx(2 * base.constant, rel=1e-12)


def test_a_very_long_range():
    """am = 3e-4, which nobody has run with one-link fermions."""
    found = rational_power(Fraction(-1, 2), 1e-7, 8.0, 1e-11)
    assert np.max(np.abs(errors(found, 400))) <= found.error < 1e-11


def test_results_are_kept():
    arguments = (Fraction(1, 8), 0.01, 5.0, 1e-7)
    assert rational_power(*arguments) is rational_power(*arguments)
    assert isinstance(rational_power(*arguments), Rational)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Fraction(1), 0.1, 1.0, 1e-6), "between -1 and 1 and not 0. Got 1"),
        ((Fraction(0), 0.1, 1.0, 1e-6), "not 0. Got 0"),
        ((Fraction(1, 2), 0.0, 1.0, 1e-6), "0 < low < high"),
        ((Fraction(1, 2), 2.0, 1.0, 1e-6), "0 < low < high"),
        ((Fraction(1, 2), 0.1, float("nan"), 1e-6), "0 < low < high"),
        ((Fraction(1, 2), 0.1, 1.0, 1e-15), "`tolerance` must be in"),
        ((Fraction(1, 2), 0.1, 1.0, float("nan")), "`tolerance` must be in"),
        ((Fraction(1, 2), 1e-300, 1.0, 1e-10), f"takes more than {MAX_POLES} poles\nhint: a larger mass"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(SpecError, match=message):
        rational_power(*arguments)
