"""beta_c while a campaign runs: estimated after visits, but seldom for more than a small part of the time."""

import time
from collections.abc import Callable
from threading import Thread

from metalforge.campaign.findings import plan_of
from metalforge.campaign.physics.evidence import finding_of
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import Estimated
from metalforge.core.closing import Closing

from .book import Book

SHARE = 0.05
"""Part of the run time that estimates may take."""
GROWTH = 1.5
"""Factor by which the updates must have grown for an estimate whatever its share: where chains are fast, waiting for
the share would be most of the time, and there are few such estimates."""
REPLICAS = 60
"""Bootstrap replicas while it runs: errors to 9 %."""


class Estimator(Closing):
    """Writes an estimate for every volume with new measurements; then calls `after`, where it is given."""

    def __init__(
        self,
        spec: CampaignSpec,
        book: Book,
        after: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec, self._book, self._after, self._clock = spec, book, after, clock
        self._ended, self._cost, self._made = -1e9, 0.0, 0
        self._running = Thread()
        self._failed: BaseException | None = None

    def __call__(self) -> None:
        """Estimate if it is due, beside what else runs; a deterministic campaign estimates every time, and waits."""
        if self._spec.running.deterministic:
            self._estimate()
            return
        made = self._book.state.trajectories
        due = self._clock() - self._ended >= self._cost / SHARE or made >= GROWTH * self._made
        if due and not self._running.is_alive():
            self.close()
            self._made = made
            self._begin()

    def _begin(self) -> None:
        self._running = Thread(target=self._try, name="estimate", daemon=True)
        self._running.start()

    def close(self) -> None:
        """Wait for the estimate that is made, and raise what went wrong with it."""
        if self._running.ident is not None:
            self._running.join()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _try(self) -> None:
        try:
            self._estimate()
        except BaseException as error:  # raised by whoever waits for it
            self._failed = error

    def _estimate(self) -> None:
        began = self._clock()
        for dims in self._spec.lattice.volumes:
            with self._book.reading() as state:
                points = state.points(dims, complete=self._spec.running.deterministic)
                plan = plan_of(state, dims)
                used = sum(c.complete for c in state.chains.values())
                known = state.last_look(dims)
                trajectories = used if self._spec.running.deterministic else state.trajectories
            if not points or (known is not None and known.trajectories == trajectories):
                continue
            found = finding_of(points, plan, seed=self._spec.seed, n_bootstrap=REPLICAS)
            peak = found.transition
            self._book.write(
                Estimated(
                    dims=dims,
                    trajectories=trajectories,
                    beta_c=None if peak is None else peak.beta_c,
                    error=None if peak is None else peak.error,
                    height=None if peak is None else peak.height,
                    reason=found.reason,
                    effective=0.0 if peak is None else peak.n_effective,
                    width=0.0 if peak is None else peak.width,
                    established=found.established,
                    evidence=found.evidence,
                    wants=found.wants,
                    overlap=found.overlap,
                    crossings=found.crossings,
                )
            )
        if self._after is not None:
            self._after()
        self._ended = self._clock()
        self._cost = self._ended - began
