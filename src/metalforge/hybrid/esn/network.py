r"""An echo state network over two substrates: the product on the NPU, tanh, leak and state on the host.

    pre = W_in u + W_res s          on the chip, in integers (`paths`), or in software
    s'  = (1 - a) s + a f(pre + b)  on the host, always

`HybridEsn.from_weights(w)` runs in software. `with_hardware_linear(device)` puts the product on a device, and
`with_hardware_native(device)` the whole step with the chip's own bounded ReLU. Each returns another network that goes
on from the same state; `to_software_mode()` comes back.
"""

import time
from copy import copy
from dataclasses import replace
from math import inf
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np

from metalforge.core.arrays import Doubles, Reals
from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured, Modelled
from metalforge.hybrid.routing.encodings import LADDER, encoding_of
from metalforge.hybrid.routing.measured import HEADROOM, measured
from metalforge.hybrid.running.exact_steps import ExactReadout
from metalforge.hybrid.running.failure import DeviceGuard, OnFailure
from metalforge.reservoir.activations import activation, leaky_step
from metalforge.reservoir.engine import Engine
from metalforge.reservoir.files import as_weights
from metalforge.reservoir.series import Series, as_series
from metalforge.reservoir.weights import EsnWeights, Ranges
from metalforge.substrates.npu.device import NpuDevice, Spent
from metalforge.substrates.npu.residency import DevicePrograms

from .paths import InputPlace, LastLayer, LinearPath, NativeLayer, Rectified
from .tasks import PrecisionChoice, Task, better_readout, climb, refit

STEPS_AT_ONCE = 4096
"""Steps that run without a break: others who share the device wait no longer than these take."""


class CarriedState:
    """State (units,) or (batch, units) and the last output beside it; a network adds what the next state is.

    `_programs` are its own on a device, None in software.
    """

    def __init__(self, weights: EsnWeights, programs: DevicePrograms | None = None) -> None:
        self.weights = weights
        self._programs = programs
        self._state: Reals = np.zeros(weights.units, weights.dtype)
        self._output: Reals = np.zeros(max(weights.outputs, weights.feedback), weights.dtype)
        self._steps = 0
        self._host_s = 0.0

    @property
    def state(self) -> Reals:
        """A copy of the state."""
        return self._state.copy()

    @state.setter
    def state(self, value: Reals) -> None:
        given = np.asarray(value, self.weights.dtype)
        if given.shape[-1:] != (self.weights.units,) or given.ndim > 2 or not np.all(np.isfinite(given)):
            raise SpecError(f"a state is finite, ({self.weights.units},) or (batch, units). Got shape {given.shape}")
        self._state = given.copy()
        self._output = np.zeros((*given.shape[:-1], self._output.shape[-1]), self.weights.dtype)

    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest, for one sample or for a batch."""
        shape = () if batch is None else (batch,)
        self._state = np.zeros((*shape, self.weights.units), self.weights.dtype)
        self._output = np.zeros((*shape, self._output.shape[-1]), self.weights.dtype)

    def step(self, u: Reals) -> Reals:
        """Take one step with input (inputs,) or (batch, inputs); return the output, or the state without a readout."""
        started = time.perf_counter()
        weights, given, state = self.weights, self._checked_input(u), self._state
        full = given if weights.w_fb is None else np.concatenate([given, self._output], axis=-1)
        self._state = self._next(full, state)
        self._steps += 1 if state.ndim == 1 else len(state)
        if weights.w_out is not None:
            self._output = weights.output(self._state, given)
        self._host_s += time.perf_counter() - started
        return self._state if weights.w_out is None else self._output

    def run(self, u: Reals) -> Reals:
        """Step through (steps, inputs), or (batch, steps, inputs) from a state of that batch; return all outputs.

        The same bits as `step` by `step`.
        """
        given = np.asarray(u, self.weights.dtype)
        if given.ndim not in (2, 3):
            raise SpecError(f"`u` must have shape (steps, inputs) or (batch, steps, inputs). Got {given.shape}")
        steps = given.shape[-2]
        if self.weights.w_fb is not None or not steps:  # what was said last comes in beside what follows
            return np.stack([self.step(given[..., t, :]).copy() for t in range(steps)], axis=-2)
        started = time.perf_counter()
        found = self._through(finite_input(self._checked_input(given, steps)))
        if self.weights.w_out is not None:
            found = _said(self.weights, found, given)
            self._output = found[..., -1, :].copy()
        self._host_s += time.perf_counter() - started
        return found

    def _through(self, given: Reals) -> Reals:
        """Move the state through (..., steps, inputs), which were looked at; return the states after each step."""
        steps, lead = given.shape[-2], given.shape[:-2]
        found = np.empty((*lead, steps, self.weights.units), self.weights.dtype)
        t = 0
        while t < steps:
            n = min(STEPS_AT_ONCE, steps - t)
            some = found[..., t : t + n, :]
            if not self._many(given[..., t : t + n, :], self._state, some):
                n = 1
                some[..., 0, :] = self._next(given[..., t, :], self._state)
            t += n
            self._state = found[..., t - 1, :].copy()
            self._steps += n * (lead[0] if lead else 1)
        return found

    def states(self, u: Reals) -> Reals:
        """Return the states after every step of (steps, inputs) or (batch, steps, inputs), from rest.

        The network's own state stays as it is. Not for networks with output feedback.
        """
        if self.weights.w_fb is not None:
            raise SpecError("a network with output feedback has no states without its outputs; use run")
        given = np.asarray(u, self.weights.dtype)
        rows = given if given.ndim == 3 else given[np.newaxis]
        kept, started = (self._state, self._output), time.perf_counter()
        try:
            self.reset(batch=len(rows))
            found = self._through(finite_input(self._checked_input(rows, rows.shape[1])))
        finally:
            self._state, self._output = kept
            self._host_s += time.perf_counter() - started
        return found.reshape(*given.shape[:-1], self.weights.units)

    def with_weights(self, weights: EsnWeights) -> Self:
        """Return the same network on the same substrate with another readout; reservoir weights must be the same."""
        if weights.w_in is not self.weights.w_in or weights.w_res is not self.weights.w_res:
            raise SpecError("only the readout may change here; make a new network for other reservoir weights")
        other = copy(self)  # the same device, its programs and its books
        other.weights = weights
        other._state, other._output = self._state.copy(), np.zeros(weights.outputs, weights.dtype)
        return other

    def close(self) -> None:
        """Take this network's programs off the device."""
        if self._programs is not None:
            self._programs.close()

    @property
    def programs(self) -> DevicePrograms:
        """Its own programs on the device, by slot."""
        if self._programs is None:
            raise SpecError("this network is in software: it has no programs")
        return self._programs

    def _host(self) -> Measured:
        return Measured(value=self._host_s, unit="s", how="perf_counter around each step")

    def _spent(self) -> Spent:
        return Spent(None, None) if self._programs is None else self._programs.spent()

    def _next(self, rows: Reals, states: Reals) -> Reals:
        """Return the states after inputs with feedback, of one sample or of a batch; every network has its own."""
        raise TypeError(f"{type(self).__name__} does not say where its next state comes from")

    def _many(self, u: Reals, states: Reals, out: Reals) -> bool:
        """Fill `out` with the states after each step of `u`, if that is possible without going step by step."""
        return False

    def _checked_input(self, u: Reals, *steps: int) -> Reals:
        """Return an input, or one for each of some steps, as the network's real type, if it fits the state.

        Whether it is finite is looked at where it is used: most kernels do.
        """
        given = np.asarray(u, self.weights.dtype)
        wanted = (*self._state.shape[:-1], *steps, self.weights.inputs)
        if given.shape != wanted:
            raise SpecError(
                f"`u` must have shape {wanted}. Got {given.shape}\nhint: reset(batch=n) for n samples at once"
            )
        return given


def finite_input(u: Reals) -> Reals:
    """Return inputs that are finite."""
    if not np.all(np.isfinite(u)):
        raise SpecError("`u` must hold finite numbers")
    return u


def _said(weights: EsnWeights, states: Reals, u: Reals) -> Reals:
    """Return the outputs (..., steps, outputs) of states and inputs, in products of one step each.

    A product of all steps at once may round otherwise than `step` does.
    """
    if states.ndim == 2:
        return weights.output(states[:, np.newaxis], u[:, np.newaxis])[:, 0]
    return weights.output(states.swapaxes(0, 1), u.swapaxes(0, 1)).swapaxes(0, 1)


Approach: TypeAlias = Literal["last-layer", "two-rail", "A", "B", "C"]
Mode: TypeAlias = Literal["software", "hardware-linear", "hardware-native"]


class HybridStatistics(NamedTuple):
    """What a network did since it was made: host time measured, device time modelled, never added up."""

    steps: int
    """Steps of all samples together."""
    host: Measured
    """Seconds in Python and on the CPU, the emulation of the device included."""
    activation: Measured
    """Seconds of these that the activation, leak and bias took on the host."""
    device: Modelled | None
    """Seconds that the device would have been busy; None in software or where there is no model."""
    energy: Modelled | None
    rows: int
    """Rows sent to the chip."""
    fallbacks: int


class HybridEsn(CarriedState):
    """A network that is stepped from Python, one sample or a batch at a time, on either substrate.

    Its state is (units,) or, after ``reset(batch=n)``, (n, units). `step` gives the output, or the state where there is
    no readout.
    """

    def __init__(self, weights: EsnWeights, *, ranges: Ranges | None = None, wide: Ranges | None = None) -> None:
        super().__init__(weights)
        self.mode: Mode = "software"
        self.approach: Approach | None = None
        self.precision: str | None = None
        self.path: LinearPath | None = None
        self.choice: PrecisionChoice | None = None
        self.ranges = ranges or _default_ranges(weights)
        self._wide = wide or self.ranges  # at 8 bits and more
        self._engine = Engine(weights)
        self._guard = DeviceGuard("fallback")
        self._rows = 0
        self._activation_s = 0.0

    @classmethod
    def from_weights(
        cls, source: Any, *, input_range: float | None = None, calibration: Series | None = None
    ) -> "HybridEsn":
        """Return the network of an `EsnWeights`, a fitted estimator or a file, in software.

        The NPU clamps inputs and states beyond their ranges. `calibration` is a series (steps, inputs), or (series,
        steps, inputs), or a list of series to measure them on, without outliers (`routing.measured`). Without it they
        are the weights' own `ranges`, or else |u| <= 1 and states within the bound of the activation. `input_range` is
        another range of inputs.
        """
        weights = as_weights(source)
        if calibration is None:
            default = _default_ranges(weights)
            return cls(weights, ranges=Ranges(input_range if input_range is not None else default.u, default.s))
        engine, series = Engine(weights), as_series("calibration", calibration, None, weights.dtype)
        u, s = (measured(np.concatenate(rows)).range or 1.0 for rows in (series, [engine.run(one) for one in series]))
        bound = activation(weights.activation).bound
        wide = Ranges(input_range or HEADROOM * u, min(HEADROOM * s, inf if bound is None else bound))
        return cls(weights, ranges=Ranges(input_range or u, s), wide=wide)

    def ranges_at(self, activation_bits: int) -> Ranges:
        """Return the ranges for activations of so many bits: measured ones have headroom at 8 bits and more."""
        return self.ranges if activation_bits == 4 else self._wide

    # Modes.

    def with_hardware_linear(
        self,
        device: NpuDevice,
        approach: Approach = "last-layer",
        precision: str = "auto",
        *,
        training: Task | None = None,
        validation: Task | None = None,
        refit_readout: bool = True,
        tolerance: float = 0.005,
        ridge: float | None = None,
        inputs: InputPlace = "auto",
        on_device_failure: OnFailure = "fallback",
    ) -> "HybridEsn":
        """Return this network with its product on a device and its activation on the host.

        `approach` is how the chip's rectifier is dealt with (`paths`); A, B and C exist at W4A4 only. `precision` is a
        name such as W4A8; `auto` climbs the ladder until the loss on `validation` is within `tolerance` of software,
        and `choice` then tells what it tried (without validation data it is W8A8, which loses least without a refit).
        With `training`, the readout is fitted to the hybrid states: one solve, with the network's own ridge where
        `ridge` says no other; with `validation` too, it is kept where it is better than the one that was there.
        `inputs` says where W_in is: `auto` keeps it on the host where joint quantisation would cost precision.
        """
        fitted = training if refit_readout else None
        if precision == "auto" and approach in ("A", "B", "C"):
            precision = "W4A4"
        if precision == "auto" and validation is not None:

            def build(rung: str) -> HybridEsn:
                return self._on_device(device, approach, rung, inputs, on_device_failure)

            found, choice = climb(self, build, LADDER, validation, tolerance=tolerance, training=fitted, ridge=ridge)
            found.choice = choice
            return found
        esn = self._on_device(device, approach, "W8A8" if precision == "auto" else precision, inputs, on_device_failure)
        if fitted is None:
            return esn
        return (
            refit(esn, fitted, ridge=ridge) if validation is None else better_readout(esn, validation, fitted, ridge)[0]
        )

    def _on_device(
        self, device: NpuDevice, approach: Approach, precision: str, inputs: InputPlace, on_device_failure: OnFailure
    ) -> "HybridEsn":
        programs = DevicePrograms(device)
        path: LinearPath
        if approach in ("last-layer", "two-rail"):
            encoding = encoding_of(precision, "two_rail" if approach == "two-rail" else "zero_point")
            ranges = self.ranges_at(encoding.activation_bits)
            path = LastLayer(self.weights, programs, encoding, ranges, inputs)
        elif approach in ("A", "B", "C"):
            if precision != "W4A4":
                raise SpecError(
                    f"approach {approach} leaves the rectifier on, after which digits and nibbles cannot be joined: "
                    f"`precision` must be W4A4. Got {precision}"
                )
            ranges = self.ranges
            path = Rectified(self.weights, programs, ranges, approach)
        else:
            raise SpecError(f"`approach` must be last-layer, two-rail, A, B or C. Got `{approach}`")
        other = self.with_path(path, programs, on_device_failure=on_device_failure)
        other.approach, other.precision = approach, precision
        other.ranges = other._wide = ranges  # those of its integers
        return other

    def with_hardware_native(self, device: NpuDevice, *, on_device_failure: OnFailure = "fallback") -> "HybridEsn":
        """Return this network with the chip's own bounded ReLU in place of its activation.

        After a device failure software goes on with a bounded ReLU too, in full precision.
        """
        programs = DevicePrograms(device)
        path = NativeLayer(self.weights, programs, Ranges(self.ranges.u, 1.0))
        other = self.with_path(path, programs, on_device_failure=on_device_failure)
        other.mode, other.precision = "hardware-native", "W4A4"
        other._engine = Engine(replace(self.weights, activation="bounded_relu"))
        return other

    def with_path(
        self, path: LinearPath, programs: DevicePrograms, *, on_device_failure: OnFailure = "fallback"
    ) -> "HybridEsn":
        """Return this network with its product by a path whose programs are on a device."""
        other = self.to_software_mode()
        other.mode = "hardware-linear"
        other.path, other._programs, other._guard = path, programs, DeviceGuard(on_device_failure)
        return other

    def to_software_mode(self) -> "HybridEsn":
        """Return this network in software, at the same state."""
        other = HybridEsn(self.weights, ranges=self.ranges, wide=self._wide)
        other._state, other._output = self._state.copy(), self._output.copy()
        return other

    def _next(self, rows: Reals, states: Reals) -> Reals:
        path = self.path
        if path is None:
            try:
                return self._engine.step(states, rows)
            except ValueError:
                finite_input(rows)
                raise
        exact = None if path.exact is None or self._guard.lost else path.exact.step(rows, states)
        if exact is not None:
            self._rows += path.rows_per_step * (1 if rows.ndim == 1 else len(rows))
            return exact
        u, s = finite_input(np.atleast_2d(rows)), np.atleast_2d(states)
        found = self._guard.call(lambda: self._advance(path, u, s), lambda: self._engine.step(s, u))
        return found.reshape(states.shape)

    def step_then(self, u: Reals, then: ExactReadout) -> Doubles | None:
        """Take one step and return what a readout on the same device makes of it, where the device is spared its calls.

        None, and nothing has moved, where it must be called, and where `u` is not an array as it should be: `step`.
        """
        started, path = time.perf_counter(), self.path
        if path is None or path.exact is None or self._guard.lost:
            return None
        found = path.exact.step_then(u, self._state, then)
        if found is None:
            return None
        self._state, made = found
        samples = 1 if self._state.ndim == 1 else len(self._state)
        self._steps += samples
        self._rows += path.rows_per_step * samples
        self._host_s += time.perf_counter() - started
        return made

    def _many(self, u: Reals, states: Reals, out: Reals) -> bool:
        path, target = self.path, out if out.flags.c_contiguous else np.empty_like(out)
        if path is None or self._guard.lost:
            self._guard.fallbacks += self._guard.lost * u.shape[-2]
            self._engine.run(u, states, target)
        else:
            batch, start = (u, states) if u.ndim == 3 else (u[np.newaxis], states[np.newaxis])
            if path.exact is None or path.exact.run(batch, start, target.reshape(*batch.shape[:2], -1)) is None:
                return False
            self._rows += path.rows_per_step * batch.shape[0] * batch.shape[1]
        if target is not out:
            out[...] = target
        return True

    def states(self, u: Reals) -> Reals:
        """Return the states after every step of (steps, inputs) or (batch, steps, inputs), from rest.

        The network's own state stays as it is. Not for networks with output feedback.
        """
        given = np.asarray(u, self.weights.dtype)
        if self.weights.w_fb is None and (self.mode == "software" or self._guard.lost):
            return self._engine.run(given)
        return super().states(given)

    def statistics(self) -> HybridStatistics:
        """Return counts, measured host time and modelled device time since this network was put on its device."""
        device, energy = self._spent()
        exact = None if self.path is None else self.path.exact
        return HybridStatistics(
            steps=self._steps,
            host=self._host(),
            activation=Measured(
                value=self._activation_s + (exact.activation_s if exact else 0.0),
                unit="s",
                how="clock around activation and leak, of one step in sixteen where many run at once",
            ),
            device=device,
            energy=energy,
            rows=self._rows,
            fallbacks=self._guard.fallbacks,
        )

    # The step on each substrate.

    def _advance(self, path: LinearPath, u: Reals, s: Reals) -> Reals:
        """Return s' of the mode from (u, s), rows of samples, by calls of the device."""
        weights, pre = self.weights, path(u, s)
        self._rows += path.rows_per_step * len(u)
        started = time.perf_counter()
        if self.mode == "hardware-native":  # the chip has activated it
            return leaky_step(s, pre, "identity", weights.leak)
        new = leaky_step(s, pre + weights.bias, weights.activation, weights.leak)
        self._activation_s += time.perf_counter() - started
        return new


def _default_ranges(weights: EsnWeights) -> Ranges:
    """The weights' own; else inputs within -1 .. 1, states within what their activation bounds them to."""
    if weights.ranges is not None:
        return weights.ranges
    bound = activation(weights.activation).bound
    return Ranges(1.0, 1.0 if bound is None else bound)
