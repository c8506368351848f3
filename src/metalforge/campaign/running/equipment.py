"""What a campaign works with: one worker that reads the heads for all who ask, and the steerer of a volume."""

import time

from metalforge.campaign.spec import CampaignSpec, Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.steerers import find_steerer
from metalforge.campaign.store.records import EMULATED_NPU
from metalforge.conductor.steerer import ConductorSteerer
from metalforge.conductor.trust import mark_scores, trust_of
from metalforge.conductor.worker import Worker
from metalforge.core.closing import Closing
from metalforge.core.steering import Steerer

from .heads import Heads, context_of, neighbours_of, open_device, screens
from .watch import HeadWatch

__all__ = ["HeadReader", "steerer_of"]

DEADLINE_S = 1.0
"""That the worker has for an answer; the clock has no say in a deterministic campaign."""
CAPACITY = 100_000
"""Rows and questions that may wait for the worker before it is given up."""


class HeadReader(Closing):
    """The worker of a campaign, the device that its network runs on, and the lines that chains have to it."""

    def __init__(self, spec: CampaignSpec, heads: Heads) -> None:
        self.spec, self.heads = spec, heads
        self.device = open_device(spec)
        self._since = time.monotonic()
        self._conductor = heads.conductor(self.device)
        trust = trust_of(self._conductor.layout)
        mark_scores(trust, heads.scores, route=heads.route)
        limits = {} if spec.running.deterministic else {"deadline_s": DEADLINE_S, "capacity": CAPACITY}
        self.worker = Worker(self._conductor, trust=trust, **limits)  # type: ignore[arg-type]

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

    def watch(self, state: CampaignState, log: ChainLog) -> HeadWatch | None:
        """Return a chain's line to the worker; None where nobody would ask about it."""
        spec = self.spec
        sweeps = spec.lattice.algorithm != "hmc"
        if sweeps and not screens(spec):
            return None
        return HeadWatch(
            self.worker,
            log.id,
            context_of(spec, log.beta, log.dims),
            start=0.0 if log.start == "hot" else 1.0,
            meta=neighbours_of(state, log),
            tau=spec.lattice.tau,
            rule=self.heads.stop,
            every=spec.screening.every if sweeps else 1,
        )

    def close(self) -> None:
        """End the worker and give the device back."""
        self.worker.close()
        self._conductor.close()
        if self.device is not None:
            self.device.close()


def steerer_of(spec: CampaignSpec, dims: Dims, worker: Worker | None) -> Steerer:
    """Return what places the visits of one volume, as the spec names it."""
    scan = spec.scan(dims)

    def headed(steerer: Steerer) -> Steerer:
        low, high = scan.beta_min, scan.beta_max
        return ConductorSteerer(low, high, worker=worker, context=context_of(spec, low, dims), fallback=steerer)

    return find_steerer(spec.steering.steerer).make(scan._replace(headed=headed))
