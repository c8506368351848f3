"""Exported networks: ONNX run by onnxruntime, C compiled by the system's compiler, both against the state equation."""

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from scipy.sparse import csr_array

from metalforge.core.errors import PluginError, SpecError
from metalforge.core.schema import Feature, FeatureSchema, HeadLayout, HeadSpec
from metalforge.hybrid import load
from metalforge.hybrid.model.onnx_import import load_onnx
from metalforge.hybrid.model.ops import FullyConnectedOp, Precision
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.reservoir.activations import ACTIVATIONS
from metalforge.reservoir.deploy import export_onnx_step, write_c_header
from metalforge.reservoir.files import save_weights
from metalforge.reservoir.sparse import BlockSparse, to_dense
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.quantize import Quantized, quantize
from reference import esn
from reference.onnx_models import session

STEPS = 40
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


def network(dtype="float32", *, feedback=False, readout=True, kind="dense", units=20, **options):
    rng = np.random.default_rng(1)
    w_res = rng.normal(size=(units, units)) * 0.9 / np.sqrt(units)
    if kind == "csr":
        w_res = csr_array(np.where(rng.random((units, units)) < 0.2, w_res, 0))
    if kind == "block16":
        columns = np.tile(np.arange(0, units, 3, dtype=np.int32), (-(-units // 16), 1))
        values = rng.normal(size=(*columns.shape, 16)) * 0.3
        values[-1, :, units % 16 or 16 :] = 0
        w_res = BlockSparse(units, units, columns, values)
    width = units + 3 * bool(options.get("passthrough"))
    weights = EsnWeights(
        w_in=rng.normal(size=(units, 3)),
        w_res=w_res,
        bias=rng.normal(size=units) / 5,
        w_fb=rng.normal(size=(units, 2)) / 5 if feedback else None,
        w_out=rng.normal(size=(2, width)) / 5 if readout else None,
        out_bias=rng.normal(size=2) if readout else None,
        **options,
    )
    return weights.astype(dtype)


def trajectory(weights, u):
    """States and outputs in doubles, by the equation."""
    return esn.trajectory(replace(weights, w_res=to_dense(weights.w_res)), u)


def inputs(dtype="float32"):
    return np.random.default_rng(2).normal(size=(STEPS, 3)).astype(dtype)


def dequantized(weights, quantizer):
    """The network that the integers stand for."""

    def back(matrix):
        return quantizer(to_dense(matrix)).dequantize().astype(weights.dtype)

    w_fb = None if weights.w_fb is None else back(weights.w_fb)
    return replace(weights, w_in=back(weights.w_in), w_res=back(weights.w_res), w_fb=w_fb)


INTEGERS = {bits: partial(quantize, bits=bits) for bits in (4, 8)}
VARIANTS = {
    "plain": {},
    "leak": {"leak": 0.3},
    "passthrough": {"leak": 0.7, "passthrough": True},
    "feedback": {"feedback": True, "leak": 0.5},
    "no readout": {"readout": False},
    "csr": {"kind": "csr"},
    "block16": {"kind": "block16"},
    **{name: {"activation": name, "leak": 0.5} for name in ACTIVATIONS},
}


# --- ONNX


def iterate(path, weights, u):
    """States and outputs of the exported step, the caller carrying both."""
    runner = session(path.read_bytes())
    names = [value.name for value in runner.get_outputs()]
    x, y = np.zeros((1, weights.units), u.dtype), np.zeros((1, weights.feedback), u.dtype)
    states, outputs = [], []
    for step in u:
        feeds = {"u": step[np.newaxis], "x": x} | ({"y_before": y} if weights.feedback else {})
        found = dict(zip(names, runner.run(names, feeds), strict=True))
        x, y = found["x_next"], found.get("y")
        states.append(x[0])
        outputs += [] if y is None else [y[0]]
    return np.array(states), np.array(outputs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_onnx_step_repeats_the_states(tmp_path, variant):
    weights, path = network(**VARIANTS[variant]), tmp_path / "step.onnx"
    export_onnx_step(weights, path)
    for found, wanted in zip(iterate(path, weights, inputs()), trajectory(weights, inputs()), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu", "piecewise_tanh"])
def test_a_float64_network_is_exported_in_float64(tmp_path, activation):
    weights, path = network("float64", activation=activation, leak=0.3), tmp_path / "step.onnx"
    export_onnx_step(weights, path)
    for found, wanted in zip(
        iterate(path, weights, inputs("float64")), trajectory(weights, inputs("float64")), strict=True
    ):
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("feedback", [False, True])
def test_the_onnx_step_with_integers_repeats_the_states_of_its_integers(tmp_path, bits, feedback):
    weights, path = network(leak=0.6, feedback=feedback), tmp_path / "step.onnx"
    export_onnx_step(weights, path, quantizer=INTEGERS[bits])
    for found, wanted in zip(
        iterate(path, weights, inputs()), trajectory(dequantized(weights, INTEGERS[bits]), inputs()), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5)
    stored = {t.name: t.data_type for t in onnx.load(path).graph.initializer}
    wanted_kind = onnx.TensorProto.INT4 if bits == 4 else onnx.TensorProto.INT8
    assert stored["w_in_integers"] == stored["w_res_integers"] == wanted_kind
    assert stored["w_out"] == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("passthrough", [False, True])
def test_exports_take_raw_inputs_and_give_raw_outputs(tmp_path, passthrough):
    """What features and heads say of their scaling is in the file: others cannot know it."""
    features = FeatureSchema(name="f", features=tuple(Feature(name=n, offset=40.0, scale=9.0) for n in "abc"))
    heads = HeadLayout(name="h", heads=(HeadSpec(name="a", offset=300.0, scale=20.0), HeadSpec(name="b", width=1)))
    weights = replace(network("float64", passthrough=passthrough), features=features, heads=heads)
    raw = np.random.default_rng(3).normal(40, 9, (STEPS, 3))
    states, y = trajectory(weights, (raw - 40) / 9)
    wanted = SimpleNamespace(states=states, outputs=y * [20, 1] + [300, 0])
    save_weights(weights, tmp_path / "w.safetensors")
    with load(tmp_path / "w.safetensors") as model:
        assert np.allclose(model.predict(raw), wanted.outputs, atol=1e-9)
    export_onnx_step(weights, tmp_path / "step.onnx")
    found = iterate(tmp_path / "step.onnx", weights, raw)
    assert np.allclose(found[0], states, atol=1e-9)
    assert np.allclose(found[1], wanted.outputs, atol=1e-8)
    write_c_header(weights, tmp_path / "esn.h")
    found = run_c(compiled(tmp_path, tmp_path / "esn.h", "double"), weights, raw)
    assert np.allclose(found[0], states, atol=1e-9)
    assert np.allclose(found[1], wanted.outputs, atol=1e-8)
    with pytest.raises(SpecError, match="feedback"):
        write_c_header(replace(network(feedback=True), heads=heads), tmp_path / "esn.h")


def test_int4_weights_take_an_eighth_of_the_file(tmp_path):
    weights = network(units=128, readout=False)
    export_onnx_step(weights, tmp_path / "float.onnx")
    export_onnx_step(weights, tmp_path / "int4.onnx", quantizer=INTEGERS[4])
    entries = 128 * 131
    assert (tmp_path / "float.onnx").stat().st_size > 4 * entries
    assert (tmp_path / "int4.onnx").stat().st_size < entries / 2 + 3000


def test_the_int4_step_stays_exact_in_an_optimising_session(tmp_path):
    """As onnxruntime runs a model by default; a MatMul in the place of the Gemm would be wrong by 1e-3."""
    weights, path = network(units=64), tmp_path / "step.onnx"
    export_onnx_step(weights, path, quantizer=INTEGERS[4])
    runner = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(3).uniform(-1, 1, (1, 64)).astype(np.float32)
    u = inputs()[:1]
    exact = dequantized(weights, INTEGERS[4])
    wanted = np.tanh(u @ exact.w_in.T + x @ exact.w_res.T + exact.bias)
    np.testing.assert_allclose(runner.run(["x_next"], {"u": u, "x": x})[0], wanted, atol=1e-5)


def test_an_exported_step_comes_back_as_a_graph_with_its_integers(tmp_path):
    weights, path = network(leak=0.6, passthrough=True), tmp_path / "step.onnx"
    export_onnx_step(weights, path, quantizer=INTEGERS[4], name="small")
    graph = load_onnx(path)
    layers = [n.op for n in graph.nodes if isinstance(n.op, FullyConnectedOp)]
    assert [isinstance(op.weights, Quantized) for op in layers] == [True, True, False]
    assert [op.precision for op in layers] == [Precision.INT4, Precision.INT4, Precision.ANY]
    np.testing.assert_array_equal(layers[0].weights.values, quantize(weights.w_in, 4).values)
    model, x, states = SoftwareModel(graph), np.zeros((1, 20), np.float32), []
    for step in inputs():
        x = model.forward({"u": step[np.newaxis], "x": x})["x_next"]
        states.append(x[0])
    np.testing.assert_allclose(states, trajectory(dequantized(weights, INTEGERS[4]), inputs())[0], atol=1e-5)


def test_what_cannot_be_exported_is_said(tmp_path, monkeypatch):
    path = tmp_path / "step.onnx"
    with pytest.raises(SpecError, match="float32 network"):
        export_onnx_step(network("float64"), path, quantizer=INTEGERS[4])
    with pytest.raises(SpecError, match=r"integers.*\(20, 3\)"):
        export_onnx_step(network(), path, quantizer=lambda w: SimpleNamespace(values=w, scales=np.ones(len(w))))
    wide = lambda w: SimpleNamespace(values=np.full(w.shape, 300), scales=np.ones(1))  # noqa: E731
    with pytest.raises(SpecError, match=r"`w_in` must fit 8 bits\. Got 300"):
        export_onnx_step(network(), path, quantizer=wide)
    with pytest.raises(SpecError, match=r"nowhere.*cannot be written"):
        export_onnx_step(network(), tmp_path / "nowhere" / "step.onnx")
    assert not path.exists()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(PluginError, match=r"metalforge\[onnx\]"):
        export_onnx_step(network(), path)


# --- C


def compiler():
    """The command that compiles C: a C compiler, or the C++ compiler that building the package needs, told so."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return [name, "-std=c99"]
    cxx = next(name for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and shutil.which(name))
    return [cxx, "-x", "c", "-std=c99"]


def compiled(folder, header, real, command=None):
    """The functions of a header `esn.h`, from a library made of nothing else."""
    source, library = folder / "esn.c", folder / "esn.so"
    source.write_text(
        f'#include "{header.name}"\n'
        f"void reset({real} *state, {real} *y) {{ esn_reset(state, y); }}\n"
        f"void step(const {real} *u, {real} *state, {real} *y) {{ esn_step(u, state, y); }}\n"
    )
    flags = ["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*(command or compiler()), *flags, str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def run_c(library, weights, u):
    kind = ctypes.c_float if u.dtype == np.float32 else ctypes.c_double

    def pointer(array):
        return array.ctypes.data_as(ctypes.POINTER(kind))

    state = np.full(weights.units, 9, u.dtype)
    y = np.full(max(1, weights.outputs), 9, u.dtype)
    library.reset(pointer(state), pointer(y))
    states, outputs = [], []
    for step in u:
        library.step(pointer(np.ascontiguousarray(step)), pointer(state), pointer(y))
        states.append(state.copy())
        outputs.append(y.copy())
    return np.array(states), np.array(outputs)


def check_c(folder, weights, wanted, dtype, **options):
    header = folder / "esn.h"
    write_c_header(weights, header, **options)
    library = compiled(folder, header, "float" if dtype == "float32" else "double")
    found_states, found_outputs = run_c(library, weights, inputs(dtype))
    states, outputs = trajectory(wanted, inputs(dtype))
    np.testing.assert_allclose(found_states, states, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    if weights.w_out is not None:
        np.testing.assert_allclose(found_outputs, outputs, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    return header.read_text()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_c_step_repeats_the_states(tmp_path, variant):
    weights = network(**VARIANTS[variant])
    text = check_c(tmp_path, weights, weights, "float32")
    assert ("_columns" in text) == (variant in ("csr", "block16"))


@pytest.mark.parametrize("activation", ["sigmoid", "piecewise_tanh"])
def test_the_c_step_of_a_float64_network_is_in_doubles(tmp_path, activation):
    weights = network("float64", activation=activation, leak=0.3)
    assert "float" not in check_c(tmp_path, weights, weights, "float64")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_the_c_step_with_integer_tables_repeats_the_states_of_its_integers(tmp_path, bits, kind):
    weights = network(leak=0.6, kind=kind, feedback=True)
    text = check_c(tmp_path, weights, dequantized(weights, INTEGERS[bits]), "float32", quantizer=INTEGERS[bits])
    assert "static const int8_t esn_w_in[60]" in text
    assert "static const int8_t esn_w_fb[40]" in text
    assert "static const float esn_w_in_scales[20]" in text


def test_one_scale_for_a_whole_matrix_will_do(tmp_path):
    weights, whole = network(), partial(quantize, bits=8, per="tensor")
    check_c(tmp_path, weights, dequantized(weights, whole), "float32", quantizer=whole)


def test_the_header_compiles_as_cpp_too(tmp_path):
    weights, header = network(passthrough=True), tmp_path / "esn.h"
    write_c_header(weights, header)
    cxx = next(name for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and shutil.which(name))
    source = tmp_path / "main.cpp"
    body = "float u[3] = {0}, x[20], y[2]; esn_reset(x, y); esn_step(u, x, y); return x[0] > 1;"
    source.write_text(f'#include "{header.name}"\nint main() {{ {body} }}\n')
    binary = tmp_path / "main"
    subprocess.run([cxx, "-std=c++20", "-Wall", "-Wextra", "-Werror", str(source), "-o", str(binary)], check=True)
    assert subprocess.run([str(binary)], check=False).returncode == 0


def test_a_network_without_connections_still_compiles(tmp_path):
    weights = replace(network(kind="csr"), w_res=csr_array((20, 20), dtype=np.float32))
    check_c(tmp_path, weights, weights, "float32")


@pytest.mark.parametrize("name", ["", "2x", "a-b", "a b", "x;y"])
def test_names_that_c_does_not_take_are_refused(tmp_path, name):
    with pytest.raises(SpecError, match="C identifier"):
        write_c_header(network(), tmp_path / "esn.h", name=name)
    assert list(tmp_path.iterdir()) == []
