r"""A reservoir and its readout on one NPU, both writable while they run: inputs go in, outputs and features come out.

    pre = [W_in | W_res] [u; s]         on the chip (W_in on the host where joint scales would waste its levels)
    s'  = (1 - a) s + a f(pre + b)      on the host (`HybridEsn`)
    y   = W_out [s'; u] + b_out         W_out on the chip as 1 to 3 int4 digits, b_out on the host

A readout of one digit breaks regression (NARMA10: NRMSE 1.2 against 0.44), two or three mend it. Output feedback comes
in beside the input, as in FORCE: what the device said is what is fed back.

Real weights W_ij become int4 digits on the chip,

    W_ij r_j = s_i q_ij + error,    q_ij = rint(W_ij r_j / s_i) within the limit of 1 to 3 base-15 digits

with r_j the range of input j (`substrates.npu.ladder`). A row keeps its scale s_i while its largest weight fills `KEEP`
of the grid and no more than all of it: a scale that followed every step would move all integers for nothing, and
integers that do not move need not be sent.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import Doubles, Reals, SpecError, require_one_of
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import DevicePath, RowBlock, device_lines, input_place
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.hybrid.running.device_matrix import DeviceGuard, DeviceMatrix, Push
from metalforge.reservoir import EsnWeights, SeriesError
from metalforge.substrates import (
    CompiledLinear,
    DevicePrograms,
    Encoding,
    FullyConnected,
    Ladder,
    NpuDevice,
    Program,
    ResourceError,
    digit_limit,
    group_ranges,
    input_levels,
)

KEEP = 0.8
"""A row keeps its scale while its largest weight fills this part of the grid; a digit of 7 is then 5.6 or more."""
ATTEMPTS = 3
"""Times that an update is sent before the error comes through: twice as a variable, then as a whole program."""
MOST_LINES = ((1 << 19) - 1) // (15 * 7)
"""Lines that cannot saturate the accumulator whatever their weights become: 15 times 7 each, 20 bits with sign."""


def requantise(folded: Doubles, digits: int, scales: Doubles | None = None) -> tuple[NDArray[np.int64], Doubles]:
    """Return integers and one scale per row for weights (outputs, inputs); rows keep a scale that still serves them."""
    limit = digit_limit(digits)
    peak = np.abs(folded).max(axis=1)
    fresh = np.where(peak > limit * np.finfo(np.float64).tiny, peak / limit, 1.0)
    if scales is not None:
        filled = peak / (limit * scales)
        fresh = np.where((filled >= KEEP) & (filled <= 1 + 0.5 / limit), scales, fresh)
    integers = np.clip(np.rint(folded / fresh[:, np.newaxis]), -limit, limit)
    return integers.astype(np.int64), fresh


class WrittenMatrix(DeviceMatrix):
    """y = W x on a device, W of shape (outputs, inputs) and |x_j| within `ranges`; `name` is that of its layer.

    `push` takes real weights, `write` takes integers (what evolution does); both change nothing but the weights.
    """

    def __init__(
        self, name: str, matrix: ArrayLike, programs: DevicePrograms, *, encoding: Encoding, ranges: ArrayLike
    ) -> None:
        real = _finite_matrix(name, matrix)
        if real.shape[1] * (2 if encoding.signed == "two_rail" else 1) > MOST_LINES:
            raise ResourceError(
                f"`{name}` has {real.shape[1]} inputs; at most {MOST_LINES} lines can hold any weights without "
                "saturating\nhint: a smaller network, or its readout in software"
            )
        self.name, self.encoding, self.shape = name, encoding, real.shape
        self.limit = digit_limit(encoding.digits)
        """The largest integer: 7, 112 or 1687."""
        self._ranges = np.broadcast_to(np.asarray(ranges, np.float64), real.shape[1:]).copy()
        integers, self._scales = requantise(real * self._ranges, encoding.digits)
        super().__init__(self._compiled(integers), programs, "learning", attempts=ATTEMPTS)

    @property
    def integers(self) -> NDArray[np.int64]:
        """A copy of the integers that the device was given, (outputs, inputs), digits joined."""
        return self.compiled.ladders[0].integers.copy()

    @property
    def variable_bytes(self) -> int:
        """Bytes of one update: the chip has no partial write."""
        return int(self.compiled.program.layers[0].weights.nbytes)

    def real(self, integers: NDArray[np.int64] | None = None) -> Doubles:
        """Return the weights (outputs, inputs) that the integers stand for, or that others would with these scales."""
        held = self.integers if integers is None else integers
        return np.asarray(held * self._scales[:, np.newaxis] / self._ranges)

    def changed(self, matrix: ArrayLike) -> int:
        """Return how many integers `push` would change."""
        integers, _ = self._quantised(matrix)
        return int(np.count_nonzero(integers != self.compiled.ladders[0].integers))

    def push(self, matrix: ArrayLike) -> Push:
        """Give the device the integers nearest to real weights; nothing is sent where none changes."""
        integers, self._scales = self._quantised(matrix)
        return self.replace(self._compiled(integers))

    def write(self, integers: NDArray[np.int64]) -> Push:
        """Give the device integers, with the scales that it has."""
        if integers.shape != self.shape or integers.dtype.kind not in "iu" or np.abs(integers).max() > self.limit:
            raise SpecError(
                f"`{self.name}` takes integers of shape {self.shape} within +-{self.limit}. "
                f"Got {integers.dtype} of shape {integers.shape}"
            )
        return self.replace(self._compiled(integers.astype(np.int64)))

    def _quantised(self, matrix: ArrayLike) -> tuple[NDArray[np.int64], Doubles]:
        real = _finite_matrix(self.name, matrix, self.shape)
        return requantise(real * self._ranges, self.encoding.digits, self._scales)

    def _compiled(self, integers: NDArray[np.int64]) -> CompiledLinear:
        """Return the program of some integers with the present scales: one, for it cannot saturate."""
        ladder = Ladder(
            encoding=self.encoding,
            integers=integers,
            scales=self._scales / input_levels(self.encoding),
            ranges=self._ranges,
        )
        layer = FullyConnected(name=self.name, weights=ladder.chip_weights())
        program = Program(name=self.name, layers=(layer,), encoding=self.encoding, scales=ladder.scales)
        return CompiledLinear(
            programs=(program,),
            columns=(slice(0, integers.shape[1]),),
            ladders=(ladder,),
            error_bound=ladder.error_bound(self.real(integers)),
        )


def _finite_matrix(name: str, matrix: ArrayLike, shape: tuple[int, ...] | None = None) -> Doubles:
    real = np.asarray(matrix, np.float64)
    if real.ndim != 2 or 0 in real.shape or (shape is not None and real.shape != shape):
        wanted = "(outputs, inputs), not empty" if shape is None else str(shape)
        raise SpecError(f"the weights of `{name}` must have shape {wanted}. Got {real.shape}")
    if not np.all(np.isfinite(real)):
        raise SpecError(f"the weights of `{name}` must be finite. Got {real[~np.isfinite(real)][0]}")
    return real


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
        self.path = DevicePath(weights, programs, [RowBlock(self.reservoir, "raise")], place=place)
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

    def _guarded(self, call: Callable[[], T]) -> T:
        return self._guard.call(call, call)

    def _checked(self, w_out: Doubles, out_bias: Doubles) -> Master:
        new = Master(np.array(w_out, np.float64), np.array(out_bias, np.float64))
        for name, values, old in zip(Master._fields, new, self._master, strict=True):
            if values.shape != old.shape or not np.all(np.isfinite(values)):
                raise SpecError(f"`{name}` must be finite and of shape {old.shape}. Got shape {values.shape}")
        return new
