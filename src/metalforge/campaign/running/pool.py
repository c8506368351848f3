"""The chains of a campaign in memory and on disk: one producer at a time takes each, and files move them."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.store.records import Decided, Migrated
from metalforge.core.errors import MetalforgeError, SpecError
from metalforge.native.engine import Engine

from .book import Book
from .monitor import Monitor
from .point import PointChain
from .watch import HeadWatch

__all__ = ["ChainPool"]

SHARE = 0.05
"""Part of a chain's run time that its checkpoints may cost."""

MakeWatch = Callable[[CampaignState, ChainLog], HeadWatch | None]
"""A watch for a chain of a campaign."""


class ChainPool:
    """Gives out chains by id, each to one substrate at a time."""

    def __init__(
        self,
        directory: Path,
        spec: CampaignSpec,
        book: Book,
        *,
        monitor: Monitor,
        make_watch: MakeWatch,
        engine: Engine,
    ) -> None:
        self.directory = directory / "chains"
        self._spec, self._book, self._monitor, self._make_watch = spec, book, monitor, make_watch
        self._engine = engine
        self._chains: dict[str, PointChain] = {}
        self._at: dict[str, str] = {}
        self._saved: dict[str, tuple[float, float]] = {}
        """When each chain was saved last, and how long that took."""
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def path(self, chain: str) -> Path:
        """Return where a chain is kept."""
        return self.directory / f"{chain}.h5"

    def take(self, chain: str, substrate: str) -> PointChain:
        """Return a chain, from memory, from its checkpoint, or new; one that is on another substrate moves by file."""
        with self._lock:
            lock = self._locks.setdefault(chain, threading.Lock())
        with lock:
            held = self._at.get(chain)
            if held is not None and held != substrate:
                self._migrate(chain, held, substrate)
            if chain not in self._chains:
                self._chains[chain] = self._open(chain)
                self._saved.setdefault(chain, (time.monotonic(), 0.0))
            self._at[chain] = substrate
            return self._chains[chain]

    def keep(self, chain: str) -> None:
        """Write a checkpoint if it is due: no more often than asked for, and no more than `SHARE` of the time."""
        saved, cost = self._saved[chain]
        since = time.monotonic() - saved
        if since >= max(self._spec.running.checkpoint_s, cost / SHARE):
            self.save(chain)

    def save(self, chain: str) -> None:
        """Write a checkpoint now."""
        self.directory.mkdir(exist_ok=True)
        began = time.monotonic()
        self._book.journal.sync()
        self._chains[chain].save(self.path(chain))
        ended = time.monotonic()
        self._saved[chain] = (ended, ended - began)

    def save_all(self) -> None:
        """Write all chains that are in memory."""
        for chain in sorted(self._chains):
            self.save(chain)

    def _migrate(self, chain: str, source: str, target: str) -> None:
        self.save(chain)
        step = self._chains.pop(chain).rows
        self._book.write(Migrated(at=self._book.clock(), chain=chain, step=step, source=source, target=target))

    def _open(self, chain: str) -> PointChain:
        with self._book.reading() as state:
            log = state.chains[chain]
            watch = self._make_watch(state, log)
            path = self.path(chain)
            try:
                return PointChain(
                    log,
                    self._spec,
                    monitor=self._monitor,
                    decide=self._decide,
                    now=self._book.clock,
                    watch=watch,
                    checkpoint=path,
                    engine=self._engine,
                    exact={f"cpu:{isa}" for isa in state.build_levels} <= {self._engine.name},
                )
            except MetalforgeError as error:
                if path.exists():
                    raise SpecError(
                        f"chain {chain} cannot go on from its checkpoint: {error}\n"
                        f"hint: remove {path} to compute the chain again from its start, bit for bit"
                    ) from error
                raise

    def _decide(self, decision: Decided) -> None:
        self._book.write(decision)
