"""Estimates of the campaign's result while it runs: after visits, for a small share of the time, and at the end."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.theory import System
from metalforge.core import Closing

from .book import Book

SHARE = 0.05
"""Part of the run time that estimates may take."""
GROWTH = 1.5
"""Factor by which the updates must have grown for an estimate whatever its share: where chains are fast, waiting for
the share would be most of the time, and there are few such estimates."""


class Estimator(Closing):
    """Writes an estimate for every system with new measurements."""

    def __init__(
        self,
        spec: CampaignSpec,
        book: Book,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec, self._book, self._clock = spec, book, clock
        self._ended, self._cost, self._made = -1e9, 0.0, 0
        self._thread = ThreadPoolExecutor(1, "estimate")
        self._running: Future[None] | None = None

    def __call__(self) -> None:
        """Estimate if it is due, beside what else runs; a deterministic campaign estimates every time, and waits."""
        if self._spec.running.deterministic:
            self._estimate()
            return
        made = self._book.state.trajectories
        due = self._clock() - self._ended >= self._cost / SHARE or made >= GROWTH * self._made
        if due and (self._running is None or self._running.done()):
            self._wait()
            self._made = made
            self._running = self._thread.submit(self._estimate)

    def now(self) -> None:
        """Estimate from everything that was measured, and wait for it."""
        self._wait()
        self._estimate()

    def _wait(self) -> None:
        """Wait for the estimate that is made, and raise what went wrong with it."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """End, after the estimate that is made."""
        with self._thread:
            self._wait()

    def _estimate(self) -> None:
        began = self._clock()
        write_estimates(self._book)
        self._ended = self._clock()
        self._cost = self._ended - began


def write_estimates(book: Book) -> None:
    """Write an estimate for every system that has been updated since its last one."""
    for system in book.state.spec.theory.systems:
        _write_estimate(book, system)


def _write_estimate(book: Book, system: System) -> None:
    """Write an estimate of a system unless nothing has changed since the last one."""
    with book.reading() as state:
        complete = state.spec.running.deterministic
        made = sum(c.complete for c in state.chains.values()) if complete else state.trajectories
        known = state.last_look(system)
        if known is not None and known.trajectories == made:
            return
        estimate = state.spec.theory.analysis.estimator(state, system)
    if estimate is not None:
        book.write(estimate(made))
