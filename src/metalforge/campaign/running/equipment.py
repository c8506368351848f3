"""What a producer works with."""

from dataclasses import dataclass, field
from typing import Any

from metalforge.campaign.orderings import Checks
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.chain_files import ChainFiles
from metalforge.native import BatchEngine, Engine

from .monitor import Monitor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tools:
    """What a producer works with, whichever chain it runs."""

    spec: CampaignSpec
    files: ChainFiles
    monitor: Monitor
    engine: Engine
    checks: Checks = "none"
    scratch: dict[tuple[object, ...], Any] = field(default_factory=dict)
    """Room of the engine that looks at configurations need, by what it is for."""

    @property
    def wide(self) -> bool:
        """Whether the engine moves many chains at once."""
        return isinstance(self.engine, BatchEngine)
