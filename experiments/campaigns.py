"""Campaigns of studies: run in a folder that is thrown away, and held against the others of their case."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.directory import JOURNAL
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Record
from metalforge.reservoir.metrics import wilson

from .protocol import Cell, Figure

Doubles = NDArray[np.float64]
FAR = 4.0
"""Pulls beyond this are called wrong: a Gaussian gives 1 in 16,000."""


def run_campaign(spec: CampaignSpec) -> tuple[CampaignState, Sequence[Record]]:
    """Run a campaign of its own chains to its end; return its state and its journal."""
    with TemporaryDirectory() as folder:
        with Campaign.open(spec, Path(folder)) as campaign:
            state = campaign.run()
        return state, read_journal(Path(folder) / JOURNAL)


class Pulls(NamedTuple):
    """How far results of campaigns are from the truth: in errors of both, and as they are."""

    in_errors: Doubles
    off: Doubles

    @classmethod
    def among(cls, value: Doubles, error: Doubles) -> "Pulls":
        """Hold each value against the mean of the others by their errors; there are none of too few."""
        if value.size < 3:
            return cls(np.empty(0), np.empty(0))
        weight = error**-2.0
        others = weight.sum() - weight
        off = value - ((weight * value).sum() - weight * value) / others
        return cls(off / np.sqrt(error**2 + 1 / others), off)


def far_off(pulls: Doubles) -> int:
    """Return how many pulls are beyond `FAR`."""
    return int(np.sum(np.abs(pulls) > FAR))


def share_within(pulls: Doubles, errors: float) -> Cell:
    """Return the share of pulls below so many errors."""
    return Figure.of(wilson(int(np.sum(np.abs(pulls) < errors)), pulls.size), ".2f") if pulls.size else "-"
