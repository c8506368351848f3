"""What a campaign measured as CSV files, for other programs: every row of every chain, and the reweighted curves.

Numbers are written with all their digits and read back as the same bits.
"""

import csv
import io
from collections.abc import Mapping
from itertools import repeat
from typing import BinaryIO

import numpy as np

from metalforge.campaign.analysis.curve import TransitionCurve, curve
from metalforge.campaign.state import CampaignState
from metalforge.campaign.theory import Dims

from .words import system_name

ROWS, CURVES = "rows.csv", "curves.csv"
CURVE_COLUMNS = ("beta", "segment", "order", "order_error", "chi", "chi_error", "b4", "b4_error")
POINTS = 201
"""Beta values of a curve."""


def curves_of(state: CampaignState) -> dict[Dims, TransitionCurve]:
    """Return the order parameter, chi and B4 along the coordinate where each system was measured."""
    found: dict[Dims, TransitionCurve] = {}
    for dims in state.spec.theory.systems:
        if points := state.points(dims):
            low, high = points[0].beta, points[-1].beta
            margin = 0.02 * (high - low)
            betas = np.linspace(low - margin, high + margin, POINTS)
            found[dims] = curve(points, betas, seed=state.spec.seed)
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
        about = (chain.id, system_name(chain.dims), chain.beta, chain.start)
        for update, (phase, *values) in enumerate(zip(chain.phases, *columns, strict=False)):
            writer.writerow([*about, update, phase, *values])
    text.detach()


def curves_csv(curves: Mapping[Dims, TransitionCurve]) -> str:
    """Return the curves of all volumes with their errors; no line is drawn from one `segment` to the next.

    `order` is the order parameter.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["system", "coordinate", *CURVE_COLUMNS[1:]])
    for dims, found in curves.items():
        for values in zip(*(getattr(found, name) for name in CURVE_COLUMNS), strict=True):
            writer.writerow([system_name(dims), *values])
    return text.getvalue()
