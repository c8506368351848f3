"""Processes that do what would hold the page up: curves with their bands, and states of the past.

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
from pathlib import Path
from typing import TypeVar

from .following import Followed
from .payloads import chain_sent, decisions_sent, encoded, machine_sent, state_sent, transition_sent

KEPT = 3
"""Journals that a process holds folded."""
Answer = TypeVar("Answer")
_folded: dict[str, Followed] = {}


def _at(directory: str, at: int) -> Followed:
    followed = _folded.pop(directory, None)
    if followed is None or followed.records > at:
        followed = Followed(Path(directory))
    _folded[directory] = followed
    if len(_folded) > KEPT:
        del _folded[next(iter(_folded))]
    followed.advance(at)
    return followed


def transition_at(directory: str, at: int) -> bytes:
    """Return the transition after so many records."""
    return encoded(transition_sent(_at(directory, at)))


def timed_transition_at(directory: str, at: int) -> tuple[bytes, float]:
    """Return the transition, and the seconds that it took here: those of starting the process are no part of it."""
    begin = time.monotonic()
    return transition_at(directory, at), time.monotonic() - begin


def state_at(directory: str, at: int) -> bytes:
    """Return the state after so many records."""
    return encoded(state_sent(_at(directory, at)))


def decisions_at(directory: str, at: int) -> bytes:
    """Return the decisions until then."""
    return encoded(decisions_sent(_at(directory, at)))


def chain_at(directory: str, at: int, name: str) -> bytes:
    """Return a chain as it was."""
    return encoded(chain_sent(_at(directory, at), name))


def machine_at(directory: str, at: int, last_s: float | None) -> bytes:
    """Return pipeline and silicon as they were."""
    return encoded(machine_sent(_at(directory, at), last_s))


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

    def warm(self) -> None:
        """Have the process started, which takes seconds, before somebody waits for it."""
        if self._pool is None and not self._closed:
            self._started().submit(os.getpid)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, mp_context=get_context("spawn"), initializer=_begin, initargs=(self._niceness,)
            )
        return self._pool

    async def _asked(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        if self._closed:
            raise BrokenExecutor("the page is closed")
        pool = self._started()
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
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


def _begin(niceness: int) -> None:
    """Make the process a polite one, that ends with its parent however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the server, which ends this one
    os.nice(niceness)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(0)
