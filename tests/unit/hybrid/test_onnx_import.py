"""What the importer makes of a model: which ops, which shapes, which integers, against the reference."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.onnx_import import load_onnx
from metalforge.hybrid.model.ops import Add, Concat, Elementwise, FullyConnectedOp, Precision, SoftwareOnly
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.substrates.npu.quantize import Quantized
from reference.onnx_models import constant, int4, model, node, oracle, session

RNG = np.random.default_rng(11)


def reals(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def i64(*values):
    return np.array(values, np.int64)


def kinds(graph):
    """Ops, and the operators within the parts that the host runs whole."""
    return [kind for n in graph.nodes for kind in getattr(n.op, "operators", [n.op.kind])]


def check(made, batch=3, **feeds):
    """The graph, once it agrees with the reference on random inputs."""
    graph = load_onnx(made)
    for name, shape in graph.inputs.items():
        feeds.setdefault(name, RNG.normal(size=[batch if n is None else n for n in shape]).astype(graph.dtype))
    found = SoftwareModel(graph).forward(feeds)
    for name, value in oracle(made, feeds).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
    return graph


def dense(name="w", inputs=4, outputs=5):
    return constant(name, reals(inputs, outputs))


# --- products


def test_a_product_and_the_constant_added_to_it_are_one_op():
    nodes = [node("MatMul", ["x", "w"], ["p"], name="layer"), node("Add", ["b", "p"], ["y"])]
    graph = check(model(nodes, {"x": ["n", 4]}, ["y"], [dense(), constant("b", reals(1, 5))]))
    assert kinds(graph) == ["fully_connected"]
    assert graph.nodes[0].name == "layer"
    assert graph.nodes[0].outputs == ("y",)
    assert graph.nodes[0].op.bias.shape == (5,)


@pytest.mark.parametrize("through", ["", "Identity"])
def test_a_product_that_others_read_too_keeps_its_sum_apart(through):
    nodes = [node("MatMul", ["x", "w"], ["p"])]
    if through:
        nodes.append(node("Identity", ["p"], ["q"]))
    source = "q" if through else "p"
    nodes += [node("Add", [source, "b"], ["y"]), node("Tanh", [source], ["z"])]
    graph = check(model(nodes, {"x": ["n", 4]}, ["y", "z"], [dense(), constant("b", reals(5))]))
    assert sorted(kinds(graph)) == ["Add", "fully_connected", "tanh"]


def test_a_sum_that_differs_by_row_is_no_bias():
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    graph = check(model(nodes, {"x": ["n", 3, 4]}, ["y"], [dense(), constant("b", reals(3, 1))]))
    assert kinds(graph) == ["fully_connected", "Add"]


def test_a_sum_that_widens_the_result_is_no_bias():
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    graph = check(model(nodes, {"x": ["n", 4]}, ["y"], [dense(outputs=1), constant("b", reals(5))]))
    assert kinds(graph) == ["fully_connected", "Add"]
    assert graph.shapes["y"] == (None, 5)


def test_factors_of_a_gemm_are_in_its_weights():
    weights, bias = reals(5, 4), reals(5)
    made = model(
        [node("Gemm", ["x", "w", "b"], ["y"], alpha=0.5, beta=-2.0, transB=1)],
        {"x": ["n", 4]},
        ["y"],
        [constant("w", weights), constant("b", bias)],
    )
    (layer,) = check(made).nodes
    np.testing.assert_array_equal(layer.op.weights, np.float32(0.5) * weights)
    np.testing.assert_array_equal(layer.op.bias, np.float32(-2) * bias)
    assert layer.op.precision == Precision.ANY


def test_products_without_constant_weights_run_in_software():
    nodes = [node("Transpose", ["x"], ["t"]), node("MatMul", ["x", "t"], ["y"])]
    graph = check(model(nodes, {"x": [3, 4]}, ["y"]))
    (product,) = (n.op for n in graph.nodes)
    assert isinstance(product, SoftwareOnly)
    assert product.operators == ("Transpose", "MatMul")
    assert "constant matrix" in product.reason
    assert product.flops([(3, 4), (4, 3)]) == 2 * 3 * 3 * 4


def test_products_in_another_type_than_the_inputs_run_in_software():
    nodes = [
        node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
        node("MatMul", ["d", "w"], ["p"]),
        node("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = check(model(nodes, {"x": ["n", 4]}, ["y"], [constant("w", RNG.normal(size=(4, 2)))]))
    assert graph.dtype == "float32"
    assert kinds(graph) == ["Cast", "MatMul", "Cast"]


def test_a_float64_model_is_a_float64_graph():
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        {"x": ["n", 4]},
        ["y"],
        [constant("w", RNG.normal(size=(4, 2)))],
        dtype=np.float64,
    )
    graph = check(made)
    assert graph.dtype == "float64"
    assert graph.nodes[0].op.weights.dtype == np.float64


# --- activations, sums, concatenations


@pytest.mark.parametrize(
    ("op", "extra", "attributes", "kind"),
    [
        ("Tanh", [], {}, "tanh"),
        ("Sigmoid", [], {}, "sigmoid"),
        ("Relu", [], {}, "relu"),
        ("Gelu", [], {}, "gelu"),
        ("Gelu", [], {"approximate": "tanh"}, "Gelu"),
        ("Clip", [0.0, 1.0], {}, "bounded_relu"),
        ("Clip", [-1.0, 1.0], {}, "Clip"),
        ("Clip", [0.0], {}, "Clip"),
        ("Softmax", [], {"axis": 2}, "softmax"),
        ("Softmax", [], {"axis": 1}, "Softmax"),
    ],
)
def test_activations_are_ops_where_there_is_one(op, extra, attributes, kind):
    constants = [constant(f"c{i}", np.float32(value)) for i, value in enumerate(extra)]
    made = model(
        [node(op, ["x", *(c.name for c in constants)], ["y"], **attributes)], {"x": ["n", 3, 4]}, ["y"], constants
    )
    (only,) = check(made).nodes
    assert only.op.kind == kind
    assert isinstance(only.op, Elementwise) == kind.islower()


def test_values_of_one_shape_are_added_and_joined_by_ops():
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("Add", ["x", "t"], ["a"]),
        node("Concat", ["a", "t"], ["c"], axis=1),
        node("Sum", ["c", "c", "c"], ["y"]),
    ]
    graph = check(model(nodes, {"x": ["n", 4]}, ["y"]))
    assert [type(n.op) for n in graph.nodes] == [Elementwise, Add, Concat, Add]


def test_values_that_broadcast_or_join_along_the_batch_run_in_software():
    nodes = [
        node("ReduceMean", ["x", "axes"], ["m"]),
        node("Add", ["x", "m"], ["a"]),
        node("Concat", ["a", "x"], ["y"], axis=0),
    ]
    graph = check(model(nodes, {"x": ["n", 4]}, ["y"], [constant("axes", i64(1))]))
    assert kinds(graph) == ["ReduceMean", "Add", "Concat"]
    assert all(isinstance(n.op, SoftwareOnly) for n in graph.nodes)
    assert graph.shapes["y"] == (None, 4)


def test_convolution_and_pooling_run_in_software_and_say_why():
    nodes = [node("Conv", ["x", "w"], ["c"]), node("MaxPool", ["c"], ["y"], kernel_shape=[2])]
    graph = check(model(nodes, {"x": ["n", 2, 8]}, ["y"], [constant("w", reals(3, 2, 3))]))
    assert kinds(graph) == ["Conv", "MaxPool"]
    assert "only fully connected layers are put on the NPU" in graph.nodes[0].op.reason
    assert graph.nodes[0].op.flops([(None, 2, 8)]) == 2 * 3 * 6 * (2 * 3)
    assert graph.nodes[0].op.parameters == 18


# --- integers


def test_an_int4_matrix_keeps_its_integers_and_scales():
    q, scales = RNG.integers(-7, 8, (4, 5)), np.abs(reals(5)) + np.float32(0.1)
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"], axis=1), node("MatMul", ["x", "w"], ["y"])]
    graph = check(model(nodes, {"x": ["n", 4]}, ["y"], [int4("q", q), constant("s", scales)]))
    (layer,) = graph.nodes
    assert isinstance(layer.op.weights, Quantized)
    assert layer.op.precision == Precision.INT4
    assert layer.op.int4_exact
    assert layer.op.weights.bits == 4
    np.testing.assert_array_equal(layer.op.weights.values, q.T)
    np.testing.assert_array_equal(layer.op.weights.scales, scales.astype(np.float64))


def test_minus_eight_takes_a_matrix_off_the_int4_grid():
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    made = model(nodes, {"x": ["n", 1]}, ["y"], [int4("q", [[-8, 7]]), constant("s", np.float32(0.5))])
    (layer,) = check(made).nodes
    assert layer.op.precision == Precision.INT8
    assert layer.op.weights.values.tolist() == [[-8], [7]]


def test_unsigned_integers_lose_their_zero_point_not_their_values():
    nodes = [node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0), node("Gemm", ["x", "w"], ["y"], transB=1)]
    constants = [
        constant("q", np.array([[0, 255], [10, 20]], np.uint8)),
        constant("s", np.array([0.5, 0.25], np.float32)),
        constant("z", np.array([0, 15], np.uint8)),
    ]
    (layer,) = check(model(nodes, {"x": ["n", 2]}, ["y"], constants)).nodes
    assert layer.op.weights.values.tolist() == [[0, 255], [-5, 5]]
    assert layer.op.weights.values.dtype == np.int16
    assert layer.op.precision == Precision.ANY  # 255 takes more than 8 bits with its sign


def test_integers_survive_a_transpose():
    q = RNG.integers(-7, 8, (5, 4))
    nodes = [
        node("DequantizeLinear", ["q", "s"], ["w"], axis=0),
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["y"]),
    ]
    (layer,) = check(model(nodes, {"x": ["n", 4]}, ["y"], [int4("q", q), constant("s", np.abs(reals(5)))])).nodes
    np.testing.assert_array_equal(layer.op.weights.values, q)


def test_scales_by_block_become_reals():
    q = RNG.integers(-7, 8, (4, 2))
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=2), node("MatMul", ["x", "w"], ["y"])]
    (layer,) = check(model(nodes, {"x": ["n", 4]}, ["y"], [int4("q", q), constant("s", np.abs(reals(2, 2)))])).nodes
    assert not isinstance(layer.op.weights, Quantized)


class Samples(CalibrationDataReader):
    def __init__(self, name, width):
        self.left = iter([{name: reals(8, width)} for _ in range(4)])

    def get_next(self):
        return next(self.left, None)


@pytest.fixture
def perceptron(tmp_path):
    nodes = [
        node("MatMul", ["x", "w1"], ["p"]),
        node("Add", ["p", "b1"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("Gemm", ["r", "w2", "b2"], ["y"], transB=1),
    ]
    constants = [
        constant("w1", reals(6, 8)),
        constant("b1", reals(8)),
        constant("w2", reals(3, 8)),
        constant("b2", reals(3)),
    ]
    path = tmp_path / "perceptron.onnx"
    onnx.save(model(nodes, {"x": ["n", 6]}, ["y"], constants), path)
    return path


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QInt4])
def test_what_onnxruntimes_quantiser_writes_keeps_its_integers(perceptron, tmp_path, per_channel, weights):
    target = tmp_path / "quantised.onnx"
    quantize_static(
        perceptron, target, Samples("x", 6), quant_format=QuantFormat.QDQ, per_channel=per_channel, weight_type=weights
    )
    graph = check(onnx.load(target))
    layers = [n.op for n in graph.nodes if isinstance(n.op, FullyConnectedOp)]
    assert len(layers) == 2
    assert all(isinstance(op.weights, Quantized) for op in layers)
    assert [op.weights.scales.size for op in layers] == ([8, 3] if per_channel else [1, 1])
    stored = {
        tuple(t.dims)
        for t in onnx.load(target).graph.initializer
        if t.data_type in (TensorProto.INT8, TensorProto.INT4)
    }
    assert stored >= {(6, 8), (3, 8)}


def quantised_then_clipped(opset, *, by_output, clipped):
    """Quantised weights and activations, as Brevitas writes fewer bits than 8: QuantizeLinear, Clip, Dequantize."""
    low, high = (-7, 7) if clipped else (-127, 127)
    integers = RNG.integers(low, high + 1, (5, 6))
    scale = np.float32([0.25, 0.5, 1, 2, 4]) if by_output else np.float32(0.25)
    zero = np.zeros(np.shape(scale), np.int8)
    axis = {"axis": 0} if by_output else {}  # opsets before 13 know one scale only
    nodes = [
        node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], **axis),
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
    ]
    if clipped:
        nodes += [node("Clip", ["wq", "low", "high"], ["wc"]), node("Clip", ["xq", "low", "high"], ["xc"])]
    nodes += [
        node("DequantizeLinear", ["wc" if clipped else "wq", "ws", "wz"], ["wd"], **axis),
        node("DequantizeLinear", ["xc" if clipped else "xq", "xs", "xz"], ["xd"]),
        node("Gemm", ["xd", "wd", "bias"], ["y"], transB=1),
    ]
    constants = {
        "w": (integers * np.reshape(scale, (-1, 1))).astype(np.float32),
        "ws": scale,
        "wz": zero,
        "xs": np.float32(0.1),
        "xz": np.int8(0),
        "low": np.int8(low),
        "high": np.int8(high),
        "bias": reals(5),
    }
    made = model(
        nodes, {"x": ["n", 6]}, ["y"], [constant(name, value) for name, value in constants.items()], opset=opset
    )
    return made, integers


@pytest.mark.parametrize(
    ("opset", "by_output", "clipped"),
    [(10, False, False), (12, False, True), (13, True, False), (13, True, True), (18, True, True), (18, False, True)],
)
def test_quantised_models_of_older_opsets_keep_their_integers(opset, by_output, clipped):
    made, integers = quantised_then_clipped(opset, by_output=by_output, clipped=clipped)
    graph = load_onnx(made)
    x = reals(3, 6)
    (wanted,) = session(made).run(None, {"x": x})
    np.testing.assert_allclose(SoftwareModel(graph).forward({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)
    product = graph.producer("y").op
    assert isinstance(product.weights, Quantized)
    np.testing.assert_array_equal(product.weights.values, integers)
    assert product.precision == (Precision.INT4 if clipped else Precision.INT8)


def test_integer_products_of_older_opsets_are_dequantised():
    """The reference implementation, which such products run in, has no DequantizeLinear before opset 19."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearMatMul", ["q", "s", "z", "w", "s", "z", "s", "z"], ["p"]),
        node("DequantizeLinear", ["p", "s", "z"], ["y"]),
    ]
    weights = RNG.integers(-20, 21, (6, 4)).astype(np.int8)
    constants = [constant("s", np.float32(0.05)), constant("z", np.int8(3)), constant("w", weights)]
    made = model(nodes, {"x": ["n", 6]}, ["y"], constants, opset=13)
    x = reals(3, 6)
    (wanted,) = session(made).run(None, {"x": x})
    np.testing.assert_allclose(SoftwareModel(load_onnx(made)).forward({"x": x})["y"], wanted, rtol=1e-6)


def test_what_onnxruntimes_dynamic_quantiser_writes_runs_in_software(perceptron, tmp_path):
    target = tmp_path / "dynamic.onnx"
    quantize_dynamic(perceptron, target)
    graph = check(onnx.load(target))
    assert "MatMulInteger" in kinds(graph)
    assert "DynamicQuantizeLinear" in kinds(graph)


# --- shapes


def test_shape_arithmetic_is_followed():
    """x.reshape(len(x), -1) as PyTorch writes it: the product behind it knows its width."""
    nodes = [
        node("Shape", ["x"], ["extents"]),
        node("Gather", ["extents", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "front"], ["row"]),
        node("Concat", ["row", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["flat"]),
        node("MatMul", ["flat", "w"], ["y"]),
    ]
    constants = [constant("zero", np.array(0)), constant("front", i64(0)), constant("rest", i64(12)), dense(inputs=12)]
    graph = check(model(nodes, {"x": ["n", 3, 4]}, ["y"], constants))
    assert len(graph.nodes) == 2
    assert graph.nodes[1].op.kind == "fully_connected"
    assert graph.shapes["flat"] == (None, 12)


@pytest.mark.parametrize("asks", ["Equal", "Greater", "Div", "Max"])
def test_arithmetic_that_turns_at_some_batch_is_not_folded(asks):
    """Batches of 2 and 3 give the same here; 1 or 4 do not."""
    other = {"Equal": 1, "Greater": 1, "Div": 2, "Max": 3}[asks]
    nodes = [
        node("Shape", ["x"], ["n"], end=1),
        node(asks, ["n", "other"], ["a"]),
        node("Cast", ["a"], ["r"], to=TensorProto.FLOAT),
        node("Mul", ["x", "r"], ["y"]),
    ]
    made = model(nodes, {"x": ["n", 2]}, ["y"], [constant("other", i64(other))])
    for batch in (1, 2, 4):
        check(made, batch)


def test_the_shape_that_pytorch_writes_for_an_expansion_is_understood():
    nodes = [
        node("Shape", ["x"], ["n"], end=1),
        node("Concat", ["n", "width"], ["asked"], axis=0),
        node("Equal", ["asked", "minus"], ["kept"]),
        node("Where", ["kept", "ones", "asked"], ["extents"]),
        node("Expand", ["row", "extents"], ["rows"]),
        node("Add", ["x", "rows"], ["y"]),
    ]
    constants = [
        constant("width", i64(3)),
        constant("minus", i64(-1, -1)),
        constant("ones", i64(1, 1)),
        constant("row", reals(1, 3)),
    ]
    for batch in (1, 5):
        graph = check(model(nodes, {"x": ["n", 3]}, ["y"], constants), batch)
    assert graph.shapes["y"] == (None, 3)


def test_zeros_may_be_made_for_a_first_state():
    nodes = [
        node("Shape", ["x"], ["batch"], start=1, end=2),
        node("Concat", ["one", "batch", "units"], ["extents"], axis=0),
        node("ConstantOfShape", ["extents"], ["h0"]),
        node("GRU", ["x", "w", "r", "", "", "h0"], ["y", "last"], hidden_size=2),
    ]
    constants = [
        constant("one", i64(1)),
        constant("units", i64(2)),
        constant("w", reals(1, 6, 3)),
        constant("r", reals(1, 6, 2)),
    ]
    graph = check(model(nodes, {"x": [4, "n", 3]}, ["y", "last"], constants))
    assert kinds(graph) == ["Shape", "Concat", "ConstantOfShape", "GRU"]
    assert graph.shapes["last"] == (1, None, 2)


def test_a_first_state_that_is_not_zero_stays():
    nodes = [node("GRU", ["x", "w", "r", "", "", "h"], ["y"], hidden_size=2)]
    constants = [constant("w", reals(1, 6, 3)), constant("r", reals(1, 6, 2)), constant("h", reals(1, 1, 2))]
    graph = check(model(nodes, {"x": [4, 1, 3]}, ["y"], constants))
    assert graph.nodes[0].op.parameters == 6 * 3 + 6 * 2 + 2


def test_an_extent_of_one_at_the_front_stays_one():
    graph = check(model([node("Relu", ["x"], ["y"])], {"x": [1, 4]}, ["y"]))
    assert graph.inputs["x"] == (1, 4)


@pytest.mark.parametrize("extent", ["n", None, 0, -1])
def test_an_open_extent_at_the_front_is_the_batch(extent):
    made = model([node("Relu", ["x"], ["y"])], {"x": ["n", 4]}, ["y"])
    front = made.graph.input[0].type.tensor_type.shape.dim[0]
    front.Clear()
    if isinstance(extent, str):
        front.dim_param = extent
    elif extent is not None:
        front.dim_value = extent
    graph = load_onnx(made)
    assert graph.inputs["x"] == (None, 4)
    assert graph.shapes["y"] == (None, 4)


def test_the_batch_of_a_recurrent_network_may_come_second():
    nodes = [node("RNN", ["x", "w", "r"], ["y"], hidden_size=2)]
    graph = check(
        model(nodes, {"x": [5, "n", 3]}, ["y"], [constant("w", reals(1, 2, 3)), constant("r", reals(1, 2, 2))])
    )
    assert graph.inputs["x"] == (5, None, 3)
    assert graph.shapes["y"] == (5, 1, None, 2)


def test_two_inputs_share_the_batch():
    nodes = [node("Concat", ["u", "v"], ["y"], axis=1)]
    graph = check(model(nodes, {"u": ["n", 2], "v": ["m", 3]}, ["y"]))
    assert graph.shapes["y"] == (None, 5)
    with pytest.raises(SpecError, match="one batch"):
        SoftwareModel(graph).forward({"u": reals(2, 2), "v": reals(3, 3)})


# --- sources and names


def test_a_model_may_be_a_path_bytes_or_a_message(tmp_path):
    made = model([node("Relu", ["x"], ["y"])], {"x": ["n", 4]}, ["y"])
    path = tmp_path / "small.onnx"
    path.write_bytes(made.SerializeToString())
    assert load_onnx(path).name == "small"
    assert load_onnx(str(path), name="other").name == "other"
    assert load_onnx(made.SerializeToString()).name == "test"
    assert load_onnx(made).outputs == ("y",)


def test_nodes_without_names_and_with_equal_names_get_their_own():
    nodes = [node("Tanh", ["x"], ["a"]), node("Tanh", ["a"], ["b"], name="t"), node("Tanh", ["b"], ["y"], name="t")]
    graph = load_onnx(model(nodes, {"x": ["n", 4]}, ["y"]))
    assert [n.name for n in graph.nodes] == ["Tanh_0", "t", "t.2"]


def test_a_constant_that_old_files_list_as_an_input_is_a_constant():
    made = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 4], "w": [4, 5]}, ["y"], [dense()], ir_version=3)
    graph = load_onnx(made)
    assert list(graph.inputs) == ["x"]


def test_functions_inside_a_model_are_written_out():
    made = model([node("Twice", ["x"], ["y"], domain="mine")], {"x": ["n", 4]}, ["y"], domains=["mine"])
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    made.functions.append(helper.make_function("mine", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 21)]))
    made.graph.output[0].type.CopyFrom(made.graph.input[0].type)
    assert kinds(check(made)) == ["add"]


def test_constants_of_every_form_are_folded():
    nodes = [
        node("Constant", [], ["a"], value=constant("", reals(4))),
        node("Constant", [], ["b"], value_float=2.0),
        node("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0, 4.0]),
        node("Constant", [], ["i"], value_int=1),
        node("Constant", [], ["shape"], value_ints=[1, 4]),
        node("Mul", ["a", "b"], ["ab"]),
        node("Add", ["ab", "c"], ["abc"]),
        node("Cast", ["i"], ["one"], to=TensorProto.FLOAT),
        node("Div", ["abc", "one"], ["d"]),
        node("Reshape", ["d", "shape"], ["e"]),
        node("Sub", ["x", "e"], ["y"]),
    ]
    graph = check(model(nodes, {"x": ["n", 4]}, ["y"]))
    assert kinds(graph) == ["Sub"]
