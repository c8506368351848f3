"""A hop through a stage with everything on (envelope, metrics, event log), latency, shared memory, two cores, start-up.

Rates are a second of CPU time where the row says so: what a hop costs the processor does not depend on who else is on
the machine. The ceilings are budgets: 15 us per hop, 0.2 s to start.
"""

import operator
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.native import Stream
from metalforge.pipeline import END, Chain, Collect, Emit, EventLog, PipelineBuilder, Source, Stage
from metalforge.pipeline.graph import StageSpec
from metalforge.pipeline.items import Item, ItemId
from metalforge.pipeline.processes import ProcessHost
from metalforge.pipeline.stages import as_stage

ITEMS = 20_000
SITES = 1 << 14


class Count(Source[int]):
    """0 .. count - 1."""

    def __init__(self, count: int) -> None:
        self.count = count

    def init(self):
        return 0

    def produce(self, state):
        return (state + 1, Emit(state)) if state < self.count else (state, END)


class Sink(Stage[object, None]):
    """Keeps how long items were under way."""

    def __init__(self) -> None:
        self.latencies: list[int] = []

    def step(self, state, item, ctx):
        self.latencies.append(ctx.item.received - ctx.item.created)
        return state, None


def pass_on(x):
    return x


def chain(count: int, depth: int):
    sink = Sink()
    builder = PipelineBuilder().stage("source", None, Count(count)).stage("middle", None, pass_on, buffer_depth=depth)
    return builder.stage("sink", None, sink, buffer_depth=depth).topology(
        Chain("source", "middle", "sink")
    ).build(), sink


def hop_us(events: bool) -> float:
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        for i in range(3):
            pipeline, _ = chain(ITEMS, 64)
            log = EventLog(Path(folder) / f"{i}.jsonl", items=True) if events else None
            start = time.process_time()
            pipeline.run(events=log)
            best = min(best, (time.process_time() - start) / ITEMS / 2 * 1e6)  # two hops an item
    return best


def hops(us: float, what: str) -> Measured:
    return Measured(value=1e6 / us, unit="hops/s", how=f"{what}, CPU time, {us:.1f} us per hop, best of 3")


def budget(us: float) -> Measured:
    return Measured(value=1e6 / us, unit="hops/s", how=f"the budget: {us:g} us of CPU per hop")


class Native(Stage[float, float]):
    """About 5 ms of native work that releases the interpreter lock."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.out = np.empty((SITES, 8))

    def step(self, state, item):
        for _ in range(self.calls):
            Stream(1).uniform(step=0, sites=SITES, draws=8, threads=1, out=self.out)
        return state, float(self.out[0, 0])


def calls_of_5_ms() -> int:
    stage = Native(1)
    stage.step(None, 0)
    start = time.perf_counter()
    for _ in range(20):
        stage.step(None, 0)
    return max(1, round(0.005 / ((time.perf_counter() - start) / 20)))


def two_cores() -> tuple[float, float]:
    """Items a second of three native stages as a pipeline, and one after the other."""
    calls, count = calls_of_5_ms(), 60
    stages = [Native(calls) for _ in range(3)]
    best = alone = float("inf")
    for _ in range(3):
        builder = PipelineBuilder().stage("source", None, Count(count))
        for i, stage in enumerate(stages):
            builder.stage(f"s{i}", None, stage)
        pipeline = builder.stage("sink", None, Collect()).topology(Chain("source", "s0", "s1", "s2", "sink")).build()
        start = time.perf_counter()
        pipeline.run()
        best = min(best, time.perf_counter() - start)
        start = time.perf_counter()
        for item in range(count):
            for stage in stages:
                stage.step(None, item)
        alone = min(alone, time.perf_counter() - start)
    return count / best, count / alone


@contextmanager
def process_calls(payload: object) -> Iterator[Callable[[int], None]]:
    """A stage in a process of its own; what is given sends it the payload so many times, one under way."""
    # A function that another process can import; the files of a benchmark suite cannot be.
    host = ProcessHost(StageSpec(name="child", stage=as_stage(operator.itemgetter(0))))
    host.open()

    def work(count: int) -> None:
        for i in range(count):
            host.step(Item(ItemId("s", "c", i), payload))
            host._log.clear()

    try:
        yield work
    finally:
        host.close()


def process_rate(payload: object, count: int) -> float:
    with process_calls(payload) as work:
        return count / best_of(lambda: work(count), repeats=3, minimum_s=0.0)


def rows() -> Iterator[BenchRow]:
    plain, logged = hop_us(False), hop_us(True)
    yield BenchRow(name="stage hop: envelope, metrics", value=hops(plain, "20000 items, 3 stages"),
                   ceiling_name="15 us", ceiling=budget(15))  # fmt: skip
    yield BenchRow(name="stage hop: envelope, metrics, event log of items", value=hops(logged, "20000 items, 3 stages"),
                   ceiling_name="15 us", ceiling=budget(15))  # fmt: skip

    pipeline, sink = chain(2000, 1)
    pipeline.run()
    p50, p99 = (float(x) / 1e3 for x in np.percentile(sink.latencies, [50, 99]))
    yield BenchRow(
        name="latency of a hop (capacity 1), as hops in a row",
        value=Measured(value=1e6 / p50, unit="hops/s", how=f"wall, p50 {p50:.1f} us, p99 {p99:.1f} us"),
        ceiling_name="15 us", ceiling=budget(15),
    )  # fmt: skip

    together, alone = two_cores()
    yield BenchRow(
        name="three native stages of 5 ms",
        value=Measured(value=together, unit="items/s", how="pipeline of 3 threads, wall, best of 3"),
        peer_name="one core", peer=Measured(value=alone, unit="items/s", how="one after the other, wall, best of 3"),
    )  # fmt: skip

    array = np.zeros(1 << 17)
    yield BenchRow(
        name="1 MB array into a process stage",
        value=Measured(value=process_rate(array, 300), unit="items/s", how="one in flight, wall, best of 3"),
        peer_name="a number", peer=Measured(value=process_rate([1.0], 1000), unit="items/s", how="the same, 8 bytes"),
    )  # fmt: skip

    pipeline, _ = chain(1, 4)
    start = time.perf_counter()
    run = pipeline.start()
    seconds = time.perf_counter() - start
    run.wait()
    yield BenchRow(
        name="start-up of 3 stages",
        value=Measured(value=1 / seconds, unit="starts/s", how=f"wall, {seconds * 1e3:.2f} ms"),
        ceiling_name="0.2 s", ceiling=Measured(value=5.0, unit="starts/s", how="the budget"),
    )  # fmt: skip
