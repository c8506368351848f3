r"""A readout on the chip whose rounding is made good on average, by the bias that the host adds.

    y = W_q x + b + (W - W_q) m        W_q the rounded weights, m the mean of the features

Reservoirs that do well have states near a constant, their bias, and large weights that take the difference. A rounding
error times that constant is an offset far larger than its effect on what varies; the host knows both, and takes it off.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.hybrid.learning import DeviceNetwork, Master
from metalforge.hybrid.learning.matrix import Push
from metalforge.hybrid.learning.network import Forward
from metalforge.substrates.npu.device import NpuDevice

__all__ = ["CentredReadout"]

Doubles: TypeAlias = NDArray[np.float64]


class CentredReadout:
    """A `Trainable`: a `DeviceNetwork` with this correction; `mean` is that of its features (width,)."""

    def __init__(self, network: DeviceNetwork, mean: NDArray[np.floating[Any]]) -> None:
        self.network = network
        self._mean = np.asarray(mean, np.float64)
        self._offset = self._rounding()

    @property
    def device(self) -> NpuDevice:
        """Where it runs."""
        return self.network.device

    @property
    def inputs(self) -> int:
        """Size of an input."""
        return self.network.inputs

    def forward(self, u: ArrayLike) -> Forward:
        """Return the output for one input and the features that the readout saw; the state moves on."""
        said = self.network.forward(u)
        return Forward(said.output + self._offset, said.features)

    def read(self, features: Doubles) -> Doubles:
        """Return outputs (rows, outputs) of features (rows, width)."""
        return np.asarray(self.network.read(features) + self._offset)

    def master(self) -> Master:
        """Return a copy of the float readout that was pushed last."""
        return self.network.master()

    def changed(self, w_out: Doubles) -> int:
        """Return how many integers of the device a push would change."""
        return self.network.changed(w_out)

    def push(self, w_out: Doubles, out_bias: Doubles) -> Push:
        """Give the device another readout, and the host its correction."""
        push = self.network.push(w_out, out_bias)
        self._offset = self._rounding()
        return push

    def verify(self) -> bool:
        """Return whether the device holds what was pushed last."""
        return self.network.verify()

    def restore(self) -> None:
        """Put what was pushed last on the device again."""
        self.network.restore()

    def _rounding(self) -> Doubles:
        return np.asarray((self.network.master().w_out - self.network.readout.real()) @ self._mean)
