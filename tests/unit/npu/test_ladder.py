"""Every encoding gives the wide-integer product, always."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from metalforge.substrates.npu.ladder import (
    Ladder,
    build_ladder,
    digit_limit,
    encode_two_rail,
    encode_unsigned,
    encode_zero_point,
    group_ranges,
    input_levels,
    join_digits,
    join_nibbles,
    ladder_of,
    nibble_rows,
    quantize_digits,
    split_digits,
)
from metalforge.substrates.npu.products import CompiledLayer
from metalforge.substrates.npu.program import Activation, Encoding, FullyConnected, Program, ProgramError
from metalforge.substrates.npu.quantize import quantize_to
from reference import npu as twin

LIMITS = {1: 7, 2: 112, 3: 1687}
ENCODINGS = [
    Encoding(activation_bits=bits, digits=digits, signed=signed)
    for bits, digits, signed in product((4, 8, 12, 16), (1, 2, 3), ("unsigned", "zero_point", "two_rail"))
]
FILLS = st.sampled_from(["random", "lowest", "highest", "either end", "zero"])


def integers(rng, fill, low, high, shape):
    if fill == "either end":
        return rng.choice([low, high], shape)
    ends = {"random": (low, high), "lowest": (low, low), "highest": (high, high), "zero": (0, 0)}[fill]
    return rng.integers(*ends, shape, endpoint=True)


def chip(ladder, rows):
    return CompiledLayer(FullyConnected(name="a", weights=ladder.chip_weights())).run(rows)


# --- digits and nibbles -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_every_weight_has_its_only_digits(digits):
    table = twin.digit_table(digits)
    limit = LIMITS[digits]
    assert sorted(table) == list(range(-limit, limit + 1))
    values = np.arange(-limit, limit + 1, dtype=np.int16)
    split = split_digits(values, digits)
    assert split.dtype == np.int8
    assert split.shape == (digits, values.size)
    assert split.T.tolist() == [list(table[v]) for v in values.tolist()]
    assert np.array_equal(join_digits(split.ravel(), digits), values)
    assert digit_limit(digits) == limit


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("sign", [-1, 1])
def test_weights_beyond_the_digits_are_refused(digits, sign):
    beyond = sign * (LIMITS[digits] + 1)
    with pytest.raises(ProgramError, match=rf"{digits} digits .*Got {beyond}"):
        split_digits(np.array([[0, beyond]]), digits)


@given(
    bits=st.sampled_from([4, 8, 12, 16]),
    raw=arrays(np.uint16, array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.integers(0, 65535)),
)
def test_nibbles_are_hexadecimal_digits_and_come_back(bits, raw):
    q = raw >> (16 - bits)
    rows = nibble_rows(q, bits)
    assert rows.dtype == np.uint8
    expected = [[twin.nibbles(v, bits)[k] for v in sample] for sample in q for k in range(bits // 4)]
    assert rows.tolist() == expected
    assert np.array_equal(join_nibbles(rows, bits), q)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nibble_rows(np.array([[256]]), 8), r"activations of 8 bits lie in 0 \.\. 255\. Got 256"),
        (lambda: nibble_rows(np.array([[-1]]), 8), r"Got -1"),
        (lambda: nibble_rows(np.array([1]), 8), r"shape \(batch, lines\)\. Got \(1,\)"),
        (lambda: nibble_rows(np.array([[1]]), 5), r"activations have 4, 8, 12 or 16 bits\. Got 5"),
        (lambda: nibble_rows(np.array([[1.0]]), 8), r"activations must be integers\. Got float64"),
        (lambda: join_nibbles(np.zeros((3, 2), int), 8), r"2 rows per sample and shape \(rows, units\)\. Got \(3, 2\)"),
        (lambda: join_digits(np.zeros((3, 5), int), 2), r"last axis of \(3, 5\) does not hold 2 equal digit blocks"),
        (lambda: join_digits(np.zeros((3, 4)), 2), r"potentials must be integers\. Got float64"),
        (lambda: split_digits(np.zeros(2, int), 4), r"weights have 1, 2 or 3 digits\. Got 4"),
    ],
)
def test_what_does_not_fit_the_number_system_is_refused(call, message):
    with pytest.raises(ProgramError, match=message):
        call()


# --- signs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [4, 8, 12, 16])
def test_encodings_at_zero_and_at_the_ends(bits):
    top, zero = 2**bits - 1, 2 ** (bits - 1)
    x = [-9.0, -2.0, -0.0, 0.0, 1.0, 2.0, 9.0]
    half = (zero - 1) / 2
    assert encode_unsigned(x, 2.0, bits).tolist() == [0, 0, 0, 0, round(top / 2), top, top]
    assert encode_zero_point(x, 2.0, bits).tolist() == [1, 1, zero, zero, round(half) + zero, top, top]
    rails = encode_two_rail(x, 2.0, bits).reshape(2, -1)
    assert rails[0].tolist() == [0, 0, 0, 0, round(top / 2), top, top]
    assert rails[1].tolist() == [top, top, 0, 0, 0, 0, 0]


@given(x=st.floats(-3, 3), bits=st.sampled_from([4, 8, 12, 16]))
def test_signed_encodings_are_odd_and_never_use_both_rails(x, bits):
    zero = 2 ** (bits - 1)
    assert encode_zero_point(x, 1.0, bits) - zero == zero - encode_zero_point(-x, 1.0, bits)
    positive, negative = encode_two_rail([x], 1.0, bits)
    assert positive * negative == 0
    assert encode_two_rail([-x], 1.0, bits).tolist() == [negative, positive]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("signed", ["unsigned", "zero_point", "two_rail"])
def test_inputs_that_are_not_finite_are_refused(bad, signed):
    ladder = build_ladder(np.eye(2), Encoding(signed=signed))
    with pytest.raises(ProgramError, match=f"finite.*Got {bad}"):
        ladder.encode([[0.0, bad]])


def test_values_far_beyond_their_range_are_clamped():
    assert encode_zero_point([1e308, -1e308, 0.0], 1e-300, 8).tolist() == [255, 1, 128]


@pytest.mark.parametrize("bad", [0.0, -1.0, 1e-301, np.nan, np.inf, [1.0, 0.0]])
def test_ranges_are_positive(bad):
    with pytest.raises(ProgramError, match=r"finite.*1e-300"):
        build_ladder(np.eye(2), Encoding(), ranges=bad)


# --- the guarantee ----------------------------------------------------------------------------------------------------


@given(
    encoding=st.sampled_from(ENCODINGS), seed=st.integers(0, 2**32 - 1),
    outputs=st.integers(1, 5), inputs=st.integers(1, 60), batch=st.integers(1, 3),
    weights_fill=FILLS, inputs_fill=FILLS,
)  # fmt: skip
@settings(max_examples=250)
def test_the_joined_integer_is_the_wide_product(encoding, seed, outputs, inputs, batch, weights_fill, inputs_fill):
    rng = np.random.default_rng(seed)
    limit, levels = LIMITS[encoding.digits], input_levels(encoding)
    w = integers(rng, weights_fill, -limit, limit, (outputs, inputs))
    q = integers(rng, inputs_fill, 0 if encoding.signed == "unsigned" else -levels, levels, (batch, inputs))
    ranges = rng.uniform(0.1, 10.0, inputs)
    ladder = Ladder(encoding=encoding, integers=w, scales=rng.uniform(0.1, 1.0, outputs), ranges=ranges)

    rows = ladder.encode(q * ranges / levels)
    potentials = chip(ladder, rows)

    wide = twin.product_wide(q, w.T)
    assert rows.shape == (batch * encoding.activation_bits // 4, inputs * (2 if encoding.signed == "two_rail" else 1))
    assert np.array_equal(potentials, twin.product_wide(rows, ladder.chip_weights()))
    assert np.array_equal(ladder.join(potentials), wide)
    assert np.array_equal(ladder.decode(potentials), wide.astype(float) * ladder.scales)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: f"A{e.activation_bits}-W{e.digits}-{e.signed}")
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_widest_layer_that_cannot_saturate_is_exact_at_its_extremes(encoding, sign):
    lines = 4992  # of both rails together; 4993 is the edge
    inputs = lines // 2 if encoding.signed == "two_rail" else lines
    limit, levels = LIMITS[encoding.digits], input_levels(encoding)
    ladder = Ladder(
        encoding=encoding, integers=np.full((1, inputs), sign * limit), scales=np.ones(1), ranges=np.ones(inputs)
    )
    potentials = chip(ladder, ladder.encode(np.ones((1, inputs))))
    assert ladder.join(potentials).tolist() == [[sign * limit * levels * inputs]]


@given(
    encoding=st.sampled_from(ENCODINGS), seed=st.integers(0, 2**32 - 1),
    clip=st.sampled_from(["max", "mse"]), outputs=st.integers(1, 4), inputs=st.integers(1, 40),
)  # fmt: skip
@settings(max_examples=150)
def test_the_error_stays_within_its_bound(encoding, seed, clip, outputs, inputs):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(outputs, inputs)) * 10.0 ** rng.integers(-3, 4, (outputs, 1))
    ranges = 10.0 ** rng.uniform(-3, 3, inputs)
    x = rng.uniform(0 if encoding.signed == "unsigned" else -1, 1, (4, inputs)) * ranges
    ladder = build_ladder(matrix, encoding, ranges=ranges, clip=clip)
    error = np.abs(ladder.decode(chip(ladder, ladder.encode(x))) - x @ matrix.T)
    rounding = 1e-13 * inputs * (np.abs(matrix) * ranges).sum(axis=1)
    assert np.all(error <= ladder.error_bound(matrix) + rounding)


def test_the_weight_part_of_the_bound_is_reached():
    # Inputs at the ends of their ranges are exact, so the worst signs show the weight error alone.
    matrix = np.random.default_rng(3).normal(size=(1, 50))
    encoding = Encoding(activation_bits=8, digits=1, signed="zero_point")
    ladder = build_ladder(matrix, encoding)
    left = matrix - ladder.integers * ladder.scales[:, np.newaxis] * 127
    worst = np.where(left > 0, 1.0, -1.0)
    error = worst @ matrix.T - ladder.decode(chip(ladder, ladder.encode(worst)))
    assert error[0, 0] == pytest.approx(np.abs(left).sum())
    assert ladder.error_bound(matrix)[0] == pytest.approx(
        np.abs(left).sum() + 0.5 * ladder.scales[0] * np.abs(ladder.integers).sum()
    )


def test_the_input_part_of_the_bound_is_reached():
    # Integers that exist have no weight error; inputs half way between levels have all the input error there is.
    weights = quantize_digits([[7.0, -3.0, 5.0, 1.0]], 1)
    ladder = build_ladder(weights, Encoding(activation_bits=4, signed="unsigned"), ranges=2.0)
    step = 2.0 / 15
    x = np.array([[0.5, 1.5, 0.5, 0.5]]) * step * (1 - 1e-12) + np.array([[0, 1e-9, 0, 0]])
    error = np.abs(ladder.decode(chip(ladder, ladder.encode(x))) - x @ weights.dequantize().T)
    assert error[0, 0] == pytest.approx(ladder.error_bound(weights.dequantize())[0], rel=1e-6)
    assert error[0, 0] == pytest.approx(step / 2 * 16, rel=1e-6)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: f"A{e.activation_bits}-W{e.digits}-{e.signed}")
def test_a_resting_network_stays_at_rest(encoding):
    ladder = build_ladder(np.random.default_rng(1).normal(size=(6, 9)), encoding)
    assert not ladder.decode(chip(ladder, ladder.encode(np.zeros((2, 9))))).any()


def test_wider_rungs_are_more_precise():
    rng = np.random.default_rng(8)
    matrix, x = rng.normal(size=(128, 178)), rng.uniform(-1, 1, (8, 178))
    exact = x @ matrix.T

    def error(bits, digits, signed="zero_point"):
        ladder = build_ladder(matrix, Encoding(activation_bits=bits, digits=digits, signed=signed))
        return np.sqrt(np.mean((ladder.decode(chip(ladder, ladder.encode(x))) - exact) ** 2))

    # Uniform noise of a step over root 12 on each of 178 inputs or weights, added in squares.
    assert error(16, 3) < 0.1 * error(8, 2) < 0.02 * error(4, 1)
    assert error(4, 3) == pytest.approx(np.sqrt(178 / 12) / 7, rel=0.1)
    assert error(4, 3, "two_rail") == pytest.approx(np.sqrt(178 / 12) / 15, rel=0.1)
    assert error(8, 3) == pytest.approx(np.sqrt(178 / 12) / 127, rel=0.1)


def test_eight_bits_on_four_as_written_by_hand():
    rng = np.random.default_rng(7)
    matrix, x = rng.normal(size=(128, 178)), rng.uniform(-1, 1, 178)
    s = np.abs(matrix).max(axis=1) / 112
    q = np.rint(matrix / s[:, np.newaxis]).astype(int)
    low = (q + 7) % 15 - 7
    weights = np.concatenate([(q - low) // 15, low]).T
    q8 = (np.rint(x * 127) + 128).astype(int)
    p = np.stack([q8 >> 4, q8 & 15]) @ weights
    joined = (16 * p[0] + p[1]).reshape(2, 128)
    y = s * (15 * joined[0] + joined[1] - 128 * q.sum(axis=1)) / 127

    ladder = build_ladder(matrix, Encoding(activation_bits=8, digits=2, signed="zero_point"))
    assert np.array_equal(ladder.chip_weights(), weights)
    assert ladder.encode(x[np.newaxis]).tolist() == [(q8 >> 4).tolist(), (q8 & 15).tolist()]
    assert ladder.decode(chip(ladder, ladder.encode(x[np.newaxis])))[0] == pytest.approx(y, rel=1e-12)


# --- ranges, integers that exist, reading back ------------------------------------------------------------------------


def test_groups_of_inputs_have_their_own_ranges():
    assert group_ranges((2, 3.0), (1, 0.5)).tolist() == [3.0, 3.0, 0.5]
    rng = np.random.default_rng(4)
    ranges = group_ranges((50, 1000.0), (128, 1.0))
    matrix = rng.normal(size=(64, 178)) / ranges
    x = rng.uniform(-1, 1, (64, 178)) * ranges
    encoding = Encoding(activation_bits=8, digits=2, signed="zero_point")

    def error(given):
        ladder = build_ladder(matrix, encoding, ranges=given)
        return np.sqrt(np.mean((ladder.decode(chip(ladder, ladder.encode(x))) - x @ matrix.T) ** 2))

    # Inputs: a step of 1/127 over root 12; weights: 0.7 % of their size; 178 of each. One range for all leaves the
    # small group less than one level, and its 128 terms are lost.
    assert error(ranges) == pytest.approx(np.sqrt(178 / 12 / 127**2 + 178 / 3 * 0.0072**2), rel=0.15)
    assert error(1000.0) == pytest.approx(np.sqrt(128 / 3), rel=0.2)


def test_integers_that_exist_are_taken_as_they_are():
    # A row whose largest entry is 5 would be stretched to 7 if it were quantised again.
    weights = quantize_to(np.array([[7.0, 1.0], [7.0, -5.0]]), (-7, 7), per="tensor")
    ladder = build_ladder(weights, Encoding(signed="two_rail"), ranges=0.25)
    assert ladder.integers.tolist() == [[7, 1], [7, -5]]
    assert ladder.decode(chip(ladder, ladder.encode([[0.25, -0.25]]))) == pytest.approx(np.array([[1.5, 3.0]]))
    with pytest.raises(ProgramError, match="one range"):
        build_ladder(weights, Encoding(), ranges=[1.0, 2.0])


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: f"A{e.activation_bits}-W{e.digits}-{e.signed}")
def test_a_ladder_is_read_back_from_its_program(encoding):
    ladder = build_ladder(np.random.default_rng(1).normal(size=(3, 5)), encoding, ranges=2.0)
    layer = FullyConnected(name="a", weights=ladder.chip_weights())
    again = ladder_of(Program(name="p", layers=(layer,), encoding=encoding, scales=ladder.scales), ranges=2.0)
    assert np.array_equal(again.integers, ladder.integers)
    assert np.array_equal(again.correction, ladder.correction)
    x = np.linspace(-2, 2, 10).reshape(2, 5)
    assert np.array_equal(again.encode(x), ladder.encode(x))
    assert np.array_equal(again.scales, ladder.scales)


def test_what_is_no_ladder_is_not_read_back():
    crooked = FullyConnected(name="a", weights=np.array([[1], [1]], np.int8))
    with pytest.raises(ProgramError, match=r"`p`.*two_rail.*\[W; -W\]"):
        ladder_of(Program(name="p", layers=(crooked,), encoding=Encoding(signed="two_rail")))
    odd = FullyConnected(name="a", weights=np.zeros((3, 1), np.int8))
    with pytest.raises(ProgramError, match=r"not \[W; -W\]"):
        ladder_of(Program(name="p", layers=(odd,), encoding=Encoding(signed="two_rail")))
    hidden = FullyConnected(name="h", weights=np.ones((1, 2), np.int8), activation=Activation.BOUNDED_RELU)
    with pytest.raises(ProgramError, match=r"`p`.*2 layers"):
        ladder_of(Program(name="p", layers=(hidden, crooked)))


@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(1, 19), encoding=st.sampled_from(ENCODINGS))
@example(seed=0, cut=1, encoding=ENCODINGS[0])
@settings(max_examples=40)
def test_columns_add_up_to_the_whole(seed, cut, encoding):
    rng = np.random.default_rng(seed)
    ladder = build_ladder(rng.normal(size=(4, 20)), encoding, ranges=rng.uniform(0.5, 2, 20))
    x = rng.uniform(-2, 2, (3, 20))
    parts = [(ladder.columns(span), x[:, span]) for span in (slice(0, cut), slice(cut, 20))]
    total = sum(part.join(chip(part, part.encode(columns))) for part, columns in parts)
    assert np.array_equal(total, ladder.join(chip(ladder, ladder.encode(x))))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.encode([1.0, 2.0]), r"inputs must have shape \(batch, 2\)\. Got \(2,\)"),
        (lambda a: a.encode([[1.0]]), r"inputs must have shape \(batch, 2\)\. Got \(1, 1\)"),
        (lambda a: a.decode(np.zeros((1, 3), int)), r"potentials must have shape \(rows, 2\)\. Got \(1, 3\)"),
        (lambda a: a.decode(np.zeros((1, 2))), r"potentials must be integers\. Got float64"),
        (lambda a: build_ladder(np.eye(2), a.encoding, ranges=[1.0, 2.0, 3.0]), r"one number or 2, one per input"),
        (lambda a: build_ladder([[np.nan]], a.encoding), r"finite numbers\. Got nan"),
        (lambda a: build_ladder(3.0, a.encoding), r"shape \(outputs, inputs\)"),
        (
            lambda a: Ladder(encoding=a.encoding, integers=a.integers, scales=np.ones(3), ranges=a.ranges),
            r"one scale per output and one range per input\. Got int64 of shape \(2, 2\), scales \(3,\)",
        ),
    ],
)
def test_shapes_are_checked(call, message):
    with pytest.raises(ProgramError, match=message):
        call(build_ladder(np.eye(2), Encoding()))
