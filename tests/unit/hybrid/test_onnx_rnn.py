"""ONNX's RNN is the recurrent step that the chip supports, over a sequence: on the NPU, and as onnxruntime runs it."""

from itertools import product

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from metalforge.hybrid import HybridExecutor, OperationRouter, deploy, load, load_onnx
from metalforge.hybrid.model.ops import RecurrentSequence
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.substrates.npu import EmulatedDevice

STEPS, BATCH, INPUTS, UNITS = 6, 5, 3, 8
X = np.random.default_rng(4).uniform(-1, 1, (STEPS, BATCH, INPUTS)).astype(np.float32)
START = np.random.default_rng(5).uniform(-1, 1, (1, BATCH, UNITS)).astype(np.float32)


def rnn(*, direction="forward", activation="Tanh", outputs=("y", "h"), start=False, bias=True, steps=STEPS, head=False):
    rng, ways = np.random.default_rng(1), 2 if direction == "bidirectional" else 1
    shapes = {"w": (ways, UNITS, INPUTS), "r": (ways, UNITS, UNITS)} | ({"b": (ways, 2 * UNITS)} if bias else {})
    constants = [numpy_helper.from_array((rng.normal(size=s) * 0.3).astype(np.float32), n) for n, s in shapes.items()]
    names = ["x", "w", "r", "b" if bias else "", "", "h0"][: 6 if start else 4]
    attributes = {"hidden_size": UNITS, "direction": direction, "activations": [activation] * ways}
    nodes = [helper.make_node("RNN", names, list(outputs), "cell", **attributes)]
    info = helper.make_tensor_value_info
    made = {"y": [steps, ways, "n", UNITS], "h": [ways, "n", UNITS]}
    if head:
        constants.append(numpy_helper.from_array(rng.normal(size=(UNITS, 2)).astype(np.float32), "v"))
        nodes.append(helper.make_node("MatMul", ["h", "v"], ["z"], "head"))
        outputs, made = ("z",), {"z": [ways, "n", 2]}
    given = [info("x", TensorProto.FLOAT, [steps, "n", INPUTS])]
    given += [info("h0", TensorProto.FLOAT, [ways, "n", UNITS])] * start
    results = [info(name, TensorProto.FLOAT, made[name]) for name in outputs if name]
    graph = helper.make_graph(nodes, "net", given, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def exact(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([out.name for out in session.get_outputs()], session.run(None, inputs), strict=True))


FORMS = [
    {"direction": d, "activation": a, "start": s, "bias": b}
    for d, a, s, b in product(("forward", "reverse"), ("Tanh", "Relu", "Sigmoid"), (False, True), (False, True))
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
def test_software_gives_what_onnxruntime_gives(form):
    model, inputs = rnn(**form), {"x": X} | ({"h0": START} if form["start"] else {})
    graph = load_onnx(model.SerializeToString())
    assert isinstance(graph.nodes[0].op, RecurrentSequence)
    found, wanted = SoftwareModel(graph).forward(inputs), exact(model, inputs)
    for name, value in wanted.items():
        assert np.allclose(found[name], value, atol=1e-6)


@pytest.mark.parametrize("outputs", [("y", "h"), ("y",), ("", "h")])
@pytest.mark.parametrize("n_slots", [None, 1])
def test_it_runs_on_the_npu(outputs, n_slots, tmp_path):
    model = rnn(outputs=outputs)
    plan = OperationRouter(objective="hw_only").plan(load_onnx(model.SerializeToString()), calibration={"x": X})
    assert plan["cell"].substrate == "npu+software"
    with EmulatedDevice(n_slots=n_slots) as device, HybridExecutor(plan, device) as executor:
        found = executor.forward(X)
        named = found if isinstance(found, dict) else {next(filter(None, outputs)): found}
        for name, value in exact(model, {"x": X}).items():
            assert 0 < np.abs(named[name] - value).max() < 0.05
        assert device.statistics().calls == STEPS  # each waits for the one before
        assert executor.statistics().fallbacks == 0
        deploy(plan, tmp_path / "rnn.mfd")
        with load(tmp_path / "rnn.mfd") as again:
            said = again.predict(X)
            for name, value in named.items():
                assert np.array_equal(said[name] if isinstance(said, dict) else said, value)


def test_what_reads_its_last_state_goes_there_too_and_steps_are_priced_one_by_one():
    model = rnn(outputs=("", "h"), head=True)
    graph = load_onnx(model.SerializeToString())
    plan = OperationRouter(objective="hw_only").plan(graph, calibration={"x": X})
    assert {row.op: row.substrate for row in plan.record.ops} == {"cell": "npu+software", "head": "npu"}
    one, two = (plan[name].device.latency.value for name in ("head", "cell"))
    assert two > 0.9 * STEPS * one
    with HybridExecutor(plan) as executor:
        assert np.abs(executor.forward(X) - exact(model, {"x": X})["z"]).max() < 0.2


@pytest.mark.parametrize(("form", "why"), [({"direction": "bidirectional"}, "one way"), ({"steps": "t"}, "one way")])
def test_other_recurrences_stay_in_software_and_say_why(form, why):
    model = rnn(**form)
    if "steps" in form:  # the batch is one, the steps are open
        for value in (*model.graph.input, *model.graph.output):
            dims = value.type.tensor_type.shape.dim
            next(d for d in dims if d.dim_param == "n").dim_value = 1
    graph = load_onnx(model.SerializeToString())
    plan = OperationRouter(objective="hw_only").plan(graph)
    assert plan["cell"].substrate == "software"
    assert why in plan["cell"].reason
    assert "gates" not in plan["cell"].reason
