"""The executor: near software within what was predicted, whole calls or none, on in software when the device goes."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.quantities import Measured, Modelled
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import Concat, Elementwise, FullyConnectedOp, MutationUpdate, TemporalIntegration
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.running.device_matrix import DeviceFallbackWarning, DeviceMatrix
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.substrates.npu import EmulatedDevice, NpuError
from metalforge.substrates.npu.device import DeviceGoneError, DeviceTimeoutError, ResourceError
from metalforge.substrates.npu.quantize import quantize
from metalforge.substrates.npu.residency import DevicePrograms
from reference.faulty_npu import FaultyDevice, PartialUpdate, Timeout, Vanish
from reference.hybrid_graphs import (
    HOST,
    chain,
    esn_graph,
    heads_graph,
    int4_layer,
    real_layer,
    training_graph,
)


def make(graph, objective="hw_only", pin=None, **kwargs):
    return OperationRouter(objective=objective, host=HOST, **kwargs).plan(graph, pin=pin)


def failing(*faults):
    return FaultyDevice(faults=faults)


def software_run(graph, x, state=None):
    """Outputs (T, ...) of one sequence in software, from a state."""
    model = SoftwareModel(graph)
    model.state = dict(state or {})
    steps = [model.forward({next(iter(graph.inputs)): row[np.newaxis]}) for row in x]
    return {name: np.stack([step[name][0] for step in steps]) for name in graph.outputs}, model


# Results.


@pytest.mark.parametrize("tolerance", [0.3, 1e-2, 1e-3])
def test_one_layer_is_within_its_predicted_bound(tolerance):
    rng = np.random.default_rng(1)
    graph = chain(real_layer(rng, 30, 12), inputs=30, ranges=2.0, dtype="float64")
    plan = make(graph, tolerance=tolerance)
    x = rng.uniform(-2, 2, (400, 30))
    wanted = SoftwareModel(graph).forward({"x": x})["n0"]
    with HybridExecutor(plan) as executor:
        error = executor.forward(x) - wanted
    assert np.abs(error).max() <= plan["n0"].error_bound
    relative = np.sqrt(np.mean(error**2) / np.mean((wanted - graph["n0"].op.bias) ** 2))
    assert relative == pytest.approx(plan["n0"].predicted_error, rel=0.1)


@pytest.mark.parametrize("quantised", [False, True])
def test_int4_weights_err_by_the_rounding_of_activations_only(quantised):
    """With inputs on the activations' own grid there is nothing left to round."""
    rng = np.random.default_rng(2)
    layer = int4_layer(rng, 20, 8, dtype="f8")
    if quantised:
        small = rng.integers(-3, 4, (8, 20))  # rows without a seven: their scales must be kept, not found again
        weights = quantize(layer.weights, 4)
        layer = FullyConnectedOp(weights=type(weights)(
            values=small.astype(np.int8), scales=weights.scales, limits=(-7, 7), error=np.zeros((8, 20))
        ))  # fmt: skip
    graph = chain(layer, inputs=20, dtype="float64")
    plan = make(graph)
    assert plan["n0"].encoding == "W4A8"
    on_grid = rng.integers(-127, 128, (100, 20)) / 127
    with HybridExecutor(plan) as executor:
        exact = executor.forward(on_grid)
        off_grid = executor.forward(on_grid * 0.97)
    assert np.allclose(exact, on_grid @ layer.matrix.T, rtol=0, atol=1e-13)
    bound = np.abs(layer.matrix).sum(axis=1) * 0.5 / 127
    assert np.all(np.abs(off_grid - 0.97 * on_grid @ layer.matrix.T) <= bound + 1e-12)


def test_a_reservoir_follows_software_step_by_step():
    """From one and the same state a step errs by no more than the pre-activation's bound; tanh only shrinks it."""
    rng = np.random.default_rng(3)
    graph = esn_graph(rng, leak=0.6)
    plan = make(graph)
    x = rng.uniform(-1, 1, (25, 10)).astype("f4")
    with HybridExecutor(plan) as executor:
        for row in x:
            before = executor.state
            executor.step(row)
            _, model = software_run(graph, row[np.newaxis], before)
            error = np.abs(executor.state["reservoir"] - model.state["reservoir"]).max()
            assert error <= 0.6 * plan["reservoir"].error_bound + 1e-5
    assert plan["reservoir"].error_bound < 0.3


def test_a_finer_encoding_is_nearer():
    rng = np.random.default_rng(4)
    graph = esn_graph(rng)
    x = rng.uniform(-1, 1, (60, 10)).astype("f4")
    wanted = software_run(graph, x)[0]["readout"]
    errors = []
    for tolerance in (0.3, 1e-2, 1e-3):
        with HybridExecutor(make(graph, tolerance=tolerance)) as executor:
            errors.append(np.sqrt(np.mean((executor.run(x) - wanted) ** 2)))
    assert errors[0] > 5 * errors[1] > 25 * errors[2]


def test_sequences_batches_and_steps_agree():
    rng = np.random.default_rng(5)
    plan = make(esn_graph(rng))
    x = rng.uniform(-1, 1, (3, 7, 10)).astype("f4")
    with HybridExecutor(plan) as executor:
        together = executor.run(x)
        executor.reset()
        stepped = np.stack([executor.step(x[:, t]) for t in range(7)], axis=1)
        apart = []
        for sequence in x:
            executor.reset()
            apart.append(executor.run(sequence))
        executor.reset()
        single = executor.step(x[0, 0])
    assert together.shape == (3, 7, 3)
    assert together.dtype == np.float32
    assert np.array_equal(together, stepped)
    assert np.array_equal(together, np.stack(apart))
    assert np.array_equal(single, together[0, 0])


def test_merged_heads_come_out_by_name():
    rng = np.random.default_rng(6)
    graph = heads_graph(rng)
    plan = make(graph)
    x = rng.uniform(-1, 1, (4, 5)).astype("f4")
    wanted = SoftwareModel(graph).forward({"input": x})
    with HybridExecutor(plan) as executor:
        found = executor.step(x)
        calls = executor.device.statistics().calls
    assert calls == 2, "the reservoir, and all eleven heads at once"
    assert list(found) == list(graph.outputs)
    for name in graph.outputs:
        row = plan[name if name in {r.op for r in plan.record.ops if r.job} else f"{name}.linear"]
        reservoir = np.abs(graph[row.op].op.matrix).sum() * plan["reservoir"].error_bound
        assert np.abs(found[name] - wanted[name]).max() <= row.error_bound + reservoir + 1e-5


def test_fused_chains_are_within_their_bound():
    rng = np.random.default_rng(7)
    relu = Elementwise(function="bounded_relu")
    graph = chain(real_layer(rng, 12, 8), relu, real_layer(rng, 8, 3), relu, inputs=12, dtype="float64")
    plan = make(graph, tolerance=0.9)
    assert {row.job for row in plan.record.ops} == {"n0+3"}
    x = rng.uniform(-1, 1, (200, 12))
    with HybridExecutor(plan) as executor:
        found = executor.forward(x)
        assert executor.statistics().bytes_to_device == 200 * 12
    wanted = SoftwareModel(graph).forward({"x": x})["n3"]
    assert np.abs(found - wanted).max() <= plan["n3"].error_bound
    assert set(np.unique(np.rint(found * 15) - found * 15)) == {0.0}, "fifteen steps"


def test_layers_in_blocks_of_rows_and_columns_give_the_whole():
    rng = np.random.default_rng(8)
    layer = FullyConnectedOp(weights=np.full((4, 6000), 0.1))
    graph = chain(layer, inputs=6000, dtype="float64")
    plan = make(graph)
    assert len(plan.jobs[0].programs) > 1, "so many lines of one sign could saturate"
    x = rng.integers(-127, 128, (3, 6000)) / 127
    with HybridExecutor(plan) as executor:
        assert np.allclose(executor.forward(x), x @ layer.matrix.T, rtol=0, atol=1e-9)
    tanh = Elementwise(function="tanh")
    ops = [op for _ in range(5) for op in (int4_layer(rng, 300, 300), tanh)]
    split = make(chain(*ops, inputs=300))
    job = max(split.jobs, key=lambda job: len(job.blocks))
    assert len(job.blocks) > 1
    on_grid = rng.integers(-127, 128, (2, 300)) / 127
    matrix = split.graph[job.nodes[0]].op.matrix
    programs = DevicePrograms(EmulatedDevice())
    found = np.concatenate([DeviceMatrix(block, programs, "rows")(on_grid) for block in job.blocks], axis=1)
    assert np.allclose(found, on_grid @ matrix.T, rtol=0, atol=1e-5)


def test_layers_over_several_axes_are_rows_of_one_call():
    rng = np.random.default_rng(9)
    graph = OpGraph(
        inputs={"x": (None, 4, 6)},
        nodes=(Node(name="y", op=int4_layer(rng, 6, 3, bias=True), inputs=("x",)),),
        outputs=("y",),
        ranges={"x": 1.0},
    )
    plan = make(graph)
    assert plan["y"].passes == 4 * 2
    x = rng.uniform(-1, 1, (5, 4, 6)).astype("f4")
    with HybridExecutor(plan) as executor:
        found = executor.forward(x)
        single = executor.forward(x[0])
    assert found.shape == (5, 4, 3)
    assert np.array_equal(single, found[0])
    assert np.abs(found - SoftwareModel(graph).forward({"x": x})["y"]).max() <= plan["y"].error_bound + 1e-6


def test_a_plan_without_a_device_is_software_bit_for_bit():
    rng = np.random.default_rng(10)
    graph = esn_graph(rng, leak=0.4)
    plan = make(graph, "accuracy")
    x = rng.uniform(-1, 1, (20, 10)).astype("f4")
    with HybridExecutor(plan) as executor:
        assert np.array_equal(executor.run(x), software_run(graph, x)[0]["readout"])
        assert executor.device.statistics().loads == 0


def test_beyond_the_range_is_clamped_and_counted():
    rng = np.random.default_rng(11)
    graph = chain(int4_layer(rng, 5, 3), inputs=5)
    with HybridExecutor(make(graph)) as executor:
        inside = executor.forward(np.ones((1, 5)))
        assert executor.statistics().clipped == 0
        assert np.array_equal(executor.forward(np.full((1, 5), 7.0)), inside)
        assert executor.statistics().clipped == 5


# State.


def test_state_is_copied_out():
    rng = np.random.default_rng(12)
    plan = make(esn_graph(rng))
    x = rng.uniform(-1, 1, (9, 10)).astype("f4")
    with HybridExecutor(plan) as executor:
        executor.run(x[:5])
        executor.state["reservoir"][:] = 99.0
        found = executor.run(x[5:])
        executor.reset()
        assert np.array_equal(executor.run(x)[5:], found)
        executor.reset()
        assert executor.state == {}


def test_temporal_integration_keeps_its_buffer_on_the_host():
    rng = np.random.default_rng(13)
    graph = chain(int4_layer(rng, 4, 3), TemporalIntegration(leak=0.25), inputs=4)
    plan = make(graph)
    x = rng.uniform(-1, 1, (30, 4)).astype("f4")
    with HybridExecutor(plan) as executor:
        found = executor.run(x)
    wanted = software_run(graph, x)[0]["n1"]
    assert np.abs(found - wanted).max() <= plan["n0"].error_bound + 1e-6, "a mean of errors is no larger than they are"


def test_misuse_is_told_what_to_do():
    rng = np.random.default_rng(14)
    stateful = HybridExecutor(make(esn_graph(rng)))
    with pytest.raises(SpecError, match="hint: step"):
        stateful.forward(np.zeros((1, 10)))
    stateful.step(np.zeros((2, 10)))
    with pytest.raises(SpecError, match="hint: reset"):
        stateful.step(np.zeros((3, 10)))
    with pytest.raises(SpecError, match="shape"):
        stateful.step(np.zeros((2, 11)))
    with pytest.raises(SpecError, match="finite"):
        stateful.step(np.full((2, 10), np.inf))
    with pytest.raises(SpecError, match="one length"):
        stateful.run(np.zeros((0, 10)))
    with pytest.raises(UnknownNameError, match="fully connected"):
        stateful.weights("reservoir")
    with pytest.raises(SpecError, match="on_device_failure"):
        HybridExecutor(stateful.plan, on_device_failure="ignore")
    two = training_graph(rng)
    with pytest.raises(SpecError, match="x, target"):
        HybridExecutor(make(two)).forward(np.zeros((1, 6)))
    stateful.close()
    with pytest.raises(SpecError, match="closed"):
        stateful.step(np.zeros((2, 10)))


# Statistics.


def test_statistics_keep_measured_and_modelled_apart():
    rng = np.random.default_rng(15)
    plan = make(esn_graph(rng))
    device = EmulatedDevice()
    with HybridExecutor(plan, device) as executor:
        loaded = executor.statistics().device_busy.value
        executor.run(rng.uniform(-1, 1, (10, 10)))
        executor.step(rng.uniform(-1, 1, (1, 10)))
        statistics = executor.statistics()
    assert (statistics.calls, statistics.samples) == (11, 11)
    assert isinstance(statistics.host, Measured)
    assert isinstance(statistics.device_busy, Modelled)
    assert statistics.host.value > 0
    assert statistics.device_busy.value - loaded == pytest.approx(11 * plan.record.device_total.latency.value)
    per_step = (
        sum(t.to_device_bytes for t in plan.record.transfers),
        sum(t.to_host_bytes for t in plan.record.transfers),
    )
    assert (statistics.bytes_to_device, statistics.bytes_to_host) == (11 * per_step[0], 11 * per_step[1])
    assert (statistics.fallbacks, statistics.retries, statistics.pushes) == (0, 0, 0)
    with pytest.raises(TypeError, match=r"measured.*modelled"):
        statistics.host + statistics.device_busy


def test_statistics_of_a_shared_device_begin_with_the_executor():
    rng = np.random.default_rng(16)
    plan = make(chain(int4_layer(rng, 4, 3), inputs=4))
    device = EmulatedDevice()
    with HybridExecutor(plan, device) as first, HybridExecutor(plan, device) as second:
        first.forward(np.zeros((8, 4)))
        assert len(device.slots()) == 2, "two executors of one plan do not share a slot"
        assert np.array_equal(second.forward(np.ones((1, 4))), first.forward(np.ones((1, 4))))
        assert second.statistics().device_busy.value < first.statistics().device_busy.value
    assert device.slots() == ()
    assert device.statistics().loads == 2


def test_closing_takes_the_programs_off_and_closes_what_was_made_here():
    plan = make(chain(int4_layer(np.random.default_rng(17), 4, 3), inputs=4))
    with HybridExecutor(plan) as executor:
        own = executor.device
        assert own.slots()
    with pytest.raises(NpuError, match="closed"):
        own.load(plan.jobs[0].programs[0])
    executor.close()


def test_a_device_without_room_is_refused_when_the_executor_is_made():
    rng = np.random.default_rng(18)
    ops = [op for _ in range(7) for op in (int4_layer(rng, 4, 4), Elementwise(function="tanh"))]
    plan = make(chain(*ops, inputs=4))
    claimed = EmulatedDevice("akd1000-claimed")
    with pytest.raises(ResourceError):
        HybridExecutor(plan, claimed)
    assert claimed.slots() == (), "what was loaded before the refusal is taken off again"


def test_a_device_of_one_program_is_loaded_by_turns():
    rng = np.random.default_rng(19)
    plan = make(esn_graph(rng))
    x = rng.uniform(-1, 1, (4, 10)).astype("f4")
    device = EmulatedDevice(n_slots=1)
    with HybridExecutor(plan, device) as turns, HybridExecutor(plan) as slots:
        assert np.array_equal(turns.run(x), slots.run(x))
    assert device.statistics().loads == 2 + 8


# Weights that change.


def test_training_in_software_is_the_reference_bit_for_bit():
    rng = np.random.default_rng(20)
    graph = training_graph(rng)
    model = SoftwareModel(graph)
    with HybridExecutor(make(graph, "accuracy")) as executor:
        for _ in range(5):
            batch = {"x": rng.uniform(-1, 1, (8, 6)), "target": rng.normal(size=(8, 2))}
            assert np.array_equal(executor.forward(batch), model.forward(batch)["y"])
        assert np.array_equal(executor.weights("layer"), model.weights["layer"])
        assert executor.statistics().pushes == 0


def test_training_on_the_device_changes_the_master_and_is_pushed():
    rng = np.random.default_rng(21)
    graph = training_graph(rng, rate=0.3)
    plan = make(graph)
    truth = rng.normal(size=(2, 6)).astype("f4") / 3
    device = EmulatedDevice()
    with HybridExecutor(plan, device) as executor:
        start = executor.weights("layer")
        for _ in range(60):
            x = rng.uniform(-1, 1, (16, 6)).astype("f4")
            executor.forward({"x": x, "target": x @ truth.T + graph["layer"].op.bias})
        learned = executor.weights("layer")
        x = rng.uniform(-1, 1, (5, 6)).astype("f4")
        found = executor.forward({"x": x, "target": np.zeros((5, 2))})
        statistics = executor.statistics()
    assert np.abs(learned - truth).max() < 0.1 * np.abs(start - truth).max()
    # What was in force in the last call: the weights before it.
    assert np.abs(found - (x @ learned.T + graph["layer"].op.bias)).max() < 0.02
    assert statistics.pushes == 61
    assert 0 < statistics.bytes_pushed == device.statistics().bytes_pushed - _loaded(plan)


def _loaded(plan):
    from metalforge.substrates.npu.device import image_bytes

    return sum(image_bytes(program) for job in plan.jobs for program in job.programs)


def test_mutations_are_those_of_software_and_reach_the_merged_heads():
    rng = np.random.default_rng(22)
    nodes = (
        Node(name="a", op=real_layer(rng, 5, 3), inputs=("x",)),
        Node(name="b", op=real_layer(rng, 5, 2), inputs=("x",)),
        Node(name="mutate", op=MutationUpdate(of="b", shape=(2, 5), fraction=0.5, scale=0.2, seed=9)),
        Node(name="both", op=Concat(), inputs=("a", "b")),
    )
    graph = OpGraph(inputs={"x": (None, 5)}, nodes=nodes, outputs=("both",), ranges={"x": 1.0})
    plan = make(graph)
    assert plan["mutate"].substrate == "software->npu"
    assert plan["a"].job == plan["b"].job
    model = SoftwareModel(graph)
    x = rng.uniform(-1, 1, (6, 5)).astype("f4")
    with HybridExecutor(plan) as executor:
        for _ in range(4):
            found, wanted = executor.forward(x), model.forward({"x": x})["both"]
            assert np.abs(found - wanted).max() < 0.05
        assert np.array_equal(executor.weights("b"), model.weights["b"])
        assert executor.statistics().pushes == 4


def test_weights_can_be_set_by_hand():
    rng = np.random.default_rng(23)
    graph = chain(int4_layer(rng, 6, 3), inputs=6)
    new = int4_layer(rng, 6, 3).weights
    x = rng.integers(-127, 128, (4, 6)) / 127
    with HybridExecutor(make(graph)) as executor:
        executor.set_weights("n0", new)
        assert np.allclose(executor.forward(x), x @ new.T, atol=1e-5)
        assert executor.statistics().pushes == 1
        with pytest.raises(SpecError, match=r"finite.*\(3, 6\)"):
            executor.set_weights("n0", new.T)


# Devices that fail.


def test_a_time_out_is_tried_again_and_nothing_shows():
    rng = np.random.default_rng(24)
    plan = make(esn_graph(rng))
    x = rng.uniform(-1, 1, (10, 10)).astype("f4")
    with HybridExecutor(plan) as calm:
        wanted = calm.run(x)
    with HybridExecutor(plan, failing(Timeout(at=3), Timeout(at=11))) as executor:
        assert np.array_equal(executor.run(x), wanted)
        statistics = executor.statistics()
    assert (statistics.retries, statistics.fallbacks, statistics.calls) == (2, 0, 10)


@pytest.mark.parametrize(
    "faults",
    [
        (Vanish(at=9),),
        (Vanish(at=10),),
        (Timeout(at=9), Timeout(at=10)),
        (Timeout(at=10), Timeout(at=12)),
        (Timeout(at=9), Vanish(at=10)),
    ],
)
def test_a_lost_device_leaves_the_state_and_software_goes_on_from_it(faults):
    """Two calls a step: whether the reservoir's or the readout's fails, step 5 is made again, once, in software."""
    rng = np.random.default_rng(25)
    graph = esn_graph(rng, leak=0.7)
    plan = make(graph)
    x = rng.uniform(-1, 1, (12, 10)).astype("f4")
    with HybridExecutor(plan) as calm:
        before = calm.run(x[:4])
        state = calm.state
    after, model = software_run(graph, x[4:], state)
    with HybridExecutor(plan, failing(*faults)) as executor:
        with pytest.warns(DeviceFallbackWarning) as warned:
            found = executor.run(x)
        assert np.array_equal(found[:4], before)
        assert np.array_equal(found[4:], after["readout"])
        assert np.array_equal(executor.state["reservoir"], model.state["reservoir"])
        statistics = executor.statistics()
    assert len(warned) == 1
    assert (statistics.calls, statistics.fallbacks) == (12, 8)


def test_raise_leaves_everything_as_it_was():
    rng = np.random.default_rng(26)
    plan = make(esn_graph(rng))
    x = rng.uniform(-1, 1, (12, 10)).astype("f4")
    with HybridExecutor(plan) as calm:
        wanted = calm.run(x)
    device = failing(Vanish(at=10))
    with HybridExecutor(plan, device, on_device_failure="raise") as executor:
        first = executor.run(x[:4])
        state = executor.state
        with pytest.raises(DeviceGoneError):
            executor.step(x[4])
        assert np.array_equal(executor.state["reservoir"], state["reservoir"])
        assert executor.statistics().calls == 4
        with pytest.raises(DeviceGoneError):
            executor.step(x[4])
        executor.reconnect()
        rest = executor.run(x[4:])
    assert np.array_equal(np.concatenate([first, rest]), wanted)


def test_two_time_outs_raise_and_the_third_try_succeeds():
    rng = np.random.default_rng(27)
    plan = make(chain(int4_layer(rng, 4, 3), inputs=4))
    x = rng.uniform(-1, 1, (2, 4))
    with HybridExecutor(plan, failing(Timeout(at=1), Timeout(at=2)), on_device_failure="raise") as executor:
        with pytest.raises(DeviceTimeoutError):
            executor.forward(x)
        assert executor.forward(x).shape == (2, 3)
        assert executor.statistics().calls == 1


def test_a_device_that_came_back_is_used_again_with_what_was_learned_meanwhile():
    rng = np.random.default_rng(28)
    graph = training_graph(rng)
    plan = make(graph)
    batches = [{"x": rng.uniform(-1, 1, (8, 6)), "target": rng.normal(size=(8, 2))} for _ in range(6)]
    with HybridExecutor(plan, failing(Vanish(at=3))) as executor:
        for batch in batches[:2]:
            executor.forward(batch)
        with pytest.warns(DeviceFallbackWarning):
            executor.forward(batches[2])
        executor.forward(batches[3])
        assert executor.statistics().pushes == 2
        executor.reconnect()
        weights = executor.weights("layer")
        found = executor.forward(batches[4])
        assert np.abs(found - (batches[4]["x"] @ weights.T + graph["layer"].op.bias)).max() < 0.03
        assert executor.statistics().fallbacks == 2


def test_a_broken_push_is_sent_again():
    rng = np.random.default_rng(29)
    graph = training_graph(rng)
    plan = make(graph)
    batches = [{"x": rng.uniform(-1, 1, (8, 6)), "target": rng.normal(size=(8, 2))} for _ in range(4)]
    with HybridExecutor(plan) as calm, HybridExecutor(plan, failing(PartialUpdate(at=2))) as executor:
        for batch in batches:
            assert np.array_equal(executor.forward(batch), calm.forward(batch))
        assert executor.statistics().retries == 1


def test_a_push_that_fails_for_good_keeps_the_call_and_its_weights():
    rng = np.random.default_rng(30)
    graph = training_graph(rng)
    plan = make(graph)
    batches = [{"x": rng.uniform(-1, 1, (8, 6)), "target": rng.normal(size=(8, 2))} for _ in range(5)]
    with HybridExecutor(plan) as calm:
        wanted = [calm.forward(batch) for batch in batches[:2]]
        weights = calm.weights("layer")
    device = failing(PartialUpdate(at=2), PartialUpdate(at=3))
    with HybridExecutor(plan, device) as executor:
        with pytest.warns(DeviceFallbackWarning):
            found = [executor.forward(batch) for batch in batches[:2]]
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
        assert np.array_equal(executor.weights("layer"), weights), "the call had succeeded; its update counts"
        third = executor.forward(batches[2])
        bias = graph["layer"].op.bias
        assert np.allclose(third, batches[2]["x"].astype("f4") @ weights.T + bias, atol=1e-6)


def test_a_push_that_raises_leaves_the_old_weights_on_both_sides():
    rng = np.random.default_rng(31)
    graph = training_graph(rng)
    plan = make(graph)
    batches = [{"x": rng.uniform(-1, 1, (8, 6)), "target": rng.normal(size=(8, 2))} for _ in range(3)]
    with HybridExecutor(plan) as calm:
        wanted = [calm.forward(batch) for batch in batches]
    device = failing(PartialUpdate(at=2), PartialUpdate(at=3))
    with HybridExecutor(plan, device, on_device_failure="raise") as executor:
        first = executor.forward(batches[0])
        weights = executor.weights("layer")
        with pytest.raises(DeviceTimeoutError):
            executor.forward(batches[1])
        assert np.array_equal(executor.weights("layer"), weights)
        assert executor.statistics().calls == 1
        found = [first, executor.forward(batches[1]), executor.forward(batches[2])]
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


# Outputs.


def test_gradients_over_time_have_no_batch():
    rng = np.random.default_rng(32)
    base = training_graph(rng)
    graph = OpGraph(inputs=base.inputs, nodes=base.nodes, outputs=("y", "gradient"), ranges=base.ranges)
    with HybridExecutor(make(graph, "accuracy")) as executor:
        found = executor.run({"x": rng.uniform(-1, 1, (4, 7, 6)), "target": np.zeros((4, 7, 2))})
        one = executor.step({"x": np.zeros(6), "target": np.zeros(2)})
    assert found["y"].shape == (4, 7, 2)
    assert found["gradient"].shape == (7, 2, 6)
    assert one["y"].shape == (2,)
    assert one["gradient"].shape == (2, 6)
