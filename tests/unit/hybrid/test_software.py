"""Ops and graphs on the host, against plain definitions and finite differences."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array

from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.hybrid.model.graph import Node, OpGraph, graph_from_esn
from metalforge.hybrid.model.inputs import check_inputs
from metalforge.hybrid.model.onnx_import import load_onnx
from metalforge.hybrid.model.ops import (
    ELEMENTWISE,
    Add,
    Concat,
    Elementwise,
    FanOutOp,
    FullyConnectedOp,
    Gradient,
    GradientUpdate,
    MutationUpdate,
    Op,
    RecurrentStep,
    SoftwareOnly,
    TemporalIntegration,
)
from metalforge.hybrid.model.software import SoftwareModel, evaluate, in_dtype
from metalforge.reservoir.sparse import BlockSparse
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.quantize import quantize
from reference.esn import FUNCTIONS, states
from reference.onnx_models import constant, node
from reference.onnx_models import model as onnx_model

RNG = np.random.default_rng(3)
RTOL = {"float32": 1e-5, "float64": 1e-12}
ATOL = {"float32": 2e-6, "float64": 1e-14}


def reals(*shape, dtype="float64"):
    return RNG.normal(size=shape).astype(dtype)


def one(op, *inputs, **keywords):
    (found,) = evaluate(op, inputs, **keywords)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fully_connected_op_is_its_definition(dtype):
    w, b, x = reals(3, 4, dtype=dtype), reals(3, dtype=dtype), reals(2, 5, 4, dtype=dtype)
    wanted = np.einsum("oi,bti->bto", w.astype(float), x.astype(float)) + b
    found = one(FullyConnectedOp(weights=w, bias=b), x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=RTOL[dtype], atol=ATOL[dtype])
    np.testing.assert_allclose(one(FullyConnectedOp(weights=w), x), wanted - b, rtol=RTOL[dtype], atol=ATOL[dtype])


def test_a_fully_connected_op_takes_quantised_weights_and_given_ones():
    q, x = quantize(reals(3, 4), 4), reals(2, 4, dtype="float32")
    found = one(FullyConnectedOp(weights=q), x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, x @ (q.values * q.scales[:, None]).T, rtol=1e-5, atol=1e-6)
    other = reals(3, 4)
    np.testing.assert_allclose(one(FullyConnectedOp(weights=q), x, weights=other), x @ other.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(set(ELEMENTWISE) - {"softmax"}))
def test_activations_are_their_definitions(name, dtype):
    x = 3 * reals(50, dtype=dtype)
    found = one(Elementwise(function=name), x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, FUNCTIONS[name](x.astype(float)), rtol=RTOL[dtype], atol=ATOL[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_is_its_definition_and_does_not_overflow(dtype):
    x = reals(4, 5, dtype=dtype)
    e = np.exp(x.astype(float))
    np.testing.assert_allclose(one(Elementwise(function="softmax"), x), e / e.sum(-1, keepdims=True), rtol=2e-6)
    large = one(Elementwise(function="softmax"), x + np.array(1e4, dtype))
    assert large.dtype == dtype
    np.testing.assert_allclose(large.sum(-1), 1, rtol=1e-6)


def test_sums_joins_and_copies():
    a, b, c = reals(2, 3), reals(2, 3), reals(2, 1)
    np.testing.assert_allclose(one(Add(), a, b, a), 2 * a + b)
    np.testing.assert_array_equal(one(Concat(), a, c), np.hstack([a, c]))
    np.testing.assert_array_equal(one(Concat(axis=0), a, b), np.vstack([a, b]))
    np.testing.assert_array_equal(one(FanOutOp(), a), a)


def test_temporal_integration_is_a_leaky_sum():
    x = reals(6, 2, 3)
    op, state, wanted = TemporalIntegration(leak=0.3), None, np.zeros((2, 3))
    for step in x:
        (found,) = evaluate(op, [step], state=state)
        wanted = 0.7 * wanted + 0.3 * step
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
        state = found


def reservoir(dtype="float64", kind="dense", **options):
    w_res = reals(20, 20, dtype=dtype) / 5
    if kind == "csr":
        w_res = csr_array(np.where(RNG.random((20, 20)) < 0.3, w_res, 0))
    if kind == "block16":
        columns = np.tile(np.arange(0, 20, 2, dtype=np.int32), (2, 1))
        values = reals(2, 10, 16, dtype=dtype) / 5
        values[1, :, 4:] = 0
        w_res = BlockSparse(20, 20, columns, values)
    return EsnWeights(w_in=reals(20, 3, dtype=dtype), w_res=w_res, bias=reals(20, dtype=dtype), **options)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["dense", "csr", "block16"])
def test_a_recurrent_step_is_the_states_equation(dtype, kind):
    weights = reservoir(dtype, kind, leak=0.4)
    full = weights.w_res if kind == "dense" else weights.w_res.toarray() if kind == "csr" else weights.w_res.to_dense()
    u = reals(2, 7, 3, dtype=dtype)
    wanted = states(weights.w_in, full, weights.bias, 0.4, "tanh", u, np.zeros((2, 20)))
    state = None
    for t in range(7):
        (state,) = evaluate(RecurrentStep(weights=weights), [u[:, t]], state=state)
        assert state.dtype == dtype
        np.testing.assert_allclose(state, wanted[:, t], rtol=RTOL[dtype], atol=ATOL[dtype])


def test_float64_weights_in_a_float32_graph_compute_in_float32():
    u = reals(2, 3, dtype="float32")
    (state,) = evaluate(RecurrentStep(weights=reservoir()), [u])
    assert state.dtype == np.float32
    graph = OpGraph(
        inputs={"u": (None, 3)},
        nodes=(
            Node(name="step", op=RecurrentStep(weights=reservoir(kind="block16")), inputs=("u",)),
            Node(name="leaky", op=TemporalIntegration(leak=0.5), inputs=("step",)),
            Node(name="y", op=FullyConnectedOp(weights=reals(2, 20), bias=reals(2)), inputs=("leaky",)),
        ),
        outputs=("step", "leaky", "y"),
    )
    model = SoftwareModel(graph)
    for _ in range(2):
        assert {value.dtype for value in model.forward({"u": u}).values()} == {np.dtype(np.float32)}
    assert {value.dtype for value in model.state.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("op", [RecurrentStep(weights=reservoir()), TemporalIntegration(leak=0.5)])
def test_a_batch_of_another_size_wants_a_reset(op):
    (state,) = evaluate(op, [reals(2, 3)])
    with pytest.raises(SpecError, match=r"reset\(\).*size"):
        evaluate(op, [reals(4, 3)], state=state)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_gradients_agree_with_finite_differences(loss):
    w, x, target = reals(3, 4), reals(5, 4), RNG.dirichlet(np.ones(3), 5)

    def value(matrix):
        y = x @ matrix.T
        if loss == "mse":
            return np.mean(np.sum((y - target) ** 2, axis=1) / 3)
        return -np.mean(np.sum(target * (y - np.log(np.exp(y).sum(1, keepdims=True))), axis=1))

    found = one(Gradient(of="y", loss=loss), x, x @ w.T, target)
    for place in np.ndindex(w.shape):
        h = np.zeros_like(w)
        h[place] = 1e-5
        assert found[place] == pytest.approx((value(w + h) - value(w - h)) / 2e-5, rel=1e-6, abs=1e-9)


def test_updates_change_the_weights_they_are_given():
    w, g = reals(3, 4), reals(3, 4)
    np.testing.assert_allclose(one(GradientUpdate(of="y", rate=0.1), g, weights=w), w - 0.1 * g)
    with pytest.raises(SpecError, match=r"`weights`.*`y`"):
        evaluate(GradientUpdate(of="y", rate=0.1), [g])


def test_a_mutation_moves_a_fraction_of_the_weights_and_repeats():
    w = reals(60, 50)
    op = MutationUpdate(of="y", shape=(60, 50), fraction=0.1, scale=0.2, seed=4)
    first, again, next_call = (one(op, weights=w, call=call) for call in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != next_call)
    moved = first != w
    assert 0.07 < moved.mean() < 0.13  # 3000 entries: 0.1 within 5 standard errors
    assert np.std((first - w)[moved]) == pytest.approx(0.2, rel=0.2)
    assert one(op, weights=w.astype(np.float32)).dtype == np.float32


def test_operators_of_onnx_find_their_inputs_between_constants_and_gaps():
    x = reals(2, 3).astype(np.float32)
    nodes = [
        node("Sub", ["one", "x"], ["sub"]),
        node("Clip", ["x", "", "half"], ["clip"]),
        node("Split", ["x", "sizes"], ["first", "rest"], axis=1),
    ]
    constants = [
        constant("one", np.float32(1)),
        constant("half", np.float32(0.5)),
        constant("sizes", np.array([1, 2])),
    ]
    made = onnx_model(nodes, {"x": ["n", 3]}, ["sub", "clip", "first", "rest"], constants)
    (part,) = load_onnx(made).nodes
    sub, clip, first, rest = evaluate(part.op, [x])
    np.testing.assert_allclose(sub, 1 - x)
    np.testing.assert_allclose(clip, np.minimum(x, 0.5))
    np.testing.assert_array_equal(np.hstack([first, rest]), x)


def test_a_part_for_the_host_can_be_copied():
    made = onnx_model([node("Abs", ["x"], ["y"])], {"x": ["n", 3]}, ["y"])
    (part,) = load_onnx(made).nodes
    x = reals(2, 3).astype(np.float32)
    (found,) = pickle.loads(pickle.dumps(part.op)).run([x])
    np.testing.assert_array_equal(found, np.abs(x))


def test_an_op_that_is_not_known_is_named():
    class Other(Op):
        kind = "other"

    with pytest.raises(SpecError, match="no op of kind `other`"):
        evaluate(Other(), [reals(1, 1)])


def test_preparing_an_op_changes_its_type_and_nothing_else():
    layer = FullyConnectedOp(weights=quantize(reals(3, 4), 4), bias=reals(3))
    prepared = in_dtype(layer, "float32")
    assert prepared.weights.dtype == prepared.bias.dtype == np.float32
    np.testing.assert_allclose(prepared.weights, layer.matrix, rtol=1e-6)
    step = in_dtype(RecurrentStep(weights=reservoir(kind="csr")), "float32")
    assert step.weights.w_in.dtype == step.weights.w_res.dtype == np.float32
    assert in_dtype(Add(), "float32") == Add()


# --- whole graphs


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_echo_state_network_runs_as_a_graph(dtype):
    weights = reservoir(dtype, leak=0.7, passthrough=True)
    weights = weights.with_readout(reals(4, 23, dtype=dtype), reals(4, dtype=dtype))
    u = reals(2, 9, 3, dtype=dtype)
    wanted = states(weights.w_in, weights.w_res, weights.bias, 0.7, "tanh", u, np.zeros((2, 20)))
    outputs = np.concatenate([wanted, u], axis=-1) @ weights.w_out.T.astype(float) + weights.out_bias
    model = SoftwareModel(graph_from_esn(weights))
    found = [model.forward({"input": u[:, t]})["readout"] for t in range(9)]
    np.testing.assert_allclose(np.stack(found, axis=1), outputs, rtol=RTOL[dtype], atol=10 * ATOL[dtype])
    np.testing.assert_allclose(model.state["reservoir"], wanted[:, -1], rtol=1e-5, atol=1e-6)
    model.reset()
    assert model.state == {}
    np.testing.assert_array_equal(model.forward({"input": u[:, 0]})["readout"], found[0])


def test_heads_have_their_own_activations():
    heads = HeadLayout(name="two", heads=(HeadSpec(name="p", width=3, activation="softmax"), HeadSpec(name="v")))
    weights = reservoir().with_readout(reals(4, 20), reals(4), heads=heads)
    u = reals(2, 3)
    found = SoftwareModel(graph_from_esn(weights)).forward({"input": u})
    state = np.tanh(u @ weights.w_in.T + weights.bias)
    linear = state @ weights.w_out.T + weights.out_bias
    e = np.exp(linear[:, :3])
    np.testing.assert_allclose(found["p"], e / e.sum(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(found["v"], linear[:, 3:], rtol=1e-12)


def learner(*extra, dtype="float64"):
    start = RNG.normal(size=(2, 3))
    nodes = (
        *extra,
        Node(name="y", op=FullyConnectedOp(weights=start), inputs=("x",)),
        Node(name="g", op=Gradient(of="y"), inputs=("x", "y", "t")),
        Node(name="w", op=GradientUpdate(of="y", rate=0.2), inputs=("g",)),
    )
    outputs = ("y", "w", *(n.name for n in extra))
    return start, OpGraph(inputs={"x": (None, 3), "t": (None, 2)}, nodes=nodes, outputs=outputs, dtype=dtype)


def test_gradient_updates_learn_and_leave_the_graph_alone():
    start, graph = learner()
    model, goal = SoftwareModel(graph), RNG.normal(size=(2, 3))
    for _ in range(300):
        x = RNG.normal(size=(16, 3))
        model.forward({"x": x, "t": x @ goal.T})
    np.testing.assert_allclose(model.weights["y"], goal, atol=1e-6)
    np.testing.assert_array_equal(graph["y"].op.weights, start)
    model.reset()
    np.testing.assert_array_equal(model.weights["y"], start)


def test_a_call_sees_the_weights_it_began_with_and_updates_add_up():
    mutation = Node(name="m", op=MutationUpdate(of="y", shape=(2, 3), fraction=1.0, scale=1.0, seed=1))
    start, graph = learner(mutation)
    assert [n.name for n in graph.nodes] == ["m", "y", "g", "w"]  # the weights change before `y` reads them
    x, t = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 2))
    model = SoftwareModel(graph)
    found = model.forward({"x": x, "t": t})
    np.testing.assert_allclose(found["y"], x @ start.T)
    slope = (x @ start.T - t).T @ x / 4
    np.testing.assert_allclose(found["w"], found["m"] - 0.2 * slope)
    np.testing.assert_array_equal(model.weights["y"], found["w"])
    np.testing.assert_allclose(model.forward({"x": x, "t": t})["y"], x @ found["w"].T)


def test_a_value_is_made_once():
    nodes = [Node(name=name, op=FanOutOp(), inputs=("x",), outputs=("y",)) for name in "ab"]
    with pytest.raises(SpecError, match=r"`y`.*twice"):
        OpGraph(inputs={"x": (None, 3)}, nodes=tuple(nodes), outputs=("y",))


def test_a_call_that_fails_leaves_the_model_as_it_was():
    def two_rows(inputs):
        if inputs[0].shape != (2, 3):
            raise SpecError("cannot take its inputs")
        return inputs

    graph = OpGraph(
        inputs={"x": (None, 3)},
        nodes=(
            Node(name="kept", op=TemporalIntegration(leak=0.5), inputs=("x",)),
            Node(
                name="bad",
                op=SoftwareOnly(operators=("Reshape",), run=two_rows, output_shapes=((2, 3),)),
                inputs=("kept",),
            ),
        ),
        outputs=("bad",),
    )
    model = SoftwareModel(graph)
    model.forward({"x": np.ones((2, 3))})
    before = model.state["kept"].copy()
    model.state["kept"] = before[:1]  # what a batch of one would have left
    with pytest.raises(SpecError, match=r"`bad` \(Reshape\)"):
        model.forward({"x": np.ones((1, 3))})
    np.testing.assert_array_equal(model.state["kept"], before[:1])
    assert model.calls == 1


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "inputs must be x, t. Got none"),
        ({"x": np.ones((2, 3)), "t": np.ones((2, 2)), "z": 1}, "Got x, t, z"),
        ({"x": np.ones((2, 4)), "t": np.ones((2, 2))}, r"`x` must have shape \(batch, 3\). Got \(2, 4\)"),
        ({"x": np.ones(3), "t": np.ones((2, 2))}, r"Got \(3,\)"),
        ({"x": np.full((2, 3), np.nan), "t": np.ones((2, 2))}, "`x` must be finite"),
        ({"x": np.full((2, 3), 1e300), "t": np.ones((2, 2))}, "finite in float32"),
        ({"x": np.ones((2, 3), complex), "t": np.ones((2, 2))}, "real numbers. Got complex128"),
        ({"x": np.ones((2, 3)), "t": np.ones((3, 2))}, "one batch. Got 2 for `x`, 3 for `t`"),
        ({"x": np.ones((0, 3)), "t": np.ones((0, 2))}, "at least one sample"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message):
    _, graph = learner(dtype="float32")
    with pytest.raises(SpecError, match=message):
        check_inputs(graph, inputs)
