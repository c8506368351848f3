"""The chip's integer semantics against Python's own integers and fractions."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metalforge.substrates.npu.products import CompiledLayer, bounded_relu, run_program
from metalforge.substrates.npu.program import Activation, FullyConnected, Program, ProgramError, weight_limits
from reference import npu as twin

WIDTHS = st.sampled_from([1, 2, 4])
FILLS = st.sampled_from(["random", "lowest", "highest", "either end"])
EXTREME_THRESHOLDS = (twin.LOWEST, -1, 0, 1, twin.HIGHEST)
EXTREME_STEPS = (1 / 16, 0.1, 1.0, 2.7, 65535.0)


def integers(rng, fill, low, high, shape, dtype):
    if fill == "either end":
        return rng.choice([low, high], shape).astype(dtype)
    ends = {"random": (low, high), "lowest": (low, low), "highest": (high, high)}[fill]
    return rng.integers(*ends, shape, endpoint=True).astype(dtype)


def build(rng, name, inputs, units, *, weight_bits, input_bits, fill, activation_bits=None):
    """A layer, and the same in plain tuples; thresholds and steps lie where its potentials do, some at the ends."""
    weights = integers(rng, fill, *weight_limits(weight_bits), (inputs, units), np.int8)
    if activation_bits is None:
        layer = FullyConnected(name=name, weights=weights, weight_bits=weight_bits, input_bits=input_bits)
        return layer, twin.Layer(weights)
    spread = max(1, int(np.abs(weights).sum(axis=0, dtype=np.int64).max()) << input_bits)
    threshold = rng.integers(-spread, spread, units, endpoint=True).clip(twin.LOWEST, twin.HIGHEST).astype(np.int32)
    act_step = np.exp(rng.uniform(np.log(1 / 16), np.log(spread), units)).clip(1 / 16, 65535).astype(np.float32)
    special = rng.random(units) < 0.25
    threshold[special] = rng.choice(EXTREME_THRESHOLDS, units)[special]
    special = rng.random(units) < 0.25
    act_step[special] = rng.choice(EXTREME_STEPS, units)[special]
    layer = FullyConnected(
        name=name, weights=weights, weight_bits=weight_bits, input_bits=input_bits,
        activation=Activation.BOUNDED_RELU, activation_bits=activation_bits, threshold=threshold, act_step=act_step,
    )  # fmt: skip
    return layer, twin.Layer(weights, activation_bits, threshold, act_step)


@given(
    seed=st.integers(0, 2**32 - 1), inputs=st.integers(1, 4096), units=st.integers(1, 6), batch=st.integers(1, 3),
    weight_bits=WIDTHS, input_bits=WIDTHS, activation_bits=st.none() | WIDTHS, fill=FILLS, inputs_fill=FILLS,
)  # fmt: skip
@example(0, 1, 1, 1, 4, 4, None, "lowest", "highest")
@example(0, 4096, 6, 2, 4, 4, None, "lowest", "highest")
@example(0, 4096, 6, 2, 4, 4, 4, "either end", "highest")
@settings(max_examples=60)
def test_a_layer_is_the_wide_reference(
    seed, inputs, units, batch, weight_bits, input_bits, activation_bits, fill, inputs_fill
):
    rng = np.random.default_rng(seed)
    layer, plain = build(
        rng, "a", inputs, units, weight_bits=weight_bits, input_bits=input_bits, fill=fill,
        activation_bits=activation_bits,
    )  # fmt: skip
    x = integers(rng, inputs_fill, 0, 2**input_bits - 1, (batch, inputs), np.uint8)
    result = CompiledLayer(layer).run(x)
    assert result.dtype == (np.int32 if activation_bits is None else np.uint8)
    assert np.array_equal(result, twin.run_layer(plain, x))


@given(
    seed=st.integers(0, 2**32 - 1), activation_bits=st.none() | WIDTHS, fill=FILLS,
    inputs=st.sampled_from([4993, 4994, 5000, 9000]),
)  # fmt: skip
@settings(max_examples=12)
def test_potentials_saturate_at_twenty_bits(seed, activation_bits, fill, inputs):
    rng = np.random.default_rng(seed)
    layer, plain = build(
        rng, "a", inputs, 3, weight_bits=4, input_bits=4, fill=fill, activation_bits=activation_bits
    )  # fmt: skip
    x = np.full((1, inputs), 15, np.uint8)
    assert np.array_equal(CompiledLayer(layer).run(x), twin.run_layer(plain, x))


@pytest.mark.parametrize(
    ("inputs", "sign", "potential"),
    [(4993, 7, 524265), (4993, -7, -524265), (4994, 7, 524287), (4994, -7, -524288), (57334, -7, -524288)],
)
def test_the_edge_of_saturation_is_at_4993_inputs(inputs, sign, potential):
    layer = FullyConnected(name="a", weights=np.full((inputs, 1), sign, np.int8))
    assert CompiledLayer(layer).run(np.full((1, inputs), 15, np.uint8))[0, 0] == potential


@given(
    seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(1, 40), min_size=2, max_size=4),
    widths=st.tuples(WIDTHS, WIDTHS, WIDTHS), weight_bits=st.tuples(WIDTHS, WIDTHS, WIDTHS),
    linear=st.booleans(), fill=FILLS, batch=st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=60)
def test_a_chain_is_the_wide_reference(seed, sizes, widths, weight_bits, linear, fill, batch):
    rng = np.random.default_rng(seed)
    chain = []
    for k, (inputs, units) in enumerate(pairwise(sizes)):
        last = k == len(sizes) - 2
        chain.append(
            build(
                rng, f"layer {k}", inputs, units, weight_bits=weight_bits[k], input_bits=widths[k], fill=fill,
                activation_bits=None if last and linear else widths[(k + 1) % 3],
            )
        )  # fmt: skip
    program = Program(name="chain", layers=tuple(layer for layer, _ in chain))
    x = integers(rng, "random", 0, 2 ** widths[0] - 1, (batch, sizes[0]), np.uint8)
    assert np.array_equal(run_program(program, x), twin.run_chain([plain for _, plain in chain], x))


@given(
    p=st.integers(twin.LOWEST, twin.HIGHEST), threshold=st.integers(twin.LOWEST, twin.HIGHEST),
    sixteenths=st.integers(1, 65535 * 16), bits=WIDTHS,
)  # fmt: skip
@example(0, 0, 16, 4)
@example(1, 0, 16, 4)
@example(twin.HIGHEST, twin.LOWEST, 1, 4)
def test_the_rectifier_counts_the_steps_below_a_potential(p, threshold, sixteenths, bits):
    # The published rule: threshold + n s < p <= threshold + (n + 1) s gives level n + 1, so levels are steps passed.
    step = np.float32(sixteenths / 16)
    interval = Fraction(math.floor(Fraction(float(step)) * 16), 16) * 2 ** (4 - bits)
    passed = sum(p > threshold + n * interval for n in range(2**bits - 1))
    (level,) = bounded_relu(np.array([p]), np.array([threshold]), np.array([step]), bits)
    assert level == passed == twin.activation(p, threshold, step, bits)


def test_a_step_is_floored_to_sixteenths():
    # 0.12 is 1.92 sixteenths and acts as 1/16: potential 1 is 16 steps up, not 9.
    layer = FullyConnected(
        name="a", weights=np.ones((1, 1), np.int8), activation=Activation.BOUNDED_RELU, activation_bits=4,
        threshold=np.array([0], np.int32), act_step=np.array([0.12], np.float32),
    )  # fmt: skip
    assert CompiledLayer(layer).run(np.array([[1]], np.uint8))[0, 0] == 15


LAYER = FullyConnected(name="mixer", weights=np.ones((3, 2), np.int8), input_bits=2)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((1, 3), np.int8), r"layer `mixer`: inputs must be uint8\. Got int8"),
        (np.zeros((1, 3)), r"layer `mixer`: inputs must be uint8\. Got float64"),
        (np.zeros((1, 3), bool), r"layer `mixer`: inputs must be uint8\. Got bool"),
        ([[0, 1, 2]], r"layer `mixer`: inputs must be uint8\. Got list"),
        (np.zeros((1, 4), np.uint8), r"inputs must have shape \(batch, 3\)\. Got \(1, 4\)"),
        (np.zeros(3, np.uint8), r"inputs must have shape \(batch, 3\)\. Got \(3,\)"),
        (np.zeros((1, 1, 3), np.uint8), r"inputs must have shape \(batch, 3\)\. Got \(1, 1, 3\)"),
        (np.zeros((0, 3), np.uint8), r"inputs must have shape \(batch, 3\)\. Got \(0, 3\)"),
        (np.array([[0, 4, 1]], np.uint8), r"layer `mixer`: inputs of 2 bits lie in 0 \.\. 3\. Got 4"),
    ],
)
def test_bad_inputs_are_refused_with_what_was_wanted_and_what_came(x, message):
    with pytest.raises(ProgramError, match=message):
        CompiledLayer(LAYER).run(x)


def test_inputs_are_not_changed():
    x = np.arange(3, dtype=np.uint8)[np.newaxis]
    before = x.copy()
    CompiledLayer(LAYER).run(x)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("x", [np.array([[259, 0, 0]]), np.array([[2.9, 0.0, 0.0]]), np.array([[-255, 0, 0]])])
def test_a_program_refuses_what_its_first_layer_refuses(x):
    with pytest.raises(ProgramError, match=r"`mixer`.*uint8"):
        run_program(Program(name="p", layers=(LAYER,)), x)
