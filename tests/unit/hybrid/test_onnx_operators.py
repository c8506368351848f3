"""Each ONNX operator against the standard's reference implementation, alone in a model, for two batches."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.onnx_import import load_onnx
from metalforge.hybrid.model.onnx_import.operators import REASONS
from metalforge.hybrid.model.software import SoftwareModel
from reference.onnx_models import constant, model, node, oracle

RNG = np.random.default_rng(7)


def reals(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def positive(*shape):
    return np.abs(reals(*shape)) + np.float32(0.5)


def i64(*values):
    return np.array(values, np.int64)


X3 = ("b", 3, 4)
IMAGE = ("b", 2, 7, 6)


def case(op, shape=X3, *, constants=(), opset=21, first=(), outputs=("y",), data=reals, **attributes):
    """One operator: constants come after x, those of `first` before; a string is the name of another value."""
    label = ",".join([op, *(f"{k}={v}" for k, v in attributes.items())]) + ("" if opset == 21 else f"@{opset}")
    return pytest.param(op, shape, first, constants, opset, outputs, data, attributes, id=label)


CASES = [
    *(
        case(op)
        for op in (
            "Tanh",
            "Sigmoid",
            "Relu",
            "Elu",
            "Selu",
            "LeakyRelu",
            "HardSigmoid",
            "HardSwish",
            "Softplus",
            "Softsign",
            "Mish",
        )
    ),
    *(
        case(op)
        for op in (
            "Abs",
            "Neg",
            "Exp",
            "Erf",
            "Sin",
            "Cos",
            "Floor",
            "Ceil",
            "Round",
            "Sign",
            "Identity",
            "Flatten",
            "Shape",
            "Size",
        )
    ),
    *(case(op, data=positive) for op in ("Log", "Sqrt", "Reciprocal")),
    case("Gelu"),
    case("Gelu", approximate="tanh"),
    case("Elu", alpha=0.3),
    case("Selu", alpha=1.1, gamma=0.7),
    case("LeakyRelu", alpha=0.2),
    case("HardSigmoid", alpha=0.3, beta=0.1),
    case("PRelu", constants=[reals(4)]),
    case("Clip", constants=[np.float32(-0.5), np.float32(0.25)]),
    case("Clip", constants=[np.float32(0), np.float32(1)]),
    case("Clip", constants=[None, np.float32(0.25)]),
    *(case(op, constants=[reals(3, 1)]) for op in ("Add", "Sub", "Mul", "Max", "Min", "Sum")),
    *(case(op, first=[reals(4)]) for op in ("Add", "Sub", "Mul", "Div")),
    case("Div", constants=[positive(4)]),
    case("Pow", data=positive, constants=[np.float32(1.5)]),
    *(case(op, constants=["x"]) for op in ("Add", "Sub", "Mul", "Sum")),
    *(case(op, constants=[np.zeros(4, np.float32)]) for op in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")),
    case("Gemm", ("b", 4), constants=[reals(4, 5), reals(5)], alpha=0.5, beta=2.0),
    case("Gemm", ("b", 4), constants=[reals(5, 4)], transB=1),
    case("Gemm", (4, 3), constants=[reals(4, 5), reals(3, 1)], transA=1),
    case("Gemm", (3, 4), constants=[reals(4, 5), reals(3, 5)]),
    case("Gemm", ("b", 4), first=[reals(4, 6)], transA=1, transB=1),
    case("MatMul", constants=[reals(4, 5)]),
    case("MatMul", first=[reals(2, 3)]),
    case("MatMul", constants=[reals(4)]),
    case("Softmax"),
    case("Softmax", axis=1),
    case("Softmax", opset=11),
    case("Softmax", opset=12, axis=2),
    case("LogSoftmax", axis=-2),
    case("LogSoftmax", opset=11, axis=1),
    *(
        case(f"Reduce{name}", constants=[i64(1)], opset=18, data=positive)
        for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")
    ),
    case("ReduceMean", opset=11, axes=[1, -1], keepdims=0),
    case("ReduceSum", opset=11, axes=[2]),
    case("ReduceMax", opset=18),
    case("ReduceSum", opset=18, noop_with_empty_axes=1),
    case("ArgMax", axis=1),
    case("ArgMax", axis=-1, keepdims=0, select_last_index=1),
    case("ArgMin", axis=2),
    case("BatchNormalization", constants=[reals(3), reals(3), reals(3), positive(3)], epsilon=1e-3),
    case("LayerNormalization", constants=[reals(4), reals(4)]),
    case("LayerNormalization", constants=[reals(3, 4)], axis=1),
    case("Reshape", constants=[i64(0, 2, -1)]),
    case("Reshape", constants=[i64(-1, 4)]),
    case("Flatten", axis=2),
    case("Flatten", axis=-1),
    case("Flatten", axis=0),
    case("Transpose"),
    case("Transpose", perm=[2, 0, 1]),
    case("Squeeze", ("b", 1, 4), constants=[i64(1)]),
    case("Squeeze", ("b", 1, 4), opset=11, axes=[1]),
    case("Unsqueeze", constants=[i64(0, -1)]),
    case("Unsqueeze", opset=11, axes=[1]),
    case("Slice", constants=[i64(1), i64(9), i64(2)]),
    case("Slice", constants=[i64(-1, 0), i64(-99, 4), i64(2, 1), i64(-1, 2)]),
    case("Slice", constants=[i64(0, 0, 1), i64(99, 2, 3)]),
    case("Gather", constants=[i64(-1, 0, 0)], axis=1),
    case("Gather", constants=[np.array(2)], axis=1),
    case("Split", constants=[i64(1, 2)], axis=1, outputs=("y", "z")),
    case("Split", ("b", 5), axis=1, outputs=("y", "z"), num_outputs=2),
    case("Split", opset=11, axis=2, outputs=("y", "z"), split=[3, 1]),
    case("Concat", constants=["x"], axis=1),
    case("Concat", constants=["x"], axis=0),
    case("Concat", constants=[reals(1, 3, 2)], shape=(1, 3, 4), axis=-1),
    case("Expand", ("b", 1, 4), constants=[i64(1, 3, 1)]),
    case("Tile", constants=[i64(1, 2, 3)]),
    case("Pad", constants=[i64(0, 1, 2, 0, 0, 1), np.float32(0.5)]),
    case("Pad", constants=[i64(1, 2), None, i64(-1)], mode="edge"),
    case("Pad", constants=[i64(0, 1, 1, 0, 0, 2)], mode="reflect"),
    case("Cast", to=7, data=lambda *shape: 3 * reals(*shape)),
    case("Cast", to=11),
    case("Cast", to=1),
    case("Shape", start=-3, end=2),
    case("Conv", IMAGE, constants=[reals(4, 2, 3, 3), reals(4)], pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]),
    case("Conv", IMAGE, constants=[reals(4, 1, 2, 3)], group=2, auto_pad="SAME_LOWER", strides=[2, 2]),
    case("Conv", ("b", 2, 9), constants=[reals(3, 2, 4)], auto_pad="SAME_UPPER"),
    case("Conv", ("b", 2, 9), constants=[reals(3, 2, 4)], auto_pad="VALID", kernel_shape=[4]),
    case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], ceil_mode=1),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 1]),
    case("AveragePool", IMAGE, kernel_shape=[3, 2], pads=[1, 1, 1, 0], strides=[1, 2]),
    case("AveragePool", IMAGE, kernel_shape=[3, 2], pads=[1, 1, 1, 0], strides=[2, 2], count_include_pad=1),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("GlobalAveragePool", IMAGE),
    case("GlobalMaxPool", IMAGE),
    case("QuantizeLinear", constants=[np.float32(0.05), np.int8(3)]),
    case("QuantizeLinear", constants=[np.float32(0.05)]),
    case("QuantizeLinear", constants=[positive(3), np.array([1, 2, 3], np.uint8)], axis=1),
    case("QuantizeLinear", constants=[np.float32(0.01)], output_dtype=5),
    case("DynamicQuantizeLinear", outputs=("y", "scale", "zero")),
    case("Dropout"),
    case("Dropout", constants=[np.float32(0.3), np.array(False)]),
    case("CastLike", constants=[np.float64(1)]),
    *(
        case(op, (5, "b", 3), constants=[reals(1, g * 4, 3), reals(1, g * 4, 4)], hidden_size=4)
        for op, g in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    ),
]


def build(op, shape, first, constants, opset, outputs, attributes):
    names, tensors = [], []
    for i, value in enumerate([*first, "x", *constants]):
        if value is None or isinstance(value, str):
            names.append(value or "")
        else:
            names.append(f"c{i}")
            tensors.append(constant(f"c{i}", value))
    return model([node(op, names, outputs, **attributes)], {"x": list(shape)}, outputs, tensors, opset=opset)


@pytest.mark.parametrize(("op", "shape", "first", "constants", "opset", "outputs", "data", "attributes"), CASES)
def test_an_operator_agrees_with_the_reference(op, shape, first, constants, opset, outputs, data, attributes):
    made = build(op, shape, first, constants, opset, outputs, attributes)
    graph = load_onnx(made)
    for batch in (1, 4):
        x = data(*(batch if isinstance(n, str) else n for n in shape))
        wanted = oracle(made, {"x": x})
        found = SoftwareModel(graph).forward({"x": x})
        for name in outputs:
            assert found[name].dtype == wanted[name].dtype
            assert found[name].shape == wanted[name].shape
            np.testing.assert_allclose(found[name], wanted[name], rtol=2e-6, atol=1e-6)
            declared = graph.shapes[name]
            assert [n for n in declared if n is not None] == [
                m for n, m in zip(declared, found[name].shape, strict=True) if n is not None
            ]


ELSEWHERE = {
    "And", "Or", "Not", "Equal", "Where", "Range", "ConstantOfShape", "MatMulInteger", "QLinearMatMul",
    "DequantizeLinear", "ArrayFeatureExtractor", "Scaler", "Constant",
}  # fmt: skip
"""Operators that take other inputs than reals: the tests below, and those of networks from scikit-learn."""


def test_every_operator_is_compared():
    tested = {parameters.values[0] for parameters in CASES}
    assert set(REASONS) - tested == ELSEWHERE


def test_a_squeeze_without_axes_leaves_a_batch_of_one_alone():
    made = model([node("Squeeze", ["x"], ["s"]), node("Flatten", ["s"], ["y"])], {"x": ["b", 1, 4]}, ["y"])
    check(made, reals(3, 1, 4))
    one = SoftwareModel(load_onnx(made)).forward({"x": reals(1, 1, 4)})
    assert one["y"].shape == (1, 4)  # onnxruntime squeezes the batch too, and its result has another rank


def check(made, x, rtol=2e-6):
    wanted, found = oracle(made, {"x": x}), SoftwareModel(load_onnx(made)).forward({"x": x})
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=1e-6)


def test_logic_agrees_with_the_reference():
    nodes = [
        node("Greater", ["x", "half"], ["large"]),
        node("Less", ["x", "zero"], ["small"]),
        node("Or", ["large", "small"], ["either"]),
        node("Not", ["either"], ["neither"]),
        node("And", ["neither", "either"], ["never"]),
        node("Equal", ["never", "small"], ["same"]),
        node("Where", ["same", "x", "half"], ["y"]),
    ]
    made = model(
        nodes, {"x": ["b", 9]}, ["y", "same"], [constant("half", np.float32(0.5)), constant("zero", np.float32(0))]
    )
    check(made, reals(5, 9))


def test_numbers_made_from_the_shape_agree_with_the_reference():
    nodes = [
        node("Shape", ["x"], ["extents"]),
        node("Gather", ["extents", "first"], ["batch"]),
        node("Squeeze", ["batch"], ["count"]),
        node("Range", ["start", "count", "step"], ["places"]),
        node("Cast", ["places"], ["real"], to=1),
        node("Unsqueeze", ["real", "last"], ["column"]),
        node("ConstantOfShape", ["extents"], ["ones"], value=constant("v", np.ones(1, np.float32))),
        node("Add", ["ones", "column"], ["sum"]),
        node("Add", ["sum", "x"], ["y"]),
    ]
    constants = [
        constant(n, v) for n, v in {"first": i64(0), "start": np.array(0), "step": np.array(1), "last": i64(-1)}.items()
    ]
    check(model(nodes, {"x": ["b", 3]}, ["y"], constants), reals(5, 3))


def test_integer_products_agree_with_the_reference():
    weights = RNG.integers(-127, 128, (4, 5)).astype(np.int8)
    constants = [
        constant("scale", np.float32(0.02)),
        constant("zero", np.uint8(120)),
        constant("w", weights),
        constant("w_scale", positive(5) / 100),
        constant("w_zero", np.zeros(5, np.int8)),
        constant("y_scale", np.float32(0.1)),
        constant("y_zero", np.uint8(100)),
    ]
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("MatMulInteger", ["q", "w", "zero", "w_zero"], ["i"]),
        node("QLinearMatMul", ["q", "scale", "zero", "w", "w_scale", "w_zero", "y_scale", "y_zero"], ["qy"]),
        node("DequantizeLinear", ["qy", "y_scale", "y_zero"], ["y"]),
    ]
    check(model(nodes, {"x": ["b", 4]}, ["i", "qy", "y"], constants), reals(6, 4))


def test_an_integer_product_that_onnxruntime_lacks_too_is_refused_by_name():
    nodes = [node("Cast", ["x"], ["a"], to=2), node("MatMulInteger", ["a", "b", "zero"], ["y"], name="product")]
    constants = [constant("b", np.ones((4, 2), np.int8)), constant("zero", np.array([1, 2, 3], np.uint8))]
    with pytest.raises(SpecError, match="`product`"):  # a zero point of its own for every row
        load_onnx(model(nodes, {"x": [3, 4]}, ["y"], constants))


def test_integer_products_do_not_saturate():
    """Pairs of 8-bit products do not fit the 16 bits in which some processors add them."""
    weights = np.full((8, 2), 127, np.int8)
    nodes = [node("Cast", ["x"], ["a"], to=2), node("MatMulInteger", ["a", "w"], ["y"])]
    made = model(nodes, {"x": ["b", 8]}, ["y"], [constant("w", weights)])
    found = SoftwareModel(load_onnx(made)).forward({"x": np.full((3, 8), 255, np.float32)})["y"]
    assert found.tolist() == [[8 * 127 * 255] * 2] * 3


def test_integers_divide_towards_zero():
    nodes = [node("Cast", ["x"], ["i"], to=7), node("Div", ["i", "d"], ["y"])]
    made = model(nodes, {"x": ["b", 3]}, ["y"], [constant("d", i64(2, -2, 3))])
    found = SoftwareModel(load_onnx(made)).forward({"x": np.array([[-7, 7, -6]], np.float32)})["y"]
    assert found.tolist() == [[-3, -3, -2]]


@pytest.mark.parametrize("op", ["Erf", "Mish", "Softplus", "HardSwish", "Elu", "ReduceLogSumExp", "Softmax"])
def test_what_onnxruntime_lacks_in_float64_is_computed_all_the_same(op):
    made = model([node(op, ["x"], ["y"])], {"x": ["b", 3, 4]}, ["y"], dtype=np.float64)
    x = RNG.normal(size=(2, 3, 4))
    found = SoftwareModel(load_onnx(made)).forward({"x": x})["y"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, oracle(made, {"x": x})["y"], rtol=1e-12, atol=1e-12)


def alone(op, *constants, shape=("b", 3, 4), **attributes):
    return build(op, shape, (), constants, 21, ("y",), attributes)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (alone("Relu", slope=1), "slope"),
        (alone("MatMul", reals(3, 3)), "its inputs"),
        (alone("Expand", i64(2**20, 2**10, 1, 1, 1)), "134217728"),
        (alone("Tile", i64(1, 2**20, 2**20)), "134217728"),
        (alone("Pad", i64(0, 0, 2**30, 0, 0, 2**30)), "134217728"),
        (alone("Add", reals(2**20, 1, 1), shape=("b", 2**10)), "134217728"),
        (alone("Conv", reals(1, 3, 1), pads=[2**30, 2**30]), "134217728"),
        (alone("Conv", reals(2, 2, 1)), "its inputs"),
        (alone("MaxPool", kernel_shape=[5]), "window larger"),
        (alone("Split", i64(1, 1), axis=1), "Split"),
        (alone("Gather", i64(7), axis=1), "Gather"),
        (alone("Reshape", i64(5, -1)), "Reshape"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.graph.node[0].op_type,
)
def test_what_an_operator_cannot_take_is_said(made, message):
    with pytest.raises(SpecError, match=message):
        load_onnx(made)


def test_an_integer_divided_by_zero_is_refused():
    nodes = [node("Cast", ["x"], ["i"], to=7), node("Div", ["i", "d"], ["y"])]
    graph = model(nodes, {"x": ["b", 1]}, ["y"], [constant("d", i64(0))])
    with pytest.raises(SpecError, match="Div"):
        load_onnx(graph)


def test_a_large_batch_is_bounded_before_it_runs():
    made = alone("Tile", i64(1, 2**9, 2**9))
    graph = SoftwareModel(load_onnx(made))
    with pytest.raises(SpecError, match="134217728"):
        graph.forward({"x": reals(50, 3, 4)})
