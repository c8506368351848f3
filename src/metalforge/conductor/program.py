r"""One reservoir, many heads, one pass: what the design documents call the conductor program.

    s' = (1 - a) s + a tanh(W_in x + W_res s + b)          one product, on the NPU or in software
    y  = W_out s' + b_out                                  all heads: one fully connected layer
    {head: offset + scale * activation(y[head])}           on the host

The chip refuses several outputs from one layer, so a fan-out of eleven small layers, as the design documents draw it,
does not exist; eleven heads are the rows of one. A query therefore costs two calls on the device, whatever the number
of heads. The design documents count reservoir and heads as *one* program and one call, of 179 + 12 N NPs for N heads;
the profile `akd1000-claimed` keeps that count.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import FeatureSchema, HeadLayout, HeadSpec, SpecError
from metalforge.reservoir import BaseCurves, EsnWeights, HeadValues, decoder_of

from .passes import ConductorRun

if TYPE_CHECKING:
    from metalforge.substrates import NpuDevice

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
        self._heads += [msgspec.structs.replace(head, trained=False) for head in layout.heads]
        return self

    def build(self) -> "ConductorProgram":
        """Return the program, its heads untrained."""
        if self._dims is None or not self._heads:
            raise SpecError("a conductor program wants reservoir_dims(inputs, units) and at least one head")
        from metalforge.reservoir import make_esn

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
        self.weights.head_readout()  # raises without one
        if self.weights.w_fb is not None:
            raise SpecError("a conductor's heads are not fed back: give weights without `w_fb`")

    @staticmethod
    def builder() -> ConductorBuilder:
        """Return an empty builder."""
        return ConductorBuilder()

    @property
    def heads(self) -> HeadLayout:
        """The layout."""
        return self.weights.head_readout()[0]

    def decode(self, outputs: NDArray[Any], inputs: NDArray[Any] | None = None) -> HeadValues:
        """Return each head's value from readout outputs (..., width of the layout).

        Heads with a base are counted from what it says of the `inputs` (..., features) that led to them.
        """
        values = decoder_of(self.heads)(outputs)
        if inputs is None:
            self.heads.expect_no_base("decoding without inputs")
        else:
            BaseCurves(self.heads, self.weights.features).add(values.vector, inputs)
        return values

    def run_on(
        self, device: "NpuDevice | None" = None, *, precision: str = "W8A8", calibration: ArrayLike | None = None
    ) -> ConductorRun:
        """Return the program ready to run: in software, or with both products on a device.

        Ranges on the device are those that the weights say, or measured on `calibration`; without either it is refused.
        """
        return ConductorRun(self.weights, device, precision, calibration)
