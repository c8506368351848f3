"""Random lives of a pipeline: paused, rewired, configured, crashed, at any moment. The sink gets every item once."""

import random

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from metalforge.pipeline.builder import Edits, PipelineBuilder
from metalforge.pipeline.errors import GraphError
from metalforge.pipeline.graph import Edge, Graph
from metalforge.pipeline.inline import InlineRun
from metalforge.pipeline.kinds import Bounded, Broadcast, Latest, Unbounded
from metalforge.pipeline.processes import ProcessHost
from reference.pipelines import Fountain, FragileChild, Pass, order_problems

ITEMS = 40
KINDS = st.sampled_from([Bounded(1), Bounded(2), Bounded(5), Unbounded(), Broadcast(3), Bounded(2, max_bytes=16)])


class CrashingRun(InlineRun):
    """A run whose processes are none, and die whenever `dies()` says so."""

    def __init__(self, dies, graph, **options):
        self.dies = dies
        super().__init__(graph, **options)

    def make_host(self, spec):
        if spec.config.isolation == "process":
            return ProcessHost(spec, lambda spec: FragileChild(spec, self.dies))
        return super().make_host(spec)


class PipelineMachine(RuleBasedStateMachine):
    """Sources flow through a tree of stages into one sink; taps and feedback edges come and go."""

    @initialize(seed=st.integers(0, 2**32), n_sources=st.integers(1, 3), n_middle=st.integers(0, 3), kind=KINDS)
    def begin(self, seed, n_sources, n_middle, kind):
        self.rng = random.Random(seed)
        self.crashes = 0
        self.serial = 0
        self.paused = False
        self.detached = []
        self.sink = Pass()
        self.sources = {f"source{i}": Fountain(f"source{i}", ITEMS) for i in range(n_sources)}
        self.passed = {"sink": self.sink, **self.sources}
        builder = PipelineBuilder()
        for name, source in self.sources.items():
            builder.stage(name, None, source)
        builder.stage("sink", None, self.sink)
        self.next = {}
        line = ["sink"]
        for _ in range(n_middle):
            name = self.fresh(self.rng.choice([0, 3]))
            builder.stage(name, None, self.passed[name], **self.policy())
            self.next[name] = line[-1]
            line.append(name)
        for name in self.sources:
            self.next[name] = line[-1] if name == "source0" else self.rng.choice(line)
        for name, target in self.next.items():
            builder.edge(name, target, kind)
        self.run = CrashingRun(self.dies, builder.build().graph, seed=seed).start()

    def fresh(self, fails=0):
        self.serial += 1
        name = f"stage{self.serial}"
        self.passed[name] = Pass(fails)
        return name

    def policy(self):
        return {"on_error": "retry", "retries": 2, "isolation": self.rng.choice(["thread", "process"]),
                "checkpoint_every": self.rng.randint(1, 4), "restarts": 50}  # fmt: skip

    def dies(self):
        died = self.rng.random() < 0.1
        self.crashes += died
        return died

    def rewire(self, edits, queued):
        try:
            receipt = self.run.reconfigure(edits, queued=queued)
        except GraphError as error:
            refused = str(error)
        except TimeoutError:  # a stage to be attached again cannot process what was queued for it
            refused = "too late" if self.paused else "in time"
        else:
            refused = ""
        if refused:
            assert "too late" in refused or "ending" in refused
            return False
        assert receipt.dropped == 0
        return True

    def middle(self):
        return sorted(n for n in self.next if n not in self.sources)

    alive = precondition(lambda self: self.run.status in ("running", "paused"))

    @rule(turns=st.integers(1, 200))
    def go_on(self, turns):
        for _ in range(turns):
            if not self.run.step():
                break

    @alive
    @rule()
    def pause(self):
        assert self.run.pause()
        self.paused = self.run.status == "paused"

    @alive
    @rule()
    def resume(self):
        self.run.resume()
        self.paused = False

    @alive
    @rule(kind=KINDS, queued=st.sampled_from(["carry", "drain"]), data=st.data())
    def change_capacity(self, kind, queued, data):
        name = data.draw(st.sampled_from(sorted(self.next)))
        self.rewire(Edits().change_edge(name, self.next[name], kind), queued)

    @alive
    @rule(kind=KINDS, queued=st.sampled_from(["carry", "drain"]), data=st.data(), fails=st.sampled_from([0, 3]))
    def insert_stage(self, kind, queued, data, fails):
        above = data.draw(st.sampled_from(sorted(self.next)))
        name, below = self.fresh(fails), self.next[above]
        edits = Edits().add_stage(name, None, self.passed[name], **self.policy()).remove_edge(above, below)
        if self.rewire(edits.add_edge(above, name, kind).add_edge(name, below, kind), queued):
            self.next[above], self.next[name] = name, below

    @alive
    @rule(kind=KINDS, queued=st.sampled_from(["carry", "drain"]), data=st.data())
    def remove_stage(self, kind, queued, data):
        if not self.middle():
            return
        name = data.draw(st.sampled_from(self.middle()))
        above, below = [n for n, t in self.next.items() if t == name], self.next[name]
        edits = Edits().remove_stage(name)
        for n in above:
            edits.add_edge(n, below, kind)
        if self.rewire(edits, queued):
            del self.next[name]
            for n in above:
                self.next[n] = below

    @alive
    @rule(kind=KINDS, queued=st.sampled_from(["carry", "drain", "leave"]), data=st.data())
    def detach_stage(self, kind, queued, data):
        if not self.middle():
            return
        name = data.draw(st.sampled_from(self.middle()))
        above, below = [n for n, t in self.next.items() if t == name], self.next[name]
        edges = [e for e in self.run.graph.edges if name not in e.ends]
        if self.rewire(Graph(*edges, *(Edge(n, below, kind) for n in above)), queued):
            self.detached.append(name)
            del self.next[name]
            for n in above:
                self.next[n] = below

    @alive
    @rule(kind=KINDS, queued=st.sampled_from(["carry", "drain", "leave"]), data=st.data())
    def attach_stage(self, kind, queued, data):
        above = data.draw(st.sampled_from(sorted(self.next)))
        name, below = self.detached.pop() if self.detached else None, self.next[above]
        if name is None or name not in self.run.detached:  # or it was ending when it was left out
            return
        before = self.run.metrics(name).items_processed
        edges = [e for e in self.run.graph.edges if e.ends != (above, below)]
        if self.rewire(Graph(*edges, Edge(above, name, kind), Edge(name, below, kind)), queued):
            self.next[above], self.next[name] = name, below
            assert self.run.metrics(name).items_processed >= before
        else:
            self.detached.append(name)

    @alive
    @rule(data=st.data())
    def toggle_feedback(self, data):
        source = data.draw(st.sampled_from(sorted(self.sources)))
        giver = data.draw(st.sampled_from([*self.middle(), "sink"]))
        there = any(e.ends == (giver, source) for e in self.run.graph.edges)
        if there:
            self.rewire(Edits().remove_edge(giver, source), "carry")
        else:
            self.rewire(Edits().add_edge(giver, source, Latest(), feedback=True), "carry")

    @alive
    @rule(data=st.data())
    def an_invalid_change_is_refused_and_the_old_graph_runs_on(self, data):
        before = self.run.graph
        name = data.draw(st.sampled_from(sorted(self.next)))
        with pytest.raises(GraphError, match="nowhere"):
            self.run.reconfigure(Edits().add_edge(name, "nowhere"))
        assert self.run.graph is before

    @invariant()
    def queues_keep_their_limits(self):
        if not hasattr(self, "run"):
            return
        for worker in self.run.workers.values():
            seen = getattr(worker.spec.stage, "seen", [])
            assert list(order_problems(worker.name, seen)) == [] or worker.config.isolation == "process"

    def teardown(self):
        if not hasattr(self, "run"):
            return
        self.run.resume()
        assert self.run.wait()
        assert self.run.status == "ended"
        made = [label for source in self.sources.values() for label in source.made]
        assert sorted(self.sink.labels) == sorted(made)
        assert list(order_problems("sink", self.sink.seen)) == []


TestPipelineMachine = PipelineMachine.TestCase
TestPipelineMachine.settings = settings(
    max_examples=120, stateful_step_count=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
