r"""An echo state network on any substrate: software, a device, or chunks of rows on both.

    pre = W_in u + W_res s          on the chip, in integers (`paths`), or in software
    s'  = (1 - a) s + a f(pre + b)  on the host, always

`HybridEsn.from_weights(w)` runs in software. `with_hardware_linear(device)` puts the product on a device,
`with_hardware_native(device)` the whole step with the chip's own bounded ReLU, and `with_chunks(device)` a network that
is larger than the chip in chunks of rows. Each returns another network that goes on from the same state;
`to_software_mode()` comes back.
"""

import time
from copy import copy
from dataclasses import replace
from math import inf
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np

from metalforge.core import Measured, Modelled, Reals, SpecError, require_one_of
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.hybrid.routing.ranges import HEADROOM, measured
from metalforge.hybrid.running.device_matrix import DeviceMatrix, OnFailure
from metalforge.reservoir import (
    EsnEngine,
    EsnNetwork,
    EsnWeights,
    Ranges,
    Series,
    activation,
    as_series,
    as_weights,
    finite_input,
)
from metalforge.substrates import DevicePrograms, NpuDevice, Spent, compile_linear

from .chunks import ChunkPlan, plan_chunks
from .paths import DevicePath, InputPlace, NativeLayer, RowBlock, default_ranges, device_lines, input_place

Approach: TypeAlias = Literal["last-layer", "two-rail"]
Mode: TypeAlias = Literal["software", "hardware-linear", "hardware-native", "chunked"]


class HybridStatistics(NamedTuple):
    """Work of a network since it was made: host time measured, device time modelled, never added up.

    `HybridEsn.programs` counts loads, reloads and evictions of its programs.
    """

    steps: int
    """Steps of all samples together."""
    host: Measured
    """Seconds in Python and on the CPU, the emulation of the device included."""
    device: Modelled | None
    """Seconds that the device would have been busy; None in software or where there is no model."""
    energy: Modelled | None
    rows: int
    """Rows sent to the chip."""
    fallbacks: int
    """Steps in which software took over rows of the device; `path.fallbacks` has them by block."""


class HybridEsn(EsnNetwork):
    """An `EsnNetwork` on any substrate: `path` computes its next states, or software where there is none."""

    def __init__(self, weights: EsnWeights, *, ranges: Ranges | None = None, wide: Ranges | None = None) -> None:
        super().__init__(weights)
        self.mode: Mode = "software"
        self.approach: Approach | None = None
        self.precision: str | None = None
        self.path: DevicePath | None = None
        self.plan: ChunkPlan | None = None
        self.ranges = ranges or default_ranges(weights)
        self._wide = wide or self.ranges  # at 8 bits and more

    @classmethod
    def from_weights(
        cls, source: Any, *, input_range: float | None = None, calibration: Series | None = None
    ) -> "HybridEsn":
        """Return the network of an `EsnWeights`, a fitted estimator or a file, in software.

        The NPU clamps inputs and states beyond their ranges. `calibration` is a series (steps, inputs), or (series,
        steps, inputs), or a list of series to measure them on, without outliers (`routing.ranges`). Without it they
        are the weights' own `ranges`, or else |u| <= 1 and states within the bound of the activation. `input_range` is
        another range of inputs.
        """
        weights = as_weights(source)
        if calibration is None:
            default = default_ranges(weights)
            return cls(weights, ranges=Ranges(input_range if input_range is not None else default.u, default.s))
        engine, series = EsnEngine(weights), as_series("calibration", calibration, None, weights.dtype)
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
        precision: str = "W8A8",
        *,
        inputs: InputPlace = "auto",
        on_device_failure: OnFailure = "fallback",
    ) -> "HybridEsn":
        """Return this network with its product on a device and its activation on the host.

        The chip's layer has no activation and returns signed potentials. `approach` says how signed lines go in:
        `last-layer` with one zero point for all, `two-rail` with positive and negative parts on lines of their own.
        Of the precisions W8A8 loses little without a new readout; `refit` fits one to the states on the device, and
        `evaluate` finds the cheapest precision that is good enough. `inputs` says where W_in is: `auto` keeps it on
        the host where joint quantisation would cost precision.
        """
        require_one_of("last-layer", "two-rail", approach=approach)
        programs = DevicePrograms(device)
        encoding = encoding_of(precision, "two_rail" if approach == "two-rail" else "zero_point")
        ranges = self.ranges_at(encoding.activation_bits)
        place = input_place(self.weights, ranges, encoding, inputs)
        matrix, lines = device_lines(self.weights, ranges, place)
        compiled = compile_linear("reservoir", matrix, encoding=encoding, ranges=lines)
        product = DeviceMatrix(compiled, programs, "esn")
        path = DevicePath(self.weights, programs, [RowBlock(product, on_device_failure)], place=place)
        other = self.with_path(path, precision=precision, ranges=ranges)
        other.approach = approach
        return other

    def with_hardware_native(self, device: NpuDevice, *, on_device_failure: OnFailure = "fallback") -> "HybridEsn":
        """Return this network with the chip's own bounded ReLU in place of its activation.

        After a device failure software goes on with a bounded ReLU too, in full precision.
        """
        programs = DevicePrograms(device)
        layer = NativeLayer(self.weights, programs, Ranges(self.ranges.u, 1.0))
        rectified = replace(self.weights, activation="bounded_relu")
        path = DevicePath(rectified, programs, [RowBlock(layer, on_device_failure)], activated=True)
        return self.with_path(path, "hardware-native", precision="W4A4")

    def with_chunks(
        self,
        device: NpuDevice,
        plan: ChunkPlan | None = None,
        *,
        precision: str = "W4A8",
        on_device_failure: OnFailure = "fallback",
        **planning: Any,
    ) -> "HybridEsn":
        """Return this network in chunks of rows, on the device and in software as a plan says.

        Without a `plan`, `planning` goes to `plan_chunks`. A device that fails is survived chunk by chunk: the chunk's
        rows are computed again in software from the state before the step, and stay there.
        """
        if plan is None:
            planning.setdefault("profile", getattr(device, "profile", "akd1000-published"))
            planning.setdefault("ranges", self.ranges_at(encoding_of(precision).activation_bits))
            plan = plan_chunks(self.weights, precision=precision, **planning)
        if plan.units != self.weights.units:
            raise SpecError(f"the plan is for {plan.units} units, the network has {self.weights.units}")
        programs = DevicePrograms(device, by_turns=True)
        blocks = [
            RowBlock(
                None if chunk.compiled is None else DeviceMatrix(chunk.compiled, programs, chunk.name),
                on_device_failure,
                slice(chunk.rows.start, chunk.rows.stop),
                chunk.name,
            )
            for chunk in plan.chunks
        ]
        path = DevicePath(self.weights, programs, blocks, place=plan.inputs, by_turns=True)
        other = self.with_path(path, "chunked", precision=plan.precision, ranges=plan.ranges)
        other.plan = plan
        return other

    def with_path(
        self, path: DevicePath, mode: Mode = "hardware-linear", *, precision: str, ranges: Ranges | None = None
    ) -> "HybridEsn":
        """Return this network with its next states from a path; `ranges` are those of the path's integers."""
        other = self.to_software_mode()
        other.mode, other.path, other.precision, other._engine = mode, path, precision, path.engine
        if ranges is not None:
            other.ranges = other._wide = ranges
        return other

    def to_software_mode(self) -> "HybridEsn":
        """Return this network in software, at the same state."""
        other = HybridEsn(self.weights, ranges=self.ranges, wide=self._wide)
        other._state, other._output = self._state.copy(), self._output.copy()
        return other

    def states(self, u: Reals) -> Reals:
        """Return the states after every step of (steps, inputs) or (batch, steps, inputs), from rest.

        The network's own state stays as it is. Not for networks with output feedback.
        """
        if self.weights.w_fb is not None:
            raise SpecError("a network with output feedback has no states without its outputs; use run")
        given = np.asarray(u, self.weights.dtype)
        if self.path is None or self.path.lost:
            return self._engine.run(given)
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
        outputs = max(weights.outputs, weights.feedback)
        other._state, other._output = self._state.copy(), np.zeros((*self._state.shape[:-1], outputs), weights.dtype)
        return other

    def close(self) -> None:
        """Take this network's programs off the device."""
        if self.path is not None:
            self.path.programs.close()

    @property
    def programs(self) -> DevicePrograms:
        """Its own programs on the device, by slot."""
        if self.path is None:
            raise SpecError("this network is in software: it has no programs")
        return self.path.programs

    def statistics(self) -> HybridStatistics:
        """Return counts, measured host time and modelled device time since this network was put on its device."""
        path = self.path
        device, energy = Spent(None, None) if path is None else path.programs.spent()
        return HybridStatistics(
            steps=self._steps,
            host=Measured(value=self._host_s, unit="s", how="perf_counter around each step"),
            device=device,
            energy=energy,
            rows=0 if path is None else path.rows,
            fallbacks=0 if path is None else max(path.fallbacks.values(), default=0),
        )

    def _next(self, rows: Reals, states: Reals) -> Reals:
        path = self._live_path(1)
        return super()._next(rows, states) if path is None else path.step(rows, states)

    def _many(self, u: Reals, states: Reals, out: Reals) -> bool:
        path = self._live_path(u.shape[-2])
        if path is None:
            return super()._many(u, states, out)
        batch, start = (u, states) if u.ndim == 3 else (u[np.newaxis], states[np.newaxis])
        return path.run(batch, start, out.reshape(*batch.shape[:2], -1))

    def _live_path(self, steps: int) -> DevicePath | None:
        """Return the path that takes these steps; None where software does, counted where a device was lost."""
        if self.path is not None and self.path.lost:
            self.path.skip(steps)
            return None
        return self.path
