"""What a newcomer types first works: estimators, weights and paths where a graph or a plan is wanted; short reprs."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from metalforge.core.errors import SpecError
from metalforge.hybrid import HybridEsn, HybridExecutor, OperationRouter, Task, graph_from_esn, loss, plan_chunks, refit
from metalforge.reservoir import make_esn, save_weights
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.estimators import EsnRegressor
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.npu.compile import compile_linear


@pytest.fixture
def weights():
    made = make_esn(24, 3, seed=1, connectivity=1.0)
    return made.with_readout(np.random.default_rng(1).normal(size=(2, 24)))


@pytest.fixture
def series():
    return np.random.default_rng(2).uniform(-2, 2, (30, 3))


def test_a_fitted_estimator_is_a_network(series):
    fitted = EsnRegressor(24, random_state=1).fit(series, series[:, :2])
    esn = HybridEsn.from_weights(fitted, calibration=series)
    assert np.allclose(esn.run(series), fitted.predict(series))
    assert OperationRouter().plan(fitted).graph.outputs == ("readout",)
    with pytest.raises(SpecError, match="fit it first"):
        HybridEsn.from_weights(EsnRegressor(24))
    with pytest.raises(SpecError, match="dict"):
        HybridEsn.from_weights({})


def test_a_network_is_read_from_its_file(weights, series, tmp_path):
    save_weights(weights, tmp_path / "esn.safetensors")
    esn = HybridEsn.from_weights(tmp_path / "esn.safetensors")
    assert np.array_equal(esn.run(series), HybridEsn.from_weights(weights).run(series))


def test_an_executor_plans_what_it_is_given(weights, series):
    with EmulatedDevice("akd1000-claimed", n_slots=1) as device:
        chip = HybridExecutor(weights, device, calibration=series)
        twin = HybridExecutor(weights, device, calibration=series)
        assert chip.plan.record.profile == "akd1000-claimed"
        assert chip.plan["reservoir"].substrate == "npu+software"
        wanted = weights.output(EsnEngine(weights).run(series))
        first = chip.run(series)
        assert np.max(np.abs(first - wanted)) < 0.1 * wanted.std()
        assert np.array_equal(twin.run(series), first)
    software = HybridExecutor(weights)  # the range of its input is not known
    assert software.plan["reservoir"].substrate == "software"
    assert np.max(np.abs(software.run(series) - wanted)) < 0.1 * wanted.std()
    with pytest.raises(SpecError, match="calibration"):
        HybridExecutor(software.plan, calibration=series)


@pytest.mark.parametrize("n_slots", [None, 1])
def test_a_network_in_chunks_is_refitted_as_any_other(weights, series, n_slots):
    task = Task(inputs=series[None], targets=series[None, :, :1] ** 2, washout=3)
    whole = refit(HybridEsn.from_weights(weights), task)
    with EmulatedDevice(n_slots=n_slots) as device:
        chip = HybridEsn.from_weights(weights).with_chunks(device, chunk_units=8, precision="W4A4")
        before = chip.state
        fitted = refit(chip, task)
        assert loss(fitted, task) < loss(chip.with_weights(weights.with_readout(whole.weights.w_out)), task)
        assert np.array_equal(chip.state, before)


def test_a_router_plans_a_path(weights, series, tmp_path):
    save_weights(weights, tmp_path / "esn.safetensors")
    by_path = OperationRouter().plan(str(tmp_path / "esn.safetensors"), calibration=series)
    assert by_path.explain() == OperationRouter().plan(graph_from_esn(weights), calibration={"input": series}).explain()
    w = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "dense")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [w],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "net.onnx"
    )
    assert OperationRouter().plan(tmp_path / "net.onnx")["dense"].kind == "fully_connected"
    np.save(tmp_path / "x.npy", series)
    with pytest.raises(SpecError, match=r"x.npy: .*onnx"):
        OperationRouter().plan(tmp_path / "x.npy")
    with pytest.raises(SpecError, match="absent"):
        OperationRouter().plan(tmp_path / "absent.xyz")


def test_a_repr_fits_a_screen(weights, series):
    plan = OperationRouter(objective="hw_only").plan(weights, calibration=series)
    long = graph_from_esn(weights, name="n" * 500)
    compiled = compile_linear("m", np.ones((9, 9)))
    shown = [
        *(plan, long, long.nodes[0], plan.jobs[0], weights, compiled, compiled.programs[0], plan_chunks(weights)),
        Task(inputs=series[None], targets=series[None]),
    ]
    for thing in shown:
        assert len(repr(thing)) < 1200, type(thing)
        assert "\n" not in repr(thing)
    assert "24 x 24" in repr(weights)
    printed = str(plan)
    assert "reservoir" in printed
    assert "modelled: akd1000-published" in printed
    assert len(printed.splitlines()) < 24
    hostile = OperationRouter().plan(graph_from_esn(weights, name="\x1b[2J"))
    assert "\x1b" not in str(hostile) + repr(hostile)
