from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.substrates.npu.certificate import overflow_certificate
from metalforge.substrates.npu.compile import compile_linear
from metalforge.substrates.npu.ladder import group_ranges, ladder_of
from metalforge.substrates.npu.products import run_program
from metalforge.substrates.npu.program import Activation, Encoding, Head, ProgramError
from metalforge.substrates.npu.quantize import quantize
from reference import npu as twin

ENCODINGS = [
    Encoding(activation_bits=bits, digits=digits, signed=signed)
    for bits, digits, signed in product((4, 8, 12, 16), (1, 2, 3), ("unsigned", "zero_point", "two_rail"))
]
W8A8 = Encoding(activation_bits=8, digits=2, signed="zero_point")


def random_inputs(rng, encoding, batch, inputs):
    return rng.uniform(0.0 if encoding.signed == "unsigned" else -1.0, 1.0, (batch, inputs))


@given(
    seed=st.integers(0, 2**32 - 1), outputs=st.integers(1, 8), inputs=st.integers(1, 60),
    encoding=st.sampled_from(ENCODINGS), clip=st.sampled_from(["max", "mse"]), batch=st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=100)
def test_a_compiled_matrix_is_the_matrix_to_its_bound(seed, outputs, inputs, encoding, clip, batch):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(outputs, inputs))
    ranges = rng.uniform(0.1, 10, inputs)
    x = random_inputs(rng, encoding, batch, inputs) * ranges
    compiled = compile_linear("w", matrix, encoding=encoding, ranges=ranges, clip=clip)
    y = compiled.run(x)
    assert y.shape == (batch, outputs)
    assert np.all(np.abs(y - x @ matrix.T) <= compiled.error_bound * (1 + 1e-9))


def test_one_program_says_what_the_chip_and_the_host_need():
    rng = np.random.default_rng(3)
    matrix, heads = (
        rng.normal(size=(4, 20)),
        (Head(name="energy", start=0, width=3), Head(name="stop", start=3, width=1)),
    )
    compiled = compile_linear("readout", matrix, encoding=W8A8, heads=heads)
    program = compiled.program
    (layer,) = program.layers
    assert program.name == layer.name == "readout"
    assert (layer.inputs, layer.units, layer.weight_bits, layer.input_bits) == (20, 8, 4, 4)
    assert layer.activation is Activation.LINEAR
    assert program.outputs == 4
    assert program.heads == heads
    assert program.scales == pytest.approx(np.abs(matrix).max(axis=1) / 112 / 127)
    assert overflow_certificate(layer).safe
    assert np.array_equal(ladder_of(program).integers, compiled.ladders[0].integers)


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(ProgramError, match="head `a` at 1"):
        compile_linear("w", np.eye(2), heads=[Head(name="a", start=1, width=2)])


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: f"A{e.activation_bits}-W{e.digits}-{e.signed}")
def test_wide_matrices_are_split_and_stay_exact_where_one_layer_would_saturate(encoding):
    rng = np.random.default_rng(6)
    inputs = 5200
    matrix = rng.uniform(0.9, 1.0, (2, inputs))
    matrix[1] = -1.0
    x = np.ones((1, inputs))
    x[:, :20] = random_inputs(rng, encoding, 1, 20)
    compiled = compile_linear("w", matrix, encoding=encoding)
    assert [p.name for p in compiled.programs] == [f"w.{i}" for i in range(len(compiled.programs))]
    assert len(compiled.programs) == 2
    assert all(overflow_certificate(p.layers[0]).safe for p in compiled.programs)
    rows = compiled.encode(x)
    potentials = [run_program(p, r) for p, r in zip(compiled.programs, rows, strict=True)]

    w = np.concatenate([ladder.integers for ladder in compiled.ladders], axis=1)
    levels = 2 ** (encoding.activation_bits - (encoding.signed == "zero_point")) - 1
    q = np.rint(x * levels).astype(int)
    assert np.array_equal(compiled.join(potentials), twin.product_wide(q, w.T))
    assert np.all(np.abs(compiled.decode(potentials) - x @ matrix.T) <= compiled.error_bound * (1 + 1e-9))
    with pytest.raises(ProgramError, match=r"`w\.0` is one of 2: .* use `programs`"):
        _ = compiled.program


def test_both_rails_of_weights_that_cancel_are_certified():
    # On one rail the signs share the work; two rails can lift a unit by every |w| at once.
    signs = np.where(np.arange(5200) % 2, -1.0, 1.0)[np.newaxis]
    assert len(compile_linear("w", signs, encoding=Encoding(signed="zero_point")).programs) == 1
    two_rail = compile_linear("w", signs, encoding=Encoding(signed="two_rail"))
    assert all(overflow_certificate(p.layers[0]).safe for p in two_rail.programs)
    assert [p.inputs for p in two_rail.programs] == [2 * 4993, 2 * 207]
    assert two_rail.run(signs) == pytest.approx(np.array([[5200.0]]), rel=1e-12)


def test_a_layer_has_at_most_57334_lines():
    matrix = np.zeros((1, 28668))
    matrix[0, -1] = 1.0
    x = np.full((1, 28668), -1.0)
    assert len(compile_linear("w", matrix, encoding=Encoding(signed="zero_point")).programs) == 1
    two_rail = compile_linear("w", matrix, encoding=Encoding(signed="two_rail"))
    assert [p.inputs for p in two_rail.programs] == [57334, 2]
    assert two_rail.run(x).tolist() == [[pytest.approx(-1.0)]]


@pytest.mark.parametrize("signed", ["zero_point", "two_rail"])
def test_the_linear_probe_sees_negative_numbers(signed):
    # Identity weights and an input of -1: a rectifier would give 0, and so does the encoding without a sign.
    probe = compile_linear("probe", np.eye(3), encoding=Encoding(signed=signed))
    assert probe.run([[-1.0, 0.0, 1.0]]) == pytest.approx(np.array([[-1.0, 0.0, 1.0]]))
    assert compile_linear("probe", np.eye(3)).run([[-1.0, 0.0, 1.0]]) == pytest.approx(np.array([[0.0, 0.0, 1.0]]))


def test_a_reservoir_step_of_inputs_and_states():
    rng = np.random.default_rng(2)
    matrix = np.concatenate([rng.normal(size=(128, 50)) * 0.02, rng.normal(size=(128, 128)) * 0.08], axis=1)
    compiled = compile_linear("step", matrix, encoding=W8A8, ranges=group_ranges((50, 5.0), (128, 1.0)))
    u, state = rng.uniform(-5, 5, (16, 50)), rng.uniform(-1, 1, (16, 128))
    x = np.concatenate([u, state], axis=1)
    assert compiled.program.layers[0].weights.shape == (178, 256)
    assert np.sqrt(np.mean((compiled.run(x) - x @ matrix.T) ** 2)) < 0.01 * np.sqrt(np.mean((x @ matrix.T) ** 2))


def test_integers_that_exist_are_compiled_without_weight_error():
    rng = np.random.default_rng(9)
    weights = quantize(rng.normal(size=(4, 12)), 4, per="tensor")
    compiled = compile_linear("grid", weights, encoding=Encoding(activation_bits=16, signed="zero_point"), ranges=2.0)
    x = rng.uniform(-2, 2, (3, 12))
    assert np.array_equal(compiled.program.layers[0].weights, weights.values.T)
    assert compiled.error_bound == pytest.approx(np.abs(weights.dequantize()).sum(axis=1) * 2.0 / 32767 / 2, rel=1e-9)
    assert np.all(np.abs(compiled.run(x) - x @ weights.dequantize().T) <= compiled.error_bound * (1 + 1e-9))
    with pytest.raises(ProgramError, match=r"1 digits.* -7 \.\. 7\. Got -?\d+"):
        compile_linear("grid", quantize(rng.normal(size=(4, 12)), 8))


def test_the_run_goes_through_the_device_it_is_given():
    seen = []

    def infer(program, rows):
        seen.append((program.name, rows.shape))
        return run_program(program, rows)

    compiled = compile_linear("w", np.eye(3), encoding=W8A8)
    assert np.array_equal(compiled.run(np.eye(3), infer), compiled.run(np.eye(3)))
    assert seen == [("w", (6, 3))]


def test_compiling_twice_gives_the_same_program():
    matrix = np.random.default_rng(0).normal(size=(5, 7))
    one, two = (compile_linear("w", matrix, encoding=W8A8, clip="mse").program.fingerprint() for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.encode(np.zeros(3)), r"inputs must have shape \(batch, 3\)\. Got \(3,\)"),
        (lambda c: c.encode(np.zeros((1, 4))), r"inputs must have shape \(batch, 3\)\. Got \(1, 4\)"),
        (lambda c: c.encode([[0.0, np.nan, 0.0]]), r"inputs must be finite numbers\. Got nan"),
        (lambda c: c.decode([]), r"potentials of 1 programs are wanted\. Got 0"),
        (lambda c: compile_linear("w", [[np.inf]]), r"`weights` must hold finite numbers\. Got inf"),
    ],
)
def test_misuse_is_explained(call, message):
    with pytest.raises(ProgramError, match=message):
        call(compile_linear("w", np.eye(3)))
