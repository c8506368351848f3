import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge import native
from metalforge.reservoir import activations

PATHS = ("auto", "pairs", "portable")


@settings(max_examples=60)
@given(
    inputs=st.integers(1, 600),
    units=st.integers(1, 150),
    batch=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    extreme=st.booleans(),
)
def test_products_are_the_same_integers_on_every_level_and_path(inputs, units, batch, seed, extreme):
    rng = np.random.default_rng(seed)
    weights = rng.choice([-7, 7], (inputs, units)) if extreme else rng.integers(-7, 8, (inputs, units))
    x = np.full((batch, inputs), 255) if extreme else rng.integers(0, 256, (batch, inputs))
    weights, x = weights.astype(np.int8), x.astype(np.uint8)
    expected = x.astype(np.int64) @ weights.astype(np.int64)
    for level in native.available_levels():
        module = native.kernels(level)
        tiled = module.NpuWeights(weights)
        assert (tiled.inputs, tiled.units) == (inputs, units)
        for path in PATHS:
            out = np.full((batch, units), -1, np.int32)
            module.npu_product(tiled, x, out, 255, 32, path)
            assert np.array_equal(out, expected)
            module.npu_product(tiled, x, out, 255, 12, path)
            assert np.array_equal(out, np.clip(expected, -2048, 2047))


def reference_sequence(weights, scale, u, *, digits, bits, leak, activation, bias, ranges):
    """The step in wide integers and NumPy doubles."""
    units = len(scale)
    zero, levels = 1 << (bits - 1), (1 << (bits - 1)) - 1
    blocks = weights.astype(np.int64).reshape(len(weights), digits, units)
    joined = np.tensordot(blocks, 15 ** np.arange(digits - 1, -1, -1), axes=([1], [0]))
    state, states = np.zeros(units), []
    f = activations.activation(activation).value
    for row in u:
        lines = np.concatenate([row / ranges[0], state / ranges[1]]) * levels
        q = np.rint(np.clip(lines, -levels, levels)).astype(np.int64) + zero
        acc = q @ joined
        state = (1 - leak) * state + leak * f(scale * (acc - zero * joined.sum(axis=0)) + bias)
        states.append(state)
    return np.array(states)


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("bits", [4, 8, 12, 16])
@pytest.mark.parametrize("activation", ["tanh", "relu", "identity", "gelu"])
@pytest.mark.parametrize("sizes", [(3, 5), (50, 128), (1, 17)])
def test_the_sequence_loop_equals_its_definition(monkeypatch, level, digits, bits, activation, sizes):
    from metalforge.substrates.npu.sequence import SequenceLoop

    monkeypatch.setenv("METALFORGE_ISA", level)
    inputs, units = sizes
    rng = np.random.default_rng(5)
    weights = rng.integers(-7, 8, (inputs + units, digits * units)).astype(np.int8)
    scale = rng.uniform(0.5, 1.5, units) * 0.2 / (7 * 15 ** (digits - 1) * 2**bits * np.sqrt(inputs + units))
    bias = rng.normal(size=units) * 0.1
    u = rng.uniform(-1.5, 1.5, (40, inputs))
    options = {"digits": digits, "bits": bits, "leak": 0.3, "activation": activation, "bias": bias}
    expected = reference_sequence(weights, scale, u, ranges=(1.2, 1.0), **options)
    loop = SequenceLoop(weights, scale, inputs=inputs, input_range=1.2, state_range=1.0, **options)
    # Equal lines give equal integers; the host's rounding is all that is left, and a line may tip over by it only
    # where a value sits on a rounding boundary, which these seeds do not.
    assert np.allclose(loop.run(u), expected, rtol=0, atol=1e-12)
    whole = loop.run(u)
    assert np.array_equal(loop.run(u[20:], whole[19]), whole[20:])
    state = np.zeros(units)
    assert np.array_equal([loop.step(row, state).copy() for row in u], whole)


def test_single_precision_is_finer_than_the_lines():
    from metalforge.substrates.npu.sequence import SequenceLoop

    rng = np.random.default_rng(6)
    weights = rng.integers(-7, 8, (178, 128)).astype(np.int8)
    scale = np.full(128, 0.3 / (7 * 127 * np.sqrt(178)))
    u = rng.uniform(-1, 1, (100, 50))
    wide, narrow = (SequenceLoop(weights, scale, inputs=50, leak=0.3, precision=p).run(u) for p in ("f64", "f32"))
    # A line's last place is 1/127; a handful of lines tip over by single-precision rounding.
    assert narrow.dtype == np.float32
    assert np.max(np.abs(wide - narrow)) < 0.02
    assert np.median(np.abs(wide - narrow)) < 1e-3


def make(module, kind="f64", **changes):
    real = {"f64": np.float64, "f32": np.float32}[kind]
    fields = {
        "weights": module.NpuWeights(np.ones((8, 5), np.int8)),
        "inputs": 3,
        "scale": np.zeros(5, real),
        "row_sum": np.zeros(5, real),
        "bias": np.zeros(5, real),
        "digits": 1,
        "bits": 8,
        "input_factor": 1.0,
        "state_factor": 1.0,
        "leak": 0.5,
        "activation": "tanh",
        "path": "auto",
    }
    return getattr(module, f"NpuSequence_{kind}")(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": 4}, "`weights` must be of units"),
        ({"scale": np.zeros(6)}, "`scale`"),
        ({"scale": np.zeros(5, np.float32)}, "`scale`"),
        ({"row_sum": None}, "`row_sum`"),
        ({"bias": np.full(5, np.inf)}, "`bias` must hold finite"),
        ({"digits": 4}, "`digits`"),
        ({"bits": 6}, "`bits`"),
        ({"leak": float("nan")}, "`leak`"),
        ({"activation": "swish"}, "`activation`"),
        ({"path": "tpu"}, "`path`"),
    ],
)
def test_bad_parts_of_a_loop_are_named(kernels, changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(kernels, **changes)


@pytest.mark.parametrize(
    ("u", "state", "states", "message"),
    [
        (np.full((4, 3), np.nan), np.zeros(5), np.zeros((4, 5)), "`u` must hold finite"),
        (np.zeros((4, 4)), np.zeros(5), np.zeros((4, 5)), "`u`"),
        (np.zeros((4, 3)), np.zeros(6), np.zeros((4, 5)), "`state`"),
        (np.zeros((4, 3)), np.zeros(5, np.float32), np.zeros((4, 5)), "`state`"),
        (np.zeros((4, 3)), np.zeros(5), np.zeros((3, 5)), "`states`"),
        (None, np.zeros(5), np.zeros((4, 5)), "`u`"),
    ],
)
def test_bad_rows_are_named(kernels, u, state, states, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(kernels).run(u, state, states)
    if states.shape == (4, 5):
        with pytest.raises((TypeError, ValueError), match=message):
            make(kernels).step(None if u is None else u[0], state)


def test_the_weights_outlive_their_name(kernels):
    loop = make(kernels)
    gc.collect()
    state = np.zeros(5)
    loop.step(np.ones(3), state)
    assert np.array_equal(state, np.zeros(5))  # a scale of zero: the state stays at rest


@pytest.mark.parametrize(
    "weights",
    [np.full((2, 2), 8, np.int8), np.full((2, 2), -8, np.int8), np.zeros((2, 2)), np.zeros((0, 2), np.int8), None],
)
def test_weights_are_checked_when_they_are_tiled(kernels, weights):
    with pytest.raises((TypeError, ValueError), match="weights"):
        kernels.NpuWeights(weights)


def test_float32_refuses_integers_it_cannot_hold(kernels):
    zeros = np.zeros(140, np.float32)
    with pytest.raises(ValueError, match=r"2\^24"):
        make(
            kernels,
            "f32",
            weights=kernels.NpuWeights(np.ones((150, 3 * 140), np.int8)),
            inputs=10,
            scale=zeros,
            row_sum=zeros,
            bias=zeros,
            digits=3,
        )


def test_inputs_beyond_their_width_are_refused(kernels):
    tiled = kernels.NpuWeights(np.ones((3, 2), np.int8))
    with pytest.raises(ValueError, match=r"`x`.*Got 16"):
        kernels.npu_product(tiled, np.array([[1, 16, 2]], np.uint8), np.zeros((1, 2), np.int32), 15, 20, "auto")
    with pytest.raises(ValueError, match="`potential_bits`"):
        kernels.npu_product(tiled, np.ones((1, 3), np.uint8), np.zeros((1, 2), np.int32), 15, 1, "auto")
