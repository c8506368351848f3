"""`npu explain` and `npu compile` of models."""

import json
from importlib.resources import as_file, files

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from metalforge.conductor.program import ConductorProgram
from metalforge.reservoir import load_weights, make_esn, save_weights
from metalforge.substrates.npu import wire
from reference.command_line import call
from reference.onnx_models import session


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(1)
    weights = make_esn(64, 10, seed=1, connectivity=1.0)
    save_weights(weights.with_readout(rng.normal(size=(4, 64))), folder / "esn.safetensors")
    w = numpy_helper.from_array(rng.normal(size=(10, 6)).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "dense"), helper.make_node("Tanh", ["y"], ["z"], "act")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 10])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 6])],
        [w],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "net.onnx")
    np.save(folder / "inputs.npy", rng.uniform(-1, 1, (40, 10)).astype(np.float32))
    return folder


class Rows(CalibrationDataReader):
    """The rows of an array, for the quantiser of onnxruntime."""

    def __init__(self, rows):
        self._rows = iter([{"x": rows}])

    def get_next(self):
        return next(self._rows, None)


@pytest.mark.parametrize("name", ["esn.safetensors", "net.onnx"])
def test_a_model_is_explained_op_by_op(models, name):
    plans = json.loads(call("npu", "explain", name, "--json", cwd=models).stdout)
    assert [p["profile"] for p in plans] == ["akd1000-published", "akd1000-claimed"]
    for plan in plans:
        assert all(row["reason"] and row["substrate"] for row in plan["ops"])
        assert any("quicker" in note for note in plan["notes"])
    text = call("npu", "explain", name, "--objective", "hw_only", "--profile", "akd1000-published", cwd=models).stdout
    assert "W8A8" in text
    assert "modelled: akd1000-published" in text


def test_a_plan_can_be_drawn(models):
    drawn = call("npu", "explain", "net.onnx", "--dot", "--profile", "akd1000-published", cwd=models).stdout
    assert drawn.startswith("digraph plan {")


def test_strict_fails_where_something_falls_back(models):
    wide = call("npu", "explain", "net.onnx", "--policy", "seed", "--strict", cwd=models, code=3)
    assert "dense" in wide.stderr


def test_a_model_is_compiled_to_programs(models):
    made = json.loads(call("npu", "compile", "esn.safetensors", "-o", "p.mfp", "--json", cwd=models).stdout)
    programs = [wire.load(models / name) for name in made["files"]]
    assert [p.name for p in programs] == ["reservoir", "readout"]
    assert programs[0].inputs == 74


def test_calibration_data_sets_the_ranges(models):
    np.save(models / "x.npy", np.random.default_rng(0).uniform(-3, 3, (50, 10)))
    arguments = ("npu", "explain", "net.onnx", "--objective", "hw_only", "--profile", "akd1000-published", "--json")
    plain = json.loads(call(*arguments, cwd=models).stdout)[0]["ops"][0]
    measured = json.loads(call(*arguments, "--calibration", "x.npy", cwd=models).stdout)[0]["ops"][0]
    assert measured["error_bound"] > plain["error_bound"]


def test_explain_says_which_range_it_assumed(models):
    arguments = ("npu", "explain", "net.onnx", "--profile", "akd1000-published")
    (plain,) = json.loads(call(*arguments, "--json", cwd=models).stdout)
    (known,) = plain["ranges"]
    assert (known["name"], known["largest"], known["wide"], known["beyond"]) == ("x", 1.0, 1.0, 0)
    assert "--calibration" in call(*arguments, cwd=models).stdout
    assert "within 3" in call(*arguments, "--range", 3, cwd=models).stdout
    np.save(models / "wide.npy", np.linspace(-4, 4, 200).reshape(20, 10))
    (seen,) = json.loads(call(*arguments, "--calibration", "wide.npy", "--json", cwd=models).stdout)
    (known,) = seen["ranges"]
    assert (known["largest"], known["wide"], known["beyond"]) == (4.0, 5.0, 0)
    assert "wide.npy" in call(*arguments, "--calibration", "wide.npy", cwd=models).stdout
    both = call(*arguments, "--calibration", "wide.npy", "--range", 3, cwd=models, code=2)
    assert "not both" in both.stderr


def test_explain_takes_a_tolerance(models):
    arguments = ("npu", "explain", "net.onnx", "--objective", "hw_only", "--profile", "akd1000-published", "--json")
    (fine,) = json.loads(call(*arguments, "--tolerance", "1e-3", cwd=models).stdout)
    (coarse,) = json.loads(call(*arguments, "--tolerance", "0.5", cwd=models).stdout)
    assert (fine["ops"][0]["encoding"], coarse["ops"][0]["encoding"]) == ("W12A12", "W4A4")


def test_compile_measures_ranges_on_series_of_different_lengths(models):
    rng = np.random.default_rng(3)
    np.savez(models / "series.npz", *(rng.uniform(-5, 5, (n, 10)) for n in (12, 30)))
    made = json.loads(
        call(
            "npu", "compile", "esn.safetensors", "--calibration", "series.npz", "-o", "c.mfp", "--json", cwd=models
        ).stdout
    )
    plain = json.loads(call("npu", "compile", "esn.safetensors", "-o", "d.mfp", "--json", cwd=models).stdout)
    first, other = (wire.load(models / found["files"][0]) for found in (made, plain))
    assert not np.array_equal(first.layers[0].weights, other.layers[0].weights)


WRONG_DATA = {
    "width": (np.ones((4, 7)), "10"),
    "axes": (np.ones((4, 10, 2)), "(4, 10, 2)"),
    "nan": (np.where(np.eye(10) > 0, np.nan, 1.0), "nan at"),
    "words": (np.array([["a"] * 10]), "numbers"),
    "none": (np.ones((0, 10)), "empty"),
}


@pytest.mark.parametrize(("values", "message"), WRONG_DATA.values(), ids=WRONG_DATA)
@pytest.mark.parametrize("model", ["net.onnx", "esn.safetensors"])
def test_data_that_does_not_fit_a_model_is_named(models, values, message, model):
    np.save(models / "bad.npy", values)
    said = call("npu", "explain", model, "--calibration", "bad.npy", cwd=models, code=2).stderr
    assert "bad.npy" in said
    assert message in said or (model == "esn.safetensors" and "10)" in said)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a model", "model.onnx"), (b"", "model.onnx")],
)
def test_a_forged_model_is_wrong_input(tmp_path, content, message):
    (tmp_path / "model.onnx").write_bytes(content)
    assert message in call("npu", "explain", "model.onnx", cwd=tmp_path, code=2).stderr


@pytest.mark.parametrize("name", ["conductor-11", "gpu-prep-11", "plasma-2"])
def test_shipped_networks_run_on_the_npu_as_in_software(tmp_path, name):
    with as_file(files("metalforge.conductor") / "data" / f"{name}.safetensors") as path:
        weights = load_weights(path)
        call("npu", "compile", path, "-o", "net.mfd", cwd=tmp_path)
    frames = np.random.default_rng(0).uniform(-3, 3, (40, weights.inputs))
    offset, scale = np.transpose([(f.offset, f.scale) for f in weights.features.features])
    np.save(tmp_path / "raw.npy", frames * scale + offset)
    ran = json.loads(call("npu", "run", "net.mfd", "--input", "raw.npy", "--json", cwd=tmp_path).stdout)
    assert ran["statistics"]["inferences"] > 0
    software = ConductorProgram(weights).through(frames).vector
    spread = software.std(axis=0)
    assert np.max(np.abs(np.array(ran["result"]) - software) - 0.25 * spread) <= 1e-6


def ran(folder, *arguments, code=0):
    """What `npu run` prints as JSON, or its errors."""
    done = call("npu", "run", *arguments, "--json", cwd=folder, code=code)
    return done.stderr if code else json.loads(done.stdout)


@pytest.mark.parametrize("ranges", [("--range", 1), ("--calibration", "inputs.npy")])
def test_an_onnx_model_runs_on_the_npu_of_the_profile(models, ranges):
    x = np.load(models / "inputs.npy")
    wanted = session(onnx.load(models / "net.onnx")).run(None, {"x": x})[0]
    busy = []
    for profile in ("akd1000-published", "akd1000-claimed"):
        found = ran(models, "net.onnx", "--input", "inputs.npy", "--profile", profile, *ranges)
        assert found["statistics"]["calls"] > 0
        assert found["statistics"]["inferences"] >= len(x)
        assert [row["substrate"] for row in found["layers"]] == ["npu", "software"]
        assert np.max(np.abs(np.array(found["result"]) - wanted)) < 0.05
        busy.append(found["statistics"]["busy"]["value"])
    assert busy[0] > 0 < busy[1] != busy[0]


def test_a_model_without_ranges_is_not_guessed_at(models):
    assert "--calibration" in ran(models, "net.onnx", "--input", "inputs.npy", code=2)
    assert "--calibration" in ran(models, "esn.safetensors", "--input", "inputs.npy", code=2)
    found = ran(models, "esn.safetensors", "--input", "inputs.npy", "--range", 1)
    assert found["statistics"]["calls"] > 0
    assert [row["substrate"] for row in found["layers"]] == ["npu+software", "software"]


def test_a_model_of_which_nothing_maps_needs_leave_to_run_on_the_host(models):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["y"], "act")],
        "host",
        [info("x", TensorProto.FLOAT, ["batch", 10])],
        [info("y", TensorProto.FLOAT, ["batch", 10])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), models / "host.onnx")
    assert "act" in ran(models, "host.onnx", "--input", "inputs.npy", "--range", 1, code=3)
    found = ran(models, "host.onnx", "--input", "inputs.npy", "--allow-host")
    printed = call("npu", "run", "host.onnx", "--input", "inputs.npy", "--allow-host", cwd=models).stdout
    assert "no device call" in printed
    assert "modelled" not in printed
    assert found["statistics"]["calls"] == 0
    assert [row["substrate"] for row in found["layers"]] == ["software"]
    assert np.allclose(found["result"], np.tanh(np.load(models / "inputs.npy")))


@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8])
def test_a_quantised_model_brings_its_ranges(models, activations):
    x = np.load(models / "inputs.npy")
    options = {"quant_format": QuantFormat.QDQ, "activation_type": activations, "weight_type": QuantType.QInt8}
    quantize_static(models / "net.onnx", models / "qdq.onnx", Rows(x), **options)
    found = ran(models, "qdq.onnx", "--input", "inputs.npy")
    assert found["statistics"]["calls"] > 0
    assert found["clipped"] == 0
    assert any(row["substrate"] == "npu" for row in found["layers"])
    wanted = session(onnx.load(models / "qdq.onnx")).run(None, {"x": x})[0]
    assert np.max(np.abs(np.array(found["result"]) - wanted)) < 0.05


@pytest.mark.parametrize("model", ["net.onnx", "esn.safetensors"])
@pytest.mark.parametrize(
    ("options", "precision"),
    [
        (("--activation-bits", 4), "W4A4"),
        (("--digits", 3), "W12A8"),
        (("--digits", 2, "--activation-bits", 12), "W8A12"),
    ],
)
def test_the_precision_of_a_model_is_the_one_that_was_asked_for(models, model, options, precision):
    made = json.loads(call("npu", "compile", model, "-o", "o.mfd", *options, "--json", cwd=models).stdout)
    assert {row["encoding"] for row in made["layers"]} - {""} == {precision}
    line = ("npu", "explain", model, "--objective", "hw_only", "--profile", "akd1000-published", *options, "--json")
    (plan,) = json.loads(call(*line, cwd=models).stdout)
    assert {row["encoding"] for row in plan["ops"]} - {""} == {precision}


@pytest.mark.parametrize(
    ("verb", "file", "option"),
    [
        ("compile", "net.onnx", ("--signed", "two_rail")),
        ("compile", "net.onnx", ("--digits", 2, "--tolerance", 0.1)),
        ("compile", "net.onnx", ("--digits", 4)),
        ("compile", "int8.onnx", ("--digits", 1)),
        ("compile", "m.npy", ("--tolerance", 0.1)),
        ("explain", "m.npy", ("--objective", "energy")),
        ("explain", "m.npy", ("--strict",)),
        ("explain", "m.mfp", ("--digits", 2)),
        ("run", "net.mfd", ("--range", 2)),
        ("run", "net.mfd", ("--calibration", "inputs.npy")),
        ("run", "m.mfp", ("--allow-host",)),
    ],
)
def test_an_option_that_cannot_apply_is_refused(models, verb, file, option):
    np.save(models / "m.npy", np.eye(10))
    weights = {"quant_format": QuantFormat.QDQ, "weight_type": QuantType.QInt8}
    quantize_static(models / "net.onnx", models / "int8.onnx", Rows(np.load(models / "inputs.npy")), **weights)
    call("npu", "compile", "m.npy", "-o", "m.mfp", cwd=models)
    call("npu", "compile", "net.onnx", "-o", "net.mfd", cwd=models)
    more = {"compile": ("-o", "out.mfp"), "explain": (), "run": ("--input", "inputs.npy")}[verb]
    call("npu", verb, file, *more, cwd=models)
    assert "error" in call("npu", verb, file, *more, *option, cwd=models, code=2).stderr


def test_an_outlier_in_the_calibration_data_is_counted_and_changes_nothing_else(models):
    x = np.random.default_rng(4).uniform(-1, 1, (898, 10)).astype(np.float32)
    np.save(models / "clean.npy", x)
    np.save(models / "outlier.npy", np.where(np.arange(898)[:, np.newaxis] == 17, 100 * x, x))
    wanted = session(onnx.load(models / "net.onnx")).run(None, {"x": x})[0]
    worst = {}
    for name in ("clean", "outlier"):
        options = ("--calibration", f"{name}.npy", "--activation-bits", 4, "--json")
        made = json.loads(call("npu", "compile", "net.onnx", "-o", f"{name}.mfd", *options, cwd=models).stdout)
        found = ran(models, f"{name}.mfd", "--input", "clean.npy")
        worst[name] = np.sqrt(np.mean((np.array(found["result"]) - wanted) ** 2))
        layer = made["layers"][0]
        assert layer["beyond"] == made["ranges"][0]["beyond"] > 0
        assert found["clipped"] <= 0.005 * x.size
    assert worst["outlier"] == pytest.approx(worst["clean"], rel=0.02)
    np.save(models / "ten.npy", np.eye(10))
    line = ("npu", "compile", "ten.npy", "-o", "ten.mfp", "--calibration", "outlier.npy", "--json")
    made = json.loads(call(*line, cwd=models).stdout)
    assert 1 <= made["beyond"] <= 0.005 * x.size
    assert ran(models, "ten.mfp", "--input", "outlier.npy")["clipped"] == made["beyond"]


@pytest.mark.parametrize(
    ("name", "word"),
    [("net.pt", "torch.onnx.export"), ("net.keras", "tf2onnx"), ("net.pkl", "skl2onnx"), ("net.bin", ""), ("net", "")],
)
@pytest.mark.parametrize(
    "line", [("explain", "{}"), ("compile", "{}", "-o", "a.mfp"), ("run", "{}", "--input", "x.npy")]
)
def test_a_file_of_another_kind_is_told_which_there_are(tmp_path, name, word, line):
    (tmp_path / name).write_bytes(b"PK\x03\x04 something else")
    np.save(tmp_path / "x.npy", np.ones((1, 4)))
    said = call("npu", *(part.format(name) for part in line), cwd=tmp_path, code=2).stderr
    assert all(kind in said for kind in (name, ".onnx", ".safetensors", ".json", word))
