"""Schedules of random graphs agree with each other and with threads; tests/chaos runs thousands of them."""

import random
import sys
from collections import Counter

import pytest

from metalforge.pipeline.errors import DeadlockError
from metalforge.pipeline.graph import Edge, PipelineGraph, StageSpec
from metalforge.pipeline.inline import InlineRun
from metalforge.pipeline.items import Emit
from metalforge.pipeline.kinds import Bounded
from metalforge.pipeline.lanes import END
from metalforge.pipeline.stages import Source, as_stage
from reference.pipelines import accepted, ledger_problems, random_graph


def deliveries(run, graph):
    return {name: Counter(spec.stage.labels) for name, spec in graph.stages.items()}


@pytest.mark.parametrize("seed", range(40))
def test_without_loss_and_feedback_every_schedule_and_the_threads_deliver_the_same_items(seed):
    def outcome(runtime, **options):
        graph = random_graph(random.Random(seed), lossless=True, feedback=False)
        pipeline = accepted(graph)
        return pipeline and deliveries(pipeline.run(runtime, **options), graph)

    expected = outcome("inline", seed=1)
    assert expected is not None
    assert outcome("inline", seed=2) == expected
    assert outcome("threads") == expected


def test_threads_that_are_switched_all_the_time_keep_the_same_books():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        ran = 0
        for seed in range(1000):
            graph = random_graph(random.Random(seed))
            pipeline = accepted(graph)
            if pipeline is None:
                continue
            ran += 1
            with pipeline.start() as run:
                if seed % 3 == 0:
                    run.pause()
                    run.resume()
                run.wait()
            problems = list(ledger_problems(run, {n: s.stage for n, s in graph.stages.items()}))
            assert problems == [], f"seed {seed}"
            if ran == 150:
                break
    finally:
        sys.setswitchinterval(interval)
    assert ran == 150


class Greedy(Source):
    """Produces whether or not it is steered."""

    def init(self):
        return 0

    def produce(self, state):
        return (state + 1, Emit(state)) if state < 200 else (state, END)

    def step(self, state, item):
        return state, None


def seed_graph(control):
    """The data flow of the published QCD pipeline, with one suggestion for each result sent to both producers."""
    stages = {n: StageSpec(name=n, stage=Greedy()) for n in ("3090_hmc", "titan_hmc")}
    stages |= {n: StageSpec(name=n, stage=as_stage(lambda x: x)) for n in ("npu_screen", "steer")}
    edges = (
        Edge("3090_hmc", "npu_screen", Bounded(4)),
        Edge("titan_hmc", "npu_screen", Bounded(4)),
        Edge("npu_screen", "steer", Bounded(8)),
        Edge("steer", "3090_hmc", control, feedback=True),
        Edge("steer", "titan_hmc", control, feedback=True),
    )
    return PipelineGraph(stages, edges)


def test_negative_control_the_graph_that_build_refuses_does_deadlock():
    assert accepted(seed_graph(Bounded(1))) is None
    stuck = 0
    for seed in range(100):
        run = InlineRun(seed_graph(Bounded(1)), seed=seed).start()
        with pytest.raises(DeadlockError, match="waits for room") as caught:
            run.wait()
        stuck += 1
        assert "steer" in str(caught.value)
    assert stuck == 100


def test_with_latest_control_edges_the_same_graph_ends():
    pipeline = accepted(seed_graph(None))
    for seed in range(50):
        run = pipeline.run("inline", seed=seed)
        assert run.metrics("steer").items_processed == 400
        assert run.metrics("3090_hmc").overwritten > 0
