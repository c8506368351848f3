r"""One reservoir, many heads, one pass: what the design documents call the conductor program.

    s' = (1 - a) s + a tanh(W_in x + W_res s + b)          one product, on the NPU or in software
    y  = W_out s' + b_out                                  all heads: one fully connected layer
    {head: offset + scale * activation(y[head])}           on the host

The chip refuses several outputs from one layer, so a fan-out of eleven small layers, as the design documents draw it,
does not exist; eleven heads are the rows of one. A query therefore costs two calls on the device, whatever the number
of heads.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from metalforge.core.closing import Closing
from metalforge.core.errors import SpecError
from metalforge.core.schema import FeatureSchema, HeadActivation, HeadLayout, HeadSpec
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.device import NpuDevice

from .passes import DevicePass, Pass, SoftwarePass
from .scaling import Explanation, explain

__all__ = ["ConductorBuilder", "ConductorProgram", "ConductorRun", "Decoder", "HeadValues", "decoder_of"]

HeadValues: TypeAlias = dict[str, NDArray[np.float64]]
"""A value or several a head, by name; (width,) for one input, (batch, width) for a batch."""


class Decoder:
    """Decodes the outputs of one layout.

    Heads are a few numbers each: what costs time is the number of operations, not their length. So outputs are
    permuted once, heads of one activation side by side, and each activation is one call on its block.
    """

    def __init__(self, layout: HeadLayout) -> None:
        spans = {head.name: range(layout.width)[layout.span(head.name)] for head in layout.heads}
        order = sorted(layout.heads, key=lambda head: (head.activation, head.width))
        columns = [column for head in order for column in spans[head.name]]
        self._order = None if columns == list(range(layout.width)) else np.array(columns)
        self._blocks: list[tuple[HeadActivation, slice, int]] = []
        places: dict[str, slice] = {}
        start = 0
        for head in order:
            stop = start + head.width
            places[head.name] = slice(start, stop)
            same = self._blocks and self._blocks[-1][0] == head.activation
            if same and (head.activation != "softmax" or self._blocks[-1][2] == head.width):
                self._blocks[-1] = (head.activation, slice(self._blocks[-1][1].start, stop), head.width)
            else:
                self._blocks.append((head.activation, slice(start, stop), head.width))
            start = stop
        self._places = tuple((name, places[name]) for name in layout.names)
        scale = np.concatenate([np.full(head.width, head.scale, np.float64) for head in order])
        offset = np.concatenate([np.full(head.width, head.offset, np.float64) for head in order])
        self._scale = scale if np.any(scale != 1) else None
        self._offset = offset if offset.any() else None

    def __call__(self, outputs: NDArray[Any]) -> HeadValues:
        """Return each head's value from outputs (..., width of the layout), as views of one new array."""
        given = outputs if self._order is None else outputs.take(self._order, axis=-1)
        values = given.astype(np.float64)
        for activation, block, width in self._blocks:
            part = values[..., block]
            if activation == "sigmoid":
                expit(part, out=part)
            elif activation == "relu":
                np.maximum(part, 0, out=part)
            elif activation == "tanh":
                np.tanh(part, out=part)
            elif activation == "softmax" and width == 2:
                # exp(a) / (exp(a) + exp(b)) is a sigmoid of the difference: two operations in place of five.
                classes = part.reshape(*part.shape[:-1], -1, 2)
                expit(classes - classes[..., ::-1], out=classes)
            elif activation == "softmax":
                classes = part.reshape(*part.shape[:-1], -1, width)  # splitting the last axis gives a view
                classes -= classes.max(axis=-1, keepdims=True)
                np.exp(classes, out=classes)
                classes /= classes.sum(axis=-1, keepdims=True)
        if self._scale is not None:
            values *= self._scale
        if self._offset is not None:
            values += self._offset
        if values.ndim == 1:  # a plain slice is made in half the time of one with an ellipsis
            return {name: values[place] for name, place in self._places}
        return {name: values[..., place] for name, place in self._places}


@lru_cache(maxsize=64)
def decoder_of(layout: HeadLayout) -> Decoder:
    """Return the decoder of a layout; made once, since that takes longer than decoding."""
    return Decoder(layout)


_ACTIVATIONS = {"linear": "identity", "relu": "relu", "sigmoid": "sigmoid", "softmax": "softmax", "tanh": "tanh"}


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
        return decoder_of(self.heads)(outputs)

    def explain(self) -> Explanation:
        """Return what this program, and programs of 2 to 55 heads, take under every shipped profile; printable."""
        seen = self.weights.inputs * self.weights.passthrough + self.weights.units
        return explain(self.weights.inputs, self.weights.units, len(self.heads.heads), self.weights.outputs, seen=seen)

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
        self._decode = decoder_of(program.heads)
        self._pass: Pass = (
            SoftwarePass(weights) if device is None else DevicePass(weights, device, precision, calibration)
        )

    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest."""
        self._pass.reset(batch)

    @property
    def state(self) -> NDArray[Any]:
        """A copy of the reservoir's state; may be set."""
        return self._pass.state

    @state.setter
    def state(self, value: NDArray[Any]) -> None:
        self._pass.state = value

    def run_conductor(self, x: ArrayLike) -> HeadValues:
        """Step on a frame (features,) or a batch (batch, features); return every head's value by name."""
        return self._decode(self._pass.step(np.asarray(x, self.program.weights.dtype)))

    def peek(self, x: ArrayLike) -> HeadValues:
        """Return what `run_conductor` would, and leave the state as it is."""
        kept = self.state
        try:
            return self.run_conductor(x)
        finally:
            self.state = kept

    def states(self, x: ArrayLike) -> NDArray[Any]:
        """Return the states along frames (steps, features) from rest, on this substrate; its own state stays."""
        return self._pass.states(np.asarray(x, self.program.weights.dtype))

    def close(self) -> None:
        """Take the programs off the device."""
        self._pass.close()


def _untrained(head: HeadSpec) -> HeadSpec:
    return msgspec.structs.replace(head, trained=False)
