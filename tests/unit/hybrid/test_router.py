"""The router: where ops go under each objective, what it says about it, and what it refuses."""

import re
from dataclasses import replace

import numpy as np
import pytest

from metalforge.core.errors import PlacementError, SpecError, UnknownNameError
from metalforge.hybrid.model.graph import Node, OpGraph, graph_from_esn
from metalforge.hybrid.model.ops import (
    Add,
    Concat,
    Elementwise,
    FanOutOp,
    FullyConnectedOp,
    Gradient,
    Precision,
    RecurrentStep,
    SoftwareOnly,
    TemporalIntegration,
)
from metalforge.hybrid.routing.candidates import JobCandidate
from metalforge.hybrid.routing.jobs import ChainJob, DeviceJob
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.routing.rules import npu_verdict
from metalforge.substrates.npu.quantize import quantize
from metalforge.substrates.placing import choose
from metalforge.substrates.prices import Roofline
from metalforge.substrates.profiles import profile
from reference.hybrid_graphs import (
    HOST,
    SLOW_HOST,
    chain,
    esn,
    esn_graph,
    heads_graph,
    int4_layer,
    real_layer,
    training_graph,
)


def router(objective="latency", **kwargs):
    return OperationRouter(objective=objective, host=kwargs.pop("host", HOST), **kwargs)


def test_a_small_reservoir_is_quicker_on_the_host_and_the_plan_says_so():
    plan = router().plan(esn_graph(np.random.default_rng(1), units=128, inputs=50))
    assert [row.substrate for row in plan.record.ops] == ["software", "software"]
    words = r"quicker in software: modelled [\d.]+ us on the host \(test-host\) against \d+ us with akd1000-published"
    assert re.fullmatch(words, plan["reservoir"].reason)
    assert 'objective="hw_only"' in plan["reservoir"].fix
    assert any("the host is quicker than the NPU at reservoir, readout: modelled" in note for note in plan.record.notes)


def test_the_claimed_profile_is_no_quicker_than_the_host_either():
    """54 us a call, twice for 8 bits, against a microsecond."""
    plan = router(profile="akd1000-claimed").plan(esn_graph(np.random.default_rng(1)))
    assert {row.substrate for row in plan.record.ops} == {"software"}
    assert "109 us with akd1000-claimed" in plan["reservoir"].reason


def test_a_host_slow_enough_loses():
    plan = router(host=SLOW_HOST).plan(esn_graph(np.random.default_rng(1), outputs=60))
    assert [row.substrate for row in plan.record.ops] == ["npu+software", "npu"]
    assert plan["reservoir"].reason.startswith("quicker on the NPU: modelled")
    assert plan.record.device_total.latency.value < 2e-3, "two calls"


def test_hw_only_takes_all_that_the_chip_can_do_whatever_it_costs():
    plan = router("hw_only").plan(esn_graph(np.random.default_rng(1)))
    assert [row.substrate for row in plan.record.ops] == ["npu+software", "npu"]
    assert any("the host would be quicker" in note for note in plan.record.notes)


def test_accuracy_means_software_and_the_finest_encoding_where_pinned():
    graph = esn_graph(np.random.default_rng(1))
    plan = router("accuracy").plan(graph)
    assert {row.substrate for row in plan.record.ops} == {"software"}
    assert "does not round" in plan["reservoir"].reason
    pinned = router("accuracy").plan(graph, pin={"reservoir": "npu"})
    assert pinned["reservoir"].encoding == "W12A16"
    assert pinned["readout"].substrate == "software"


def test_energy_without_a_figure_for_the_host_ranks_software_last_and_says_so():
    graph = esn_graph(np.random.default_rng(1))
    plan = router("energy").plan(graph)
    assert [row.substrate for row in plan.record.ops] == ["npu+software", "npu"]
    assert "no power figure for the host" in plan["reservoir"].reason
    assert any("rank last" in note for note in plan.record.notes)
    assert plan.record.host_total.energy is None
    assert plan.record.device_total.energy.profile == "akd1000-published"


def test_energy_with_a_figure_compares():
    graph = esn_graph(np.random.default_rng(1))
    published = router("energy", host_power_w=30.0).plan(graph)
    assert {row.substrate for row in published.record.ops} == {"software"}, (
        "0.9 W for 0.8 ms against 30 W for a microsecond"
    )
    assert published.record.host_total.energy.value == pytest.approx(30 * published.record.host_total.latency.value)
    claimed = router("energy", host_power_w=30.0, profile="akd1000-claimed").plan(graph)
    assert claimed["reservoir"].substrate == "npu+software"
    assert claimed["readout"].substrate == "software", "encoding and decoding would cost the host as much as three rows"


def test_a_roofline_with_a_power_of_its_own_needs_no_other():
    host = Roofline(profile="p", flops_per_s=1e11, bytes_per_s=2e10, call_s=1e-6, power_w=15.0)
    plan = router("energy", host=host).plan(esn_graph(np.random.default_rng(1)))
    assert plan.record.host_total.energy.profile == "p"
    assert plan.record.host_total.energy.value == pytest.approx(15 * plan.record.host_total.latency.value)


@pytest.mark.parametrize(("tolerance", "encoding"), [(0.2, "W4A4"), (1e-2, "W8A8"), (6e-4, "W12A12")])
def test_precision_is_sliced_as_finely_as_the_tolerance_asks(tolerance, encoding):
    plan = router("hw_only", tolerance=tolerance).plan(esn_graph(np.random.default_rng(1)))
    row = plan["reservoir"]
    assert row.encoding == encoding
    assert row.passes == int(encoding.split("A")[1]) // 4
    assert row.predicted_error <= tolerance
    assert "root mean square" in row.error_model
    assert "in a long run" in row.error_model


def test_weights_on_the_int4_grid_need_one_digit():
    rng = np.random.default_rng(2)
    plan = router("hw_only").plan(chain(int4_layer(rng, 20, 5), inputs=20))
    assert plan["n0"].encoding == "W4A8"


def test_what_no_encoding_can_hold_stays_with_the_tolerance_that_would_do():
    graph = chain(real_layer(np.random.default_rng(2), 20, 5), inputs=20)
    row = router("hw_only", tolerance=1e-7).plan(graph)["n0"]
    assert row.substrate == "software"
    assert "above the tolerance 1e-07" in row.reason
    allowed = float(row.fix.rpartition(" ")[2])
    assert router("hw_only", tolerance=allowed).plan(graph)["n0"].substrate == "npu", "the fix must be one"


def test_sibling_heads_are_one_call():
    plan = router("hw_only").plan(heads_graph(np.random.default_rng(3)))
    heads = [row for row in plan.record.ops if row.kind == "fully_connected"]
    assert len(heads) == 11
    assert {row.job for row in heads} == {"h0+10"}
    assert {row.passes for row in heads} == {2}
    assert sum(len(job.nodes) for job in plan.jobs) == 12
    assert plan["fan_out"].substrate == "software"
    assert "merged layer" in plan["fan_out"].fix
    assert "for 11 ops together" in heads[0].reason


def test_a_head_pinned_to_software_leaves_the_others_merged():
    plan = router("hw_only").plan(heads_graph(np.random.default_rng(3), n_heads=4), pin={"h2": "software"})
    assert plan["h2"].substrate == "software"
    assert plan["h2"].reason == "pinned to software"
    assert plan["h0"].job == plan["h3.linear"].job == "h0+2"


def test_bounded_relus_are_fused_where_four_bits_are_enough():
    rng = np.random.default_rng(4)
    relu = Elementwise(function="bounded_relu")
    graph = chain(int4_layer(rng, 12, 8), relu, int4_layer(rng, 8, 3), inputs=12)
    coarse = router("hw_only", tolerance=0.9).plan(graph)
    assert {row.job for row in coarse.record.ops} == {"n0+2"}
    assert isinstance(coarse.jobs[0], ChainJob)
    assert len(coarse.jobs[0].programs) == 1
    fine = router("hw_only").plan(graph)
    assert [row.substrate for row in fine.record.ops] == ["npu", "software", "npu"]
    assert "4 bits on both sides" in fine["n1"].reason
    assert float(fine["n1"].fix.rpartition(" ")[2]) > 1e-2


def test_a_bounded_relu_without_a_layer_gets_the_identity():
    graph = chain(Elementwise(function="bounded_relu"), inputs=6)
    plan = router().plan(graph, pin={"n0": "npu"})
    assert plan["n0"].substrate == "npu"
    assert plan.jobs[0].programs[0].layers[0].weights.shape == (6, 6)


def test_wide_layers_are_split_into_rows_when_external_memory_is_taken():
    rng = np.random.default_rng(5)
    tanh = Elementwise(function="tanh")
    ops = [op for _ in range(5) for op in (int4_layer(rng, 300, 300), tanh)]
    plan = router("hw_only").plan(chain(*ops, inputs=300))
    blocks = sorted(len(job.blocks) for job in plan.jobs)
    assert blocks[:4] == [1, 1, 1, 1], "four processors have external memory"
    assert blocks[4] > 1
    split = next(row for row in plan.record.ops if row.passes > 2)
    assert split.passes == 2 * blocks[4]


def test_what_has_no_room_falls_back_with_the_reason():
    """The design documents count 179 of 1000 NPs a program: five fit."""
    rng = np.random.default_rng(6)
    ops = [op for _ in range(7) for op in (int4_layer(rng, 4, 4), Elementwise(function="tanh"))]
    graph = chain(*ops, inputs=4)
    claimed = router("hw_only", profile="akd1000-claimed")
    plan = claimed.plan(graph)
    lost = [row for row in plan.record.ops if row.fallback]
    assert len(plan.jobs) == 5
    assert len(lost) == 2
    assert all("no room on the chip" in row.reason for row in lost)
    with pytest.raises(PlacementError, match="no room"):
        claimed.plan(graph, strict=True)
    pins = {f"n{i}": "npu" for i in range(0, 14, 2)}
    with pytest.raises(PlacementError, match="akd1000-claimed"):
        claimed.plan(graph, pin=pins)


def test_updates_count_against_a_place_on_the_device():
    """A device that beats the host at inference still loses when every call pushes new weights."""
    graph = training_graph(np.random.default_rng(7), inputs=200, outputs=50)
    layer_only = OpGraph(inputs={"x": (None, 200)}, nodes=(graph["layer"],), outputs=("layer",), ranges={"x": 1.0})
    host = Roofline(profile="p", flops_per_s=2e6, bytes_per_s=2e10, call_s=1e-6)
    assert router(host=host).plan(layer_only)["layer"].substrate == "npu"
    plan = router(host=host).plan(graph)
    assert plan["layer"].substrate == "software"
    pinned = router(host=host).plan(graph, pin={"layer": "npu"})
    assert pinned["learn"].substrate == "software->npu"
    assert pinned["learn"].device.latency.value == pytest.approx(
        profile("akd1000-published").call.weight_update_s.value
    )


# Ranges.


def test_without_a_range_an_op_stays_and_asks_for_data():
    rng = np.random.default_rng(8)
    graph = graph_from_esn(esn(rng))
    plan = router("hw_only").plan(graph)
    assert plan["reservoir"].substrate == "software"
    assert plan["reservoir"].fix.startswith("give calibration data")
    assert plan["readout"].substrate == "npu", "tanh bounds what it reads"
    x = rng.uniform(-2, 2, (40, 10))
    assert router("hw_only").plan(graph, calibration={"input": x})["reservoir"].substrate == "npu+software"
    several = x.reshape(4, 10, 10)
    assert router("hw_only").plan(graph, calibration={"input": several}, strict=True).jobs


def test_an_unbounded_reservoir_needs_data_for_its_state():
    rng = np.random.default_rng(9)
    graph = esn_graph(rng, activation="relu")
    row = router("hw_only").plan(graph)["reservoir"]
    assert "nothing bounds its state" in row.reason
    calibrated = router("hw_only").plan(graph, calibration={"input": rng.uniform(-1, 1, (50, 10))})
    assert calibrated["reservoir"].substrate == "npu+software"


def test_calibration_that_does_not_fit_the_graph_is_refused():
    graph = esn_graph(np.random.default_rng(10))
    with pytest.raises(SpecError, match="sequences"):
        router().plan(graph, calibration={"x": np.zeros((3, 10))})
    with pytest.raises(SpecError, match="Got \\(3,\\)"):
        router().plan(graph, calibration={"input": np.zeros(3)})
    with pytest.raises(SpecError, match="finite"):
        router().plan(graph, calibration={"input": np.full((3, 10), np.nan)})


# Pins, strict, names.


def test_pins_are_obeyed_and_explained():
    graph = esn_graph(np.random.default_rng(11))
    plan = router().plan(graph, pin={"reservoir": "npu"})
    assert plan["reservoir"].substrate == "npu+software"
    assert plan["reservoir"].reason.startswith("pinned to the NPU: modelled")
    plan = router("hw_only").plan(graph, pin={"reservoir": "software"}, strict=True)
    assert plan["reservoir"].substrate == "software", "what a user wants in software is no fallback"


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("tanh", "bounded ReLU"),
        ("float", "stay as"),
        ("conv", "too many axes"),
        ("fan", "refuses several outputs"),
        ("memory", "keeps no state"),
    ],
)
def test_pinning_what_cannot_run_there_raises_with_the_reason(op, words):
    rng = np.random.default_rng(12)
    weights = real_layer(rng, 4, 4).weights
    nodes = (
        Node(name="tanh", op=Elementwise(function="tanh"), inputs=("x",)),
        Node(name="float", op=FullyConnectedOp(weights=weights, precision=Precision.FLOAT), inputs=("x",)),
        Node(
            name="conv",
            op=SoftwareOnly(operators=("Identity",), run=tuple, output_shapes=((None, 4),), reason="too many axes"),
            inputs=("x",),
        ),
        Node(name="fan", op=FanOutOp(), inputs=("x",)),
        Node(name="memory", op=TemporalIntegration(leak=0.5), inputs=("x",)),
    )
    graph = OpGraph(inputs={"x": (None, 4)}, nodes=nodes, outputs=tuple(n.name for n in nodes), ranges={"x": 1.0})
    with pytest.raises(PlacementError, match=words) as caught:
        router().plan(graph, pin={op: "npu"})
    assert f"`{op}` is pinned to the NPU" in str(caught.value)


def test_pins_with_wrong_names_are_refused():
    graph = esn_graph(np.random.default_rng(13))
    with pytest.raises(UnknownNameError, match="did you mean `readout`"):
        router().plan(graph, pin={"readot": "npu"})
    with pytest.raises(UnknownNameError, match="side to pin"):
        router().plan(graph, pin={"readout": "gpu"})


def test_strict_lists_every_fallback_with_its_fix():
    rng = np.random.default_rng(14)
    weights = real_layer(rng, 4, 4).weights
    nodes = (
        Node(name="kept", op=FullyConnectedOp(weights=weights, precision=Precision.FLOAT), inputs=("x",)),
        Node(
            name="pool",
            op=SoftwareOnly(operators=("Identity",), run=tuple, output_shapes=((None, 4),), reason="pools"),
            inputs=("x",),
        ),
        Node(name="fine", op=FullyConnectedOp(weights=weights), inputs=("x",)),
        Node(name="tanh", op=Elementwise(function="tanh"), inputs=("fine",)),
    )
    graph = OpGraph(inputs={"x": (None, 4)}, nodes=nodes, outputs=tuple(n.name for n in nodes), ranges={"x": 1.0})
    with pytest.raises(PlacementError) as caught:
        router("hw_only").plan(graph, strict=True)
    message = str(caught.value)
    assert "kept (fully_connected)" in message
    assert "declare Precision.ANY" in message
    assert "pool (Identity): pools" in message
    assert "fine" not in message
    assert "tanh" not in message, "an activation is the host's share, not a fallback"


def test_strict_does_not_object_to_a_choice_by_cost():
    plan = router().plan(esn_graph(np.random.default_rng(15)), strict=True)
    assert {row.substrate for row in plan.record.ops} == {"software"}
    assert not any(row.fallback for row in plan.record.ops)


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"policy": "greedy"}, UnknownNameError),
        ({"objective": "speed"}, UnknownNameError),
        ({"profile": "akd9000"}, UnknownNameError),
        ({"tolerance": 0.0}, SpecError),
        ({"tolerance": float("nan")}, SpecError),
        ({"host_power_w": -1.0}, SpecError),
        ({"batch": 0}, SpecError),
    ],
)
def test_wishes_that_make_no_sense_are_refused(kwargs, error):
    with pytest.raises(error):
        OperationRouter(host=HOST, **kwargs)


# Verdicts.


@pytest.mark.parametrize(
    "op",
    [
        *(
            Elementwise(function=f)
            for f in ("tanh", "sigmoid", "gelu", "relu", "softmax", "piecewise_tanh", "identity")
        ),
        FanOutOp(),
        Concat(),
        Add(),
        TemporalIntegration(leak=0.5),
    ],
    ids=lambda op: op.kind,
)
def test_every_op_of_the_host_has_a_reason(op):
    graph = chain(op, inputs=4)
    verdict = npu_verdict(graph["n0"], graph, {})
    assert not verdict.ok
    assert len(verdict.reason) > 10


def test_integers_too_wide_for_three_digits_are_refused():
    weights = quantize(np.random.default_rng(16).normal(size=(3, 4)), 8)
    wide = replace(weights, values=(weights.values.astype(np.int16) * 20), limits=(-2540, 2540))
    plan = router("hw_only").plan(chain(FullyConnectedOp(weights=wide), inputs=4))
    assert "three digits hold 1687" in plan["n0"].reason


# The search itself.


def candidate(nodes, *gain):
    job = DeviceJob(nodes=tuple(nodes), programs=(), ranges=None, error=0, error_bound=None)
    return JobCandidate(
        job=job, gain=gain, device=None, update=None, chip_bytes=0, whole=None, host_share=None, software=None
    )


def chosen(candidates, capacity=99, must=(), **kwargs):
    found = choose(candidates, lambda some: len(some) <= capacity, must, **kwargs)
    return None if found is None else {"".join(c.job.nodes) for c in found}


@pytest.mark.parametrize("exact_up_to", [12, 0])
def test_overlapping_candidates_are_packed_for_the_largest_gain(exact_up_to):
    some = [candidate("ab", 3.0), candidate("a", 2.0), candidate("b", 2.0), candidate("c", -1.0)]
    assert chosen(some, exact_up_to=exact_up_to) == {"a", "b"}
    assert chosen(some, capacity=1, exact_up_to=exact_up_to) == {"ab"}
    assert chosen(some, must="c", exact_up_to=exact_up_to) == {"a", "b", "c"}
    assert chosen(some, capacity=1, must="c", exact_up_to=exact_up_to) == {"c"}
    assert chosen(some, capacity=0, must="c", exact_up_to=exact_up_to) is None
    assert chosen([candidate("a", -1.0)], exact_up_to=exact_up_to) == set()


def test_gradients_never_leave_the_host():
    plan = router("hw_only").plan(training_graph(np.random.default_rng(17)))
    assert plan["gradient"].reason == "the chip has no gradient path"
    assert isinstance(plan.graph["gradient"].op, Gradient)
    assert plan["layer"].substrate == "npu"


def test_the_default_host_is_this_machine():
    plan = OperationRouter().plan(esn_graph(np.random.default_rng(18)))
    assert plan.record.host_profile == "cpu-roofline"
    assert plan.record.host_total.latency.profile == "cpu-roofline"
    assert isinstance(plan.graph["reservoir"].op, RecurrentStep)
