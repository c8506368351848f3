"""The last rows of a stream, and what a network says of them: fitness is measured on these."""

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.reservoir.series import SeriesError

from .network import DeviceNetwork

__all__ = ["StreamWindow", "Window"]

Doubles: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Rows of a stream: inputs (rows, inputs), the features that they made, targets, and the state before the first."""

    inputs: Doubles
    features: Doubles
    targets: Doubles
    state: Doubles

    def __post_init__(self) -> None:
        rows = {len(self.inputs), len(self.features), len(self.targets)}
        if len(rows) != 1 or rows == {0}:
            raise SeriesError("a window has as many inputs, features and targets, and one row at least")
        for part in (self.inputs, self.features, self.targets):
            if not np.all(np.isfinite(part)):
                raise SeriesError("a window must hold finite numbers. Got NaN or infinity")

    def outputs(self, network: DeviceNetwork, *, rerun: bool = False) -> Doubles:
        """Return what a device says of the rows: its readout of these features, or all of it again from the state.

        Running again leaves the network's own state as it is.
        """
        if not rerun:
            return network.read(self.features)
        kept = network.state
        try:
            network.state = self.state.astype(network.weights.dtype)
            features = np.stack([network.advance(u) for u in self.inputs])
        finally:
            network.state = kept
        return network.read(features)


class StreamWindow:
    """Keeps the last `rows` of a stream that runs through a network."""

    def __init__(self, network: DeviceNetwork, rows: int) -> None:
        if rows < 1:
            raise SpecError(f"`rows` must be at least 1. Got {rows}")
        if network.weights.w_fb is not None:
            raise SpecError("a window asks a readout of rows that are past: with output feedback they would be others")
        self._network = network
        self._rows: deque[tuple[Doubles, Doubles, Doubles, Doubles]] = deque(maxlen=rows)

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, u: NDArray[np.floating], target: NDArray[np.floating]) -> Doubles:
        """Let one row run through the reservoir, keep it, and return its features."""
        before = self._network.state.astype(np.float64)
        features = self._network.advance(u)
        self._rows.append((np.asarray(u, np.float64), features, np.asarray(target, np.float64), before))
        return features

    def window(self) -> Window:
        """Return the rows that are kept."""
        inputs, features, targets, states = zip(*self._rows, strict=True)
        return Window(inputs=np.stack(inputs), features=np.stack(features), targets=np.stack(targets), state=states[0])
