"""A 12-stage graph with cycles and a broadcast, rewired all the time, a process killed now and then."""

import os
import random
import signal
import statistics
import time
from collections import Counter, defaultdict
from pathlib import Path

import msgspec

from metalforge.pipeline import Bounded, Broadcast, Edits, Emit, Latest, PipelineBuilder, Stage
from metalforge.pipeline.errors import GraphError, PipelineError
from reference.pipeline_stages import Relay
from reference.pipelines import Fountain

FLAT = 1.03, 4.0
"""Memory may grow by this factor and by so many MB from the second quarter of a soak to its last."""


class Soaked(msgspec.Struct, frozen=True, kw_only=True):
    """What a soak did, its memory in MB over time, and what was wrong."""

    items: int
    changes: int
    kills: int
    memory: tuple[float, ...]
    faults: tuple[str, ...]


class Spring(Fountain):
    """Counts instead of keeping: ten minutes are millions of items."""

    def produce(self, state):
        self.n = state + 1
        return state + 1, Emit((self.name, state))

    def step(self, state, item):
        return state, None


class Tally(Stage):
    """The next number of each source; numbers that were jumped over and have not come yet."""

    def __init__(self):
        self.next = defaultdict(int)
        self.jumped = defaultdict(set)
        self.repeated = self.disordered = 0

    def step(self, state, item):
        name, number = item
        if number >= self.next[name]:
            self.jumped[name].update(range(self.next[name], number))
            self.next[name] = number + 1
        elif number in self.jumped[name]:
            self.jumped[name].remove(number)
            self.disordered += 1
        else:
            self.repeated += 1
        return state, Emit(number)

    def faults(self, made):
        """Yield what is wrong, given how many items every source made."""
        for name, n in made.items():
            lost = n - self.next[name] + len(self.jumped[name])
            if lost:
                yield f"{lost} of {n} items of {name} were lost"
        if self.repeated or self.disordered:
            yield f"{self.repeated} items came twice, {self.disordered} out of order"


def relay(x):
    return Emit(x)


def _graph(sources, sinks):
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
    return builder.edge("merge", "copy").build()


class Rewiring:
    """Inserts stages into the two lines and takes them out, and changes the size of queues."""

    def __init__(self, rng):
        self._rng, self._inserted, self._extra = rng, {}, 0

    def edits(self):
        """Return the next change."""
        rng, i = self._rng, self._rng.randrange(2)
        a, b = f"line{i}0", f"line{i}1"
        if i in self._inserted and rng.random() < 0.7:
            return Edits().remove_stage(self._inserted.pop(i)).add_edge(a, b, Bounded(rng.randint(1, 6)))
        if i not in self._inserted and rng.random() < 0.7:
            self._extra += 1
            name = self._inserted[i] = f"extra{self._extra}"
            edits = Edits().add_stage(name, None, relay).remove_edge(a, b)
            return edits.add_edge(a, name).add_edge(name, b, Bounded(2))
        return Edits().change_edge(f"line{i}2", f"sink{i}", Bounded(rng.randint(1, 9)))


def soak(seed, seconds, rewire_s, kill_s):
    """Run the graph, disturb it, and look at what arrived."""
    sources, sinks = [Spring("source0", 0), Spring("source1", 0)], [Tally(), Tally()]
    pipeline = _graph(sources, sinks)
    assert len(pipeline.graph.stages) == 12
    done, memory, faults = Counter(), [], []
    began = time.monotonic()
    try:
        with pipeline.start() as run:
            for look in _disturb(run, random.Random(seed), seconds, rewire_s, kill_s):
                done[look] += 1
                memory.append(_resident())
    except PipelineError as error:
        faults.append(f"after {time.monotonic() - began:.0f} s: {error}")
    made = {source.name: source.n for source in sources}
    faults += [fault for sink in sinks for fault in sink.faults(made)]
    return Soaked(
        items=sum(made.values()), changes=done["change"], kills=done["kill"], memory=tuple(memory), faults=tuple(faults)
    )  # fmt: skip


def _disturb(run, rng, seconds, rewire_s, kill_s):
    """Change a running graph and kill its processes for so long; yield what was done."""
    rewiring = Rewiring(rng)
    began = time.monotonic()
    next_kill = began + kill_s
    while time.monotonic() < began + seconds:
        if run.wait_until(lambda: run.status != "running", rewire_s):
            return  # it failed: leaving it says why
        try:
            run.reconfigure(rewiring.edits(), queued=rng.choice(["carry", "drain"]))
            yield "change"
        except GraphError as error:
            # A stage that was taken out may still have work; then its line cannot be changed yet.
            if "still ending" not in str(error):
                raise
            yield "refused"
        if time.monotonic() > next_kill:
            next_kill += kill_s
            pid = run.workers[f"line{rng.randrange(2)}1"].host.pid
            if pid:
                os.kill(pid, signal.SIGKILL)
                yield "kill"


def growth(memory):
    """Return how many MB the last quarter of the looks has more than the second one."""
    quarter = len(memory) // 4
    return statistics.median(memory[-quarter:]) - statistics.median(memory[quarter : 2 * quarter])


def is_flat(memory):
    """Return whether memory stays as it is once it has come to its size."""
    factor, more = FLAT
    quarter = len(memory) // 4
    return growth(memory) <= (factor - 1) * statistics.median(memory[quarter : 2 * quarter]) + more


def _resident():
    """Return the memory of this process in MB; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)
