"""Where a network should run on this machine: the plan decides, and a board must be there to be chosen.

An emulated NPU is never chosen by itself: it computes on the CPU and saves nothing. Give a `device` to use one.
"""

from typing import NamedTuple

import numpy as np

from metalforge.core.arrays import Reals
from metalforge.core.substrate import SubstrateInfo
from metalforge.hybrid.model.graph import graph_from_esn
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu import discover
from metalforge.substrates.npu.device import NpuDevice

from .network import HybridEsn


class Selection(NamedTuple):
    """A network on the substrate that was chosen, and why."""

    esn: HybridEsn
    substrate: str
    reason: str


def select_substrate(
    weights: EsnWeights,
    *,
    router: OperationRouter | None = None,
    device: NpuDevice | None = None,
    calibration: Reals | None = None,
) -> Selection:
    """Return a network on the substrate where it should run, by a router's objective and device profile.

    `device` is an NPU at hand; without one the machine is searched, and a board that is found is opened by the vendor's
    package. `calibration` is data to measure ranges on.
    """
    software = HybridEsn.from_weights(weights, calibration=calibration)
    board = None if device is not None else _board()
    if device is None and board is None:
        return Selection(software, "software", "no NPU on this machine; its emulation would save nothing")
    examples = None if calibration is None else {"input": np.reshape(calibration, (-1, weights.inputs))}
    plan = (router or OperationRouter()).plan(graph_from_esn(weights), calibration=examples)
    step = plan["reservoir"]
    if step.substrate == "software":
        return Selection(software, "software", step.reason)
    chosen = device if device is not None else _open_board()
    name = "npu" if board is None else board.name
    return Selection(software.with_hardware_linear(chosen, precision=step.encoding), name, step.reason)


def _board() -> SubstrateInfo | None:
    """Return the first physical NPU that the system shows."""
    found = (substrate.info for substrate in discover().substrates)
    return next((info for info in found if not info.properties.get("emulated", True)), None)


def _open_board() -> NpuDevice:
    from metalforge.substrates.npu.akida_ import AkidaDevice  # the vendor's package, only where a board is

    return AkidaDevice()
