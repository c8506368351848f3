"""Heads of a campaign that learned nothing: their outputs are zeros, so that nothing depends on what they say."""

from dataclasses import replace

import numpy as np

from metalforge.campaign.running.heads import Heads
from metalforge.conductor.features import SCHEMA
from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.trust import EarlyStop
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.weights import Ranges


def untaught_heads(spec):
    """Return them, whatever the spec, for `load_heads`."""
    weights = make_esn(16, len(SCHEMA), seed=1, dtype=np.float32, features=SCHEMA)
    blank = np.zeros((CONDUCTOR_11.width, weights.units + weights.inputs), np.float32)
    network = weights.with_readout(
        blank, np.zeros(CONDUCTOR_11.width, np.float32), passthrough=True, heads=CONDUCTOR_11
    )
    stop = EarlyStop(0.9, 3, 2.0)
    network = replace(network, ranges=Ranges(5.0, 1.0))
    return Heads(weights=network, scores=(), skill={}, trusted={}, unused={}, stop=stop, domain="nothing was learned")
