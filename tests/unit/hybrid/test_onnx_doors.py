"""Forms of ONNX files that other tools write: half precision, old opsets, integers, linear models, first states."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.onnx_import import load_onnx
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.running.executor import HybridExecutor
from reference.onnx_models import constant, model, node, oracle, session

RNG = np.random.default_rng(19)


def reals(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def kinds(graph):
    return [kind for n in graph.nodes for kind in getattr(n.op, "operators", [n.op.kind])]


def forward(made, **feeds):
    return SoftwareModel(load_onnx(made)).forward(feeds)


# --- half precision


def halves():
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Add", ["p", "b"], ["q"]),
        node("Relu", ["q"], ["r"]),
        node("Cast", ["r"], ["d"], to=TensorProto.FLOAT),
        node("Cast", ["d"], ["h"], to=TensorProto.FLOAT16),
        node("Constant", [], ["c"], value=constant("", np.float16(0.25))),
        node("Mul", ["h", "c"], ["y"]),
    ]
    constants = [constant("w", reals(6, 5, dtype=np.float16)), constant("b", reals(5, dtype=np.float16))]
    return model(nodes, {"x": ["n", 6]}, ["y"], constants, dtype=np.float16)


def test_half_precision_is_computed_in_float32():
    made, x = halves(), reals(7, 6, dtype=np.float16)
    (wanted,) = session(made).run(None, {"x": x})
    assert wanted.dtype == np.float16
    found = forward(made, x=x)["y"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=3e-3, atol=3e-3)
    np.testing.assert_allclose(found, oracle(made, {"x": x})["y"], rtol=3e-3, atol=3e-3)
    assert kinds(load_onnx(made))[:2] == ["fully_connected", "relu"]


def test_bfloat16_weights_are_read():
    weights = reals(4, 3)
    made = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 4]}, ["y"], [constant("w", weights)])
    raw = (weights.view(np.uint32) >> 16).astype(np.uint16)
    made.graph.initializer[0].CopyFrom(helper.make_tensor("w", TensorProto.BFLOAT16, (4, 3), raw.tobytes(), raw=True))
    (layer,) = load_onnx(made).nodes
    np.testing.assert_array_equal(layer.op.weights.T, (raw.astype(np.uint32) << 16).view(np.float32))


def test_half_a_constant_of_half_precision_is_refused():
    made = halves()
    made.graph.initializer[0].raw_data = made.graph.initializer[0].raw_data[:-3]
    with pytest.raises(SpecError, match=r"`w`|breaks a rule"):
        load_onnx(made)


# --- old opsets


@pytest.mark.parametrize("opset", [9, 10])
def test_old_opsets_agree_with_onnxruntime(opset):
    nodes = [
        node("Gemm", ["x", "w", "b"], ["p"], transB=1),
        node("Clip", ["p"], ["q"], min=0.0, max=1.0),
        node("Dropout", ["q"], ["d"], ratio=0.5),
        node("Unsqueeze", ["d"], ["u"], axes=[1]),
        node("Pad", ["u"], ["f"], pads=[0, 0, 1, 0, 0, 1], mode="constant"),
        node("Squeeze", ["f"], ["s"], axes=[1]),
        node("ReduceMean", ["s"], ["m"], axes=[1], keepdims=1),
        node("Sub", ["s", "m"], ["z"]),
        node("Softmax", ["z"], ["y"]),
    ]
    made = model(
        nodes, {"x": ["n", 6]}, ["y"], [constant("w", reals(5, 6)), constant("b", reals(5))], opset=opset, ir_version=4
    )
    x = reals(4, 6)
    np.testing.assert_allclose(forward(made, x=x)["y"], session(made).run(None, {"x": x})[0], atol=1e-6)
    assert kinds(load_onnx(made))[:2] == ["fully_connected", "bounded_relu"]


@pytest.mark.parametrize("opset", [9, 10])
def test_constants_of_old_opsets_are_folded(opset):
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("Slice", ["t"], ["s"], axes=[0], starts=[0], ends=[4]) if opset < 10
        else node("Slice", ["t", "from", "to", "axes"], ["s"]),
        node("Clip", ["s"], ["c"], min=-0.5, max=0.5),
        node("Squeeze", ["one"], ["scale"], axes=[0]),
        node("Mul", ["c", "scale"], ["v"]),
        node("MatMul", ["x", "v"], ["y"]),
    ]  # fmt: skip
    numbers = {"from": [0], "to": [4], "axes": [0]} if opset >= 10 else {}
    constants = [constant(name, np.array(value, np.int64)) for name, value in numbers.items()]
    constants += [constant("w", reals(3, 6)), constant("one", np.array([2.0], np.float32))]
    made = model(nodes, {"x": ["n", 4]}, ["y"], constants, opset=opset, ir_version=4)
    x = reals(5, 4)
    np.testing.assert_allclose(forward(made, x=x)["y"], session(made).run(None, {"x": x})[0], atol=1e-6)
    assert kinds(load_onnx(made)) == ["fully_connected"]


# --- integers


def test_integers_come_in_as_they_are():
    """Rows of a table by number, as an embedding has them, beside a real input."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"], axis=0),
        node("Concat", ["e", "x"], ["c"], axis=1),
        node("MatMul", ["c", "w"], ["y"]),
    ]
    constants = [constant("table", reals(10, 3)), constant("w", reals(5, 4))]
    made = model(nodes, {"ids": ["n"], "x": ["n", 2]}, ["y"], constants)
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    feeds = {"ids": np.array([9, 0, 3]), "x": reals(3, 2)}
    np.testing.assert_allclose(forward(made, **feeds)["y"], session(made).run(None, feeds)[0], atol=1e-6)
    assert "fully_connected" in kinds(load_onnx(made))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int64, bool])
def test_every_kind_of_integer_may_come_in(dtype):
    nodes = [node("Cast", ["x"], ["r"], to=TensorProto.FLOAT), node("MatMul", ["r", "w"], ["y"])]
    made = model(nodes, {"x": ["n", 4]}, ["y"], [constant("w", reals(4, 2))], dtype=dtype)
    x = RNG.integers(0, 2, (3, 4)).astype(dtype)
    np.testing.assert_allclose(
        forward(made, x=x.astype(np.uint8))["y"], session(made).run(None, {"x": x})[0], atol=1e-6
    )


# --- linear models


@pytest.fixture(scope="module")
def iris():
    x, y = load_iris(return_X_y=True)
    return x.astype(np.float32), y


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("opset", [11, 21])
def test_a_linear_classifier_is_a_product(iris, classes, opset):
    x, y = iris
    y = np.minimum(y, classes - 1)
    fitted = LogisticRegression(max_iter=500).fit(x, y)
    made = to_onnx(fitted, x[:1], options={"zipmap": False}, target_opset=opset)
    found = forward(made, X=x)
    wanted = dict(zip(["label", "probabilities"], session(made).run(None, {"X": x}), strict=True))
    np.testing.assert_allclose(found["probabilities"], wanted["probabilities"], atol=2e-6)
    np.testing.assert_allclose(found["probabilities"], fitted.predict_proba(x), atol=1e-4)
    assert found["label"].tolist() == wanted["label"].tolist()
    graph = load_onnx(made)
    assert kinds(graph)[0] == "fully_connected"
    assert OperationRouter(objective="hw_only").plan(graph, calibration={"X": x}).jobs


@pytest.mark.parametrize("fitted", [LinearRegression, Ridge])
def test_a_linear_regressor_is_one_product(iris, fitted):
    x = iris[0]
    network = fitted().fit(x[:, :3], x[:, 2:])
    made = to_onnx(network, x[:1, :3], target_opset=21)
    found = forward(made, X=x[:, :3])["variable"]
    np.testing.assert_allclose(found, session(made).run(None, {"X": x[:, :3]})[0], atol=1e-5)
    np.testing.assert_allclose(found, network.predict(x[:, :3]), atol=1e-4)
    assert kinds(load_onnx(made)) == ["fully_connected", "identity"]


def test_names_of_classes_stay_out(iris):
    x, y = iris
    fitted = LogisticRegression(max_iter=500).fit(x, np.array(["a", "b", "c"])[y])
    made = to_onnx(fitted, x[:1], options={"zipmap": False}, target_opset=21)
    with pytest.raises(SpecError, match=r"STRING(.|\n)*outputs="):
        load_onnx(made)
    found = SoftwareModel(load_onnx(made, outputs=["probabilities"])).forward({"X": x})
    np.testing.assert_allclose(found["probabilities"], fitted.predict_proba(x), atol=1e-4)


def linear(op_type, **attributes):
    made = node(op_type, ["x"], ["y"], domain="ai.onnx.ml", name="m", **attributes)
    return model([made], {"x": ["n", 4]}, ["y"], domains=["ai.onnx.ml"])


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (linear("LinearRegressor", coefficients=[1.0] * 7, targets=2), "7 coefficients"),
        (linear("LinearRegressor", coefficients=[1.0] * 4, post_transform="PROBIT"), "post_transform"),
        (linear("LinearRegressor", targets=0), "0 coefficients"),
        (linear("LinearRegressor", coefficients=[1.0] * 5), "m"),
        (linear("Normalizer", norm="MAX"), "norm"),
        (linear("LinearRegressor", coefficients=[1.0] * 4, targets="four"), "rule of ONNX"),
        (
            model(
                [node("LinearRegressor", [], ["y"], domain="ai.onnx.ml", name="m", coefficients=[1.0] * 4)],
                {"x": ["n", 4]},
                ["y"],
                domains=["ai.onnx.ml"],
            ),
            "rule of ONNX",
        ),
    ],
)
def test_linear_models_that_cannot_be_are_refused_by_name(made, word):
    with pytest.raises(SpecError, match=f"`m.*{word}"):
        load_onnx(made)


# --- open extents


@pytest.mark.parametrize(("batch", "time"), [(1, 1), (3, 4), (6, 2)])
def test_two_extents_may_be_open(batch, time):
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Tanh", ["p"], ["t"]),
        node("ReduceMean", ["t", "axis"], ["m"], keepdims=0),
        node("MatMul", ["m", "v"], ["y"]),
    ]
    constants = [constant("w", reals(4, 5)), constant("v", reals(5, 2)), constant("axis", np.array([1]))]
    made = model(nodes, {"x": ["n", "time", 4]}, ["y", "t"], constants)
    x = reals(batch, time, 4)
    graph = load_onnx(made)
    assert graph.inputs == {"x": (None, None, 4)}
    assert graph.shapes["y"] == (None, 2)
    found = SoftwareModel(graph).forward({"x": x})
    for name, value in oracle(made, {"x": x}).items():
        np.testing.assert_allclose(found[name], value, atol=1e-5)
    with HybridExecutor(OperationRouter(objective="hw_only").plan(graph, calibration={"x": x})) as executor:
        np.testing.assert_allclose(executor.forward({"x": x})["t"], found["t"], atol=0.05)


def test_a_recurrent_network_may_be_open_in_time_and_batch():
    constants = [constant("w", reals(1, 6, 3)), constant("r", reals(1, 6, 2))]
    nodes = [node("GRU", ["x", "w", "r", "", "", "h"], ["y"], hidden_size=2)]
    made = model(nodes, {"x": ["time", "n", 3], "h": [1, "n", 2]}, ["y"], constants)
    feeds = {"x": reals(7, 4, 3), "h": reals(1, 4, 2)}
    np.testing.assert_allclose(forward(made, **feeds)["y"], session(made).run(None, feeds)[0], atol=1e-5)
    with pytest.raises(SpecError, match="inputs"):
        forward(made, x=feeds["x"], h=reals(1, 5, 2))


def test_inputs_without_any_number_are_refused():
    made = model([node("Relu", ["x"], ["y"])], {"x": ["n", "m", 4]}, ["y"])
    with pytest.raises(SpecError, match="at least one"):
        forward(made, x=reals(3, 0, 4))


# --- first states


@pytest.mark.parametrize("state", ["zeros", "numbers", "input"])
@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_a_first_state_of_one_row_is_that_of_every_row(op, state):
    gates = {"GRU": 3, "LSTM": 4}[op]
    first = {"h": np.zeros((1, 1, 2), np.float32) if state == "zeros" else reals(1, 1, 2)}
    if op == "LSTM":
        first["c"] = first["h"] / 2
    constants = [constant("w", reals(1, 2 * gates, 3)), constant("r", reals(1, 2 * gates, 2))]
    inputs = {"x": [5, "n", 3]}
    if state == "input":
        inputs |= {name: list(value.shape) for name, value in first.items()}
    else:
        constants += [constant(name, value) for name, value in first.items()]
    made = model([node(op, ["x", "w", "r", "", "", *first], ["y"], hidden_size=2)], inputs, ["y"], constants)
    x, fed = reals(5, 4, 3), first if state == "input" else {}
    found = forward(made, x=x, **fed)["y"]
    # One row at a time, which is all that the file itself can run.
    rows = [session(made).run(None, {"x": x[:, i : i + 1], **fed})[0] for i in range(4)]
    np.testing.assert_allclose(found, np.concatenate(rows, axis=2), atol=1e-6)


# --- products that are added


def step(bias=True):
    """One step of a recurrent network as its formula has it."""
    nodes = [
        node("MatMul", ["u", "w"], ["p"], name="in"),
        node("MatMul", ["s", "r"], ["q"], name="again"),
        node("Add", ["p", "q"], ["a"]),
        node("Add", ["a", "b"] if bias else ["a", "a"], ["z"]),
        node("Tanh", ["z"], ["y"]),
    ]
    constants = [constant("w", reals(3, 6)), constant("r", reals(6, 6)), constant("b", reals(6))]
    return model(nodes, {"u": ["n", 3], "s": ["n", 6]}, ["y"], constants)


def test_two_products_that_are_added_are_one():
    made, feeds = step(), {"u": reals(4, 3), "s": reals(4, 6)}
    graph = load_onnx(made)
    assert kinds(graph) == ["concat", "fully_connected", "tanh"]
    layer = graph.nodes[1]
    assert (layer.op.matrix.shape, layer.op.bias.shape) == ((6, 9), (6,))
    np.testing.assert_allclose(SoftwareModel(graph).forward(feeds)["y"], session(made).run(None, feeds)[0], atol=1e-6)
    plan = OperationRouter(objective="hw_only").plan(graph, calibration=feeds)
    assert [job.nodes for job in plan.jobs] == [("in",)]


def test_two_products_of_one_value_are_one_without_a_join():
    nodes = [
        node("Gemm", ["x", "w", "b"], ["p"], transB=1),
        node("Gemm", ["x", "v", "c"], ["q"], transB=1),
        node("Add", ["p", "q"], ["y"]),
    ]
    constants = [constant(name, reals(5, 4)) for name in "wv"] + [constant(name, reals(5)) for name in "bc"]
    made, x = model(nodes, {"x": ["n", 4]}, ["y"], constants), reals(3, 4)
    assert kinds(load_onnx(made)) == ["fully_connected"]
    np.testing.assert_allclose(forward(made, x=x)["y"], session(made).run(None, {"x": x})[0], atol=1e-5)


def test_a_product_that_others_read_stays_apart():
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("MatMul", ["u", "w"], ["q"]),
        node("Add", ["p", "q"], ["y"]),
        node("Tanh", ["p"], ["z"]),
    ]
    made = model(nodes, {"x": ["n", 4], "u": ["n", 4]}, ["y", "z"], [constant("w", reals(4, 5))])
    feeds = {"x": reals(3, 4), "u": reals(3, 4)}
    assert sorted(kinds(load_onnx(made))) == ["add", "fully_connected", "fully_connected", "tanh"]
    np.testing.assert_allclose(forward(made, **feeds)["y"], oracle(made, feeds)["y"], atol=1e-5)


def test_products_of_values_that_broadcast_stay_apart():
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("MatMul", ["u", "w"], ["q"]), node("Add", ["p", "q"], ["y"])]
    made = model(nodes, {"x": ["n", 4], "u": [1, 4]}, ["y"], [constant("w", reals(4, 5))])
    feeds = {"x": reals(3, 4), "u": reals(1, 4)}
    np.testing.assert_allclose(forward(made, **feeds)["y"], oracle(made, feeds)["y"], atol=1e-5)


# --- other trainers


def test_a_network_as_keras_writes_it():
    """Names with slashes and colons, an unknown batch, weights that stand before the nodes."""
    nodes = [
        node("MatMul", ["input_1:0", "sequential/dense/MatMul/ReadVariableOp:0"], ["sequential/dense/MatMul:0"],
             name="sequential/dense/MatMul"),
        node("Add", ["sequential/dense/MatMul:0", "sequential/dense/BiasAdd/ReadVariableOp:0"],
             ["sequential/dense/BiasAdd:0"], name="sequential/dense/BiasAdd"),
        node("Relu", ["sequential/dense/BiasAdd:0"], ["sequential/dense/Relu:0"], name="sequential/dense/Relu"),
        node("MatMul", ["sequential/dense/Relu:0", "sequential/dense_1/MatMul/ReadVariableOp:0"], ["dense_1"]),
        node("Softmax", ["dense_1"], ["Identity:0"], axis=-1),
    ]  # fmt: skip
    shapes = {"dense/MatMul": (8, 16), "dense/BiasAdd": (16,), "dense_1/MatMul": (16, 3)}
    constants = [constant(f"sequential/{name}/ReadVariableOp:0", reals(*shape)) for name, shape in shapes.items()]
    made = model(nodes, {"input_1:0": ["unk__7", 8]}, ["Identity:0"], constants, opset=13)
    x = reals(5, 8)
    assert kinds(load_onnx(made)) == ["fully_connected", "relu", "fully_connected", "softmax"]
    np.testing.assert_allclose(
        forward(made, **{"input_1:0": x})["Identity:0"], session(made).run(None, {"input_1:0": x})[0], atol=1e-6
    )
