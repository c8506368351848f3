"""Generated ONNX graphs against the standard's reference implementation, in the same precision.

The reference errs in `auto_pad` and `ceil_mode` and lacks forms of recurrent operators: models with those are held
against onnxruntime, which runs them whole.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.hybrid.model.onnx_import import load_onnx
from metalforge.hybrid.model.ops import Elementwise, FullyConnectedOp, Precision, SoftwareOnly
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.substrates.npu.quantize import Quantized
from reference.onnx_models import constant, int4, model, node, oracle, session

SEEDS = st.integers(0, 2**32 - 1)


def whole(made, feeds):
    """What onnxruntime gives of the whole model, by name of the output."""
    names = [output.name for output in made.graph.output]
    return dict(zip(names, session(made).run(names, feeds), strict=True))


def agree(made, feeds, rtol=1e-5, atol=1e-5, reference=oracle):
    """The graph, once its outputs are those of the reference."""
    graph = load_onnx(made)
    wanted, found = reference(made, feeds), SoftwareModel(graph).forward(feeds)
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=atol)
    return graph


class Net:
    """A graph under construction: values with their widths, and a generator for its weights."""

    def __init__(self, seed, width, dtype=np.float32):
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.nodes, self.constants, self.values = [], [], [("x", width)]

    def const(self, *shape):
        name = f"c{len(self.constants)}"
        self.constants.append(constant(name, self.rng.normal(size=shape).astype(self.dtype)))
        return name

    def add(self, op, inputs, width, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [name], name=f"n{len(self.nodes)}", **attributes))
        self.values.append((name, width))
        return name


def dense(net, draw, source, width):
    outputs = draw(st.integers(1, 6))
    if draw(st.booleans()):
        turned = draw(st.booleans())
        inputs = [source, net.const(*((outputs, width) if turned else (width, outputs)))]
        if draw(st.booleans()):
            inputs.append(net.const(*draw(st.sampled_from([(outputs,), (1, outputs), (1,), ()]))))
        alpha, beta = draw(st.sampled_from([(1.0, 1.0), (0.5, 2.0)]))
        net.add("Gemm", inputs, outputs, transB=int(turned), alpha=alpha, beta=beta)
        return
    product = net.add("MatMul", [source, net.const(width, outputs)], outputs)
    if draw(st.booleans()):
        pair = [product, net.const(*draw(st.sampled_from([(outputs,), (1, outputs), (1,)])))]
        net.add("Add", pair if draw(st.booleans()) else pair[::-1], outputs)


def extend(net, draw):
    """Add a layer, an activation, a residual sum, a concatenation or a scaling of some value so far."""
    source, width = draw(st.sampled_from(net.values))
    kind = draw(st.sampled_from(["dense", "dense", "activation", "residual", "concat", "constant"]))
    if kind == "dense":
        dense(net, draw, source, width)
    elif kind == "activation":
        # Gelu and Erf exist in float32 only in onnxruntime.
        single = ["Gelu", "Erf"] if net.dtype == np.float32 else []
        op = draw(st.sampled_from(["Tanh", "Sigmoid", "Relu", "Softmax", "Identity", "Clip", *single]))
        bounds = []
        if op == "Clip":
            net.constants += [
                constant(f"low{len(net.nodes)}", net.dtype(0)),
                constant(f"high{len(net.nodes)}", net.dtype(1)),
            ]
            bounds = [f"low{len(net.nodes)}", f"high{len(net.nodes)}"]
        net.add(op, [source, *bounds], width)
    elif kind == "residual":
        others = [name for name, n in net.values if n == width]
        net.add("Add", [source, draw(st.sampled_from(others))], width)
    elif kind == "concat" and width < 20:
        other, more = draw(st.sampled_from(net.values))
        net.add("Concat", [source, other], width + more, axis=draw(st.sampled_from([-1, 1])))
    else:
        op = draw(st.sampled_from(["Mul", "Sub"]))
        pair = [source, net.const(width)]
        net.add(op, pair if draw(st.booleans()) else pair[::-1], width)


@settings(max_examples=250)
@given(st.data(), SEEDS, st.integers(1, 6), st.integers(1, 10), st.sampled_from([np.float32, np.float64]))
def test_random_networks_agree(data, seed, width, layers, dtype):
    net = Net(seed, width, dtype)
    for _ in range(layers):
        extend(net, data.draw)
    outputs = {net.values[-1][0], data.draw(st.sampled_from(net.values[1:]))[0]}
    made = model(net.nodes, {"x": ["batch", width]}, sorted(outputs), net.constants, dtype=dtype)
    x = net.rng.normal(size=(data.draw(st.integers(1, 4)), width)).astype(dtype)
    scale = max(1.0, max(float(np.abs(v).max()) for v in oracle(made, {"x": x}).values()))
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    graph = agree(made, {"x": x}, rtol=tolerance, atol=tolerance * scale)
    # Every product with constant weights is an op that an NPU can take, whatever was folded into it.
    assert not any(
        isinstance(n.op, SoftwareOnly) and {"Gemm", "MatMul"}.intersection(n.op.operators) for n in graph.nodes
    )


@settings(max_examples=100)
@given(st.data(), SEEDS, st.integers(1, 2))
def test_random_convolutions_agree(data, seed, axes):
    draw, rng = data.draw, np.random.default_rng(seed)
    group, inputs, outputs = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(axes)]
    attributes = {
        "strides": [draw(st.integers(1, 2)) for _ in range(axes)],
        "dilations": [draw(st.integers(1, 2)) for _ in range(axes)],
        "group": group,
    }
    padding = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID", None]))
    if padding is None:
        attributes["pads"] = [draw(st.integers(0, 2)) for _ in range(2 * axes)]
    else:
        attributes["auto_pad"] = padding
        attributes["dilations"] = [1] * axes if padding != "VALID" else attributes["dilations"]
    weights = rng.normal(size=(group * outputs, inputs, *kernel)).astype(np.float32)
    bias = rng.normal(size=group * outputs).astype(np.float32)
    shape = ["batch", group * inputs, *(draw(st.integers(8, 11)) for _ in range(axes))]
    pool = draw(st.sampled_from(["MaxPool", "AveragePool", "GlobalAveragePool"]))
    window = {} if pool == "GlobalAveragePool" else {
        "kernel_shape": [2] * axes,
        "strides": [draw(st.integers(1, 2)) for _ in range(axes)],
        "ceil_mode": draw(st.integers(0, 1)),
        "pads": [draw(st.integers(0, 1)) for _ in range(2 * axes)],
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w", "b"], ["conv"], **attributes),
        node("Relu", ["conv"], ["relu"]),
        node(pool, ["relu"], ["pool"], **window),
        node("Flatten", ["pool"], ["y"]),
    ]
    made = model(nodes, {"x": shape}, ["y"], [constant("w", weights), constant("b", bias)])
    x = rng.normal(size=[draw(st.integers(1, 3)), *shape[1:]]).astype(np.float32)
    graph = agree(made, {"x": x}, reference=whole)
    (conv,) = (n.op for n in graph.nodes)
    assert isinstance(conv, SoftwareOnly)
    assert conv.operators == ("Conv", "Relu", pool, "Flatten")
    assert "NPU" in conv.reason


@settings(max_examples=120)
@given(
    st.data(),
    SEEDS,
    st.sampled_from(["RNN", "GRU", "LSTM"]),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.sampled_from([np.float32, np.float64]),
)
def test_random_recurrent_networks_agree(data, seed, op, direction, dtype):
    draw, rng = data.draw, np.random.default_rng(seed)
    gates, directions = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 2 if direction == "bidirectional" else 1
    time, batch, inputs, units = (draw(st.integers(1, 5)) for _ in range(4))

    def normal(*shape):
        return rng.normal(size=shape).astype(dtype)

    constants = {"w": normal(directions, gates * units, inputs), "r": normal(directions, gates * units, units)}
    names = ["x", "w", "r", "", "", "", ""]
    if draw(st.booleans()):
        constants["b"], names[3] = normal(directions, 2 * gates * units), "b"
    feeds = {"x": normal(time, batch, inputs)}
    shapes = {"x": [time, "batch", inputs]}
    for place, name in ((5, "h0"), (6, "c0")):
        if (place == 5 or op == "LSTM") and draw(st.booleans()):
            names[place], shapes[name], feeds[name] = (
                name,
                [directions, "batch", units],
                normal(directions, batch, units),
            )
    if op == "LSTM" and draw(st.booleans()):
        constants["p"] = normal(directions, 3 * units)
        names.append("p")
    attributes = {"linear_before_reset": draw(st.integers(0, 1))} if op == "GRU" else {}
    if op == "RNN" and dtype == np.float32 and draw(st.booleans()):
        attributes["activations"] = ["Relu"] * directions
    outputs = ["y", "last_h", "last_c"] if op == "LSTM" else ["y", "last_h"]
    if draw(st.booleans()):
        outputs[0] = ""  # an optional output that the model does not want
    while not names[-1]:
        names.pop()
    cell = node(op, names, outputs, hidden_size=units, direction=direction, **attributes)
    kept = [name for name in outputs if name]

    def made(real):
        return model([cell], shapes, kept, [constant(n, v.astype(real)) for n, v in constants.items()], dtype=real)

    def single(_, feeds):
        """In float32, all that onnxruntime has of GRU and LSTM."""
        found = whole(made(np.float32), {name: value.astype(np.float32) for name, value in feeds.items()})
        return {name: value.astype(dtype) for name, value in found.items()}

    graph = agree(made(dtype), feeds, reference=single)
    # What a chip can run step by step is an op of its own, whichever way it reads.
    assert [n.op.kind for n in graph.nodes] in ([op], ["recurrent_step"] if op == "RNN" else [op])


@settings(max_examples=120)
@given(
    st.data(),
    SEEDS,
    st.sampled_from(["int4", "uint4", "int8", "uint8"]),
    st.sampled_from(["tensor", "output", "input"]),
    st.booleans(),
)
def test_random_quantised_products_agree_and_keep_their_integers(data, seed, kind, scales, activations):
    draw, rng = data.draw, np.random.default_rng(seed)
    width, outputs = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    turned = draw(st.booleans())
    low, high = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255)}[kind]
    q = rng.integers(low, high + 1, (outputs, width) if turned else (width, outputs))
    axis = 0 if (scales == "output") == turned else 1
    count = 1 if scales == "tensor" else q.shape[axis]
    scale = (rng.uniform(0.01, 0.1, count) if scales != "tensor" else np.array(0.05)).astype(np.float32)
    zero = rng.integers(max(low, -3), 4, np.shape(scale)) if draw(st.booleans()) else np.zeros(np.shape(scale), int)

    def integers(name, values):
        if kind.endswith("int4"):
            return int4(name, values, signed=kind == "int4")
        return constant(name, np.asarray(values).astype(kind))

    nodes = [node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis)]
    constants = [integers("q", q), constant("s", scale), integers("z", zero)]
    source = "x"
    if activations:
        constants += [constant("xs", np.float32(0.02)), constant("xz", np.uint8(130))]
        nodes += [
            node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
            node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        ]
        source = "xd"
    alpha = draw(st.sampled_from([1.0, 0.5]))
    if turned or alpha != 1.0:
        nodes.append(node("Gemm", [source, "w"], ["p"], transB=int(turned), alpha=alpha))
    else:
        nodes.append(node("MatMul", [source, "w"], ["p"]))
    constants.append(constant("bias", rng.normal(size=outputs).astype(np.float32)))
    nodes.append(node("Add", ["p", "bias"], ["y"]))
    made = model(nodes, {"x": ["batch", width]}, ["y"], constants)
    x = rng.normal(size=(3, width)).astype(np.float32)
    graph = agree(made, {"x": x})
    product = graph.producer("y").op
    assert isinstance(product, FullyConnectedOp)
    whole = q - (zero if zero.ndim == 0 else zero.reshape((-1, 1) if axis == 0 else (1, -1)))
    whole = whole if turned else whole.T
    if scales == "input" and count > 1:
        assert not isinstance(product.weights, Quantized)  # scales by input are no scales by row
        return
    assert isinstance(product.weights, Quantized)
    np.testing.assert_array_equal(product.weights.values, whole)
    np.testing.assert_allclose(product.weights.scales, np.ravel(scale).astype(np.float64) * alpha)
    int4_fits, int8_fits = np.abs(whole).max() <= 7, whole.min() >= -128 and whole.max() <= 127
    assert product.precision == (Precision.INT4 if int4_fits else Precision.INT8 if int8_fits else Precision.ANY)


@settings(max_examples=25)
@given(SEEDS, st.integers(2, 5), st.sampled_from(["tanh", "softmax", "gelu"]))
def test_batches_do_not_mix(seed, batch, function):
    """A sample gives the same alone and among others: the batch axis is what the importer takes it for."""
    net = Net(seed, 4)
    net.add("Gemm", ["x", net.const(4, 6), net.const(6)], 6)
    net.add(function.capitalize(), ["v0"], 6)
    net.nodes.append(node("Reshape", ["v1", "shape"], ["r"]))
    net.constants.append(constant("shape", np.array([-1, 2, 3])))
    net.nodes.append(node("ReduceMean", ["r", "axes"], ["y"]))
    net.constants.append(constant("axes", np.array([1])))
    graph = load_onnx(model(net.nodes, {"x": ["batch", 4]}, ["y"], net.constants))
    assert graph.shapes["y"] == (None, 1, 3)
    assert any(isinstance(n.op, Elementwise) and n.op.function == function for n in graph.nodes)
    x = net.rng.normal(size=(batch, 4)).astype(np.float32)
    together = SoftwareModel(graph).forward({"x": x})["y"]
    alone = [SoftwareModel(graph).forward({"x": row[np.newaxis]})["y"][0] for row in x]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-5, atol=1e-6)
