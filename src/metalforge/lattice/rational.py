"""Minimax rational approximations of x^p, in partial fractions, for roots of operators.

    r(x) = c + sum_k a_k / (x + b_k) = x^p (1 + e(x)),   |e(x)| <= error on [low, high]

For 0 < |p| < 1 the best approximation of degree (n, n) has n real poles, all negative (b_k > 0), and its error takes
its largest value 2n + 2 times with alternating sign; that is what Remez' algorithm looks for. Coefficients of such
polynomials are ill-conditioned, so the algorithm runs in the standard library's decimal arithmetic with 60 digits and
more, as RHMC codes do with GMP (Clark and Kennedy, Nucl. Phys. B Proc. Suppl. 129 (2004) 850). Partial fractions are
well-conditioned and are rounded to doubles at the end.
"""

import functools
import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from metalforge.core import MetalforgeError, SpecError

MAX_POLES = 60
"""Enough for 1e-13 on a range of 1e8; more would say that the range is a mistake."""

LEAST_TOLERANCE = 1e-12
"""Partial fractions in double precision cancel by a few powers of ten for positive powers, so 1e-14 may not be had."""

_SETTLED = Decimal("1.001")
"""Remez' algorithm ends when the largest error is within this factor of the levelled one."""


class Rational(NamedTuple):
    """r(x) = constant + sum residues / (x + shifts), equal to x^exponent up to `error` (relative) on [low, high]."""

    exponent: Fraction
    low: float
    high: float
    constant: float
    residues: tuple[float, ...]
    shifts: tuple[float, ...]
    error: float

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return r(x)."""
        x = np.asarray(x, np.float64)
        terms = np.array(self.residues) / (x[..., None] + np.array(self.shifts))
        return cast("NDArray[np.float64]", self.constant + terms.sum(axis=-1))


@functools.lru_cache(maxsize=128)
def rational_power(exponent: Fraction, low: float, high: float, tolerance: float) -> Rational:
    """Return the approximation of x^exponent on [low, high] with the fewest poles whose error is below `tolerance`.

    Results are kept for the next call with the same arguments.
    """
    exponent = Fraction(exponent)
    if not 0 < abs(exponent) < 1:
        raise SpecError(f"`exponent` must be between -1 and 1 and not 0. Got {exponent}")
    if not 0 < low < high < math.inf:
        raise SpecError(f"a range must have 0 < low < high. Got [{low}, {high}]")
    if not LEAST_TOLERANCE <= tolerance < 1:
        raise SpecError(f"`tolerance` must be in [{LEAST_TOLERANCE}, 1). Got {tolerance}")
    # The estimate is right within a tenth, so no number of poles that would do is passed over.
    degrees = [n for n in range(1, MAX_POLES + 1) if 0.9 * _expected_error(exponent, n, low / high) < tolerance]
    for n in degrees:
        found = _approximate(exponent, low, high, n)
        if found.error < tolerance:
            return found
    raise SpecError(
        f"x^({exponent}) on [{low:.3g}, {high:.3g}] to {tolerance:.1e} takes more than {MAX_POLES} poles\n"
        "hint: a larger mass makes the range shorter"
    )


def _expected_error(exponent: Fraction, n: int, ratio: float) -> float:
    """The error with n poles on a range of low / high = `ratio`: about 4 |sin(pi p)| q^(2n + 1).

    q = exp(-pi K' / K) is the nome of modulus k^2 = 1 - low / high. For the square root this is Zolotarev's error up to
    terms of order q^(6n); other powers approach it as n grows (seen in the results, which are what counts).
    """
    from scipy.special import ellipk, ellipkm1

    nome = math.exp(-math.pi * float(ellipk(ratio)) / float(ellipkm1(ratio)))
    return 4 * abs(math.sin(math.pi * exponent)) * nome ** (2 * n + 1)


def _approximate(exponent: Fraction, low: float, high: float, n: int) -> Rational:
    """The best approximation with n poles, rounded to doubles; its error includes that of rounding."""
    # x^p on [low, high] is high^p y^p on [low / high, 1].
    with localcontext() as context:
        context.prec = 60 + 5 * n
        power = Decimal(exponent.numerator) / Decimal(exponent.denominator)
        numerator, denominator, error = _remez(power, Decimal(low) / Decimal(high), n)
        poles = _real_roots(denominator)
        scale = Decimal(high) ** power
        slope = _derivative(denominator)
        residues = [float(scale * Decimal(high) * _value(numerator, p) / _value(slope, p)) for p in poles]
        shifts = [float(-p * Decimal(high)) for p in poles]
        constant = float(scale * numerator[-1] / denominator[-1])
        largest = float(_SETTLED * error)
    # Rounding matters most at the lower end, where the terms cancel if the power is positive.
    terms = abs(constant) + sum(abs(a) / (low + b) for a, b in zip(residues, shifts, strict=True))
    rounding = 4 * float(np.finfo(np.float64).eps) * terms / low ** float(exponent)
    return Rational(exponent, low, high, constant, tuple(residues), tuple(shifts), largest + rounding)


def _places(ratio: float, fractions: NDArray[np.float64]) -> list[Decimal]:
    """dn^2 at fractions of a quarter period, where it rises from low / high = `ratio` to 1.

    For the square root Zolotarev's error is zero and extreme at equidistant fractions; other powers are close to that.
    """
    from scipy.special import ellipj, ellipkm1

    dn = ellipj((1 - fractions) * float(ellipkm1(ratio)), 1 - ratio)[2]
    return [Decimal(float(x)) for x in dn**2]


def _remez(power: Decimal, ratio: Decimal, n: int) -> tuple[list[Decimal], list[Decimal], Decimal]:
    """Coefficients of numerator and denominator (monic), lowest first, and the error, on [ratio, 1]."""
    equidistant = np.arange(2 * n + 2) / (2 * n + 1)
    zeros = _places(float(ratio), equidistant[:-1] + 0.5 / (2 * n + 1))
    points = [ratio, *_places(float(ratio), equidistant[1:-1]), Decimal(1)]
    # To begin with, interpolate at the zeros: P - f Q = 0 there.
    rows = [[*p, *(-f * v for v in p[:-1]), f * p[-1]] for p, f in ((_powers(x, n), x**power) for x in zeros)]
    denominator = [*_solve(rows)[n + 1 :], Decimal(1)]
    for _ in range(40):
        numerator, denominator, level = _levelled(power, points, denominator)
        points, largest = _extrema(power, numerator, denominator, points)
        if largest < abs(level) * _SETTLED:
            return numerator, denominator, largest
    raise MetalforgeError(f"Remez' algorithm did not settle for x^{power:.4} on [{ratio:.3g}, 1] with {n} poles")


def _levelled(
    power: Decimal, points: Sequence[Decimal], denominator: list[Decimal]
) -> tuple[list[Decimal], list[Decimal], Decimal]:
    """P, Q, E with P(x_i) = f(x_i) (1 + (-1)^i E) Q(x_i), by Newton's method in Q and E, from E = 0 and `denominator`.

    Linearised around (Q, E):  P - f (1 + s E) Q' - f s Q E' = -f s Q E  for the new P, Q', E'.
    """
    n = len(denominator) - 1
    level = Decimal(0)
    known = [(_powers(x, n), x**power, (-1) ** i) for i, x in enumerate(points)]
    for _ in range(30):
        rows = []
        for p, f, sign in known:
            q = f * sign * sum((c * v for c, v in zip(denominator, p, strict=True)), Decimal(0))
            factor = f * (1 + sign * level)
            rows.append([*p, *(-factor * v for v in p[:-1]), -q, factor * p[-1] - q * level])
        found = _solve(rows)
        change = abs(found[-1] - level)
        denominator, level = [*found[n + 1 : -1], Decimal(1)], found[-1]
        if change <= Decimal("1e-8") * abs(level):
            return found[: n + 1], denominator, level
    raise MetalforgeError("the levelled error of Remez' algorithm did not converge")


def _extrema(
    power: Decimal, numerator: list[Decimal], denominator: list[Decimal], points: Sequence[Decimal]
) -> tuple[list[Decimal], Decimal]:
    """The extremum of the error near each point, and the largest error; the ends of the range always are extrema."""

    def error(log_x: Decimal) -> Decimal:
        x = log_x.exp()
        return _value(numerator, x) / ((power * log_x).exp() * _value(denominator, x)) - 1

    logs = [x.ln() for x in points]
    found = [points[0]]
    largest = max(abs(error(logs[0])), abs(error(logs[-1])))
    for before, here, after in zip(logs, logs[1:], logs[2:], strict=False):
        h = min(here - before, after - here) / 8
        left, middle, right = (abs(error(here + k * h)) for k in (-1, 0, 1))
        # Walk uphill, at most halfway to the neighbours, then take the vertex of the parabola.
        for _ in range(4):
            if left > middle:
                here, left, middle, right = here - h, abs(error(here - 2 * h)), left, middle
            elif right > middle:
                here, left, middle, right = here + h, middle, right, abs(error(here + 2 * h))
            else:
                break
        curvature = 2 * middle - left - right
        if curvature > 0 and abs(right - left) <= 2 * curvature:
            here += h * (right - left) / (2 * curvature)
        largest = max(largest, abs(error(here)))
        found.append(here.exp())
    return [*found, points[-1]], largest


def _solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """The solution of a square system, its right-hand side in the last column; Gauss with partial pivoting."""
    n = len(rows)
    for k in range(n):
        best = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[best] = rows[best], rows[k]
        pivot = rows[k]
        for row in rows[k + 1 :]:
            factor = row[k] / pivot[k]
            if factor:
                row[k:] = [a - factor * b for a, b in zip(row[k:], pivot[k:], strict=True)]
    out: list[Decimal] = []
    for k in range(n - 1, -1, -1):
        known = sum((a * x for a, x in zip(rows[k][k + 1 : n], reversed(out), strict=True)), Decimal(0))
        out.append((rows[k][n] - known) / rows[k][k])
    return out[::-1]


def _value(coefficients: Sequence[Decimal], x: Decimal) -> Decimal:
    """The polynomial at x, lowest coefficient first."""
    return functools.reduce(lambda value, c: value * x + c, reversed(coefficients), Decimal(0))


def _powers(x: Decimal, n: int) -> list[Decimal]:
    """1, x, ... x^n."""
    return [x**k for k in range(n + 1)]


def _derivative(coefficients: Sequence[Decimal]) -> list[Decimal]:
    return [k * c for k, c in enumerate(coefficients)][1:]


def _real_roots(coefficients: list[Decimal]) -> list[Decimal]:
    """The roots of a polynomial that has only negative ones, from the largest: Newton from the right, then divide.

    To the right of its roots such a polynomial is convex, so Newton's steps never jump over one.
    """
    roots: list[Decimal] = []
    x = Decimal(0)
    while len(coefficients) > 1:
        slope = _derivative(coefficients)
        for _ in range(1000):
            step = _value(coefficients, x) / _value(slope, x)
            x -= step
            if abs(step) <= abs(x) * Decimal("1e-40"):
                break
        if not x < 0:
            raise MetalforgeError("a rational approximation must have its poles at negative x; Remez went astray")
        roots.append(x)
        quotient: list[Decimal] = []
        for c in reversed(coefficients[1:]):
            quotient.append(c + (quotient[-1] * x if quotient else 0))
        coefficients = quotient[::-1]
    return roots
