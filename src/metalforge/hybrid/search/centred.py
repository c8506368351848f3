r"""A readout on the chip whose rounding is made good on average, by the bias that the host adds.

    y = W_q x + b + (W - W_q) m        W_q the rounded weights, m the mean of the features

Reservoirs that do well have states near a constant, their bias, and large weights that take the difference. A rounding
error times that constant is an offset far larger than its effect on what varies; the host knows both, and takes it off.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.hybrid.learning import DeviceNetwork
from metalforge.hybrid.learning.matrix import Push
from metalforge.hybrid.learning.network import Forward
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.device import NpuDevice

__all__ = ["CentredReadout"]

Doubles: TypeAlias = NDArray[np.float64]


class CentredReadout(DeviceNetwork):
    """A `DeviceNetwork` with this correction, made with the same options; `mean` is that of its features (width,)."""

    def __init__(self, weights: EsnWeights, device: NpuDevice, mean: NDArray[np.floating[Any]], **options: Any) -> None:
        super().__init__(weights, device, **options)
        self._mean = np.asarray(mean, np.float64)
        self._offset = self._rounding()

    def forward(self, u: ArrayLike) -> Forward:
        """Return the output for one input and the features that the readout saw; the state moves on."""
        said = super().forward(u)
        return Forward(said.output + self._offset, said.features)

    def read(self, features: Doubles) -> Doubles:
        """Return outputs (rows, outputs) of features (rows, width)."""
        return np.asarray(super().read(features) + self._offset)

    def push(self, w_out: Doubles, out_bias: Doubles) -> Push:
        """Give the device another readout, and the host its correction."""
        push = super().push(w_out, out_bias)
        self._offset = self._rounding()
        return push

    def _rounding(self) -> Doubles:
        return np.asarray((self.master().w_out - self.readout.real()) @ self._mean)
