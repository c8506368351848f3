"""The design documents' routing table: all thirteen rows, as they are written, and what the executor makes of them."""

import numpy as np
import pytest

from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import (
    Elementwise,
    FanOutOp,
    FullyConnectedOp,
    Gradient,
    GradientUpdate,
    MutationUpdate,
    Precision,
    RecurrentStep,
    TemporalIntegration,
)
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.routing.rules import SEED_TABLE, seed_row
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.hybrid.running.rule_examples import exercise
from reference.hybrid_graphs import HOST, chain, esn, int4_layer, real_layer

ROWS = {
    "FC layer, int4-compatible weights": ("npu", "native op, 23x faster"),
    "FC layer, f32 weights": ("software", "quantization would lose precision"),
    "FC layer, large (>1000 nodes)": ("software", "exceeds NP budget"),
    "tanh activation": ("npu+software", "HW does linear part, SW applies tanh"),
    "bounded ReLU": ("npu", "native op"),
    "sigmoid activation": ("software", "not hardware-native"),
    "GELU activation": ("software", "not hardware-native"),
    "recurrent step": ("npu+software", "HW does W_in x + W_res state, SW applies activation"),
    "gradient computation": ("software", "hardware has no gradient path"),
    "weight update (gradient step)": ("software", "gradients computed in software"),
    "weight update (mutation)": ("software->npu", "computed in SW, applied via set_variable()"),
    "multi-head fan-out": ("npu", "SkipDMA, native"),
    "temporal integration": ("npu+software", "HW forward pass, SW manages state buffer"),
}
"""Read off the seed document by hand."""


def everything():
    """One graph with an op for every row of the table."""
    rng = np.random.default_rng(1)
    layer = int4_layer(rng, 6, 4)
    large = FullyConnectedOp(weights=np.full((1001, 4), 0.5, "f4"))
    nodes = [
        ("int4", layer, ("x",)),
        ("float", real_layer(rng, 6, 4), ("x",)),
        ("large", large, ("int4",)),
        ("tanh", Elementwise(function="tanh"), ("int4",)),
        ("before", int4_layer(rng, 6, 4), ("x",)),
        ("bounded", Elementwise(function="bounded_relu"), ("before",)),
        ("sigmoid", Elementwise(function="sigmoid"), ("float",)),
        ("gelu", Elementwise(function="gelu"), ("float",)),
        ("step", RecurrentStep(weights=esn(rng, 8, 6)), ("x",)),
        ("gradient", Gradient(of="int4"), ("x", "int4", "target")),
        ("learn", GradientUpdate(of="int4", rate=0.1), ("gradient",)),
        ("mutate", MutationUpdate(of="int4", shape=(4, 6)), ()),
        ("fan_out", FanOutOp(), ("tanh",)),
        ("memory", TemporalIntegration(leak=0.3), ("fan_out",)),
    ]
    return OpGraph(
        inputs={"x": (None, 6), "target": (None, 4)},
        nodes=tuple(Node(name=name, op=op, inputs=inputs) for name, op, inputs in nodes),
        outputs=("large", "bounded", "sigmoid", "gelu", "step", "memory"),
        ranges={"x": 1.0},
    )


OPERATIONS = {
    "int4": "FC layer, int4-compatible weights",
    "float": "FC layer, f32 weights",
    "large": "FC layer, large (>1000 nodes)",
    "tanh": "tanh activation",
    "bounded": "bounded ReLU",
    "sigmoid": "sigmoid activation",
    "gelu": "GELU activation",
    "step": "recurrent step",
    "gradient": "gradient computation",
    "learn": "weight update (gradient step)",
    "mutate": "weight update (mutation)",
    "fan_out": "multi-head fan-out",
    "memory": "temporal integration",
}


@pytest.fixture(scope="module")
def plan():
    return OperationRouter("seed", host=HOST).plan(everything())


def test_the_table_has_the_thirteen_rows_of_the_seed():
    assert {row.operation: (row.substrate, row.reason) for row in SEED_TABLE} == ROWS
    assert len(SEED_TABLE) == len(OPERATIONS) == 13


@pytest.mark.parametrize(("op", "operation"), OPERATIONS.items())
def test_an_op_goes_where_its_row_says_with_the_seeds_reason(plan, op, operation):
    assert seed_row(plan.graph[op]).operation == operation
    assert (plan[op].substrate, plan[op].reason) == ROWS[operation]


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("large", "external memory"),
        ("float", "digits"),
        ("tanh", "no trick"),
        ("bounded", "4 bits"),
        ("fan_out", "refuses several outputs"),
        ("learn", "set_variable"),
        ("memory", "the host's"),
    ],
)
def test_notes_say_where_the_chip_differs(plan, op, words):
    assert words in plan[op].note


def test_only_matrices_and_their_rectifiers_are_given_to_the_device(plan):
    assert {row.op for row in plan.record.ops if row.job} == {"int4", "before", "bounded", "step"}
    assert plan["bounded"].job == plan["before"].job, "a bounded ReLU is the activation of its layer"
    assert plan["learn"].device is not None, "the weights of `int4` are on the chip, so an update is pushed"


def test_an_op_that_no_row_names_is_software():
    graph = chain(Elementwise(function="softmax"), inputs=4)
    row = OperationRouter("seed", host=HOST).plan(graph)["n0"]
    assert (row.substrate, row.reason) == ("software", "no row of the published table speaks of it")


def test_a_row_that_cannot_be_followed_says_so():
    graph = chain(int4_layer(np.random.default_rng(2), 6, 4), inputs=6, ranges=None)
    row = OperationRouter("seed", host=HOST).plan(graph)["n0"]
    assert row.substrate == "software"
    assert "says npu" in row.reason
    assert "range of `x` is not known" in row.reason
    assert "calibration" in row.fix
    assert row.fallback


def test_weights_declared_float_are_not_int4_whatever_their_values():
    layer = int4_layer(np.random.default_rng(3), 6, 4)
    node = Node(name="n", op=FullyConnectedOp(weights=layer.weights, precision=Precision.FLOAT), inputs=("x",))
    assert seed_row(node).operation == "FC layer, f32 weights"


def test_the_planned_graph_runs_and_stays_near_software(plan):
    rng = np.random.default_rng(4)
    inputs = {"x": rng.uniform(-1, 1, (16, 6)), "target": rng.normal(size=(16, 4))}
    reference = SoftwareModel(plan.graph).forward(inputs)
    with HybridExecutor(plan) as executor:
        found = executor.step(inputs)
        statistics = executor.statistics()
    assert np.array_equal(found["sigmoid"], reference["sigmoid"])
    assert np.array_equal(found["gelu"], reference["gelu"])
    for name in ("bounded", "step"):
        assert np.abs(found[name] - reference[name]).max() <= plan[name].error_bound + 1e-6
    assert np.abs(found["memory"] - reference["memory"]).max() <= 0.3 * plan["int4"].error_bound + 1e-6
    assert statistics.pushes == 1, "both updates change one layer, which is pushed once when the call ends"


def test_every_rule_has_an_example_that_it_decides():
    rules = {row.applies: exercise(row.applies) for row in SEED_TABLE}
    assert {one.row.operation: (one.row.substrate, one.row.reason) for one in rules.values()} == ROWS
    for rule, one in rules.items():
        # Costs would put it elsewhere; the chip does not take it; or the rule keeps it off a chip that would.
        changed, refused = one.row.substrate != one.by_cost, one.on_chip != "runs"
        assert changed or refused or one.row.substrate == "software", rule
        assert (rule in one.on_device) == (rule in {"int4", "bounded_relu", "recurrent_step"})
        assert bool(one.on_device) == (rule not in {"large", "fully_connected"})
    assert {rule for rule, one in rules.items() if one.on_chip == "runs"} == {
        "large",
        "int4",
        "fully_connected",
        "bounded_relu",
        "recurrent_step",
    }


def test_examples_run_beside_software():
    for row in SEED_TABLE:
        one = exercise(row.applies)
        assert one.difference < (0.15 if row.applies == "bounded_relu" else 0.1), "int4, and a ReLU of 15 steps"
        assert (one.difference > 0) == bool(one.on_device), (
            "what a device computes is rounded, what software does is not"
        )
        assert one.pushes == (3 if "weight" in one.model else 0)
        assert str(one).startswith(f"{row.applies}: {row.operation}")
