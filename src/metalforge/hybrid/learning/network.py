r"""A reservoir and its readout on one NPU, both writable while they run: inputs go in, outputs and features come out.

    pre = [W_in | W_res] [u; s]         on the chip (W_in on the host where joint scales would waste its levels)
    s'  = (1 - a) s + a f(pre + b)      on the host (`HybridEsn`)
    y   = W_out [s'; u] + b_out         W_out on the chip as 1 to 3 int4 digits, b_out on the host

A readout of one digit breaks regression (NARMA10: NRMSE 1.2 against 0.44), two or three mend it. Output feedback comes
in beside the input, as in FORCE: what the device said is what is fed back.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import Doubles, Reals, SpecError, require_one_of
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import DevicePath, RowBlock, device_lines, input_place
from metalforge.hybrid.model.ops import Concat, FanOutOp, FullyConnectedOp
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.hybrid.routing.jobs import LinearJob
from metalforge.hybrid.running.device_matrix import DeviceGuard, Push
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.reservoir import EsnWeights, SeriesError
from metalforge.substrates import DevicePrograms, NpuDevice, Spent, build_ladder, group_ranges

from .matrix import WrittenMatrix

OnGone: TypeAlias = Literal["reconnect", "raise"]
T = TypeVar("T")


class Master(NamedTuple):
    """A float readout: `w_out` (outputs, width), `out_bias` (outputs,)."""

    w_out: Doubles
    out_bias: Doubles

    def __call__(self, features: Doubles) -> Doubles:
        """Return outputs (..., outputs) for features (..., width), in floats."""
        return np.asarray(features @ self.w_out.T + self.out_bias)


def master_of(weights: EsnWeights) -> Master:
    """Return the readout of weights in float64; raises without one."""
    if weights.w_out is None or weights.out_bias is None:
        raise SpecError("a network that learns wants a readout to start from\nhint: weights.with_readout(zeros)")
    return Master(weights.w_out.astype(np.float64), weights.out_bias.astype(np.float64))


class Forward(NamedTuple):
    """What the device said of an input, and what its readout saw."""

    output: Doubles
    features: Doubles


class DeviceNetwork(HybridEsn):
    """A `HybridEsn` whose reservoir and readout are both on a device, where they can be written while it runs.

    `weights` start it and are its float master. `precision` is that of the reservoir, `readout` that of W_out; W4, W8
    and W12 are 1, 2 and 3 digits. The size of inputs and states is measured on `calibration` (steps, inputs); without
    it |u| <= `input_range` and the activation's bound hold. `on_gone`: a device that left the bus is reset and written
    again (`reconnect`; programs of its other users come back when they are called), or the error comes through
    (`raise`). A time-out is tried once more. With the mean of its features (width,) as `centre` m, the host adds
    (W_out - W_q) m to every output: what the rounding of W_out to W_q takes off on average.
    """

    def __init__(
        self,
        weights: EsnWeights,
        device: NpuDevice,
        *,
        precision: str = "W4A8",
        readout: str = "W8A8",
        input_range: float | None = None,
        calibration: Reals | None = None,
        centre: Doubles | None = None,
        on_gone: OnGone = "reconnect",
    ) -> None:
        self._master, self._centre = master_of(weights), centre
        require_one_of("reconnect", "raise", on_gone=on_gone)
        if calibration is not None and weights.w_fb is not None:
            raise SpecError("a network with feedback cannot be calibrated without outputs\nhint: give `input_range`")
        software = HybridEsn.from_weights(
            replace(weights, ranges=None), input_range=input_range, calibration=calibration
        )
        encoding, seen_by = encoding_of(precision), encoding_of(readout)
        super().__init__(weights, ranges=software.ranges_at(encoding.activation_bits))
        self.device, self.mode, self.precision = device, "hardware-linear", precision
        self._guard = DeviceGuard("raise", self.reconnect if on_gone == "reconnect" else None)
        self.inputs = weights.inputs
        """Size of an input, feedback not counted."""
        self.reconnects = 0
        """Times that the device was reset and written again."""
        programs = DevicePrograms(device)
        place = input_place(weights, self.ranges, encoding)
        matrix, lines = device_lines(weights, self.ranges, place)
        self.reservoir = WrittenMatrix("reservoir", matrix, programs, encoding=encoding, ranges=lines)
        """W_res, or [W_in | W_res], on the device."""
        self.path = DevicePath(weights, programs, [RowBlock(weights, self.reservoir, "raise")], place=place)
        wide = software.ranges_at(seen_by.activation_bits)
        seen = group_ranges(*[(weights.units, wide.s)] + [(weights.inputs, wide.u)] * weights.passthrough)
        self.readout = WrittenMatrix("readout", self._master.w_out, programs, encoding=seen_by, ranges=seen)
        """W_out on the device."""

    # Running.

    def forward(self, u: ArrayLike) -> Forward:
        """Return the output for one input (inputs,) and the features that the readout saw; the state moves on."""
        features = self.advance(u)
        self._output = output = self.read(features[np.newaxis])[0]
        return Forward(output, features)

    def advance(self, u: ArrayLike) -> Doubles:
        """Return the features after one input, without asking the readout."""
        given = np.asarray(u, np.float64)
        if given.shape != (self.inputs,):
            raise SeriesError(f"an input must be {self.inputs} real numbers. Got shape {given.shape}")
        self._guarded(lambda: self._move(given))
        return self._features(self._state, given)

    def read(self, features: Doubles) -> Doubles:
        """Return outputs (rows, outputs) of features (rows, width), computed by the device in batches."""
        found = np.asarray(self._guarded(lambda: self.readout(features)) + self._master.out_bias)
        return found if self._centre is None else found + (self._master.w_out - self.readout.real()) @ self._centre

    def _read(self, states: Reals, u: Reals) -> Reals:
        features = self._features(states, u)
        return self.read(features.reshape(-1, features.shape[-1])).reshape(*features.shape[:-1], -1)

    def _features(self, states: Reals, u: Reals) -> Doubles:
        seen = np.concatenate([states, u], axis=-1, dtype=np.float64) if self.weights.passthrough else states
        return seen.astype(np.float64)

    # Weights.

    def with_weights(self, weights: EsnWeights) -> Self:
        """Refuse: the readout is on the device, where `push` replaces it."""
        raise SpecError("a network that learns has one readout, on its device\nhint: push(w_out, out_bias)")

    def master(self) -> Master:
        """Return a copy of the float readout that was pushed last."""
        return Master(self._master.w_out.copy(), self._master.out_bias.copy())

    def changed(self, w_out: Doubles) -> int:
        """Return how many integers of the device a push would change."""
        return self.readout.changed(w_out)

    def push(self, w_out: Doubles, out_bias: Doubles) -> Push:
        """Give the device another readout; integers that stay are not sent, the bias and the scales are the host's."""
        # The master comes first: where the device fails for good, `restore` brings it to what was wanted.
        self._master = self._checked(w_out, out_bias)
        return self._guarded(lambda: self.readout.push(w_out))

    def push_integers(self, integers: NDArray[np.int64], out_bias: Doubles) -> Push:
        """Give the device integers of the readout; the master becomes what they stand for."""
        self._master = self._checked(self.readout.real(integers), out_bias)
        return self._guarded(lambda: self.readout.write(integers))

    def push_reservoir(self, weights: EsnWeights) -> Push:
        """Give the device other reservoir weights of the same shapes, from the same state; the readout stays.

        The bias, and W_in where it is on the host, change there; the leak and the activation must be the same.
        """
        old = self.weights
        same = (weights.w_in.shape, weights.leak, weights.activation) == (old.w_in.shape, old.leak, old.activation)
        if not same or weights.feedback != old.feedback or weights.dtype != old.dtype:
            raise SpecError("the new reservoir must have the shapes, type, leak and activation of the old one")
        kept = replace(old, w_in=weights.w_in, w_res=weights.w_res, bias=weights.bias, w_fb=weights.w_fb)
        path = self.path
        assert path is not None
        matrix, _ = device_lines(kept, self.ranges, path.place)
        push = self._guarded(lambda: self.reservoir.push(matrix))
        path.write_host(kept)
        self.weights = kept
        return push

    def verify(self) -> bool:
        """Return whether the device holds the integers of both matrices, by reading them back."""
        return self.reservoir.verify() and self.readout.verify()

    def restore(self) -> None:
        """Put both programs on the device again, with the weights that were pushed last."""
        self.reservoir.restore()
        self.readout.restore()

    def reconnect(self) -> None:
        """Reset the device and put both programs on it again; the state is the host's and stays."""
        self.programs.reset_device()
        self.restore()
        self.reconnects += 1

    def spent(self) -> Spent:
        """Return what the device is modelled to have taken for this network."""
        return self.programs.spent()

    def _guarded(self, call: Callable[[], T]) -> T:
        return self._guard.call(call, call)

    def _checked(self, w_out: Doubles, out_bias: Doubles) -> Master:
        new = Master(np.array(w_out, np.float64), np.array(out_bias, np.float64))
        for name, values, old in zip(Master._fields, new, self._master, strict=True):
            if values.shape != old.shape or not np.all(np.isfinite(values)):
                raise SpecError(f"`{name}` must be finite and of shape {old.shape}. Got shape {values.shape}")
        return new


class ExecutorReadout:
    """The readout node of a `HybridExecutor` as something that learns; it must see states and inputs only.

    The executor keeps the float master of the weights and recovers from device failures by itself. What the bias learns
    is added here, on the host.
    """

    def __init__(self, executor: HybridExecutor, node: str = "readout") -> None:
        graph = executor.graph
        op = graph[node].op
        if not isinstance(op, FullyConnectedOp) or graph[node].outputs[0] not in graph.outputs:
            raise SpecError(f"`{node}` must be a fully connected node and an output of graph `{graph.name}`")
        if len(graph.inputs) != 1:
            raise SpecError(f"a graph that learns has one input. Got {', '.join(graph.inputs)}")
        self._executor, self._node, self._value = executor, node, graph[node].outputs[0]
        ((self._input, shape),) = graph.inputs.items()
        self.inputs, self.device = shape[-1] or 1, executor.device
        planned = np.zeros(op.matrix.shape[0]) if op.bias is None else op.bias.astype(np.float64)
        self._planned, self._bias = planned, planned.copy()
        self._job = next((j for j in executor.plan.jobs if node in j.nodes and isinstance(j, LinearJob)), None)

    def forward(self, u: ArrayLike) -> Forward:
        """Return the node's output for one input, and its features; the executor's state moves on."""
        given = np.asarray(u, np.float64)
        made = self._executor.step(given)
        output = made[self._value] if isinstance(made, dict) else made
        features = self._features(self._executor.graph[self._node].inputs[0], given)
        return Forward(output.astype(np.float64) + (self._bias - self._planned), features)

    def master(self) -> Master:
        """Return the executor's weights and the bias."""
        return Master(self._executor.weights(self._node).astype(np.float64), self._bias.copy())

    def changed(self, w_out: Doubles) -> int:
        """Return how many integers of the device a push would change; none where the node is in software."""
        if self._job is None:
            return 0
        present, new = (
            build_ladder(w, self._job.encoding, ranges=self._job.ranges).integers
            for w in (self._executor.weights(self._node).astype(np.float64), w_out)
        )
        return int(np.count_nonzero(new != present))

    def push(self, w_out: Doubles, out_bias: Doubles) -> Push:
        """Replace the executor's weights, which pushes them where a device holds them."""
        before = self._executor.statistics()
        changed = self.changed(w_out)
        self._executor.set_weights(self._node, w_out)
        self._bias = np.array(out_bias, np.float64)
        after = self._executor.statistics()
        return Push(changed, after.bytes_pushed - before.bytes_pushed, after.retries - before.retries)

    def verify(self) -> bool:
        """Return whether a program with the present integers of the node's job is on the device, by reading back.

        True where the node is in software.
        """
        return self._job is None or self._executor.holds(self._job)

    def spent(self) -> Spent:
        """Return what the device is modelled to have taken for the executor."""
        done = self._executor.statistics()
        return Spent(done.device_busy, done.device_energy)

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


Trainable: TypeAlias = DeviceNetwork | ExecutorReadout
"""Networks whose readout can be replaced while they run."""
