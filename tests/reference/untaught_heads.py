"""An advisor that learned nothing: its outputs are zeros, so that nothing depends on what it says."""

from dataclasses import replace

import numpy as np

from metalforge.campaign.running.advice import PROFILE, on_device
from metalforge.conductor.advisor import ConductorAdvisor
from metalforge.conductor.features import SCHEMA
from metalforge.conductor.shipped import CONDUCTOR_11
from metalforge.conductor.standing import Heads
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.weights import Ranges
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.profiles import profile


def untaught_advisor(spec, directory, book):
    """Return it for a campaign on a lattice, for `open_advisor`."""
    weights = make_esn(16, len(SCHEMA), seed=1, dtype=np.float32, features=SCHEMA)
    blank = np.zeros((CONDUCTOR_11.width, weights.units + weights.inputs), np.float32)
    network = weights.with_readout(
        blank, np.zeros(CONDUCTOR_11.width, np.float32), passthrough=True, heads=CONDUCTOR_11
    )
    network = replace(network, ranges=Ranges(5.0, 1.0))
    heads = Heads(weights=network, scores={}, domain="nothing was learned")
    device = EmulatedDevice(profile(PROFILE)) if on_device(spec) else None
    return ConductorAdvisor(heads, lambda p: spec.theory.head_context(p.coordinate, p.system, p.start), device=device)
