import mpmath
import numpy as np
import pytest

from metalforge import native

ULP = 2.0**-52


def sample():
    u = native.Stream(3).uniform(step=0, sites=1500, draws=2).ravel()
    near = np.concatenate([2.0**-53 * np.arange(1, 40), 1 - 2.0**-53 * np.arange(1, 40), np.arange(1, 64) / 64])
    return np.concatenate([u, near, u * 2.0**-40])


@pytest.mark.parametrize(
    ("name", "exact", "bound"),
    [
        ("log", lambda x: mpmath.log(x), 2 * ULP),
        ("sin_2pi", lambda x: mpmath.sin(2 * mpmath.pi * x), 2 * ULP),
        ("cos_2pi", lambda x: mpmath.cos(2 * mpmath.pi * x), 2 * ULP),
        ("tanh", mpmath.tanh, 2 * ULP),
    ],
)
def test_within_two_units_of_the_last_place(kernels, name, exact, bound):
    x = sample()
    out = np.empty_like(x)
    kernels.elementary(name, x, out)
    with mpmath.workdps(40):
        for argument, value in zip(x, out, strict=True):
            true = exact(mpmath.mpf(float(argument)))
            scale = abs(true) if name in ("log", "tanh") else 1
            assert abs(mpmath.mpf(float(value)) - true) <= bound * max(scale, mpmath.mpf(2) ** -53)


def test_same_bits_at_every_level():
    x = sample()
    for name in ("log", "sin_2pi", "cos_2pi"):
        results = []
        for level in native.available_levels():
            out = np.empty_like(x)
            native.kernels(level).elementary(name, x, out)
            results.append(out)
        assert all(np.array_equal(r, results[0]) for r in results)


def test_tanh_over_its_whole_range(kernels):
    x = np.concatenate([np.linspace(-25, 25, 4001), [0.0, -0.0, 1e-300, -1e-300, 1e300, -1e300, 19.99, 20.0]])
    out = np.empty_like(x)
    kernels.elementary("tanh", x, out)
    assert np.allclose(out, np.tanh(x), rtol=4 * ULP, atol=0)
    assert np.array_equal(np.signbit(out), np.signbit(x))
