"""Processes that do what would hold the page up: curves with their bands, states of the past, other steerers.

Each reads the journal itself, so that no state is sent about; going forward in time it goes on from where it is.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TypeVar

from metalforge.campaign import JOURNAL, counterfactual

from .following import Followed, Past
from .payloads import encoded, transition_sent

KEPT = 3
"""Journals that a process holds folded, each with some of its past."""
Answer = TypeVar("Answer")
_pasts: dict[str, Past] = {}


def _at(directory: str, at: int) -> Followed:
    """Return a campaign after so many records."""
    past = _pasts.pop(directory, None) or Past(Path(directory))
    _pasts[directory] = past
    if len(_pasts) > KEPT:
        del _pasts[next(iter(_pasts))]
    return past.at(at)


def answer(directory: str, at: int, question: Callable[..., object], *more: object) -> bytes:
    """Return as JSON what a function of `payloads` makes of a campaign after so many records."""
    return encoded(question(_at(directory, at), *more))


def timed_transition(directory: str, at: int) -> tuple[bytes, float]:
    """Return the transition and the seconds of processor time that it took."""
    begin = time.process_time()
    return answer(directory, at, transition_sent), time.process_time() - begin


def other_steerer(followed: Followed, steerer: str, until: int) -> object:
    """Return what another steerer would have done from here on, by what is known after `until` records."""
    return counterfactual(followed.directory / JOURNAL, followed.records, until, steerer)


class Helper:
    """One process, started when it is first needed and replaced when it dies; a nice one leaves others the cores."""

    def __init__(self, niceness: int = 0) -> None:
        self._niceness = niceness
        self._pool: ProcessPoolExecutor | None = None
        self._closed = False

    async def __call__(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what the process makes of it; one that had died is replaced once."""
        try:
            return await self._asked(work, *arguments)
        except BrokenExecutor:
            return await self._asked(work, *arguments)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=_context(), initializer=_begin, initargs=(self._niceness,))
        return self._pool

    async def _asked(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        if self._closed:
            raise BrokenExecutor("the page is closed")
        pool = self._started()
        try:
            # The first one waits for a process, and others are to be answered meanwhile.
            return await asyncio.wrap_future(await asyncio.to_thread(pool.submit, work, *arguments))
        except BrokenExecutor:
            if self._pool is pool:
                self._pool = None
            raise

    def close(self) -> None:
        """End the process, whatever it does: whoever waits for it hears so."""
        self._closed = True
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            self._pool = None


def _context() -> BaseContext:
    """Return how processes are made: as copies of one that has imported what they need, and has no threads."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _begin(niceness: int) -> None:
    """Make the process a polite one, that ends with its parent however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the server, which ends this one
    os.nice(niceness)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait for the parent's end, and end."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(0)
