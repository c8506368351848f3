"""Ten minutes of a 12-stage graph with a cycle and a broadcast, rewired every second, a process killed every ten."""

import os
import random
import signal
import threading
import time

import pytest

from metalforge.pipeline import Bounded, Broadcast, Edits, Emit, Latest, PipelineBuilder, Stage
from metalforge.pipeline.errors import GraphError
from reference.pipeline_stages import Relay
from reference.pipelines import Fountain

SEED = 7
MINUTES = float(os.environ.get("METALFORGE_SOAK_MINUTES", "10"))


class Spring(Fountain):
    """Counts instead of keeping: ten minutes are millions of items."""

    def produce(self, state):
        self.n = state + 1
        return state + 1, Emit((self.name, state))

    def step(self, state, item):
        return state, None


class Tally(Stage):
    """A byte for each item that arrived, and the last number of each producer and chain."""

    def __init__(self):
        self.arrived = {"source0": bytearray(), "source1": bytearray()}
        self.last = {}
        self.repeated = self.disordered = 0

    def step(self, state, item, ctx):
        name, number = item
        bits = self.arrived[name]
        if number >= len(bits):
            bits.extend(bytes(number + 1 - len(bits) + 4096))
        self.repeated += bits[number]
        bits[number] = 1
        identity = ctx.item.id
        line = identity.stage, identity.chain
        self.disordered += identity.sequence <= self.last.get(line, -1)
        self.last[line] = identity.sequence
        return state, Emit(number)


def relay(x):
    return Emit(x)


def soak(seconds, rewire_s, kill_s):
    """Run the graph, disturb it, and return (made, sinks, kills, changes)."""
    rng = random.Random(SEED)
    sources = [Spring("source0", 0), Spring("source1", 0)]
    sinks = [Tally(), Tally()]
    builder = PipelineBuilder("soak")
    for i, source in enumerate(sources):
        builder.stage(f"source{i}", None, source)
    builder.stage("merge", None, relay).stage("copy", None, relay)
    for i in range(2):
        for j in range(3):
            isolation = "process" if j == 1 else "thread"
            impl = Relay() if isolation == "process" else relay
            builder.stage(f"line{i}{j}", None, impl, isolation=isolation, restarts=20, checkpoint_every=8)
        builder.stage(f"sink{i}", None, sinks[i])
        builder.edge("copy", f"line{i}0", Broadcast(4)).edge(f"line{i}0", f"line{i}1").edge(f"line{i}1", f"line{i}2")
        builder.edge(f"line{i}2", f"sink{i}").edge(f"sink{i}", f"source{i}", Latest(), feedback=True)
        builder.edge(f"source{i}", "merge", Bounded(4))
    pipeline = builder.edge("merge", "copy").build()
    assert len(pipeline.graph.stages) == 12
    kills = changes = extra = 0
    inserted, refused = {}, []
    began = time.monotonic()
    next_kill = began + kill_s
    with pipeline.start() as run:
        while time.monotonic() < began + seconds:
            run.wait_until(run.is_over, rewire_s)
            assert not run.is_over()
            i = rng.randrange(2)
            a, b = f"line{i}0", f"line{i}1"
            queued = rng.choice(["carry", "drain"])
            try:
                if i in inserted and rng.random() < 0.7:
                    name = inserted.pop(i)
                    run.reconfigure(
                        Edits().remove_stage(name).add_edge(a, b, Bounded(rng.randint(1, 6))), queued=queued
                    )
                elif i not in inserted and rng.random() < 0.7:
                    extra += 1
                    inserted[i] = f"extra{extra}"
                    edits = Edits().add_stage(inserted[i], None, relay).remove_edge(a, b).add_edge(a, inserted[i])
                    run.reconfigure(edits.add_edge(inserted[i], b, Bounded(2)), queued=queued)
                else:
                    run.reconfigure(
                        Edits().change_edge(f"line{i}2", f"sink{i}", Bounded(rng.randint(1, 9))), queued=queued
                    )
                changes += 1
            except GraphError as error:
                refused.append(str(error))
            if time.monotonic() > next_kill:
                next_kill += kill_s
                pid = run.workers[f"line{rng.randrange(2)}1"].host.pid
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
    assert all("still ending" in words for words in refused)
    return {source.name: source.n for source in sources}, sinks, kills, changes


def check(made, sinks):
    for sink in sinks:
        assert {name: sum(bits) for name, bits in sink.arrived.items()} == made
        assert all(all(sink.arrived[name][:n]) for name, n in made.items())
        assert (sink.repeated, sink.disordered) == (0, 0)


def test_a_few_seconds_of_it():
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    made, sinks, kills, changes = soak(3.0, 0.05, 0.7)
    check(made, sinks)
    assert kills >= 1
    assert changes >= 10
    assert threading.active_count() == threads
    if files:
        assert len(os.listdir("/proc/self/fd")) == files


@pytest.mark.long
def test_nothing_is_lost_or_repeated_in_ten_minutes():
    made, sinks, kills, changes = soak(60 * MINUTES, 1.0, 10.0)
    check(made, sinks)
    assert kills >= 0.7 * 6 * MINUTES
    assert changes >= 40 * MINUTES
