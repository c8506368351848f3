"""Plans as records: totals are sums of parts, texts and drawings say what the records say, JSON comes back."""

import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from metalforge.core.errors import UnknownNameError
from metalforge.core.quantities import Measured, Modelled
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import Elementwise
from metalforge.hybrid.routing.plan import PlanRecord
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.substrates.npu import costs, mesh
from metalforge.substrates.profiles import profile
from reference.hybrid_graphs import HOST, chain, esn_graph, heads_graph, int4_layer, training_graph


def make(graph, objective="hw_only", pin=None, **kwargs):
    return OperationRouter(objective=objective, host=HOST, **kwargs).plan(graph, pin=pin)


@pytest.fixture(scope="module")
def heads():
    return make(heads_graph(np.random.default_rng(1)), host_power_w=20.0)


@pytest.fixture(scope="module")
def training():
    return make(training_graph(np.random.default_rng(2)), host_power_w=20.0)


@pytest.mark.parametrize("name", ["heads", "training"])
def test_totals_are_the_sums_of_the_parts(name, request):
    plan = request.getfixturevalue(name)
    for what in ("latency", "energy"):
        device = sum(getattr(row.device, what).value for row in plan.record.ops if row.device is not None)
        host = sum(getattr(row.host, what).value for row in plan.record.ops)
        assert getattr(plan.record.device_total, what).value == pytest.approx(device, rel=1e-12)
        assert getattr(plan.record.host_total, what).value == pytest.approx(host, rel=1e-12)
        both = sum(getattr(row.together, what).value for row in plan.record.ops)
        assert both == pytest.approx(device + host, rel=1e-12)


def test_device_costs_are_those_of_the_programs(heads):
    """Against the cost model itself, a call a program."""
    expected = sum(
        costs.cost(program, job.encoding.activation_bits // 4, "akd1000-published").latency.value
        for job in heads.jobs
        for program in job.programs
    )
    assert heads.record.device_total.latency.value == pytest.approx(expected, rel=1e-12)
    programs = [program for job in heads.jobs for program in job.programs]
    taken = sum(row.bytes for program in programs for row in mesh.plan(program).rows)
    assert sum(row.chip_bytes for row in heads.record.ops) == pytest.approx(taken, abs=len(heads.record.ops))


def test_costs_are_modelled_and_name_their_profile(heads):
    for row in heads.record.ops:
        for cost in filter(None, [row.device, row.host, row.instead]):
            assert isinstance(cost.latency, Modelled)
            assert not isinstance(cost.latency, Measured)
    assert heads.record.device_total.latency.profile == "akd1000-published"
    assert heads.record.host_total.latency.profile == "test-host"
    assert heads.record.host_total.energy.profile == "test-host at 20 W"


def test_a_batch_is_priced_as_one_call():
    graph = chain(int4_layer(np.random.default_rng(3), 20, 6), inputs=20)
    one, many = make(graph), make(graph, batch=16)
    program = one.jobs[0].programs[0]
    assert many.record.device_total.latency.value == pytest.approx(costs.cost(program, 32).latency.value)
    assert many.record.transfers[0].to_device_bytes == 16 * one.record.transfers[0].to_device_bytes


def test_transfers_are_counted_but_not_charged_again():
    graph = chain(int4_layer(np.random.default_rng(3), 20, 6), inputs=20)
    plan = make(graph)
    (transfer,) = plan.record.transfers
    assert plan["n0"].encoding == "W4A8"
    assert transfer.to_device_bytes == 2 * 20, "two nibble rows of a byte a line"
    assert transfer.to_host_bytes == 2 * 6 * 4, "and their potentials"
    link = profile("akd1000-published").call.link_bytes_per_s.value
    assert transfer.link.value == pytest.approx((40 + 48) / link)
    call = costs.cost(plan.jobs[0].programs[0], 2).latency.value
    assert plan.record.device_total.latency.value == call
    assert any("not added" in note for note in plan.record.notes)
    assert make(graph, profile="akd1000-claimed").record.transfers[0].link is None


def test_partitions_of_a_chain_alternate():
    rng = np.random.default_rng(4)
    tanh = Elementwise(function="tanh")
    plan = make(chain(int4_layer(rng, 6, 6), tanh, int4_layer(rng, 6, 6), tanh, tanh, inputs=6))
    assert [(p.side, p.ops) for p in plan.record.partitions] == [
        ("npu", ("n0",)),
        ("software", ("n1",)),
        ("npu", ("n2",)),
        ("software", ("n3", "n4")),
    ]


def test_json_comes_back_as_it_was(heads, training):
    for plan in (heads, training):
        assert msgspec.json.decode(msgspec.json.encode(plan.record), type=PlanRecord) == plan.record
    text = msgspec.json.encode(heads.record).decode().replace('"objective"', '"objectiv"')
    with pytest.raises(msgspec.ValidationError, match="objectiv"):
        msgspec.json.decode(text, type=PlanRecord)


def test_the_table_has_a_line_an_op_and_the_totals(heads):
    lines = heads.explain().splitlines()
    assert lines[0].startswith("heads: policy default, objective hw_only, device akd1000-published, host test-host")
    assert lines[1].split()[:4] == ["op", "kind", "substrate", "encoding"]
    for row, line in zip(heads.record.ops, lines[2:], strict=False):
        assert line.startswith(row.op)
        assert row.substrate in line
        assert line.endswith(row.reason)
    assert f"device: {heads.record.device_total.latency}, energy {heads.record.device_total.energy}" in lines
    assert f"host: {heads.record.host_total.latency}, energy {heads.record.host_total.energy}" in lines
    assert any(line.startswith("fan_out: to make it map: nothing to do") for line in lines)


def test_one_op_is_explained_in_full(heads):
    text = heads.explain("reservoir")
    for words in ("npu+software", "W8A8", "chip rows per sample: 2", "predicted error", "at worst", "instead"):
        assert words in text
    with pytest.raises(UnknownNameError, match="did you mean `reservoir`"):
        heads.explain("resrvoir")


def test_the_drawing_is_balanced_and_has_every_op_and_edge():
    rng = np.random.default_rng(5)
    graph = chain(int4_layer(rng, 4, 4), Elementwise(function="tanh"), inputs=4)
    odd = OpGraph(
        inputs=graph.inputs,
        nodes=(*graph.nodes, Node(name='quote " and \\', op=Elementwise(function="tanh"), inputs=("n1",))),
        outputs=('quote " and \\',),
        ranges=graph.ranges,
    )
    text = make(odd).to_dot()
    strings = r'"(?:[^"\\]|\\.)*"'
    assert text.startswith("digraph plan {")
    bare = re.sub(strings, "S", text)
    assert '"' not in bare, "every quote is part of a string"
    assert bare.count("{") == bare.count("}") == 1 + len(make(odd).record.partitions)
    assert bare.count("[") == bare.count("]")
    assert len(re.findall(r"S -> S", bare)) == 3 + 1, "three values read by ops, and one output"


def test_diff_names_what_changed():
    graph = esn_graph(np.random.default_rng(6))
    fine, coarse = make(graph), make(graph, tolerance=0.3)
    assert fine.diff(fine) == ()
    changes = fine.diff(coarse)
    assert "reservoir: encoding W8A8 -> W4A4" in changes
    assert "reservoir: passes 2 -> 1" in changes
    assert not any(line.startswith("reservoir: substrate") for line in changes)
    moved = fine.diff(make(graph, pin={"readout": "software"}))
    assert all(line.startswith("readout: ") for line in moved)
    assert "readout: substrate npu -> software" in moved


def test_diff_sees_ops_that_come_and_go():
    graph = esn_graph(np.random.default_rng(6))
    shorter = replace(graph, nodes=graph.nodes[:1], outputs=("reservoir",))
    assert make(graph).diff(make(shorter)) == ("readout: op present -> absent",)
    assert make(shorter).diff(make(graph)) == ("readout: op absent -> present",)


def test_heads_share_the_cost_of_their_job(heads):
    rows = [row for row in heads.record.ops if row.job == "h0+10"]
    shares = {row.device.latency.value for row in rows}
    assert max(shares) == pytest.approx(min(shares)), "heads of one size cost the same"
    assert sum(row.device.latency.value for row in rows) == pytest.approx(
        costs.cost(heads.jobs[-1].programs[0], 2).latency.value
    )
