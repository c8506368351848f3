"""What a campaign works with: workers that read the heads for all who ask, and the steerer of a volume."""

import time
from collections import deque
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from metalforge.campaign.orderings import Checks
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import ChainLog
from metalforge.campaign.steerers import find_steerer
from metalforge.campaign.store.chain_files import ChainFiles
from metalforge.campaign.store.records import EMULATED_NPU
from metalforge.campaign.theory import System
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.trust import JudgedPair, mark_scores, trust_of
from metalforge.conductor.worker import Worker
from metalforge.core.closing import Closing
from metalforge.core.quantities import Modelled, Quantity
from metalforge.core.steering import Steerer
from metalforge.native.engine import BatchEngine, Engine

from .heads import Heads, context_of, open_device, screens
from .monitor import Monitor
from .orders import Block
from .watch import HeadWatch

DEADLINE_S = 1.0
"""That the worker has for an answer; the clock has no say in a deterministic campaign."""
CAPACITY = 100_000
"""Rows and questions that may wait for the worker before it is given up."""


class Lines:
    """What a producer has of the heads."""

    def watch(self, known: ChainLog) -> HeadWatch | None:
        """Return a chain's line to a worker; None where nobody would ask about it."""
        return None

    def judged(self) -> list[JudgedPair]:
        """Return what was judged here since the last call and is not known elsewhere."""
        return []

    def alarm(self) -> float | None:
        """Return the probability from which the anomaly head flags a block; None where its word is not taken."""
        return None

    def leave(self) -> None:
        """Say that this producer has no more questions."""


NOBODY = Lines()
"""Nobody reads heads."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tools:
    """What a producer works with, whichever chain it runs."""

    spec: CampaignSpec
    files: ChainFiles
    monitor: Monitor
    engine: Engine
    lines: Lines = NOBODY
    checks: Checks = "none"
    scratch: dict[tuple[object, ...], Any] = field(default_factory=dict)
    """Room of the engine that looks at configurations need, by what it is for."""

    @property
    def wide(self) -> bool:
        """Whether the engine moves many chains at once."""
        return isinstance(self.engine, BatchEngine)


class Charge(NamedTuple):
    """What a device was charged with; None where there is none."""

    busy: Quantity | None = None
    energy: Quantity | None = None


class HeadReader(Lines, Closing):
    """The worker of a campaign, the device that its network runs on, and the lines that chains have to it."""

    def __init__(self, spec: CampaignSpec, heads: Heads) -> None:
        self.spec, self.heads = spec, heads
        self.device = open_device(spec)
        self._told: dict[str, HeadWatch] = {}
        self._since = time.monotonic()
        self._conductor = heads.conductor(self.device)
        limits = {} if spec.running.deterministic else {"deadline_s": DEADLINE_S, "capacity": CAPACITY}
        self.worker = _worker(heads, self._conductor, **limits)

    @property
    def substrate(self) -> str:
        """Where the network runs, for the books."""
        return "host" if self.device is None else EMULATED_NPU

    @property
    def held_s(self) -> float:
        """Seconds that the device has been held."""
        return time.monotonic() - self._since

    @property
    def emulation_s(self) -> float:
        """Processor time that the device's emulation took here: no board would have spent it."""
        return 0.0 if self.device is None else self._conductor.processor_s

    def charge(self, chain: str) -> Charge:
        """Return what reading a chain has cost the device since this was last asked."""
        if self.device is None:
            return Charge()
        (seconds, joules), profile = self._conductor.take_spent(chain), self.device.profile.name
        busy = Modelled(value=seconds, unit="s", profile=profile)
        return Charge(busy, Modelled(value=joules, unit="J", profile=profile))

    def watch(self, known: ChainLog) -> HeadWatch | None:
        """Return a chain's line to the worker; None where nobody would ask about it."""
        return _watch(self.spec, self.heads, self.worker, known)

    def alarm(self) -> float | None:
        """Return the probability from which the anomaly head flags a block; None where its word is not taken."""
        return self.heads.alarm_now

    def hear(self, block: Block, known: ChainLog) -> None:
        """Take rows and judgements of a producer that reads the heads in a process of its own; `known` lacks them."""
        for judged in block.judged:
            self.worker.trust.take(judged)
        if block.took and (watch := _watch(self.spec, self.heads, self.worker, known, listens=False)) is not None:
            watch.begin(known.segments())
            self._told[block.chain] = watch
        if (told := self._told.get(block.chain)) is None:
            return
        for segment in block.segments:
            told.push_rows(segment.phase, segment.columns)

    def close(self) -> None:
        """End the worker and give the device back, also where one of them fails."""
        with nullcontext() if self.device is None else closing(self.device), closing(self._conductor):
            self.worker.close()


class OwnReader(Lines):
    """Lines for a producer in a process of its own: its worker is there and has no device.

    It judges heads by its own chains; the judgements go to the campaign's worker with the blocks.
    """

    def __init__(self, spec: CampaignSpec, heads: Heads) -> None:
        self._spec, self._heads = spec, heads
        self._worker: Worker | None = None
        self._judged: deque[JudgedPair] = deque()

    def watch(self, known: ChainLog) -> HeadWatch | None:
        """Return a chain's line to the worker of this process."""
        if self._worker is None:
            self._worker = _worker(self._heads, self._heads.conductor(), threaded=False)
            self._worker.trust.heard = self._judged.append
        return _watch(self._spec, self._heads, self._worker, known)

    def alarm(self) -> float | None:
        """Return the probability from which the anomaly head flags a block; None where its word is not taken."""
        return self._heads.alarm_now

    def judged(self) -> list[JudgedPair]:
        """Return what was judged since the last call, whoever's chains it was about."""
        return [self._judged.popleft() for _ in range(len(self._judged))]

    def leave(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()


def _worker(heads: Heads, conductor: NetworkConductor, **options: Any) -> Worker:
    """Return a worker that trusts heads by what they are worth where the network runs."""
    trust = trust_of(conductor.layout)
    mark_scores(trust, heads.scores, route=heads.route)
    return Worker(conductor, trust=trust, **options)


def _watch(
    spec: CampaignSpec, heads: Heads, worker: Worker, known: ChainLog, *, listens: bool = True
) -> HeadWatch | None:
    """Return a chain's line to a worker; where its warm-up is ended elsewhere nobody `listens`."""
    if heads.domain is not None and not screens(spec):
        return None
    if (context := context_of(spec, known.coordinate, known.system, known.start)) is None:
        return None
    return spec.theory.watch(worker, known.id, context, heads.stop if listens else None)


def steerer_of(spec: CampaignSpec, system: System) -> Steerer:
    """Return what places the visits of one volume, as the spec names it."""
    return find_steerer(spec.steering.steerer).make(spec.scan(system))
