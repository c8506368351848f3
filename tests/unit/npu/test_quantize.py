import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from metalforge.substrates.npu.ladder import quantize_digits
from metalforge.substrates.npu.program import ProgramError
from metalforge.substrates.npu.quantize import quantize

BITS = st.sampled_from([1, 2, 4, 8])
PER = st.sampled_from(["row", "tensor"])
CLIP = st.sampled_from(["max", "mse"])
MATRICES = arrays(
    np.float64, array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.floats(-1e300, 1e300)
) | arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.floats(-2, 2))
LIMITS = {1: (0, 1), 2: (-1, 1), 4: (-7, 7), 8: (-127, 127)}
NORMAL = np.random.default_rng(5).normal(size=(64, 178))


@given(weights=MATRICES, bits=BITS, per=PER, clip=CLIP)
def test_integers_lie_within_the_width_and_scales_are_usable(weights, bits, per, clip):
    result = quantize(weights, bits, per=per, clip=clip)
    low, high = LIMITS[bits]
    assert result.values.dtype == np.int8
    assert result.values.shape == weights.shape
    assert result.values.min() >= low
    assert result.values.max() <= high
    assert result.scales.shape == ((len(weights),) if per == "row" else (1,))
    assert np.all(np.isfinite(result.scales) & (result.scales > 0))
    assert result.bits == bits
    assert np.all(np.isfinite(result.dequantize()))


@given(weights=MATRICES, bits=st.sampled_from([2, 4, 8]), per=PER)
def test_to_the_largest_weight_no_error_is_more_than_half_a_step(weights, bits, per):
    result = quantize(weights, bits, per=per)
    # Rounding of the scale and of the products adds a few units in the last place; below 1e-300 rows count as zero.
    slack = 1e-12 * np.abs(weights).max() + 1e-300
    assert np.all(np.abs(weights - result.dequantize()) <= result.scales[:, np.newaxis] / 2 + slack)
    assert np.array_equal(result.error, weights - result.dequantize())


@given(weights=MATRICES, bits=BITS, per=PER)
def test_mse_clipping_is_never_worse_than_max_abs(weights, bits, per):
    plain, clipped = (rms(quantize(weights, bits, per=per, clip=clip).error) for clip in ("max", "mse"))
    assert clipped <= plain * (1 + 1e-9) + 1e-300


def rms(values):
    peak = np.abs(values).max()
    return peak * np.sqrt(np.mean((values / peak) ** 2)) if peak else 0.0


def relative(result):
    return rms(result.error) / rms(result.dequantize() + result.error)


def least_rms(row, high):
    # The integers change only where |w| / scale passes a half: walk through all those scales from the largest down,
    # keeping <w, q> and <q, q>. The best scale for given integers is their quotient, the error |w|^2 - <w, q>^2/<q, q>.
    size, level = np.abs(row), np.arange(1, high + 1)
    order = np.argsort(-(size[:, np.newaxis] / (level - 0.5)).ravel())
    dot = np.cumsum(np.repeat(size, high)[order])
    norm = np.cumsum(np.tile(2 * level - 1, row.size)[order])
    return np.sqrt((size @ size - (dot**2 / norm).max()) / row.size)


@pytest.mark.parametrize("bits", [2, 4])
def test_mse_clipping_is_within_a_hundredth_of_the_exact_optimum(bits):
    result = quantize(NORMAL, bits, clip="mse")
    found = np.sqrt(np.mean(result.error**2, axis=1))
    best = [least_rms(row, LIMITS[bits][1]) for row in NORMAL]
    assert np.all(found <= 1.01 * np.array(best))
    assert np.all(found >= 0.999999 * np.array(best))


def test_mse_clipping_finds_a_coarser_grid_that_fits():
    assert relative(quantize([[1.0, 2.0, 2.0, 2.0]], 4, clip="mse")) < 1e-12


def test_mse_clipping_pays_where_the_tails_are_long():
    heavy = np.random.default_rng(2).standard_t(3, size=(32, 256))
    for weights, bits, gain in ((NORMAL, 2, 0.75), (heavy, 4, 0.9)):
        plain, clipped = (rms(quantize(weights, bits, clip=clip).error) for clip in ("max", "mse"))
        assert clipped < gain * plain


def test_normal_weights_have_the_expected_relative_errors():
    # A grid of 2 m / L steps has rms error m / (L sqrt(12)) for a largest weight m: 2.8 sigma in a row of 178,
    # 4 sigma in 64 of them.
    assert relative(quantize(NORMAL, 4, per="tensor")) == pytest.approx(0.16, rel=0.15)
    assert relative(quantize(NORMAL, 4, per="row")) == pytest.approx(0.115, rel=0.1)
    assert relative(quantize_digits(NORMAL, 2)) == pytest.approx(0.0072, rel=0.1)
    assert relative(quantize_digits(NORMAL, 3)) == pytest.approx(0.00048, rel=0.1)


@given(
    q=arrays(np.int8, (3, 9), elements=st.integers(-7, 7)),
    scales=arrays(np.float64, 3, elements=st.floats(1e-6, 1e6)),
    clip=CLIP,
)
def test_weights_on_the_grid_come_back(q, scales, clip):
    q[:, 0] = 7  # so that the largest weight shows the grid
    result = quantize(q * scales[:, np.newaxis], 4, clip=clip)
    assert np.array_equal(result.values, q)
    assert result.scales == pytest.approx(scales, rel=1e-12)
    assert relative(result) < 1e-12


def test_one_bit_is_zero_or_one_and_negative_weights_are_lost_openly():
    result = quantize([[1.0, 0.6, 0.4, -3.0], [-1.0, -2.0, 0.0, -0.5]], 1)
    assert result.values.tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert result.scales.tolist() == [1.0, 1.0]
    assert np.abs(result.error).max() == 3.0


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("largest", range(1, 8))
def test_integers_of_an_int4_grid_are_kept_whatever_the_largest_of_a_row_is(digits, largest):
    """One scale for a whole matrix leaves rows without a 7; in float32 they are on their grid to rounding."""
    rng = np.random.default_rng(largest)
    integers = rng.integers(-largest, largest + 1, (20, 40))
    integers[:, 0] = largest
    weights = (integers * np.float32(0.0371)).astype(np.float32)
    weights[0] = rng.normal(size=40)  # a row that is on no such grid is rounded as before
    for clip in ("max", "mse"):
        result = quantize_digits(weights, digits, clip=clip)
        kept = result.values[1:].astype(np.int64) * largest // result.values[1:, :1]
        np.testing.assert_array_equal(kept, integers[1:])
        assert np.abs(result.error[1:]).max() <= 1e-6 * weights[1, 0]
        assert np.abs(result.error[0]).max() > 1e-6


def test_a_row_of_zeros_stays_zero_beside_others():
    result = quantize([[0.0, 0.0], [1.0, -2.0], [5e-324, 0.0]], 4)
    assert result.values.tolist() == [[0, 0], [1, -2], [0, 0]]
    assert result.scales[0] == result.scales[2] == 1.0


@pytest.mark.parametrize(
    ("weights", "keywords", "message"),
    [
        ([[0.0, np.nan]], {}, r"`weights` must hold finite numbers\. Got nan at output 0, input 1"),
        ([[0.0], [-np.inf]], {}, r"Got -inf at output 1, input 0"),
        ([1.0, 2.0], {}, r"shape \(outputs, inputs\), not empty\. Got float64 of shape \(2,\)"),
        (np.zeros((0, 3)), {}, r"Got float64 of shape \(0, 3\)"),
        ([[1j]], {}, r"must be real numbers .* Got complex128"),
        ([[1.0]], {"bits": 3}, r"quantised to 1, 2, 4 or 8 bits\. Got 3"),
        ([[1.0]], {"per": "column"}, r"`per` must be row or tensor, `clip` max or mse\. Got `column` and `max`"),
        ([[1.0]], {"clip": "3sigma"}, r"Got `row` and `3sigma`"),
    ],
)
def test_what_cannot_be_quantised_is_refused(weights, keywords, message):
    with pytest.raises(ProgramError, match=message):
        quantize(weights, **({"bits": 4} | keywords))
