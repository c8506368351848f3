"""Transforms, ranges and encodings: none changes what is computed, and predictions are what comes out."""

from dataclasses import replace

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import (
    Add,
    Concat,
    Elementwise,
    FullyConnectedOp,
    GradientUpdate,
    MutationUpdate,
    RecurrentStep,
    TemporalIntegration,
)
from metalforge.hybrid.routing.candidates import (
    merge_siblings,
    pack_recurrent,
    rectified_chains,
    rows_on_chip,
    sibling_heads,
    split_rows,
)
from metalforge.hybrid.routing.encodings import encoding_options
from metalforge.hybrid.routing.jobs import build_chain, build_linear, one_after_another
from metalforge.hybrid.routing.ranges import ValueRange, find_ranges, line_ranges, measured, observe
from metalforge.substrates.npu.mesh import layer_bytes
from metalforge.substrates.npu.products import run_program
from metalforge.substrates.npu.program import ProgramError
from metalforge.substrates.npu.quantize import Quantized, quantize
from metalforge.substrates.profiles import profile
from reference.hybrid_graphs import chain, esn, heads_graph, int4_layer, real_layer


def spread(width, largest=1.0, **kwargs):
    return ValueRange.even(width, largest, source="test", **kwargs)


# Graphs.


def test_packing_a_recurrent_step_is_the_same_product():
    rng = np.random.default_rng(1)
    weights = esn(rng, 9, 4, dtype="f8")
    u, s = rng.normal(size=4), rng.normal(size=9)
    packed = pack_recurrent(RecurrentStep(weights=weights)) @ np.concatenate([u, s])
    assert np.allclose(packed, weights.w_in @ u + weights.w_res @ s, rtol=1e-14)


def test_sibling_heads_are_layers_that_read_one_value_through_fan_outs():
    graph = heads_graph(np.random.default_rng(3), n_heads=3)
    heads = [node.name for node in graph.nodes if isinstance(node.op, FullyConnectedOp)]
    assert sibling_heads(graph, heads) == (("h0", "h1.linear", "h2"),)
    assert sibling_heads(graph, heads[:1]) == (), "one layer has no sibling"


def test_real_and_quantised_siblings_are_not_put_together():
    rng = np.random.default_rng(4)
    layers = [real_layer(rng, 5, 2), real_layer(rng, 5, 2)]
    integers = [FullyConnectedOp(weights=quantize(rng.normal(size=(2, 5)), 4)) for _ in range(2)]
    nodes = [Node(name=f"n{i}", op=op, inputs=("x",)) for i, op in enumerate([*layers, *integers])]
    graph = OpGraph(inputs={"x": (None, 5)}, nodes=tuple(nodes), outputs=("n0", "n1", "n2", "n3"))
    assert sibling_heads(graph, [n.name for n in nodes]) == (("n0", "n1"), ("n2", "n3"))


def test_merged_rows_are_found_again_by_name():
    rng = np.random.default_rng(5)
    parts = {name: rng.normal(size=(rows, 4)) for name, rows in (("a", 2), ("b", 1), ("c", 3))}
    spans = dict(zip(parts, one_after_another(map(len, parts.values())), strict=True))
    merged = merge_siblings(list(parts.values()))
    assert all(np.array_equal(merged[spans[name]], parts[name]) for name in parts)
    integers = merge_siblings([quantize(matrix, 8, per="tensor") for matrix in parts.values()])
    assert isinstance(integers, Quantized)
    for name, matrix in parts.items():
        assert np.allclose(integers.dequantize()[spans[name]], quantize(matrix, 8, per="tensor").dequantize())


def test_chains_are_layers_with_bounded_relus_between_them():
    rng = np.random.default_rng(6)
    relu = Elementwise(function="bounded_relu")
    graph = chain(real_layer(rng, 4, 5), relu, real_layer(rng, 5, 3), Elementwise(function="tanh"), inputs=4)
    everything = [node.name for node in graph.nodes]
    assert rectified_chains(graph, everything) == (("n0", "n1"), ("n0", "n1", "n2"))
    assert rectified_chains(graph, ["n0", "n2"]) == ()
    seen = replace(graph, outputs=("n3", "n1"))
    assert rectified_chains(seen, everything) == (("n0", "n1"),), "a value that the caller reads must come out"


def test_a_layer_whose_weights_change_is_in_no_chain():
    rng = np.random.default_rng(7)
    graph = chain(real_layer(rng, 4, 5), Elementwise(function="bounded_relu"), inputs=4)
    update = Node(name="mutate", op=MutationUpdate(of="n0", shape=(5, 4)))
    assert rectified_chains(replace(graph, nodes=(*graph.nodes, update)), ["n0", "n1"]) == ()


@pytest.mark.parametrize(("outputs", "inputs", "digits"), [(512, 512, 2), (100, 2000, 3), (7, 20000, 1), (75, 512, 1)])
def test_blocks_of_rows_cover_all_rows_and_fit(outputs, inputs, digits):
    chip = profile("akd1000-published")
    blocks = split_rows(outputs, min(outputs, rows_on_chip(inputs, digits, chip)))
    assert [row for span in blocks for row in range(outputs)[span]] == list(range(outputs))
    limit = chip.mesh.onchip_bytes.value
    assert all(layer_bytes(inputs, digits * (span.stop - span.start)) <= limit for span in blocks)


def test_no_block_fits_where_a_single_row_does_not():
    assert rows_on_chip(50000, 1, profile("akd1000-published")) == 0
    with pytest.raises(SpecError):
        split_rows(10, 0)


# Ranges.


def test_ranges_without_data_follow_from_inputs_and_bounds():
    rng = np.random.default_rng(8)
    layer = real_layer(rng, 4, 3)
    graph = OpGraph(
        inputs={"x": (None, 4)},
        nodes=(
            Node(name="y", op=layer, inputs=("x",)),
            Node(name="tanh", op=Elementwise(function="tanh"), inputs=("y",)),
            Node(name="sigmoid", op=Elementwise(function="sigmoid"), inputs=("y",)),
            Node(name="both", op=Concat(), inputs=("x", "sigmoid")),
            Node(name="sum", op=Add(), inputs=("tanh", "sigmoid")),
            Node(name="memory", op=TemporalIntegration(leak=0.5), inputs=("sum",)),
        ),
        outputs=("both", "memory"),
        ranges={"x": 2.0},
    )
    ranges = find_ranges(graph)
    assert np.allclose(ranges["y"].largest, 2 * np.abs(layer.weights).sum(axis=1) + np.abs(layer.bias))
    assert np.all(ranges["tanh"].largest <= 1)
    assert ranges["sigmoid"].nonnegative
    assert not ranges["tanh"].nonnegative
    assert ranges["both"].largest.tolist() == [2.0] * 4 + [1.0] * 3
    assert np.all(ranges["memory"].largest <= 2)
    x = rng.uniform(-2, 2, (500, 4))
    seen = observe(graph, {"x": x[:, np.newaxis].transpose(1, 0, 2)})
    for name in ("y", "tanh", "both", "sum"):
        assert seen[name].largest.max() <= ranges[name].largest.max() * (1 + 1e-6)


def test_nothing_is_known_of_what_follows_an_input_of_unknown_range():
    rng = np.random.default_rng(9)
    graph = chain(
        real_layer(rng, 4, 3), Elementwise(function="relu"), Elementwise(function="tanh"), inputs=4, ranges=None
    )
    assert set(find_ranges(graph)) == {"n2"}


def test_data_comes_before_bounds():
    rng = np.random.default_rng(10)
    graph = chain(real_layer(rng, 4, 3), Elementwise(function="relu"), inputs=4, ranges=None)
    x = rng.uniform(-3, 3, (199, 4))
    ranges = find_ranges(graph, observe(graph, {"x": x}))
    y = x @ graph["n0"].op.weights.T + graph["n0"].op.bias
    sorted_sizes = np.sort(np.abs(y).ravel())
    kept = max(sorted_sizes[-1 - int(0.005 * y.size)], 0)  # too few rows for a line to count by itself
    assert ranges["n0"].largest == pytest.approx(np.full(3, kept), rel=1e-6)
    assert ranges["n0"].rms == pytest.approx(np.full(3, np.sqrt((np.minimum(np.abs(y), kept) ** 2).mean())), rel=1e-6)
    assert ranges["n0"].beyond == (int(0.005 * y.size), np.count_nonzero(np.abs(y) > 1.25 * kept))
    assert ranges["n1"].nonnegative
    assert "199 samples" in ranges["n1"].source


def test_headroom_of_a_measured_range_ends_where_the_activation_does():
    graph = chain(real_layer(np.random.default_rng(1), 4, 3), Elementwise(function="tanh"), inputs=4, ranges=None)
    ranges = find_ranges(graph, observe(graph, {"x": np.random.default_rng(2).uniform(-9, 9, (50, 4))}))
    assert ranges["x"].at(8).largest == pytest.approx(1.25 * ranges["x"].at(4).largest)
    assert 0.9 < ranges["n1"].at(4).largest.max() <= ranges["n1"].at(16).largest.max() == 1


def rows_of(case, rng):
    """Data, and the range that it should have."""
    x = rng.uniform(-1, 1, (898, 64))
    if case == "one row":
        x[17] *= 100
    elif case == "three rows":
        x[[5, 17, 400]] *= 30
    elif case == "one number":
        x[17, 3] = -1e6
    elif case == "a large line":
        x[:, 7] *= 50
    elif case == "sparse":
        x = (rng.random((898, 64)) < 0.002).astype(float)
    return x, 50.0 if case == "a large line" else 1.0


@pytest.mark.parametrize("case", ["clean", "one row", "three rows", "one number", "a large line", "sparse"])
def test_a_measured_range_is_that_of_all_but_outliers(case):
    x, wanted = rows_of(case, np.random.default_rng(3))
    found = measured(x.astype(np.float32))
    assert found.range == pytest.approx(wanted, rel=0.02)
    assert found.beyond == np.count_nonzero(np.abs(x.astype(np.float32)) > found.range) <= 0.006 * x.size
    assert found.rms <= found.range
    few, largest = x[:3, :4], np.abs(x[:3, :4]).max()
    assert case == "sparse" or measured(few).range == largest


def test_numbers_that_are_all_zero_have_no_range():
    assert measured(np.zeros((4, 3))).range == 0
    assert line_ranges(np.zeros((4, 3)), 8).tolist() == [1.0] * 3
    assert line_ranges(np.array([[2.0, 0.0], [-4.0, 0.0]]), 4).tolist() == [4.0, 4.0]


def test_a_declared_range_is_kept_and_data_shows_how_it_is_filled():
    graph = chain(real_layer(np.random.default_rng(10), 4, 3), inputs=4, ranges=2.0)
    x = find_ranges(graph, observe(graph, {"x": np.full((5, 4), 0.5)}))["x"]
    assert (x.largest.tolist(), x.rms.tolist()) == ([2.0] * 4, [0.5] * 4)


def test_a_value_that_is_always_zero_gets_a_range_all_the_same():
    graph = chain(FullyConnectedOp(weights=np.zeros((2, 3), "f4")), inputs=3, ranges=None)
    ranges = find_ranges(graph, observe(graph, {"x": np.ones((4, 3))}))
    assert np.all(find_ranges(chain(graph["n0"].op, inputs=3))["n0"].largest > 0)
    assert "n0" not in ranges or np.all(ranges["n0"].largest > 0)


# Encodings.


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("largest", [1.0, 3.7])
def test_predicted_errors_are_the_measured_ones(nonnegative, largest):
    rng = np.random.default_rng(11)
    matrix = rng.normal(size=(40, 60))
    x = rng.uniform(0 if nonnegative else -largest, largest, (500, 60))
    value = spread(60, largest, nonnegative=nonnegative)
    for option in encoding_options(matrix, value):
        encoding, predicted = option
        job = build_linear({"w": slice(0, 40)}, matrix, value, option)
        y = job.blocks[0].run(x)
        measured = np.sqrt(np.mean((y - x @ matrix.T) ** 2) / np.mean((x @ matrix.T) ** 2))
        # Inputs of one sign have outputs that do not average out, so less is predicted than measured here.
        assert measured == pytest.approx(predicted, rel=0.05 if not nonnegative else 0.4), encoding


def test_weights_on_the_grid_have_no_error_of_their_own():
    rng = np.random.default_rng(12)
    layer = int4_layer(rng, 30, 10)
    options = encoding_options(layer.weights, spread(30))
    by_bits = {o.encoding.activation_bits: o.error for o in options if o.encoding.digits == 1}
    assert by_bits[16] < 1e-4
    assert by_bits[4] / by_bits[8] == pytest.approx(127 / 7, rel=1e-3)


def test_integers_keep_as_many_digits_as_they_need():
    weights = quantize(np.random.default_rng(13).normal(size=(4, 6)), 8)
    options = encoding_options(weights, spread(6))
    assert {o.encoding.digits for o in options} == {3}, "127 is above the 112 of two digits"
    assert {o.encoding.digits for o in encoding_options(quantize(weights.dequantize(), 4), spread(6))} == {1}


# Chains.


RELU = Elementwise(function="bounded_relu")


def compiled_chain(x, *ops, digits=1):
    graph = chain(*ops, inputs=x.largest.size, dtype="float64")
    return build_chain(graph, [node.name for node in graph.nodes], x, digits=digits)


@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_a_chain_is_within_its_bound_and_near_its_prediction(rectified, nonnegative):
    rng = np.random.default_rng(15)
    w, v = rng.normal(size=(24, 16)) / 4, rng.normal(size=(5, 24)) / 5
    b, c = rng.normal(size=24) / 4, rng.normal(size=5) / 4
    layers = FullyConnectedOp(weights=w, bias=b), RELU, FullyConnectedOp(weights=v, bias=c)
    compiled = compiled_chain(
        spread(16, 1.5, nonnegative=nonnegative), *layers, *([RELU] if rectified else []), digits=2
    )
    x = rng.uniform(0 if nonnegative else -1.5, 1.5, (1000, 16))
    wanted = np.clip(x @ w.T + b, 0, 1) @ v.T + c
    wanted = np.clip(wanted, 0, 1) if rectified else wanted
    error = compiled.decode(run_program(compiled.programs[0], compiled.encode(x))) - wanted
    assert np.all(np.abs(error) <= compiled.error_bound)
    measured = np.sqrt(np.mean(error**2) / np.mean(wanted**2))
    assert measured <= compiled.error <= 6 * measured, "the prediction does not know how much a rectifier cuts away"


def test_a_rectified_layer_on_the_grid_is_exact_to_its_rounding():
    """Inputs on the chip's grid and int4 weights: all that is left is the 4-bit output, rounded to nearest."""
    rng = np.random.default_rng(16)
    weights = rng.integers(-7, 8, (6, 10)) / 70.0
    weights[:, 0] = 0.1
    x = rng.integers(-7, 8, (300, 10)) / 7.0
    compiled = compiled_chain(spread(10), FullyConnectedOp(weights=weights), RELU)
    found = compiled.decode(run_program(compiled.programs[0], compiled.encode(x)))
    step = 1 / (15 * weights[0, 0] / 7 / 7)
    steeper = step / (np.floor(16 * step) / 16) - 1  # the chip floors its steps to sixteenths
    wanted = np.clip((1 + steeper) * (x @ weights.T), 0, 1)
    assert np.abs(found - wanted).max() <= 0.5 / 15 + 0.5 * 0.1 / 49 + 1e-9


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ([FullyConnectedOp(weights=np.eye(2))] * 2, "bounded ReLU"),
        ([FullyConnectedOp(weights=1e3 * np.eye(2)), RELU], "scale the weights"),
        ([FullyConnectedOp(weights=1e-2 * np.eye(2), bias=np.full(2, 1e9)), RELU], "bias needs thresholds"),
        ([FullyConnectedOp(weights=np.ones((1, 6000))), RELU], "could saturate"),
    ],
)
def test_what_the_chip_cannot_hold_is_refused_with_the_reason(ops, words):
    inputs = ops[0].weights.shape[1]
    with pytest.raises(ProgramError, match=words):
        compiled_chain(spread(inputs, 1.0 if inputs == 2 else 1e-3), *ops)


def test_update_ops_name_their_targets():
    graph = chain(real_layer(np.random.default_rng(17), 4, 3), inputs=4)
    update = Node(name="learn", op=GradientUpdate(of="n0", rate=0.1), inputs=("g",))
    with_input = OpGraph(
        inputs={"x": (None, 4), "g": (3, 4)}, nodes=(*graph.nodes, update), outputs=("n0",), ranges={"x": 1.0}
    )
    assert rectified_chains(with_input, ["n0"]) == ()
