"""A conductor over trained weights: one state a chain, readings with their spread, in software or on a device.

Frames come in blocks and step the chain's state; `read` steps a copy of it, so a trajectory that is half way can be
asked about. The state of a chain is the network's only memory of it: with more open chains than
`chains`, a new one is refused rather than an old one begun again from rest without a word.
"""

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.arrays import Doubles, Reals
from metalforge.core.closing import Closing
from metalforge.core.errors import SpecError, require_at_least
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.files import expect_features
from metalforge.reservoir.heads import HeadValues
from metalforge.reservoir.weights import EsnWeights

from .features import SCHEMA
from .program import ConductorProgram

if TYPE_CHECKING:  # readings in software load nothing of a device
    from metalforge.substrates.npu.device import NpuDevice


class _Step(NamedTuple):
    """What frames gave, from a chain's state, and the state after them."""

    frames: Doubles
    said: HeadValues
    state: NDArray[Any]


class NetworkConductor(Closing):
    """The `Conductor` of the worker. For one thread.

    Parameters
    ----------
    weights
        Of `python -m experiments heads train`; made for the features of `features.SCHEMA`.
    device
        Where the products run: None is software.
    precision, calibration
        Of the device: see `ConductorProgram.run_on`. By default the ranges are those in the weights' file; weights
        without any are refused on a device, for inputs would be clamped and readings be wrong without a word.
    spreads
        Noise by head, in the head's own unit: its error on couplings left out (`HeadFit.noise`). Heads without one
        have no spread.
    chains
        The most chains that are open at once.
    """

    def __init__(
        self,
        weights: EsnWeights,
        *,
        device: "NpuDevice | None" = None,
        precision: str = "W8A8",
        calibration: ArrayLike | None = None,
        spreads: Mapping[str, float] | None = None,
        chains: int = 1000,
    ) -> None:
        require_at_least(1, chains=chains)
        expect_features(weights, SCHEMA)
        program = ConductorProgram(weights=weights)
        self.layout: HeadLayout = program.heads
        self.spreads = _checked_spreads(program.heads, spreads or {})
        self._run = program.run_on(device, precision=precision, calibration=calibration)
        self._rest = np.zeros(weights.units, weights.dtype)
        self._limit = chains
        self._chains: dict[str, NDArray[Any]] = {}
        self._ahead: dict[str, _Step] = {}
        """By chain, the last step that was read and not taken."""
        self.processor_s = 0.0
        """Processor time of all passes: on an emulated device, what its emulation took."""
        self._ledger = getattr(device, "ledger", None)  # of an emulated device
        self._lock = threading.Lock()
        self._charged: dict[str, tuple[float, float]] = {}
        """Device seconds and joules by chain, of passes that nobody asked about yet."""

    @property
    def chains(self) -> tuple[str, ...]:
        """The open chains, oldest first."""
        return tuple(self._chains)

    def read(self, chain: str, frame: Doubles) -> HeadValues:
        """Return every head one step on from a chain's state, as if this frame (features,) came next."""
        self._ahead[chain] = self._step(chain, np.asarray(frame)[None])
        said = self._ahead[chain].said
        return said.at(0)

    def observe(self, chain: str, frames: Doubles) -> HeadValues:
        """Return every head after each of a chain's next frames (frames, features), which its state takes up."""
        if chain not in self._chains and len(self._chains) >= self._limit:
            raise SpecError(
                f"{self._limit} chains are open and `{chain}` would be one more"
                "\nhint: end those that are finished, or raise `chains`"
            )
        step = self._ahead.pop(chain, None)
        # At the end of a trajectory the frame is often the one that was read at a quarter of it.
        if step is None or not np.array_equal(step.frames, frames):
            step = self._step(chain, frames)
        self._chains[chain] = step.state
        return step.said

    def end(self, chain: str) -> None:
        """Forget a chain."""
        self._chains.pop(chain, None)
        self._ahead.pop(chain, None)
        self._charged.pop(chain, None)

    def take_spent(self, chain: str) -> tuple[float, float]:
        """Return the device's seconds and joules for a chain since this was last asked; from any thread."""
        with self._lock:
            return self._charged.pop(chain, (0.0, 0.0))

    def rewrite(self, w_out: Reals, out_bias: Reals) -> int:
        """Read by another readout from now on; return the bytes that went to the device. States stay."""
        self._ahead.clear()
        return self._run.rewrite(w_out, out_bias)

    def close(self) -> None:
        """Take the programs off the device."""
        self._run.close()

    def _step(self, chain: str, frames: Doubles) -> _Step:
        began = time.thread_time()
        self._run.state = self._chains.get(chain, self._rest)
        before = None if self._ledger is None else self._ledger.spent()
        said = self._run.through(frames)
        if self._ledger is not None and before is not None:
            (seconds, joules), now = before, self._ledger.spent()
            with self._lock:
                busy, energy = self._charged.get(chain, (0.0, 0.0))
                self._charged[chain] = busy + now[0] - seconds, energy + now[1] - joules
        self.processor_s += time.thread_time() - began
        return _Step(frames, said, self._run.state)


def _checked_spreads(layout: HeadLayout, spreads: Mapping[str, float]) -> dict[str, float]:
    found = {}
    for name, value in spreads.items():
        _ = layout[name]  # refuses a name that no head has
        if value < 0:
            raise SpecError(f"the spread of head `{name}` must be at least 0. Got {value}")
        if not np.isnan(value):  # a fit that is not known, as of weights from a plain file
            found[name] = float(value)
    return found
