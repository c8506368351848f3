"""What chunks cost in a step, modelled: the device's calls and reloads from its profile, the host's share by roofline.

Reloads are counted by going through the programs on paper, in the order in which the network will call them.
"""

from collections.abc import Sequence

import numpy as np

from metalforge.core.substrate import Cost
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu import costs
from metalforge.substrates.npu.device import image_bytes
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.program import Encoding
from metalforge.substrates.npu.residency import DevicePrograms
from metalforge.substrates.prices import HOST_STEPS, HostModel
from metalforge.substrates.profiles import DeviceProfile

from .plan import Chunk, Swaps

__all__ = ["host_share", "software_bytes", "software_cost", "swap_cost"]


def swap_cost(chip: DeviceProfile, chunks: Sequence[Chunk]) -> Swaps:
    """Return what a step loads again where the chunks' programs do not fit side by side."""
    programs = {f"{c.name}/{p.name}": p for c in chunks if c.compiled for p in c.compiled.programs}
    if not programs:
        return Swaps(reloads=0.0, bytes=0.0, cost=Cost())
    tenants = DevicePrograms(EmulatedDevice(chip), by_turns=True)
    forwards = [tenants.add(name, program) for name, program in programs.items()]
    before, sent = 0, 0
    for _ in range(2):  # the first time the order of the turns settles; the second counts
        before, sent = tenants.reloads, tenants.reloaded_bytes
        for name in [*forwards, *reversed(forwards)]:
            tenants.bring(name)
    reloads, moved = (tenants.reloads - before) / 2, (tenants.reloaded_bytes - sent) / 2
    everything = Cost.total(costs.load_cost(program, chip) for program in programs.values())
    share = moved / sum(map(image_bytes, programs.values()))
    return Swaps(reloads=reloads, bytes=moved, cost=everything * share)


def software_bytes(weights: EsnWeights, rows: range) -> int:
    """Return the bytes of some rows' weights, in full."""
    return len(rows) * (weights.units + weights.inputs + weights.feedback + 1) * weights.dtype.itemsize


def software_cost(weights: EsnWeights, rows: range, batch: int, model: HostModel) -> Cost:
    """Price the product of some rows on the host; a sparse matrix costs what a full one does at most."""
    flops = 2.0 * batch * len(rows) * (weights.units + weights.inputs + weights.feedback)
    return model.call(flops, software_bytes(weights, rows), "f32" if weights.dtype == np.float32 else "f64")


def host_share(
    weights: EsnWeights, chunks: Sequence[Chunk], encoding: Encoding, batch: int, model: HostModel, *, w_in: bool
) -> Cost:
    """Price what the host does for chunks on the device: encode lines, join potentials, activate, W_in if it is his."""
    programs = [program for chunk in chunks if chunk.compiled for program in chunk.compiled.programs]
    numbers = sum(p.inputs + p.layers[-1].units for p in programs) * encoding.activation_bits // 4
    numbers += weights.units * (1 + weights.inputs * w_in)
    return model.call(HOST_STEPS * batch * numbers, 8.0 * batch * numbers, "f64")
