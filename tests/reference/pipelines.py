"""Random pipelines with stages that write down what they saw, and the bookkeeping that every run must satisfy."""

import random
from collections import defaultdict

from metalforge.core.errors import MetalforgeError
from metalforge.pipeline.builder import Pipeline
from metalforge.pipeline.graph import Edge, PipelineGraph, StageSpec
from metalforge.pipeline.hosts import LocalHost
from metalforge.pipeline.items import Emit
from metalforge.pipeline.kinds import Bounded, Broadcast, Filtered, Latest, Unbounded
from metalforge.pipeline.lanes import END
from metalforge.pipeline.processes import Died
from metalforge.pipeline.stages import Context, Source, Stage, StageConfig

HOPS = 5


class Recorder(Stage):
    """Passes items on, writes down ids; fails on some. What it does depends on the item's label only.

    An item is (hops, label); the label says which way it came and is its content. Ids of one chain that arrives over
    two ways are numbered in the order of arrival, so labels, not ids, are what schedules must agree on.
    """

    def __init__(self, seed, fails=0):
        self.seed, self.fails = seed, fails
        self.seen = []
        self.labels = []
        self.failed = []
        self.attempts = defaultdict(int)

    def init(self):
        return 0

    def step(self, state, item, ctx):
        hops, label = item
        identity = ctx.item.id
        draw = random.Random(f"{self.seed}/{label}")
        if self.fails and draw.randrange(self.fails) == 0:
            self.attempts[identity] += 1
            if self.attempts[identity] <= draw.choice([1, 9]):
                self.failed.append(identity)
                raise ValueError(f"{identity} is one of those")
        self.seen.append(identity)
        self.labels.append(label)
        if hops >= HOPS:
            return state + 1, None
        twigs = range(draw.choice([0, 1, 1, 1, 1, 2]))
        return state + 1, [Emit((hops + 1, b"%s/%s%d" % (label, ctx.stage.encode(), i))) for i in twigs]


class RecordingSource(Source, Recorder):
    """Makes `count` items; takes items that come back."""

    def __init__(self, seed, count, fails=0):
        Recorder.__init__(self, seed, fails)
        self.count = count

    def produce(self, state):
        return (state + 1, Emit((0, b"%d" % state))) if state < self.count else (state, END)

    def init(self):
        return 0

    def step(self, state, item, ctx):
        return state, Recorder.step(self, 0, item, ctx)[1]


def random_graph(rng, *, lossless=False, feedback=True, max_stages=7, items=12):
    """Return a graph that may or may not pass `build`."""
    n = rng.randint(2, max_stages)
    n_sources = rng.randint(1, max(1, n // 3))
    stages, edges = {}, []
    for i in range(n):
        name, seed = f"s{i}", rng.random()
        fails = rng.choice([0, 0, 0, 6])
        policy = rng.choice(["retry", "skip"])
        config = StageConfig(
            buffer_depth=rng.randint(1, 3), on_error=policy, retries=2, after_retries="skip", results=lossless,
            backoff_s=rng.choice([0.0, 0.001]),
        )  # fmt: skip
        stage = RecordingSource(seed, rng.randint(0, items), fails) if i < n_sources else Recorder(seed, fails)
        stages[name] = StageSpec(name=name, stage=stage, config=config)
    kinds = [Bounded(1), Bounded(2), Bounded(3), Unbounded(), Broadcast(2), Bounded(2, max_bytes=64)]
    kinds.append(Filtered(lambda payload: payload[0] != 2, Bounded(2)))
    if not lossless:
        kinds += [Latest(), Bounded(2, drop="oldest"), Bounded(1, drop="newest"), Broadcast(1, slow="drop")]
        kinds += [Broadcast(2, slow="disconnect")]
    for i in range(n_sources, n):
        above = rng.sample(range(i), k=min(i, rng.randint(1, 2)))
        edges += [Edge(f"s{j}", f"s{i}", rng.choice(kinds)) for j in above]
    for i in range(n_sources):
        if not any(e.source == f"s{i}" for e in edges):
            edges.append(Edge(f"s{i}", f"s{n - 1}", rng.choice(kinds)))
    if feedback:
        for _ in range(rng.randint(0, 2)):
            b, a = sorted(rng.sample(range(n), 2))
            if not any(e.ends == (f"s{a}", f"s{b}") for e in edges):
                kind = rng.choice([Latest(), Latest(), Unbounded(), Bounded(1), Bounded(2, drop="newest")])
                edges.append(Edge(f"s{a}", f"s{b}", kind, feedback=True))
    return PipelineGraph(stages, tuple(edges))


def accepted(graph):
    """Return the pipeline, or None when `build` refuses it."""
    try:
        return Pipeline(graph)
    except MetalforgeError:
        return None


def ledger_problems(run, stages):
    """Yield what is wrong with the books of a run that has ended: items lost, repeated, out of order, uncounted."""
    skipped = defaultdict(set)
    for failure in run.failures:
        if failure.item is not None:
            skipped[failure.stage].add(failure.item)
    for edge in run.edges():
        if edge.queued or edge.sent != edge.taken + edge.dropped + edge.overwritten:
            yield f"{edge}: the books do not balance"
    for name, stage in stages.items():
        seen = stage.seen
        if len(set(seen)) != len(seen):
            yield f"{name} processed an item twice"
        if set(seen) & skipped[name]:
            yield f"{name} processed an item that it reported as failed"
        yield from order_problems(name, seen)
        arrived = sum(e.taken for e in run.edges() if e.edge.endswith(f" -> {name}"))
        if arrived != len(seen) + len(skipped[name]):
            yield f"{name} took {arrived} items, processed {len(seen)}, reported {len(skipped[name])} as failed"


class Pass(Stage):
    """Passes labels on unchanged, one for one; writes down ids and labels; its state is how many it has passed."""

    def __init__(self, fails=0):
        self.fails = fails
        self.seen, self.labels, self.failed_once = [], [], set()

    def init(self):
        return 0

    def step(self, state, item, ctx):
        if self.fails and item[1] % self.fails == 0 and item not in self.failed_once:
            self.failed_once.add(item)
            raise ValueError(f"{item} fails the first time")
        self.seen.append(ctx.item.id)
        self.labels.append(item)
        return state + 1, Emit(item)


class Fountain(Source):
    """Makes labels (name, number) until it is drained or has made `count`; items that come back are only counted."""

    def __init__(self, name, count):
        self.name, self.count = name, count
        self.made = []
        self.seen = []

    def init(self):
        return 0

    def produce(self, state):
        if state >= self.count:
            return state, END
        self.made.append((self.name, state))
        return state + 1, Emit((self.name, state))

    def step(self, state, item, ctx):
        self.seen.append(ctx.item.id)
        return state, None


class FragileChild:
    """A process that is none: a host whose state is lost whenever `dies()` says so, before or after the work."""

    pid = 0

    def __init__(self, spec, dies):
        self.spec, self.dies, self.host = spec, dies, None

    def request(self, verb, arguments, timeout_s):
        if verb == "open":
            spec, saved = arguments
            self.host = LocalHost(self.spec, Context(spec.name, None))
            self.host.open(saved)
            return 0
        if self.host is None or self.dies():
            self.host = None
            raise Died("killed before the work")
        result = getattr(self.host, verb)(*arguments)
        if self.dies():
            self.host = None
            raise Died("killed after the work")
        return result

    def kill(self):
        self.host = None

    def close(self):
        self.host = None


def order_problems(name, seen):
    """Yield ids that came out of order, by producer and chain, or twice."""
    last = {}
    for identity in seen:
        line = (identity.stage, identity.chain)
        if identity.sequence <= last.get(line, -1):
            yield f"{name} saw {identity} after number {last[line]}"
        last[line] = identity.sequence
