"""Channels: a three-stage chain of no work, capacity 64, 1 KB items, against what Python offers.

Items a second of the whole chain (two channels), best of seven, all peers in the same run. The ceiling is the same
chain over bare unbounded `SimpleQueue`s: the price of a thread handing over a pointer.
"""

import asyncio
import contextlib
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat

from benchmarks.rows import BenchRow
from metalforge.core import Measured
from metalforge.pipeline import Bounded, open_channel

ITEMS, CAPACITY, PAYLOAD = 20_000, 64, bytes(1024)
ROUNDS = 7


def measured(work: Callable[[int], None], items: int = ITEMS) -> Measured:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work(items)
        best = min(best, time.perf_counter() - start)
    return Measured(value=items / best, unit="items/s", how=f"{items} items through 3 stages, best of {ROUNDS}")


def in_threads(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ours(items: int) -> None:
    send_a, receive_a = open_channel(Bounded(CAPACITY))
    send_b, receive_b = open_channel(Bounded(CAPACITY))

    def produce() -> None:
        with send_a:
            for _ in range(items):
                send_a.send(PAYLOAD)

    def pass_on() -> None:
        with send_b:
            for value in receive_a:
                send_b.send(value)

    def consume() -> None:
        n = 0
        for _ in receive_b:
            n += 1
        assert n == items

    in_threads(produce, pass_on, consume)


def poured(items: int) -> None:
    send_a, receive_a = open_channel(Bounded(CAPACITY))
    send_b, receive_b = open_channel(Bounded(CAPACITY))

    def produce() -> None:
        with send_a:
            send_a.send_all(repeat(PAYLOAD, items))

    def pass_on() -> None:
        with send_b:
            send_b.send_all(receive_a)

    def consume() -> None:
        n = 0
        for _ in receive_b:
            n += 1
        assert n == items

    in_threads(produce, pass_on, consume)


def by_queues(make: Callable[[], "queue.Queue | queue.SimpleQueue"]) -> Callable[[int], None]:
    def work(items: int) -> None:
        a, b = make(), make()

        def produce() -> None:
            for _ in range(items):
                a.put(PAYLOAD)
            a.put(None)

        def pass_on() -> None:
            while (value := a.get()) is not None:
                b.put(value)
            b.put(None)

        def consume() -> None:
            n = 0
            while b.get() is not None:
                n += 1
            assert n == items

        in_threads(produce, pass_on, consume)

    return work


def by_asyncio(items: int) -> None:
    async def main() -> None:
        a: asyncio.Queue = asyncio.Queue(CAPACITY)
        b: asyncio.Queue = asyncio.Queue(CAPACITY)

        async def produce() -> None:
            for _ in range(items):
                await a.put(PAYLOAD)
            await a.put(None)

        async def pass_on() -> None:
            while (value := await a.get()) is not None:
                await b.put(value)
            await b.put(None)

        async def consume() -> None:
            n = 0
            while await b.get() is not None:
                n += 1
            assert n == items

        await asyncio.gather(produce(), pass_on(), consume())

    asyncio.run(main())


def by_anyio(items: int) -> None:
    import anyio

    async def main() -> None:
        send_a, receive_a = anyio.create_memory_object_stream(CAPACITY)
        send_b, receive_b = anyio.create_memory_object_stream(CAPACITY)

        async def produce() -> None:
            async with send_a:
                for _ in range(items):
                    await send_a.send(PAYLOAD)

        async def pass_on() -> None:
            async with send_b, receive_a:
                async for value in receive_a:
                    await send_b.send(value)

        async def consume() -> None:
            n = 0
            async with receive_b:
                async for _ in receive_b:
                    n += 1
            assert n == items

        async with anyio.create_task_group() as group:
            group.start_soon(produce)
            group.start_soon(pass_on)
            group.start_soon(consume)

    anyio.run(main)


def _echo(a: "multiprocessing.Queue", b: "multiprocessing.Queue") -> None:
    while (value := a.get()) is not None:
        b.put(value)
    b.put(None)


def by_multiprocessing(items: int) -> None:
    context = multiprocessing.get_context("fork")  # no device here; spawn would add a second of imports
    a, b = context.Queue(CAPACITY), context.Queue(CAPACITY)
    middle = context.Process(target=_echo, args=(a, b))
    middle.start()

    def produce() -> None:
        for _ in range(items):
            a.put(PAYLOAD)
        a.put(None)

    def consume() -> None:
        while b.get() is not None:
            pass

    in_threads(produce, consume)
    middle.join()


class _Hop:
    """One Ray actor that passes its argument on."""

    def push(self, value):
        return value


@contextlib.contextmanager
def ray_actors() -> Iterator[Callable[[int], None]]:
    """Three Ray actors; items go from one to the next as references, as Ray's manual has it, 64 under way."""
    import ray

    ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        actor = ray.remote(num_cpus=0.1)(_Hop)
        first, middle, last = (actor.remote() for _ in range(3))

        def work(items: int) -> None:
            under_way: list = []
            for _ in range(items):
                if len(under_way) == CAPACITY:
                    ready, under_way = ray.wait(under_way)
                    ray.get(ready)
                under_way.append(last.push.remote(middle.push.remote(first.push.remote(PAYLOAD))))
            ray.get(under_way)

        work(CAPACITY)  # the actors' processes are there
        yield work
    finally:
        ray.shutdown()


def ray_row(items: int) -> Measured:
    with ray_actors() as work:
        return measured(work, items)


def rows() -> Iterator[BenchRow]:
    value, at_once = measured(ours), measured(poured)
    ceiling = measured(by_queues(queue.SimpleQueue))
    peers = {
        "asyncio.Queue": measured(by_asyncio),
        "threading + queue.Queue": measured(by_queues(lambda: queue.Queue(CAPACITY))),
        "multiprocessing.Queue": measured(by_multiprocessing, 3000),
    }
    with contextlib.suppress(ModuleNotFoundError):  # it is in the group `bench`
        peers["anyio memory streams"] = measured(by_anyio, 5000)
    with contextlib.suppress(ModuleNotFoundError):  # the extra `ray`
        peers["Ray actors"] = ray_row(300)
    for name, peer in peers.items():
        yield BenchRow(
            name="channel Bounded(64), 3 stages, 1 KB",
            value=value,
            peer_name=name,
            peer=peer,
            ceiling_name="SimpleQueue, unbounded",
            ceiling=ceiling,
        )
    yield BenchRow(
        name="the same by send_all",
        value=at_once,
        peer_name="asyncio.Queue",
        peer=peers["asyncio.Queue"],
        ceiling_name="SimpleQueue, unbounded",
        ceiling=ceiling,
    )
