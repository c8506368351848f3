"""Affine maps and heads in native code: definitions in NumPy, the same bits alone and in a batch, errors by name."""

import numpy as np
import pytest
from scipy.special import expit, softmax

from metalforge import native


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", [(1, 1, 0), (12, 128, 50), (37, 5, 3), (128, 50, 0)])
def test_an_affine_map_is_its_definition_alone_and_in_a_batch(level, real, sizes):
    outputs, first, second = sizes
    rng = np.random.default_rng(1)
    w, b = rng.normal(size=(outputs, first + second)).astype(real), rng.normal(size=outputs).astype(real)
    x, z = rng.normal(size=(7, first)).astype(real), rng.normal(size=(7, second)).astype(real)
    module = native.kernels(level)
    affine = (module.Affine_f32 if real is np.float32 else module.Affine_f64)(w, b, first)
    y = np.empty((7, outputs), real)
    affine.outputs(x, z if second else None, y)
    assert np.allclose(y, np.hstack([x, z]) @ w.T + b, rtol=0, atol=2e-4 if real is np.float32 else 1e-12)
    alone = np.empty(outputs, real)
    for i in range(7):
        affine.outputs(x[i], z[i] if second else None, alone)
        assert np.array_equal(alone, y[i])


def decoder(
    module, kinds=(0, 1, 2, 2, 3, 4, 2, 2, 2), starts=(0, 1, 2, 2, 4, 5, 6, 6, 6), widths=(1, 1, 2, 2, 1, 1, 3, 3, 3)
):
    n = len(kinds)
    parts = (np.array(values, np.int32) for values in (kinds, starts, widths))
    return module.HeadDecoder(*parts, np.full(n, 2.0), np.full(n, 0.25))


def test_heads_are_decoded_by_their_activations(level):
    y = np.random.default_rng(2).normal(size=(5, 9)) * 4
    y[4] = [1e3, -1e3, 700, -700, -1e3, 1e3, 0, -900, 900]
    y[3, 1], y[3, 4], y[3, 0] = np.nan, np.nan, np.nan
    out = np.empty_like(y)
    decoder(native.kernels(level)).decode_f64(y, out)
    wanted = y.copy()
    wanted[:, 1], wanted[:, 4], wanted[:, 5] = expit(y[:, 1]), np.maximum(y[:, 4], 0), np.tanh(y[:, 5])
    wanted[:, 2:4], wanted[:, 6:] = softmax(y[:, 2:4], axis=1), softmax(y[:, 6:], axis=1)
    assert np.allclose(out, 2 * wanted + 0.25, rtol=1e-13, atol=1e-13, equal_nan=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.Affine_f64(np.ones((2, 3)), np.ones(3), 3), "`bias`"),
        (lambda m: m.Affine_f64(np.ones((2, 3)), np.ones(2), 4), "`first`"),
        (lambda m: m.Affine_f64(np.full((2, 3), np.nan), np.ones(2), 3), "`w` must hold finite"),
        (lambda m: m.Affine_f64(np.ones((2, 3)), np.ones(2), 2).outputs(np.ones(2), None, np.ones(2)), "`z`"),
        (lambda m: m.Affine_f64(np.ones((2, 3)), np.ones(2), 3).outputs(np.ones(2), None, np.ones(2)), "`x`"),
        (
            lambda m: m.Affine_f64(np.ones((2, 3)), np.ones(2), 3).values(np.ones(3), None, decoder(m), np.ones(2)),
            "`decoder`",
        ),
        (lambda m: decoder(m, kinds=(5,), starts=(0,), widths=(1,)), "`kinds`"),
        (lambda m: decoder(m, kinds=(2, 2), starts=(0, 0), widths=(2, 3)), "`starts`"),
        (lambda m: decoder(m).decode_f64(np.ones(8), np.ones(8)), "`y`"),
        (lambda m: m.leaky_step_f64(np.ones(3), np.ones(4), np.ones(3), 0.5, 0.5, "tanh"), "`pre`"),
        (lambda m: m.leaky_step_f64(np.ones(3), np.ones(3), np.ones(3), 0.5, 0.5, "swish"), "`activation`"),
    ],
)
def test_bad_arguments_are_named(kernels, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(kernels)
