"""`npu evaluate`: a stranger's model and data, through the command line and from Python."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from metalforge.core.errors import SpecError
from metalforge.core.schema import Feature, FeatureSchema, HeadLayout, HeadSpec
from metalforge.hybrid import HybridEsn, OperationRouter, deploy, evaluate
from metalforge.reservoir import make_esn, save_weights
from metalforge.reservoir.estimators import EsnClassifier, EsnRegressor
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.profiles import PROFILES
from reference.command_line import call

NAMES = np.array(["ant", "bee", "cow"])


def run(folder, *arguments, code=0):
    return call("npu", "evaluate", *arguments, cwd=folder, code=code)


def found(folder, *arguments, code=0):
    return json.loads(run(folder, *arguments, "--json", code=code).stdout)


def _onnx(path, nodes, inputs, outputs, **constants):
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Noise of three kinds and different lengths with a network that knows them; points and a linear classifier."""
    where, rng = tmp_path_factory.mktemp("evaluate"), np.random.default_rng(1)
    kinds = rng.integers(0, 3, 160)
    waves = [
        2 * np.stack([(k == 0) + rng.normal(size=n), (k == 1) + rng.normal(size=n)], axis=1)
        for k, n in zip(kinds, rng.integers(10, 20, 160), strict=True)
    ]
    network = EsnClassifier(30, random_state=1, leak=0.5, input_scaling=0.3, ridge=1e-2).fit(waves[:80], kinds[:80])
    save_weights(network.weights_, where / "waves.safetensors")
    np.savez(where / "waves.npz", *waves[80:])
    np.save(where / "kinds.npy", NAMES[kinds[80:]])

    u = rng.uniform(-2, 2, (200, 1))
    y = u + 0.5 * np.roll(u, 1)
    echo = EsnRegressor(20, random_state=1, input_scaling=0.2).fit(u[:100], y[:100])
    save_weights(echo.weights_, where / "echo.safetensors")
    np.save(where / "u.npy", u[100:])
    np.save(where / "y.npy", y[100:, 0])

    points, codes = rng.normal(size=(120, 4)), rng.integers(0, 3, 120)
    points[np.arange(120), codes] += 3
    _onnx(
        where / "points.onnx",
        [helper.make_node("Gemm", ["x", "w"], ["p"], "dense", transB=1), helper.make_node("Tanh", ["p"], ["z"], "act")],
        {"x": ["batch", 4]},
        {"z": ["batch", 3]},
        w=np.eye(3, 4) * 0.3,
    )
    _onnx(
        where / "two.onnx",
        [
            helper.make_node("MatMul", ["a", "w"], ["p"], "first"),
            helper.make_node("Flatten", ["b"], ["f"], "flat"),
            helper.make_node("MatMul", ["f", "v"], ["q"], "second"),
            helper.make_node("Add", ["p", "q"], ["s"], "sum"),
        ],
        {"a": ["batch", 4], "b": ["batch", 2, 3]},
        {"s": ["batch", 1]},
        w=rng.normal(size=(4, 1)),
        v=rng.normal(size=(6, 1)),
    )
    np.save(where / "points.npy", points)
    np.save(where / "codes.npy", codes)
    b = rng.normal(size=(120, 2, 3))
    np.savez(where / "two.npz", a=points, b=b)
    np.save(where / "sums.npy", points.sum(axis=1) + b.sum(axis=(1, 2)))
    return where


WAVES = ("waves.safetensors", "--inputs", "waves.npz", "--targets", "kinds.npy")
ECHO = ("echo.safetensors", "--inputs", "u.npy", "--targets", "y.npy", "--washout", 5)
POINTS = ("points.onnx", "--inputs", "points.npy", "--targets", "codes.npy")


def test_series_of_different_lengths_with_words_for_classes(folder):
    answer = found(folder, *WAVES)
    assert answer["classes"] == list(NAMES)
    assert answer["measure"] == "accuracy"
    assert answer["held_out"] == "40 series"
    rows = {row["precision"]: row for row in answer["rows"]}
    assert list(rows) == ["W4A4", "W4A8", "W8A8", "W8A12", "W12A12", "W12A16"]
    assert answer["software"]["value"] > 0.7
    finest = rows["W12A16"]["as_is"]
    assert abs(finest["lost"]["value"]) <= 0.05
    assert finest["lost"]["low"] <= finest["lost"]["value"] <= finest["lost"]["high"]
    for row in rows.values():
        assert [one["profile"] for one in row["on"]] == list(PROFILES)
        assert {one["cost"]["latency"]["source"] for one in row["on"]} == {"modelled"}
        assert {one["cost"]["latency"]["profile"] for one in row["on"]} == set(PROFILES)
    places = {op["op"]: op["substrate"] for op in answer["ops"]}
    assert places == {"reservoir": "npu+software", "readout": "software"}
    assert answer["ranges"][0]["largest"] > 3
    assert answer["chosen"] in rows


def test_the_text_says_it_all(folder):
    text = run(folder, *ECHO, "--precision", "W4A4,W8A12").stdout
    for word in ("NRMSE", "W4A4", "software", *PROFILES, "latency", "energy", "new readout", "|input| <=", "cheapest"):
        assert word in text


def test_auto_stops_where_it_is_good_enough_and_the_same_twice(folder):
    first = found(folder, *ECHO, "--precision", "auto", "--tolerance", 0.2)
    assert found(folder, *ECHO, "--precision", "auto", "--tolerance", 0.2) == first  # nothing is left to chance
    assert [row["within"] for row in first["rows"]] == [False] * (len(first["rows"]) - 1) + [True]
    assert first["chosen"] == first["rows"][-1]["precision"]
    assert first["software_refitted"]["value"] < 0.2
    none = run(folder, *ECHO, "--precision", "W4A4", "--tolerance", 0, code=1)
    assert "no precision" in none.stderr


def test_a_graph_is_run_as_it_is(folder):
    answer = found(folder, *POINTS, "--precision", "W4A4,W12A16")
    assert answer["software"]["value"] > 0.9
    assert answer["software_refitted"] is None
    assert answer["rows"][1]["as_is"]["lost"]["value"] == 0
    assert {op["op"]: op["substrate"] for op in answer["ops"]} == {"dense": "npu", "act": "software"}
    assert all(one["fits"] for row in answer["rows"] for one in row["on"])


def test_inputs_by_name_and_of_any_shape(folder):
    arguments = ("two.onnx", "--inputs", "two.npz", "--targets", "sums.npy", "--precision", "W8A8")
    answer = found(folder, *arguments, "--tolerance", 2)
    assert answer["measure"] == "NRMSE"
    assert abs(answer["rows"][0]["as_is"]["lost"]["value"]) < 0.05


def test_data_for_calibration_leaves_all_the_rest_to_be_held_out(folder):
    np.save(folder / "few.npy", np.load(folder / "points.npy")[:20])
    answer = found(folder, *POINTS, "--calibration", "few.npy", "--precision", "W8A8")
    assert answer["held_out"] == "120 others"
    assert answer["ranges"][0]["source"] == "measured on 20 samples"


def test_labels_name_the_outputs(folder):
    codes = np.load(folder / "codes.npy")
    np.save(folder / "words.npy", NAMES[codes])
    coarse = ("--precision", "W8A8", "--tolerance", "1")
    swapped = ("--labels", "bee,ant,cow")
    right = found(folder, *POINTS[:3], "--targets", "words.npy", *coarse)
    wrong = found(folder, *POINTS[:3], "--targets", "words.npy", *coarse, *swapped)
    assert right["software"]["value"] > 0.9 > 0.6 > wrong["software"]["value"]


def test_what_was_deployed_is_evaluated_as_it_is_on_raw_inputs(folder):
    u, y = np.load(folder / "u.npy"), np.load(folder / "y.npy")
    esn = HybridEsn.from_weights(folder / "echo.safetensors", calibration=u[:50])
    schema = FeatureSchema(name="volts", features=(Feature(name="u", offset=3.0, scale=10.0),))
    heads = HeadLayout(name="volts", heads=(HeadSpec(name="y", offset=-1.0, scale=5.0),))
    with EmulatedDevice(n_slots=1) as device:
        chip = esn.with_hardware_linear(device, precision="W8A12")
        deploy(chip, folder / "echo.mfd", features=schema, heads=heads)
        wanted = chip.states(u)
    np.save(folder / "volts.npy", 10 * u + 3)
    np.save(folder / "out.npy", 5 * y - 1)
    raw = found(folder, "echo.mfd", "--inputs", "volts.npy", "--targets", "out.npy", "--tolerance", 9)
    assert [row["precision"] for row in raw["rows"]][:2] == ["deployed W8A12", "W4A4"]
    plain = found(folder, "echo.safetensors", "--inputs", "u.npy", "--targets", "y.npy", "--tolerance", 9)
    assert raw["software"]["value"] == pytest.approx(plain["software"]["value"])
    half = esn.weights.output(wanted)[50:, 0] - y[50:]
    said = np.sqrt(np.mean(half**2)) / np.std(y[50:])
    assert raw["rows"][0]["as_is"]["score"]["value"] == pytest.approx(said)
    plan = OperationRouter(objective="hw_only", tolerance=0.3).plan(
        folder / "points.onnx", calibration=np.ones((2, 4)) * 5
    )
    deploy(plan, folder / "points.mfd", labels=NAMES)
    codes = np.load(folder / "codes.npy")
    np.save(folder / "animals.npy", NAMES[codes])
    answer = found(folder, "points.mfd", "--inputs", "points.npy", "--targets", "animals.npy", "--precision", "auto")
    assert answer["classes"] == list(NAMES)
    assert answer["rows"][0]["precision"] == "deployed"


def test_a_program_is_held_against_the_matrix_it_stands_for(folder):
    rng = np.random.default_rng(6)
    matrix, x = rng.normal(size=(3, 5)), rng.uniform(-2, 2, (60, 5))
    np.save(folder / "matrix.npy", matrix)
    np.save(folder / "x.npy", x)
    np.save(folder / "products.npy", x @ matrix.T)
    call("npu", "compile", "matrix.npy", "--calibration", "x.npy", "--digits", 2, "-o", "matrix.mfp", cwd=folder)
    answer = found(folder, "matrix.mfp", "--inputs", "x.npy", "--targets", "products.npy")
    (row,) = answer["rows"]
    assert row["precision"] == "deployed W8A8"
    assert 0 < answer["software"]["value"] < row["as_is"]["score"]["value"] < 0.02
    assert all(one["fits"] for one in row["on"])
    other = ("matrix.mfp", "--inputs", "x.npy", "--targets", "products.npy", "--precision", "W4A4")
    assert "compiled" in run(folder, *other, code=2).stderr


BAD = {
    "lengths": ((*POINTS[:3], "--targets", "y.npy"), "120 samples"),
    "series": ((*WAVES[:3], "--targets", "codes.npy"), "80 series"),
    "width": (("points.onnx", "--inputs", "u.npy", "--targets", "y.npy"), "(batch, 4)"),
    "names": (("two.onnx", "--inputs", "points.npy", "--targets", "sums.npy"), "a=..., b=..."),
    "several": (("points.onnx", "--inputs", "two.npz", "--targets", "sums.npy"), "must be x"),
    "labels": ((*WAVES, "--labels", "ant,bee,dog"), "unknown label 'cow'"),
    "too few labels": ((*WAVES, "--labels", "ant,bee"), "3 labels"),
    "precision": ((*POINTS, "--precision", "W5A4"), "W4A8"),
    "profile": ((*POINTS, "--profile", "akd"), "known"),
    "share": ((*POINTS, "--held-out", "1.5"), "between 0 and 1"),
    "model": (("points.npy", *POINTS[1:]), ".onnx"),
    "absent": (("points.onnx", "--inputs", "absent.npy", "--targets", "codes.npy"), "absent.npy"),
    "output": ((*POINTS, "--output", "zz"), "known: z"),
    "washout": ((*WAVES[:3], "--targets", "kinds.npy", "--washout", "99"), "washout"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_said(folder, arguments, message):
    assert message in run(folder, *arguments, code=2).stderr


def test_numbers_that_are_none_are_placed(folder):
    points = np.load(folder / "points.npy")
    points[7, 2] = np.nan
    np.save(folder / "nan.npy", points)
    said = run(folder, "points.onnx", "--inputs", "nan.npy", "--targets", "codes.npy", code=2).stderr
    assert "nan.npy" in said
    assert "nan at (7, 2)" in said
    np.save(folder / "z.npy", np.full(100, np.inf))
    assert "finite" in run(folder, *ECHO[:3], "--targets", "z.npy", code=2).stderr


def test_from_python_an_estimator_brings_its_classes(folder):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 1, 2))
    names = np.where(x[:, 0, 0] > 0, "up", "down")
    fitted = EsnClassifier(12, random_state=1).fit(x[:20, 0], names[:20])
    answer = evaluate(fitted, x[20:, 0], names[20:], precision=["W8A8"])  # a table: its rows are samples
    assert answer.classes == ("down", "up")
    assert "W8A8" in str(answer)
    with pytest.raises(SpecError, match="unknown label 'left'"):
        evaluate(fitted, x[20:], np.where(names[20:] == "up", "up", "left"))


def test_a_network_without_a_readout_is_evaluated_where_one_can_be_fitted(tmp_path):
    rng = np.random.default_rng(6)
    u, y = rng.uniform(-1, 1, (100, 2)), rng.normal(size=(100, 1))
    network = HybridEsn.from_weights(make_esn(20, 2, seed=1), calibration=u)
    with EmulatedDevice() as device:
        deploy(network.with_hardware_linear(device), tmp_path / "bare.safetensors")
    answer = evaluate(tmp_path / "bare.safetensors", u, y)
    assert (answer.rows[0].as_is, answer.rows[0].refitted, answer.rows[0].within) == (None, None, False)
    assert "without a readout" in answer.rows[0].reason
    assert all(row.refitted is not None for row in answer.rows[1:])
    with pytest.raises(SpecError, match="no readout"):
        evaluate(network.weights, u.reshape(20, 5, 2), np.arange(20) % 2, held_out=0.8)
