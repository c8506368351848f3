"""Items through stages against asyncio, anyio and Ray, in turns.

Three stages of no work, capacity 64, items of 1 KB: threads and our channels. Ray's actors are processes, so a stage in
a process of its own stands beside an actor as well, one number under way there and back. The ceilings are bare
`SimpleQueue`s between threads, and a bare pipe to a process.
"""

import multiprocessing
import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.rows import BenchRow, load_benchmark, rows_in_turns, timed

channels, stages = (
    load_benchmark(Path(__file__).parents[1] / "pipeline" / f"bench_{name}.py") for name in ("channels", "stages")
)
ITEMS, FAR_ITEMS = 20_000, 1000


def rows(rounds: int = 8) -> Iterator[BenchRow]:
    with ExitStack() as stack:
        actors = stack.enter_context(channels.ray_actors()) if find_spec("ray") else None
        yield from chains(actors, rounds)
        ours = stack.enter_context(stages.process_calls([1.0]))
        pipe = stack.enter_context(bare_pipe())
        yield from rows_in_turns(
            "a number to a process and back, one under way",
            timed(lambda: ours(FAR_ITEMS)), {"Ray actor": actors and timed(ray_calls())},
            ("bare pipe", timed(lambda: pipe(FAR_ITEMS))),
            amount=1e-3 * FAR_ITEMS, unit="k calls/s", rounds=rounds,
        )  # fmt: skip


def chains(actors: Callable[[int], None] | None, rounds: int) -> Iterator[BenchRow]:
    def of(work: Callable[[int], None], items: int = ITEMS):
        turn = timed(lambda: work(items))
        return lambda: turn() * ITEMS / items  # as long as all items would take

    peers = {
        "asyncio.Queue": of(channels.by_asyncio),
        "anyio memory streams": of(channels.by_anyio, 2000) if find_spec("anyio") else None,
        "Ray actors": of(actors, 300) if actors else None,
    }
    ceiling = ("bare SimpleQueue", of(channels.by_queues(queue.SimpleQueue)))
    for name, ours in (("send and iteration", channels.ours), ("send_all", channels.poured)):
        yield from rows_in_turns(
            f"1 KB items through 3 stages, {name}", of(ours), peers, ceiling,
            amount=1e-6 * ITEMS, unit="M items/s", rounds=rounds,
        )  # fmt: skip


def ray_calls() -> Callable[[], None]:
    import ray

    actor = ray.remote(num_cpus=0.1)(channels._Hop).remote()
    ray.get(actor.push.remote(1.0))  # its process is there

    def work() -> None:
        for _ in range(FAR_ITEMS):
            ray.get(actor.push.remote(1.0))

    return work


@contextmanager
def bare_pipe() -> Iterator[Callable[[int], None]]:
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_echo, args=(there,))
    child.start()

    def work(count: int) -> None:
        for _ in range(count):
            here.send(1.0)
            here.recv()

    try:
        yield work
    finally:
        here.send(None)
        child.join()


def _echo(pipe) -> None:
    while (value := pipe.recv()) is not None:
        pipe.send(value)
