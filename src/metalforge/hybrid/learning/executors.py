"""A planned graph as something that learns: the readout node of a `HybridExecutor`, with its features and its bias.

The executor keeps the float master of the node's weights and recovers from device failures by itself. It has no door
for a bias: what the bias learns is added here, on the host, where it is added anyway.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.ops import Concat, FanOutOp, FullyConnectedOp
from metalforge.hybrid.routing.jobs import LinearJob
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.reservoir.series import SeriesError
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.ladder import build_ladder

from .matrix import Push
from .network import DeviceNetwork, Forward, Master

__all__ = ["ExecutorReadout", "Trainable"]

Doubles: TypeAlias = NDArray[np.float64]


class ExecutorReadout:
    """What a trainer sees of one fully connected node, an output of the graph, that sees states and inputs only."""

    def __init__(self, executor: HybridExecutor, node: str = "readout") -> None:
        graph = executor.graph
        op = graph[node].op
        if not isinstance(op, FullyConnectedOp) or graph[node].outputs[0] not in graph.outputs:
            raise SpecError(f"`{node}` must be a fully connected node and an output of graph `{graph.name}`")
        if len(graph.inputs) != 1:
            raise SpecError(f"a graph that learns has one input. Got {', '.join(graph.inputs)}")
        self._executor, self._node, self._value = executor, node, graph[node].outputs[0]
        (self._input,) = graph.inputs
        planned = np.zeros(op.matrix.shape[0]) if op.bias is None else op.bias.astype(np.float64)
        self._planned, self._bias = planned, planned.copy()
        self._job = next((j for j in executor.plan.jobs if node in j.nodes and isinstance(j, LinearJob)), None)
        self._integers = None if self._job is None else self._quantised(executor.weights(node))

    @property
    def device(self) -> NpuDevice:
        """The executor's."""
        return self._executor.device

    @property
    def inputs(self) -> int:
        """Size of an input."""
        width = self._executor.graph.inputs[self._input][-1]
        assert width is not None
        return width

    def forward(self, u: ArrayLike) -> Forward:
        """Return the node's output for one input, and its features; the executor's state moves on."""
        given = np.asarray(u, np.float64)
        if given.shape != (self.inputs,):
            raise SeriesError(f"an input must be {self.inputs} real numbers. Got shape {given.shape}")
        made = self._executor.step(given)
        output = made[self._value] if isinstance(made, dict) else made
        features = self._features(self._executor.graph[self._node].inputs[0], given)
        return Forward(output.astype(np.float64) + (self._bias - self._planned), features)

    def master(self) -> Master:
        """Return the executor's weights and the bias."""
        return Master(self._executor.weights(self._node).astype(np.float64), self._bias.copy())

    def changed(self, w_out: Doubles) -> int:
        """Return how many integers of the device a push would change; none where the node is in software."""
        return 0 if self._integers is None else int(np.count_nonzero(self._quantised(w_out) != self._integers))

    def push(self, w_out: Doubles, out_bias: Doubles) -> Push:
        """Replace the executor's weights, which pushes them where a device holds them."""
        before = self._executor.statistics()
        changed = self.changed(w_out)
        self._executor.set_weights(self._node, w_out)
        self._bias = np.array(out_bias, np.float64)
        if self._integers is not None:
            self._integers = self._quantised(w_out)
        after = self._executor.statistics()
        return Push(changed, after.bytes_pushed - before.bytes_pushed, after.retries - before.retries)

    def verify(self) -> bool:
        """Return whether a program with the present integers of the node's job is on the device, by reading back.

        True where the node is in software.
        """
        return self._job is None or self._executor.holds(self._job)

    def restore(self) -> None:
        """Reset the device and put the executor's programs on it again, with the present weights."""
        self._executor.reconnect()

    def _features(self, value: str, u: Doubles) -> Doubles:
        """Return what a value of the graph was in the last call."""
        if value == self._input:
            return u
        made = self._executor.graph.producer(value)
        assert made is not None
        if made.op.stateful:
            return np.asarray(self._executor.state[made.name][0], np.float64)
        if isinstance(made.op, Concat | FanOutOp):
            return np.concatenate([self._features(part, u) for part in made.inputs])
        raise SpecError(
            f"the features of `{self._node}` come from `{made.name}` ({made.op.kind}), which keeps no state to read"
            "\nhint: a readout of states and inputs can learn here; use a Gradient op in the graph for others"
        )

    def _quantised(self, w_out: ArrayLike) -> NDArray[np.int64]:
        assert self._job is not None
        return build_ladder(np.asarray(w_out, np.float64), self._job.encoding, ranges=self._job.ranges).integers


Trainable: TypeAlias = DeviceNetwork | ExecutorReadout
"""Networks whose readout can be replaced while they run."""
