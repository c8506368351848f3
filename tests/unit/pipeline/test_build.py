"""What `build` refuses, in words that name the trouble; and files that make the same pipeline again."""

from importlib.metadata import EntryPoint
from typing import NamedTuple

import pytest

from metalforge.core import SpecError, Trait, plugins
from metalforge.pipeline import (
    Bounded,
    Broadcast,
    Chain,
    Collect,
    Edge,
    Emit,
    FanIn,
    FanOut,
    Filtered,
    Graph,
    GraphError,
    Latest,
    PipelineBuilder,
    Source,
    Stage,
    Unbounded,
    from_toml,
)
from metalforge.pipeline.stages import resolve_stage
from reference.pipeline_stages import MeteredChip, Numbers, Sample, forget, increment, samples, shorten


class NeedsDouble(Stage[int, int]):
    requires = (Trait.F64,)

    def step(self, state, item):
        return state, item


def base():
    return PipelineBuilder().stage("a", None, Numbers(5)).stage("b", None, increment).stage("c", None, Collect())


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        (lambda: PipelineBuilder(), "no stage"),
        (lambda: base().edge("a", "b").edge("b", "d"), "`d`, which does not exist"),
        (lambda: base().edge("a", "b").edge("a", "b").edge("b", "c"), "twice"),
        (lambda: base().edge("a", "b"), "`c` has no edge into it"),
        (lambda: base().edge("b", "c").edge("a", "c").edge("c", "b", Latest()), None),
        (lambda: base().stage("d", None, Numbers(1)).edge("a", "b").edge("b", "c"), "source `d` has no edge out"),
        (lambda: base().edge("a", "b").edge("b", "c").edge("c", "a", Latest()), "has an edge into it and no `step`"),
        (lambda: base().stage("s", None, shorten).edge("a", "s").edge("s", "b").edge("b", "c"),
         "`a` gives int, `s` takes str"),
        (lambda: base().stage("f", None, forget).edge("a", "f").edge("f", "b").edge("b", "c"), "gives nothing"),
        (lambda: base().edge("a", "b", Filtered("chi > 1")).edge("b", "c"), "declare none"),
        (lambda: PipelineBuilder().stage("a", None, samples).stage("c", None, Collect())
         .edge("a", "c", Filtered("ch > 1")), "did you mean `chi`"),
        (lambda: PipelineBuilder().stage("a", None, samples).stage("c", None, Collect())
         .edge("a", "c", Filtered("chi + 'x' > 1")), "needs a number"),
        (lambda: base().stage("n", MeteredChip("chip", Trait.F32), NeedsDouble())
         .topology(Chain("a", "n", "b", "c")), "needs f64, which substrate `chip` does not have"),
        (lambda: base().stage("d", None, increment, droppable=True).topology(Chain("a", "b", "d", "c")),
         "`d` is droppable and lies before the results in `c`: d -> c"),
    ],
)  # fmt: skip
def test_a_wrong_graph_is_refused_with_the_reason(builder, words):
    if words is None:
        assert builder().build().graph.edges
        return
    with pytest.raises(GraphError) as caught:
        builder().build()
    assert words in str(caught.value)


def test_all_problems_are_named_at_once():
    with pytest.raises(GraphError) as caught:
        base().stage("s", None, shorten).edge("a", "s").edge("a", "b").build()
    assert len(caught.value.problems) == 2


def ring(control, tokens=None):
    builder = PipelineBuilder().stage("in", None, Numbers(20)).stage("work", None, lambda x: x)
    builder.stage("judge", None, lambda x: x).stage("out", None, Collect())
    builder.edge("in", "work").edge("work", "judge", Bounded(2)).edge("judge", "out")
    return builder.edge("judge", "work", control, feedback=True, tokens=tokens)


def test_a_cycle_that_can_block_is_drawn_and_one_that_cannot_is_accepted():
    with pytest.raises(GraphError) as caught:
        ring(Bounded(1)).build()
    assert "work --Bounded(2)--> judge --Bounded(1)--> work" in str(caught.value) or (
        "judge --Bounded(1)--> work --Bounded(2)--> judge" in str(caught.value)
    )
    assert "+--" in str(caught.value)
    for control in (None, Latest(), Unbounded(), Bounded(1, drop="oldest"), Broadcast(1, slow="drop")):
        assert ring(control).build().graph.edges
    assert ring(Filtered(lambda x: True, Latest())).build().graph.edges


def test_feedback_is_latest_by_default_and_other_edges_take_the_depth_of_their_target():
    edges = {e.ends: e.channel for e in ring(None).build().graph.edges}
    assert edges["judge", "work"] == Latest()
    assert edges["in", "work"] == Bounded(4)


class Around(Stage[int, int]):
    """Sends each item around the ring `times` times, then out."""

    def step(self, state, item, ctx):
        turns, number = item if isinstance(item, tuple) else (0, item)
        if turns < 3:
            return state, Emit((turns + 1, number), to="work")
        return state, Emit(number, to="out")


def token_ring(tokens, capacity=2):
    out = Collect()
    builder = PipelineBuilder().stage("in", None, lambda: range(50)).stage("work", None, lambda x: Emit(x))
    builder.stage("judge", None, Around()).stage("out", None, out)
    builder.edge("in", "work").edge("work", "judge", Bounded(capacity)).edge("judge", "out")
    return builder.edge("judge", "work", Bounded(1), feedback=True, tokens=tokens), out


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_a_ring_with_tokens_is_accepted_and_every_schedule_ends(tokens):
    builder, out = token_ring(tokens)
    pipeline = builder.build()
    for seed in range(25):
        out.items.clear()
        pipeline.run("inline", seed=seed)
        assert sorted(out.payloads) == list(range(50)), seed
    out.items.clear()
    pipeline.run()
    assert sorted(out.payloads) == list(range(50))


def test_a_budget_larger_than_the_queues_is_refused_and_more_than_one_for_one_fails_the_run():
    with pytest.raises(GraphError, match="must be 1 to 3"):
        token_ring(4)[0].build()
    builder = PipelineBuilder().stage("in", None, lambda: range(5)).stage("work", None, lambda x: [Emit(x), Emit(x)])
    builder.stage("back", None, lambda x: Emit(x)).edge("in", "work").edge("work", "back", Bounded(2))
    with pytest.raises(Exception, match=r"2 items.*token"):
        builder.edge("back", "work", Bounded(2), tokens=3).build().run("inline")


def test_topologies_reduce_to_one_graph():
    parts = Graph(Chain("a", "b"), FanOut("b", ("c", "d")), FanIn(("c", "d"), "e"), Edge("e", "f", Latest()))
    assert [e.ends for e in parts.edges()] == [
        ("a", "b"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "e"), ("e", "f"),
    ]  # fmt: skip


def test_a_power_budget_without_a_meter_is_warned_of():
    def build(substrate):
        return base().stage("p", substrate, increment, power_budget_mw=30.0).topology(Chain("a", "b", "p", "c")).build()

    with pytest.warns(UserWarning, match=r"`p`.*no substrate"):
        build(None)
    with pytest.warns(UserWarning, match=r"`p`.*no counter"):
        build(MeteredChip("chip", reason="no counter"))
    assert build(MeteredChip("metered")).graph.stages["p"].config.power_budget_mw == 30.0


WRITTEN = """
[[stages]]
name = "numbers"
use = "reference.pipeline_stages:Numbers"
parameters = { count = 7 }
substrate = "cpu:0"
[[stages]]
name = "plus"
use = "reference.pipeline_stages:increment"
config = { retries = 5 }
[[stages]]
name = "samples"
use = "reference.pipeline_stages:samples"
[[stages]]
name = "drop"
use = "reference.pipeline_stages:forget"
config = { results = false }
[[stages]]
name = "sink"
use = "metalforge.pipeline:Collect"
[[edges]]
from = "numbers"
to = "plus"
channel = { kind = "bounded", capacity = 2, max_bytes = 100 }
[[edges]]
from = "plus"
to = "sink"
channel = { kind = "unbounded", warn_at = 5 }
[[edges]]
from = "samples"
to = "sink"
[edges.channel]
kind = "filtered"
where = "chi > 10.0 and abs(beta - 5.69) < 0.1"
inside = { kind = "broadcast", capacity = 3, slow = "drop" }
[[edges]]
from = "numbers"
to = "drop"
channel = { kind = "latest" }
"""


def test_a_pipeline_is_read_from_a_file():
    pipeline = from_toml(WRITTEN)
    assert [edge.channel for edge in pipeline.graph.edges] == [
        Bounded(2, max_bytes=100),
        Unbounded(warn_at=5),
        Filtered("chi > 10.0 and abs(beta - 5.69) < 0.1", Broadcast(3, slow="drop")),
        Latest(),
    ]
    stages = pipeline.graph.stages
    assert (stages["plus"].config.retries, stages["numbers"].substrate) == (5, "cpu:0")
    assert stages["numbers"].stage == Numbers(7)
    run = pipeline.run("inline", seed=3)
    assert run.metrics("plus").items_processed == 7
    assert run.metrics("sink").items_processed == 7 + sum(s.chi > 10 and abs(s.beta - 5.69) < 0.1 for s in samples())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stages = 3", "cannot be read"),
        ('[[stages]]\nname = "a"\nuse = "reference.pipeline_stages:Numbers"\nnonsense = 1', "nonsense"),
        ('[[stages]]\nname = "a"\nuse = "reference.pipeline_stages:nothing"', "cannot be loaded"),
        ('[[stages]]\nname = "a"\nuse = "unheard_of"', "neither"),
        ('[[stages]]\nname = "a"\nuse = "reference.pipeline_stages:Numbers"\nparameters = { coun = 3 }', "coun"),
        ("x = ", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text, words):
    with pytest.raises(SpecError, match=words):
        from_toml(text)


def test_drawings_name_stages_channels_and_feedback():
    pipeline = ring(None).build()
    assert "judge\n  --> out  [Bounded(4)]\n  ~~> work  [Latest]" in pipeline.show()
    assert '-.->|"Latest"|' in pipeline.show("mermaid")


class Pair(NamedTuple):
    left: int
    right: str


def test_header_fields_of_named_tuples_and_explicit_headers_are_seen_by_filters():
    def pairs() -> list[Pair]:
        return [Pair(i, "x") for i in range(4)]

    sink = Collect()
    pipeline = PipelineBuilder().stage("a", None, pairs).stage("c", None, sink)
    pipeline.edge("a", "c", Filtered("left > 1")).build().run("inline")
    assert [p.left for p in sink.payloads] == [2, 3]

    class Explicit(Source[Sample]):
        def init(self):
            return 0

        def produce(self, state):
            from metalforge.pipeline import END

            header = {"chi": float(state), "beta": 0.0, "number": 0}
            return (state + 1, Emit(object(), header=header)) if state < 5 else (state, END)

    sink = Collect()
    builder = PipelineBuilder().stage("a", None, Explicit()).stage("c", None, sink)
    builder.edge("a", "c", Filtered("chi > 2.5")).build().run("inline")
    assert len(sink.items) == 2


def test_a_stage_is_found_by_its_entry_point(monkeypatch):
    made = {"totals": EntryPoint("totals", "metalforge.pipeline:Collect", "metalforge.stages")}
    monkeypatch.setattr(plugins, "_entries", lambda group: made if group == "metalforge.stages" else {})
    assert isinstance(resolve_stage("totals", None), Collect)
    with pytest.raises(SpecError, match="registered: totals"):
        resolve_stage("total", None)


def test_what_no_source_reaches_is_refused_cycles_too():
    builder = PipelineBuilder().stage("source", None, [1, 2]).stage("sink", None, Collect()).edge("source", "sink")
    for name in ("a", "b", "after"):
        builder.stage(name, None, lambda x: x)
    builder.edge("a", "b").edge("b", "a", Latest(), feedback=True).edge("b", "after")
    with pytest.raises(GraphError) as caught:
        builder.build()
    assert len(caught.value.problems) == 3
    assert all("no source" in problem for problem in caught.value.problems)
    builder.edge("source", "a").build()
