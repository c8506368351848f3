r"""One reservoir, many heads, one pass: what the seeds call the conductor program.

    s' = (1 - a) s + a tanh(W_in x + W_res s + b)          one product, on the NPU or in software
    y  = W_out s' + b_out                                  all heads: one fully connected layer
    {head: offset + scale * activation(y[head])}           on the host

The chip refuses several outputs from one layer, so a fan-out of eleven small layers, as the seeds draw it, does not
exist; eleven heads are the rows of one. A query therefore costs two calls on the device, whatever the number of heads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from metalforge.core.closing import Closing
from metalforge.core.errors import SpecError
from metalforge.core.schema import FeatureSchema, HeadLayout, HeadSpec
from metalforge.core.substrate import Cost
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.routing.precision import encoding_of
from metalforge.hybrid.running.device_linear import DeviceLinear, DevicePrograms
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu import costs, mesh
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.device import NpuDevice, ResourceError
from metalforge.substrates.npu.ladder import group_ranges
from metalforge.substrates.profiles import PROFILES

__all__ = ["ConductorBuilder", "ConductorProgram", "ConductorRun", "HeadValues", "Scaling"]

HeadValues = dict[str, NDArray[np.float64]]
"""A value or several a head, by name; (width,) for one input, (batch, width) for a batch."""
_ACTIVATIONS = {"linear": "identity", "relu": "relu", "sigmoid": "sigmoid", "softmax": "softmax", "tanh": "tanh"}
SCALED_HEADS = (2, 4, 8, 11, 20, 55)
"""The rows of seed 004's scaling table."""
READOUT_PRECISION = "W12A12"
"""Plain int4 readouts break regression (three digits lose 0.05 %): the merged layer takes three."""


class Scaling(NamedTuple):
    """A row of the scaling table: what so many heads of one output take under a profile, or why they do not fit."""

    heads: int
    profile: str
    processors: str
    step: Cost
    query: Cost
    refused: str = ""


class ConductorBuilder:
    """Collects dimensions and heads; `build` makes the program. Names of activations in any case, linear included."""

    def __init__(self) -> None:
        self._dims: tuple[int, int] | None = None
        self._heads: list[HeadSpec] = []
        self._options: dict[str, Any] = {}
        self._features: FeatureSchema | None = None

    def reservoir_dims(self, inputs: int, units: int) -> "ConductorBuilder":
        """Set the numbers of features and of units."""
        self._dims = (inputs, units)
        return self

    def reservoir(self, **options: Any) -> "ConductorBuilder":
        """Set options of `make_esn`: seed, spectral_radius, leak, input_scaling and so on."""
        self._options |= options
        return self

    def features(self, schema: FeatureSchema) -> "ConductorBuilder":
        """Set the schema of the inputs."""
        self._features = schema
        return self

    def add_head(self, name: str, width: int, activation: str) -> "ConductorBuilder":
        """Add a head of so many outputs."""
        known = _ACTIVATIONS.get(activation.lower())
        if known is None:
            raise SpecError(f"head `{name}`: activation must be one of {', '.join(_ACTIVATIONS)}. Got `{activation}`")
        self._heads.append(HeadSpec(name=name, width=width, activation=known, trained=False))  # type: ignore[arg-type]
        return self

    def add_layout(self, layout: HeadLayout) -> "ConductorBuilder":
        """Add all heads of a layout, untrained."""
        self._heads += [_untrained(head) for head in layout.heads]
        return self

    def build(self) -> "ConductorProgram":
        """Return the program, its heads untrained."""
        if self._dims is None or not self._heads:
            raise SpecError("a conductor program wants reservoir_dims(inputs, units) and at least one head")
        inputs, units = self._dims
        options = {"seed": 1, "connectivity": 1.0, "leak": 0.3, "input_scaling": 0.3} | self._options
        weights = make_esn(units, inputs, features=self._features, **options)
        heads = HeadLayout(name="built", heads=tuple(self._heads))
        return ConductorProgram(
            weights=weights.with_readout(np.zeros((heads.width, units), weights.dtype), heads=heads)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConductorProgram:
    """A network whose readout is a layout of named heads."""

    weights: EsnWeights

    def __post_init__(self) -> None:
        if self.weights.heads is None or self.weights.w_out is None:
            raise SpecError("a conductor program wants weights with a readout and a head layout")
        if self.weights.w_fb is not None:
            raise SpecError("a conductor's heads are not fed back: give weights without `w_fb`")

    @staticmethod
    def builder() -> ConductorBuilder:
        """Return an empty builder."""
        return ConductorBuilder()

    @property
    def heads(self) -> HeadLayout:
        """The layout."""
        assert self.weights.heads is not None
        return self.weights.heads

    def decode(self, outputs: NDArray[Any]) -> HeadValues:
        """Return each head's value from readout outputs (..., width of the layout)."""
        return {head.name: _decoded(head, outputs[..., self.heads.span(head.name)]) for head in self.heads.heads}

    def explain(self) -> list[Scaling]:
        """Return what this program, and programs of 2 to 55 heads, take under every shipped profile."""
        return [
            _scaling(self.weights, count, name)
            for count in sorted({*SCALED_HEADS, self.weights.outputs})
            for name in PROFILES
        ]

    def run_on(
        self, device: NpuDevice | None = None, *, precision: str = "W8A8", calibration: ArrayLike | None = None
    ) -> "ConductorRun":
        """Return the program ready to run: in software, or with both products on a device."""
        return ConductorRun(self, device, precision, calibration)


class ConductorRun(Closing):
    """A program with a state: `run_conductor` takes a frame and gives every head, in one pass.

    The state is carried from frame to frame; `reset(batch=8)` starts eight chains side by side. `peek` reads the heads
    of a frame without moving the state.
    """

    def __init__(
        self, program: ConductorProgram, device: NpuDevice | None, precision: str, calibration: ArrayLike | None
    ) -> None:
        self.program = program
        weights = program.weights
        data = None if calibration is None else np.asarray(calibration, weights.dtype)
        # With the heads on the device the host has no readout to compute.
        stepped = weights if device is None else replace(weights, w_out=None, out_bias=None)
        self._esn = HybridEsn.from_weights(stepped, calibration=data)
        self._readout: DeviceLinear | None = None
        self._programs: DevicePrograms | None = None
        if device is not None:
            self._esn = self._esn.with_hardware_linear(device, precision=precision)
            self._programs = DevicePrograms(device)
            compiled = _merged_heads(weights, self._esn.ranges.u, self._esn.ranges.s)
            self._readout = DeviceLinear(compiled, self._programs, "conductor")

    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest."""
        self._esn.reset(batch=batch)

    @property
    def state(self) -> NDArray[Any]:
        """A copy of the reservoir's state; may be set."""
        return self._esn.state

    @state.setter
    def state(self, value: NDArray[Any]) -> None:
        self._esn.state = value

    def run_conductor(self, x: ArrayLike) -> HeadValues:
        """Step on a frame (features,) or a batch (batch, features); return every head's value by name."""
        frame = np.asarray(x, self.program.weights.dtype)
        stepped = self._esn.step(frame)
        outputs = stepped if self._readout is None else self._on_device(self._readout, frame, stepped)
        return self.program.decode(outputs)

    def peek(self, x: ArrayLike) -> HeadValues:
        """Return what `run_conductor` would, and leave the state as it is."""
        kept = self._esn.state
        try:
            return self.run_conductor(x)
        finally:
            self._esn.state = kept

    def _on_device(self, readout: DeviceLinear, frame: NDArray[Any], state: NDArray[Any]) -> NDArray[Any]:
        """Return the merged layer's outputs for a state."""
        weights = self.program.weights
        assert weights.out_bias is not None  # a program's weights have a readout
        seen = np.concatenate([state, frame], axis=-1) if weights.passthrough else state
        found = readout(np.atleast_2d(seen)) + weights.out_bias
        return found.reshape(*state.shape[:-1], weights.outputs)

    def close(self) -> None:
        """Take the programs off the device."""
        self._esn.close()
        if self._programs is not None:
            self._programs.close()


def _untrained(head: HeadSpec) -> HeadSpec:
    return msgspec.structs.replace(head, trained=False)


def _decoded(head: HeadSpec, raw: NDArray[Any]) -> NDArray[np.float64]:
    functions: Mapping[str, Any] = {
        "identity": lambda x: x,
        "sigmoid": expit,
        "softmax": lambda x: softmax(x, axis=-1),
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
    }
    return np.asarray(head.offset + head.scale * functions[head.activation](raw.astype(np.float64)))


def _merged_heads(weights: EsnWeights, u: float, s: float) -> CompiledLinear:
    """Return all heads as one layer."""
    assert weights.w_out is not None
    ranges = group_ranges((weights.units, s))
    if weights.passthrough:
        ranges = group_ranges((weights.units, s), (weights.inputs, u))
    return compile_linear("heads", weights.w_out, encoding=encoding_of(READOUT_PRECISION), ranges=ranges)


def _scaling(weights: EsnWeights, heads: int, profile: str) -> Scaling:
    """Return the row of a reservoir of this size with so many outputs; weights do not matter to it."""
    ones = np.ones((1, 1))
    lines = weights.inputs + weights.units
    reservoir = compile_linear("reservoir", np.broadcast_to(ones, (weights.units, lines)), encoding=encoding_of("W8A8"))
    merged = compile_linear(
        "heads", np.broadcast_to(ones, (heads, weights.units)), encoding=encoding_of(READOUT_PRECISION)
    )
    try:
        first = mesh.plan(reservoir.program, profile)
        second = mesh.plan(merged.program, profile, beside=[first])
    except ResourceError as error:
        empty = Cost(unknown="does not fit")
        return Scaling(heads, profile, "", empty, empty, refused=str(error).splitlines()[0])
    step = costs.cost(reservoir.program, 2, profile)
    query = costs.cost(merged.program, 3, profile)
    where = ", ".join(row.processor for row in (*first.rows, *second.rows))
    return Scaling(heads, profile, where, step, query)
