"""What the ONNX importer refuses, and that it says why."""

import sys

import numpy as np
import onnx
import pytest
from onnx import helper

from metalforge.core.errors import PluginError, SpecError
from metalforge.hybrid.model.onnx_import import load_onnx, reading
from metalforge.hybrid.model.onnx_import.host import HostPart
from reference.onnx_models import constant, int4, model, node

RNG = np.random.default_rng(13)


def reals(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def dense(name="w", inputs=4, outputs=5):
    return constant(name, reals(inputs, outputs))


def relu(**options):
    return model([node("Relu", ["x"], ["y"], name="r")], {"x": ["n", 4]}, ["y"], **options)


def changed(change, made=None):
    made = relu() if made is None else made
    change(made)
    return made


def with_external_data():
    made = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 4]}, ["y"], [dense()])
    onnx.external_data_helper.set_external_data(made.graph.initializer[0], location="weights.bin")
    made.graph.initializer[0].ClearField("raw_data")
    return made


def with_branch():
    then = helper.make_graph([node("Relu", ["x"], ["t"])], "then", [], [helper.make_tensor_value_info("t", 1, None)])
    other = helper.make_graph([node("Tanh", ["x"], ["t"])], "else", [], [helper.make_tensor_value_info("t", 1, None)])
    branch = node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other)
    return model([branch], {"x": ["n", 4]}, ["y"], [constant("c", np.array(True))])


def in_training():
    constants = [constant("p", np.float32(0.5)), constant("t", np.array(True))]
    return model([node("Dropout", ["x", "p", "t"], ["y"])], {"x": ["n", 4]}, ["y"], constants)


def at_opset(version):
    return changed(lambda m: setattr(m.opset_import[0], "version", version))


def misfit():
    nodes = [node("Tanh", ["x"], ["t"]), node("MatMul", ["t", "w"], ["y"], name="m")]
    made = model(nodes, {"x": ["n", 4]}, ["y"], [dense()])
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    return made


def weights_of(array):
    return model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 4]}, ["y"], [constant("w", array)])


def rnn(constants=(), inputs=(), **attributes):
    weights = [constant("w", reals(1, 2, 3)), constant("r", reals(1, 2, 2)), *constants]
    made = node("RNN", ["x", "w", "r", *inputs], ["y"], name="cell", hidden_size=2, **attributes)
    return model([made], {"x": [5, "n", 3]}, ["y"], weights)


REFUSED = {
    "not a model": (b"hello, this is text", "not an ONNX"),
    "nothing": (b"", "no nodes"),
    "half a file": (relu().SerializeToString()[:-20], "not an ONNX"),
    "wrong type": (3.5, "path, bytes or an onnx.ModelProto. Got float"),
    "old opset": (at_opset(8), "opsets 9 to 25 are supported. Got 8"),
    "new opset": (at_opset(99), r"9 to 25 .*Got 99"),
    "no standard opset": (changed(lambda m: setattr(m.opset_import[0], "domain", "mine")), "standard domain"),
    "unknown operator": (
        model([node("Det", ["x"], ["y"], name="det")], {"x": ["n", 4, 4]}, ["y"], opset=18),
        r"`Det` of node `det` \(domain `ai.onnx`, opset 18\) is not supported",
    ),
    "operator of another domain": (
        model(
            [node("FusedGemm", ["x"], ["y"], name="f", domain="com.microsoft")],
            {"x": ["n", 4]},
            ["y"],
            domains=["com.microsoft"],
        ),
        r"`FusedGemm` of node `f` \(domain `com.microsoft`, opset 1\)",
    ),
    "external data": (with_external_data(), "`w` are in another file"),
    "graphs inside": (with_branch(), "`choice` .If. has graphs inside"),
    "nan": (weights_of(np.array([[np.nan]] * 4, np.float32)), "`w` holds NaN"),
    "infinity": (weights_of(np.array([[np.inf]] * 4, np.float32)), "finite"),
    "too many open extents": (
        model([node("Relu", ["x"], ["y"])], {"x": ["n", "a", "b", "c", "d", 4]}, ["y"]),
        r"3 more extents may be open. Got `a`, `b`, `c`, `d`",
    ),
    "no shape": (changed(lambda m: m.graph.input[0].type.tensor_type.ClearField("shape")), "`x` must be a tensor with"),
    "shapes that do not fit": (misfit(), r"node `m` \(MatMul\) cannot take its inputs"),
    "a result that no input reaches": (
        model([node("Relu", ["x"], ["y"]), node("Neg", ["c"], ["z"])], {"x": ["n", 4]}, ["y", "z"], [dense("c")]),
        "`z` is a constant",
    ),
    "a shape from data": (
        model(
            [node("ArgMax", ["x"], ["i"], axis=1), node("Expand", ["x", "i"], ["y"], name="e")],
            {"x": ["n", 4]},
            ["y"],
        ),
        r"cannot take|depends on the numbers",
    ),
    "training": (in_training(), "training mode"),
    "an activation of a gate": (rnn(activations=["Softsign"]), r"node `cell` \(RNN\).*`softsign` of a gate"),
    "a clipped gate": (rnn(clip=1.0), "attribute `clip` is not supported"),
    "batch first": (rnn(layout=1), "layout"),
    "sequences of several lengths": (
        rnn([constant("n", np.array([2, 3], np.int32))], ["", "n"]),
        "sequence_lens",
    ),
    "sparse": (changed(lambda m: m.graph.sparse_initializer.add()), "sparse"),
    "a value nothing makes": (
        changed(lambda m: m.graph.node[0].input.__setitem__(0, "ghost")),
        "breaks a rule of ONNX|ghost",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_cannot_be_taken_is_said(which):
    source, message = REFUSED[which]
    with pytest.raises(SpecError, match=message):
        load_onnx(source)


def test_names_that_a_terminal_would_obey_are_spelled():
    nodes = [node("Tanh", ["in\x1b[2J"], ["t"], name="red\x1b[31m\nerror: none"), node("Relu", ["t"], ["out\u202e"])]
    made = model(nodes, {"in\x1b[2J": ["n", 4]}, ["out\u202e"])
    before = made.SerializeToString()
    graph = load_onnx(made, outputs=["out\u202e"])
    assert (list(graph.inputs), graph.outputs) == (["in\\x1b[2J"], ("out\\u202e",))
    assert graph.nodes[0].name == "red\\x1b[31m\\nerror: none"
    assert made.SerializeToString() == before


def test_unknown_outputs_are_named():
    with pytest.raises(SpecError, match=r"`z`.* y"):
        load_onnx(relu(), outputs=["z"])


def test_an_operator_that_no_wanted_output_needs_may_be_unknown():
    nodes = [node("Relu", ["x"], ["y"]), node("Det", ["x"], ["z"])]
    graph = load_onnx(model(nodes, {"x": ["n", 4, 4]}, ["y", "z"]), outputs=["y"])
    assert [n.op.kind for n in graph.nodes] == ["relu"]


def test_files_are_named_in_errors(tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x08\x99 nonsense")
    with pytest.raises(SpecError, match=r"broken\.onnx: .*ONNX"):
        load_onnx(path)
    with pytest.raises(SpecError, match=r"absent\.onnx"):
        load_onnx(tmp_path / "absent.onnx")
    with pytest.raises(SpecError, match="regular file"):
        load_onnx(tmp_path)


def test_large_files_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "large.onnx"
    path.write_bytes(relu().SerializeToString())
    monkeypatch.setattr(reading, "LARGEST_FILE", 10)
    for source in (path, path.read_bytes(), relu()):
        with pytest.raises(SpecError, match="may have 0 MiB"):
            load_onnx(source)


def test_a_file_cannot_ask_for_all_memory():
    grown = [node("ConstantOfShape", ["n"], ["c"]), node("Add", ["x", "c"], ["y"])]
    made = model(grown, {"x": ["b", 1]}, ["y"], [constant("n", np.array([2**40]))])
    with pytest.raises(SpecError, match="134217728"):
        load_onnx(made)
    with pytest.raises(SpecError, match="134217728"):
        load_onnx(model([node("Relu", ["x"], ["y"])], {"x": ["n", 2**40]}, ["y"]))


def test_a_tensor_that_says_another_size_than_it_has_is_refused():
    made = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 4]}, ["y"], [dense()])
    made.graph.initializer[0].dims[1] = 7
    with pytest.raises(SpecError, match=r"breaks a rule|does not hold"):
        load_onnx(made)
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    short = model(nodes, {"x": ["n", 4]}, ["y"], [int4("q", np.ones((4, 2))), constant("s", np.float32(1))])
    short.graph.initializer[0].raw_data = short.graph.initializer[0].raw_data[:-1]
    with pytest.raises(SpecError, match=r"breaks a rule|does not hold"):
        load_onnx(short)


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (with_external_data(), "another file"),
        (with_branch(), "graphs inside"),
        (REFUSED["unknown operator"][0], "`Det`"),
        (changed(lambda m: m.graph.ClearField("node")), "has nodes"),
    ],
    ids=["external", "branch", "operator", "empty"],
)
def test_a_part_for_the_host_is_held_to_the_same_rules(made, word):
    with pytest.raises(SpecError, match=word):
        HostPart(made.SerializeToString())


def test_without_the_library_the_way_to_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(PluginError, match=r"pip install 'metalforge\[onnx\]'"):
        load_onnx(b"")


def test_without_the_runtime_only_what_it_would_run_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert [n.op.kind for n in load_onnx(relu()).nodes] == ["relu"]
    with pytest.raises(PluginError, match=r"pip install 'metalforge\[onnx\]'"):
        load_onnx(model([node("Abs", ["x"], ["y"])], {"x": ["n", 4]}, ["y"]))
