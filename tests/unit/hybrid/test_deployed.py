"""Every way out of the house and back, in a new process, on raw inputs: the same outputs."""

import subprocess
import sys
from dataclasses import replace
from types import MappingProxyType

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from metalforge.core.errors import MetalforgeError, PlacementError, SpecError
from metalforge.core.schema import Feature, FeatureSchema, HeadLayout, HeadSpec
from metalforge.hybrid import HybridEsn, HybridExecutor, OperationRouter, deploy, graph_from_esn, load, load_onnx
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import FullyConnectedOp, TemporalIntegration
from metalforge.reservoir import load_weights, make_esn, save_weights
from metalforge.reservoir.estimators import EsnClassifier, EsnRegressor
from metalforge.reservoir.weights import Ranges
from metalforge.substrates.npu import EmulatedDevice
from reference.command_line import call

RNG = np.random.default_rng(5)
RAW = RNG.normal(40.0, 9.0, (30, 3))  # raw: far from 0, far from 1
SERIES = [RAW[:7], RAW[7:20], RAW[20:27]]
FEATURES = FeatureSchema(name="raw", features=tuple(Feature(name=n, offset=40.0, scale=9.0) for n in "abc"))
HEADS = HeadLayout(
    name="two",
    heads=(HeadSpec(name="kelvin", offset=300.0, scale=20.0), HeadSpec(name="chance", activation="sigmoid")),
)


def network(**options):
    made = make_esn(30, 3, seed=2, leak=0.5, bias_scaling=0.3, input_scaling=0.4, connectivity=0.4, **options)
    readout = np.random.default_rng(2).normal(size=(2, 30)) * 0.3
    return replace(made.with_readout(readout, np.array([0.1, -0.2]), heads=HEADS), features=FEATURES)


def scaled(x=RAW):
    return (x - 40.0) / 9.0


def hybrid(approach="last-layer", precision="W4A8", **options):
    esn = HybridEsn.from_weights(network(**options), calibration=None if options else scaled())
    return esn.with_hardware_linear(EmulatedDevice(), approach, precision)


def net():
    """A model in ONNX with biases, an activation and something that only the host has."""
    rng = np.random.default_rng(1)
    arrays = {"w": (3, 8), "b": (8,), "v": (8, 2), "c": (2,)}
    constants = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in arrays.items()]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["p"], "dense"),
        helper.make_node("Tanh", ["p"], ["h"], "act"),
        helper.make_node("Erf", ["h"], ["e"], "host"),
        helper.make_node("Gemm", ["e", "v", "c"], ["y"], "out"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [info("x", TensorProto.FLOAT, ["n", 3])],
        [info("y", TensorProto.FLOAT, ["n", 2])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def values(esn, x):
    """What a network's heads say of a series, by hand."""
    y = esn.weights.output(esn.states(x.astype(esn.weights.dtype)))
    return np.stack([300.0 + 20.0 * y[:, 0], 1 / (1 + np.exp(-y[:, 1]))], axis=1)


LABELS = np.array(["calm", "storm"])
X = [40.0 + 9.0 * RNG.normal(i % 2, 1.0, (9 + i % 3, 3)) for i in range(20)]
Y = LABELS[np.arange(20) % 2]
CODE = """
import sys
import numpy as np
from metalforge.hybrid import load
given = np.load(sys.argv[1])
series = [given["series0"], given["series1"], given["series2"]]
found = {}
for name in sys.argv[3:]:
    with load(name) as model:
        x = series if "several" in name else given["x"]
        y = model.predict(x)
        found.update({f"{name}/{i}": one for i, one in enumerate(y)} if isinstance(y, list) else {name: y})
np.savez(sys.argv[2], **found)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Deploy in every way; a new process loads each and says what it predicts. Returns that and what is wanted."""
    folder = tmp_path_factory.mktemp("deployed")
    esns = {
        "linear": hybrid(),
        "two-rail": hybrid("two-rail", "W4A4"),
        "native": HybridEsn.from_weights(network()).with_hardware_native(EmulatedDevice()),
        "software": HybridEsn.from_weights(network()),
        "sparse": hybrid(kind="csr"),
        "several": hybrid(),
        "chunked": HybridEsn.from_weights(network()).with_chunks(
            EmulatedDevice(), chunk_units=7, ranges=Ranges(4.0, 1.0)
        ),
        "chunked-in-turns": HybridEsn.from_weights(network()).with_chunks(
            EmulatedDevice(n_slots=1), chunk_units=9, device_units=18
        ),
        "chunked-in-software": HybridEsn.from_weights(network()).with_chunks(EmulatedDevice(), device_units=0),
    }
    wanted = {}
    for name, esn in esns.items():
        deploy(esn, folder / f"{name}.safetensors", provenance={"made for": name})
        wanted[f"{name}.safetensors"] = values(esn, scaled())
        if name == "several":
            del wanted["several.safetensors"]
            wanted |= {f"several.safetensors/{i}": values(esn, scaled(x)) for i, x in enumerate(SERIES)}
    save_weights(network(), folder / "plain.safetensors")
    wanted["plain.safetensors"] = wanted["software.safetensors"]
    classifier = EsnClassifier(units=20, random_state=1).fit(X, Y)
    deploy(classifier, folder / "classes-several.safetensors")
    wanted["classes-several.safetensors"] = classifier.predict(SERIES)
    regressor = EsnRegressor(units=20, random_state=1, standardise=True).fit(RAW, RAW[:, 0])
    deploy(regressor, folder / "regressor.safetensors")
    wanted["regressor.safetensors"] = regressor.predict(RAW)
    onnx.save(net(), folder / "net.onnx")
    plan = OperationRouter(objective="hw_only").plan(load_onnx(folder / "net.onnx"), calibration={"x": RAW})
    assert plan.jobs
    deploy(plan, folder / "net.mfd")
    wanted["net.mfd"] = HybridExecutor(plan).forward(RAW.astype(np.float32))
    wanted["net.onnx"] = load(folder / "net.onnx").predict(RAW.astype(np.float32))
    assert np.abs(wanted["net.mfd"] - wanted["net.onnx"]).max() > 0  # integers, and a bias: neither is the other
    call("npu", "compile", "plain.safetensors", "-o", "esn.mfd", "--range", 4, cwd=folder)
    plan = OperationRouter(objective="hw_only").plan(replace(graph_from_esn(network()), ranges={"input": 4.0}))
    y = HybridExecutor(plan).run(scaled())
    wanted["esn.mfd"] = np.concatenate([300.0 + 20.0 * y["kelvin"], y["chance"]], axis=1)
    np.savez(folder / "x.npz", x=RAW, series0=SERIES[0], series1=SERIES[1], series2=SERIES[2])
    names = sorted({name.split("/")[0] for name in wanted})
    subprocess.run([sys.executable, "-c", CODE, "x.npz", "y.npz", *names], cwd=folder, check=True)
    with np.load(folder / "y.npz") as said:
        return folder, dict(said), wanted


def test_a_new_process_says_the_same_of_raw_inputs(found):
    _, said, wanted = found
    assert set(said) == set(wanted)
    for name, y in wanted.items():
        if y.dtype.kind == "f":
            assert np.allclose(said[name], y, rtol=1e-6, atol=1e-9), name
        else:
            assert np.array_equal(said[name], y), name


def test_the_command_line_runs_what_was_deployed(found):
    folder, _, wanted = found
    np.save(folder / "raw.npy", RAW)
    call("npu", "run", "linear.safetensors", "--input", "raw.npy", "-o", "y.npy", cwd=folder)
    assert np.allclose(np.load(folder / "y.npy"), wanted["linear.safetensors"])
    np.save(folder / "raw32.npy", RAW.astype(np.float32))
    ran = msgspec.json.decode(call("npu", "run", "net.mfd", "raw32.npy", "--json", cwd=folder).stdout)
    assert np.allclose(ran["result"], wanted["net.mfd"])
    assert ran["statistics"]["busy"]["source"] == "modelled"
    np.savez(folder / "series.npz", *SERIES)
    call(
        "npu", "run", "classes-several.safetensors", "--input", "series.npz", "--allow-host", "-o", "c.npy", cwd=folder
    )
    assert np.array_equal(np.load(folder / "c.npy"), wanted["classes-several.safetensors"])
    assert "once" in call("npu", "run", "net.mfd", cwd=folder, code=2).stderr


def test_inputs_by_name_are_raw_too(found):
    folder, _, wanted = found
    with load(folder / "esn.mfd") as model:
        assert np.allclose(model.predict({"input": RAW}), wanted["esn.mfd"])
    np.save(folder / "input.npy", RAW)  # the stem is the input's name
    call("npu", "run", "esn.mfd", "--input", "input.npy", "-o", "by_name.npy", cwd=folder)
    assert np.allclose(np.load(folder / "by_name.npy"), wanted["esn.mfd"])


def test_what_a_file_holds_is_shown(found):
    folder, _, _ = found
    shown = msgspec.json.decode(call("npu", "inspect", "linear.safetensors", "--json", cwd=folder).stdout)
    assert shown["network"]["units"] == 30
    assert shown["run"]["precision"] == "W4A8"
    assert shown["features"]["features"][0]["offset"] == 40.0
    assert shown["ranges"]["inputs"] > 1
    assert shown["provenance"]["made for"] == "linear"
    assert '"jobs"' in call("npu", "inspect", "net.mfd", cwd=folder).stdout


def test_a_compiled_model_has_its_bias_and_its_activation(found):
    folder, _, _ = found
    small = RAW.astype(np.float32) / 100
    made = msgspec.json.decode(call("npu", "compile", "net.onnx", "-o", "n.mfp", "--json", cwd=folder).stdout)
    assert made["deployed"] == "n.mfd"
    exact = load(folder / "net.onnx").predict(small)
    with load(folder / "n.mfd") as model:
        assert np.abs(model.predict(small) - exact).max() < 0.05 * np.abs(exact).max()
        assert model.device.statistics().calls > 0
        assert model.provenance["model"] == "net.onnx"
    np.save(folder / "large.npy", RAW.astype(np.float32))
    assert "clamped" in call("npu", "run", "n.mfd", "--input", "large.npy", cwd=folder).stderr


def test_two_deployed_models_share_a_device_of_one_slot(found):
    folder, _, wanted = found
    device = EmulatedDevice(n_slots=1)
    one, two = (load(folder / name, device=device) for name in ("linear.safetensors", "net.mfd"))
    for _ in range(2):
        assert np.allclose(one.predict(RAW), wanted["linear.safetensors"])
        assert np.allclose(two.predict(RAW.astype(np.float32)), wanted["net.mfd"])
    two.close()
    assert np.allclose(one.predict(RAW), wanted["linear.safetensors"])
    one.close()
    assert device.slots() == ()


@pytest.mark.parametrize("name", ["linear.safetensors", "net.mfd"])
def test_damage_is_found(found, tmp_path, name):
    data = bytearray((found[0] / name).read_bytes())
    rng = np.random.default_rng(3)
    bad = tmp_path / name
    for at in rng.integers(0, len(data), 40):
        changed = data.copy()
        changed[at] ^= 1 << int(rng.integers(8))
        bad.write_bytes(changed)
        with pytest.raises(MetalforgeError, match=name):
            load(bad)
    bad.write_bytes(data[: len(data) // 2])
    with pytest.raises(SpecError, match=name):
        load(bad)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: plan["graph"].pop("nodes"), "no plan"),
        (lambda plan: plan["graph"].update(nodes=[]), "at least one"),
        (lambda plan: plan["graph"]["nodes"][0]["op"].update(Add={}), "no plan"),
        (lambda plan: plan["graph"]["nodes"][0].update(op={"Popen": {}}), "op"),
        (lambda plan: plan["graph"]["nodes"][0].update(op={"Elementwise": {"function": {"array": "a0"}}}), "no plan"),
        (lambda plan: plan["graph"]["nodes"][0].update(op={"Concat": {"axis": "1"}}), "no plan"),
        (lambda plan: plan["graph"]["nodes"][0]["op"]["FullyConnectedOp"].update(bias={"%code": "1 + 1"}), "no kind"),
        (lambda plan: plan["graph"]["nodes"][0]["op"]["FullyConnectedOp"].update(weights=None), "no plan"),
        (lambda plan: plan["jobs"][0].update(nodes=["nothing"]), "no node"),
        (lambda plan: plan["jobs"][0].update(nodes=["out"]), "does not fit"),
        (lambda plan: plan["jobs"][0].update(error_bound="a99"), "no plan"),
        (lambda plan: plan["jobs"][0].update(blocks=[]), "does not fit"),
        (lambda plan: plan["jobs"][0].update(offset=plan["jobs"][0]["error_bound"]), "no plan|does not fit"),
        (lambda plan: plan.update(profile="akd9000"), "profile"),
    ],
)
def test_a_forged_plan_is_refused(found, tmp_path, change, message):
    """With a checksum that is right: whoever writes a file can write that, too."""
    from metalforge.hybrid.deployed import plan_file, record

    kept, arrays = record.read_entry(found[0] / "net.mfd")
    plan = msgspec.json.decode(msgspec.json.encode(kept.plan))
    change(plan)
    forged = msgspec.convert(plan, plan_file.StoredPlan)
    record.write_plan(msgspec.structs.replace(kept, plan=forged), arrays, tmp_path / "forged.mfd")
    with pytest.raises(MetalforgeError, match=message):
        load(tmp_path / "forged.mfd")


def test_scalars_of_numpy_are_deployed(tmp_path):
    weights = RNG.normal(size=(2, 3)).astype(np.float32)
    nodes = (
        Node(name="layer", op=FullyConnectedOp(weights=weights), inputs=("x",)),
        Node(name="memory", op=TemporalIntegration(leak=np.float32(0.25)), inputs=("layer",)),
    )
    inputs, ranges = MappingProxyType({"x": (None, 3)}), {"x": np.abs(scaled()).max()}
    graph = OpGraph(inputs=inputs, nodes=nodes, outputs=("memory",), ranges=ranges)
    plan = OperationRouter(objective="hw_only").plan(graph)
    deploy(plan, tmp_path / "m.mfd")
    with load(tmp_path / "m.mfd") as model, HybridExecutor(plan) as executor:
        assert np.array_equal(model.predict(scaled()), executor.run(scaled()))


def test_integers_of_another_version_are_refused(found, tmp_path, monkeypatch):
    monkeypatch.setattr("metalforge.hybrid.esn.paths.HOST_GAIN", 1e-9)  # W_in would go elsewhere by itself: it was told
    load(found[0] / "linear.safetensors").close()
    from metalforge.hybrid.deployed import record

    file = found[0] / "linear.safetensors"
    kept, _ = record.read_entry(file)
    record.write_network(load_weights(file), msgspec.structs.replace(kept, programs=("0" * 64,)), tmp_path / "a.mfd")
    with pytest.raises(SpecError, match="other integers"):
        load(tmp_path / "a.mfd")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((4, 2)), "3"),
        (np.zeros((2, 4, 3, 3)), "shape|series"),
        ([np.zeros((0, 3))], "not empty"),
        ([], "none"),
        (np.array([["a", "b", "c"]]), "numbers"),
    ],
)
def test_wrong_inputs_are_told(found, inputs, message):
    with load(found[0] / "linear.safetensors") as model, pytest.raises(SpecError, match=message):
        model.predict(inputs)


@pytest.mark.parametrize("name", ["net.onnx", "plain.safetensors", "software.safetensors"])
def test_a_model_that_was_deployed_to_no_device_runs_on_the_one_that_is_given(tmp_path, name):
    onnx.save(net(), tmp_path / "net.onnx")
    save_weights(network(), tmp_path / "plain.safetensors")
    deploy(network(), tmp_path / "software.safetensors")
    x = RAW.astype(np.float32) if name != "net.onnx" else scaled().astype(np.float32)
    wanted = load(tmp_path / name).predict(x)
    with EmulatedDevice() as device, load(tmp_path / name, device=device, input_range=4) as model:
        found = model.predict(x)
        assert device.statistics().calls > 0
        assert {place.substrate for place in model.places()} & {"npu", "npu+software"}
    assert np.max(np.abs(found - wanted)) < 0.1 * np.std(wanted)
    assert not np.array_equal(found, wanted)


def test_a_model_without_work_for_a_device_is_refused_or_stays_on_the_host(found, tmp_path):
    graph = graph_from_esn(network())
    plan = OperationRouter().plan(graph, pin=dict.fromkeys((node.name for node in graph.nodes), "software"))
    deploy(plan, tmp_path / "host.mfd", features=FEATURES, heads=HEADS)
    with EmulatedDevice() as device:
        with pytest.raises(PlacementError, match="reservoir"):
            load(tmp_path / "host.mfd", device=device)
        with load(tmp_path / "host.mfd", device=device, allow_host=True) as model:
            model.predict(RAW)
        assert device.statistics().calls == 0
        with pytest.raises(SpecError, match="not both"):
            load(tmp_path / "host.mfd", device=device, input_range=1, calibration="x.npy")
        with pytest.raises(SpecError, match="compiled"):
            load(found[0] / "linear.safetensors", device=device, input_range=1)


def test_an_estimator_of_channels_first_takes_them_when_it_is_deployed(tmp_path):
    x, y = np.random.default_rng(1).normal(size=(20, 3, 15)), np.arange(20) % 2
    model = EsnClassifier(10, random_state=1, layout="channels_first").fit(x, y)
    deploy(model, tmp_path / "channels.mfd")
    with load(tmp_path / "channels.mfd") as loaded:
        assert np.array_equal(loaded.predict(x), model.predict(x))
        assert np.array_equal(loaded.predict(list(x)), model.predict(x))


def test_inputs_beyond_the_range_of_a_network_are_counted(found):
    with load(found[0] / "linear.safetensors") as model:  # its W_in is on the host
        model.predict(RAW)
        assert model.clipped == 0
    with load(found[0] / "native.safetensors") as model:
        model.predict(2 * RAW)
        assert model.clipped == np.count_nonzero(np.abs(scaled(2 * RAW)) > model.esn.ranges.u) > 0


def test_what_is_no_model_is_told(tmp_path):
    with pytest.raises(SpecError, match="cannot be deployed"):
        deploy(object(), tmp_path / "a.mfd")
    with pytest.raises(SpecError, match="labels"):
        deploy(network(), tmp_path / "a.mfd", labels=["only one"])
    (tmp_path / "b.mfd").write_bytes(b"nothing of the kind")
    with pytest.raises(SpecError, match=r"b\.mfd"):
        load(tmp_path / "b.mfd")
    with pytest.raises(SpecError, match=r"absent"):
        load(tmp_path / "absent")
