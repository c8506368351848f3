"""The reweighted curves of a campaign, one for each volume that was measured: drawn in the report, and downloaded."""

import numpy as np

from metalforge.campaign.physics.curve import TransitionCurve, curve
from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState

__all__ = ["curves_of"]

POINTS = 201
"""Beta values of a curve."""


def curves_of(state: CampaignState) -> dict[Dims, TransitionCurve]:
    """Return <|L|>, chi and B4 against beta for every volume with measurements, over the betas that were measured."""
    found = {}
    for dims in state.spec.lattice.volumes:
        if points := state.points(dims):
            low, high = points[0].beta, points[-1].beta
            margin = 0.02 * (high - low)
            betas = np.linspace(low - margin, high + margin, POINTS)
            found[dims] = curve(points, betas, seed=state.spec.seed)
    return found
