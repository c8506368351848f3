"""What a campaign measured as CSV files, for other programs: every row of every chain, and the reweighted curves.

Numbers are written with all their digits and read back as the same bits.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import repeat
from math import inf
from typing import BinaryIO

import numpy as np

from metalforge.campaign.analysis.curve import TransitionCurve, curve
from metalforge.campaign.state import CampaignState
from metalforge.campaign.theory import System

from .words import system_name

ROWS, CURVES = "rows.csv", "curves.csv"
POINTS = 201
"""Values of the coordinate on a curve."""


def curves_of(state: CampaignState) -> dict[System, TransitionCurve]:
    """Return the order parameter, chi and B4 along the coordinate where each system was measured."""
    found: dict[System, TransitionCurve] = {}
    for system in state.spec.theory.systems:
        if points := state.points(system):
            low, high = points[0].coordinate, points[-1].coordinate
            margin = 0.02 * (high - low)
            coordinates = np.linspace(low - margin, high + margin, POINTS)
            found[system] = curve(points, coordinates, seed=state.spec.seed, largest_pull=inf)
    return found


def write_rows(state: CampaignState, stream: BinaryIO) -> None:
    """Write every update of every chain, warm-up too: chain, system, coordinate, start, update, phase, columns.

    `update` counts from 0, as in the journal. A column that a chain does not have is empty.
    """
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    names = list(dict.fromkeys(name for chain in state.chains.values() for name in chain.columns))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["chain", "system", "coordinate", "start", "update", "phase", *names])
    for chain in state.chains.values():
        columns = [chain.columns.get(name, repeat(None)) for name in names]
        about = (chain.id, system_name(chain.system), chain.coordinate, chain.start)
        for update, (phase, *values) in enumerate(zip(chain.phases, *columns, strict=False)):
            writer.writerow([*about, update, phase, *values])
    text.detach()


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()
