"""Plans of random graphs: regions are convex and maximal, the search is exact, results are within their bounds."""

from itertools import chain as joined
from itertools import combinations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.hybrid.model.graph import Node, OpGraph, find_regions
from metalforge.hybrid.model.ops import Add, Concat, Elementwise, FanOutOp, FullyConnectedOp, TemporalIntegration
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.hybrid.routing.candidates import JobCandidate
from metalforge.hybrid.routing.jobs import DeviceJob, LinearJob
from metalforge.hybrid.routing.plan import PlanRecord
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.substrates.placing import choose
from reference.hybrid_graphs import HOST, edges, is_convex, quotient

SIDES = st.sampled_from(["npu", "software"])
WIDTH = 4


@st.composite
def graphs(draw, max_nodes=9, stateful=True):
    """Any order of layers, activations, fan-outs, sums and concatenations over one width."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    values, nodes = ["x"], []
    kinds = ["layer", "layer", "tanh", "bounded_relu", "sigmoid", "fan_out", "add", "concat"]
    for i in range(draw(st.integers(1, max_nodes))):
        kind = draw(st.sampled_from([*kinds, "memory"] if stateful else kinds))
        inputs = [draw(st.sampled_from(values))]
        match kind:
            case "layer":
                op = _layer(rng, WIDTH)
            case "memory":
                op = TemporalIntegration(leak=0.5)
            case "fan_out":
                op = FanOutOp()
            case "add":
                op, inputs = Add(), [*inputs, draw(st.sampled_from(values))]
            case "concat":
                # Brought back to one width, so that anything can follow anything.
                nodes.append(Node(name=f"c{i}", op=Concat(), inputs=(inputs[0], draw(st.sampled_from(values)))))
                op, inputs = _layer(rng, 2 * WIDTH), [f"c{i}"]
            case _:
                op = Elementwise(function=kind)
        nodes.append(Node(name=f"n{i}", op=op, inputs=tuple(inputs)))
        values.append(f"n{i}")
    outputs = draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=3, unique=True))
    return OpGraph(
        inputs={"x": (None, WIDTH)}, nodes=tuple(nodes), outputs=tuple(outputs), dtype="float64", ranges={"x": 1.0}
    )


def _layer(rng, inputs):
    weights = rng.normal(size=(WIDTH, inputs)) / np.sqrt(inputs)
    if rng.random() < 0.5:
        grid = rng.integers(-7, 8, (WIDTH, inputs))
        grid[:, 0] = 7
        weights = grid / 20
    return FullyConnectedOp(weights=weights, bias=rng.normal(size=WIDTH) / 2 if rng.random() < 0.5 else None)


@given(graph=graphs(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_regions_are_convex_and_ordered(graph, data):
    sides = {node.name: data.draw(SIDES) for node in graph.nodes}
    found = find_regions(graph.before, sides)
    pairs = edges(graph)
    regions = [set(names) for _, names in found]
    assert sorted(joined.from_iterable(names for _, names in found)) == sorted(sides), "every node in one region"
    assert all(sides[name] == side for side, names in found for name in names)
    assert all(is_convex(pairs, region) for region in regions)
    assert all(a < b for a, b in quotient(pairs, regions)), "none waits for a later one"


@given(
    gains=st.lists(st.floats(-3, 3).map(lambda g: round(g, 3)), min_size=1, max_size=7),
    covers=st.lists(st.sets(st.sampled_from("abcde"), min_size=1, max_size=3), min_size=7, max_size=7),
    capacity=st.integers(0, 4),
    must=st.sets(st.sampled_from("abcde"), max_size=2),
)
@settings(max_examples=200, deadline=None)
def test_the_search_finds_the_best_of_all_sets(gains, covers, capacity, must):
    candidates = [_candidate(sorted(nodes), gain) for gain, nodes in zip(gains, covers, strict=False)]

    def fits(some):
        return len(some) <= capacity

    legal = [
        some
        for size in range(len(candidates) + 1)
        for some in combinations(candidates, size)
        if fits(some) and sum(len(c.nodes) for c in some) == len({n for c in some for n in c.nodes})
    ]
    meeting = [some for some in legal if must <= {n for c in some for n in c.nodes}]
    best = max((sum(c.gain[0] for c in some) for some in meeting), default=None)
    exact, greedy = choose(candidates, fits, must), choose(candidates, fits, must, exact_up_to=0)
    assert (exact is None) == (best is None)
    if exact is not None:
        assert sum(c.gain[0] for c in exact) == pytest.approx(best)
        assert exact in [tuple(c for c in candidates if c in some) for some in meeting]
    if greedy is not None:
        assert sum(c.gain[0] for c in greedy) <= best + 1e-9
        assert set(greedy) in [set(some) for some in meeting]


def _candidate(nodes, gain):
    job = DeviceJob(nodes=tuple(nodes), programs=(), ranges=None, error=0, error_bound=None)
    return JobCandidate(
        job=job, gain=(gain,), device=None, update=None, chip_bytes=0, whole=None, host_share=None, software=None
    )


@given(
    graph=graphs(),
    objective=st.sampled_from(["latency", "energy", "accuracy", "hw_only"]),
    policy=st.sampled_from(["default", "seed"]),
    device=st.sampled_from(["akd1000-published", "akd1000-claimed"]),
    tolerance=st.sampled_from([0.9, 1e-2, 1e-4]),
)
@settings(max_examples=40, deadline=None)
def test_every_plan_is_complete_and_adds_up(graph, objective, policy, device, tolerance):
    router = OperationRouter(policy, objective, device, tolerance=tolerance, host=HOST, host_power_w=10.0)
    plan = router.plan(graph)
    assert [row.op for row in plan.record.ops] == [node.name for node in graph.nodes]
    assert all(row.reason for row in plan.record.ops)
    assert plan.record.device_total.latency.value == pytest.approx(
        sum(row.device.latency.value for row in plan.record.ops if row.device is not None)
    )
    assert plan.record.host_total.energy.value == pytest.approx(sum(row.host.energy.value for row in plan.record.ops))
    covered = [name for job in plan.jobs for name in job.nodes]
    assert sorted(covered) == sorted(row.op for row in plan.record.ops if row.job)
    pairs = edges(graph)
    assert all(is_convex(pairs, set(job.nodes)) for job in plan.jobs)
    if policy == "default":
        assert all(row.predicted_error <= tolerance for row in plan.record.ops if row.job)
    assert msgspec.json.decode(msgspec.json.encode(plan.record), type=PlanRecord) == plan.record
    text = plan.to_dot()
    assert text.count("{") == text.count("}")
    assert plan.diff(plan) == ()


@given(graph=graphs(stateful=False), tolerance=st.sampled_from([0.9, 1e-2, 1e-4]), seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_results_are_within_the_sum_of_predicted_bounds(graph, tolerance, seed):
    """Errors are carried through the graph by |W| and the ops' slopes of at most one, and each job adds its bound."""
    plan = OperationRouter(objective="hw_only", tolerance=tolerance, host=HOST).plan(graph)
    x = np.random.default_rng(seed).uniform(-1, 1, (20, WIDTH))
    wanted = SoftwareModel(graph).forward({"x": x})
    with HybridExecutor(plan) as executor:
        found = executor.forward({"x": x})
        assert executor.statistics().fallbacks == 0
    found = found if isinstance(found, dict) else {graph.outputs[0]: found}
    bounds = _bounds(graph, plan)
    for name in graph.outputs:
        assert np.all(np.abs(found[name] - wanted[name]) <= bounds[name] + 1e-9)


def _bounds(graph, plan):
    """The largest error of every value, by interval arithmetic; what a job adds is the bound of its last node."""
    bounds = {"x": np.zeros(WIDTH)}
    last = {job.nodes[-1] for job in plan.jobs if not isinstance(job, LinearJob)}
    inner = {name for job in plan.jobs if not isinstance(job, LinearJob) for name in job.nodes} - last
    for node in graph.nodes:
        given = [bounds[value] for value in node.inputs]
        match node.op:
            case FullyConnectedOp():
                bound = np.abs(node.op.matrix) @ given[0]
            case Concat():
                bound = np.concatenate(given)
            case _:
                bound = np.sum(given, axis=0)
        row = plan[node.name]
        added = row.error_bound if row.job and node.name not in inner else 0.0
        bounds[node.outputs[0]] = bound + added
    return bounds
