r"""One reservoir, many heads, one pass: what the design documents call the conductor program.

    s' = (1 - a) s + a tanh(W_in x + W_res s + b)          one product, on the NPU or in software
    y  = W_out s' + b_out                                  all heads: one fully connected layer
    {head: offset + scale * activation(y[head])}           on the host

The chip refuses several outputs from one layer, so a fan-out of eleven small layers, as the design documents draw it,
does not exist; eleven heads are the rows of one. A query therefore costs two calls on the device, whatever the number
of heads, and `explain` shows that the chip's own count hardly moves with it: one processor for the reservoir, one for
the heads. The design documents count otherwise, and that is kept for profiles with the accounting `neurons`, where
reservoir and heads are *one* program and one call:

    NPs = 179 + 12 N          203, 227, 275, 311, 419, 839 for N = 2, 4, 8, 11, 20, 55

That program has no host between its layers, so its activation would be the chip's bounded ReLU. Three more of the
design's figures do not follow from its own: 10.4 uJ per pass are neither 54 us at the 270 mW it names (14.6 uJ) nor the
1.4 uJ of design document 000; a batch of 8 in 3.12 ms is 7 times slower than 8 passes of 54 us; and the chip has 78
processors.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.errors import SpecError
from metalforge.core.pages import aligned
from metalforge.core.quantities import Quantity
from metalforge.core.schema import FeatureSchema, HeadLayout, HeadSpec
from metalforge.core.substrate import Cost
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.heads import BaseCurves, HeadValues, decoder_of
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu import costs, mesh
from metalforge.substrates.npu.compile import compile_linear
from metalforge.substrates.npu.device import NpuDevice, ResourceError
from metalforge.substrates.npu.program import Activation, FullyConnected, Head, Program
from metalforge.substrates.profiles import PROFILES, DeviceProfile, NeuronMesh

from .passes import READOUT_PRECISION, ConductorRun, DevicePass, SoftwarePass

SCALED_HEADS = (2, 4, 8, 11, 20, 55)
"""The rows of design document 004's scaling table; heads of one output each."""


class Scaling(NamedTuple):
    """A row: what so many heads take under a profile, or why they do not fit.

    `taken` and `free` are processors that can hold a layer, or NPs where the profile counts those. `step` moves the
    state; `query` is what reading every head costs on top, nothing where it is the same call.
    """

    heads: int
    outputs: int
    profile: str
    unit: str
    taken: int
    free: int
    processors: str
    step: Cost
    query: Cost
    refused: str = ""


class Explanation(tuple[Scaling, ...]):
    """The rows, printable as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return the rows as a table."""
        cells: list[tuple[str, ...]] = [("heads", "outputs", "profile", "taken", "free", "step", "query", "energy")]
        for row in self:
            what = [row.refused, "", ""]
            if not row.refused:
                energy = Cost.total([row.step, row.query]).energy
                what = [_figure(q) for q in (row.step.latency, row.query.latency, energy)]
            taken = "-" if row.refused else f"{row.taken} {row.unit}"
            cells.append((str(row.heads), str(row.outputs), row.profile, taken, str(row.free), *what))
        return "\n".join(["modelled from the profile of the row; energy is of a step and a query", *aligned(cells)])


def _row(inputs: int, units: int, heads: int, outputs: int, seen: int, chip: DeviceProfile) -> Scaling:
    as_one = isinstance(chip.mesh, NeuronMesh)
    unit, total = ("NPs", chip.mesh.neural_processors.value) if as_one else ("processors", chip.mesh.layer_processors)
    try:
        taken, where, step, query = (_as_one if as_one else _as_two)(inputs, units, heads, outputs, seen, chip)
        refused = ""
    except ResourceError as error:
        taken, where, refused = 0, "", str(error).splitlines()[0]
        step = query = Cost(unknown="does not fit")
    return Scaling(heads, outputs, chip.name, unit, taken, total - taken, where, step, query, refused)


def _as_two(
    inputs: int, units: int, heads: int, outputs: int, seen: int, chip: DeviceProfile
) -> tuple[int, str, Cost, Cost]:
    """Return what reservoir and merged heads take side by side; weights do not matter to it."""
    one = np.ones((1, 1))
    reservoir = compile_linear("reservoir", np.broadcast_to(one, (units, inputs + units)), encoding=encoding_of("W8A8"))
    merged = compile_linear("heads", np.broadcast_to(one, (outputs, seen)), encoding=encoding_of(READOUT_PRECISION))
    placed = mesh.side_by_side((*reservoir.programs, *merged.programs), chip)
    where = ", ".join(row.processor for placement in placed for row in placement.rows)
    step, query = (costs.programs_cost(layer.programs, chip) for layer in (reservoir, merged))
    return sum(len(p.processors) for p in placed), where, step, query


def _as_one(
    inputs: int, units: int, heads: int, outputs: int, seen: int, chip: DeviceProfile
) -> tuple[int, str, Cost, Cost]:
    """Return what the design documents' single program takes: its heads are counted, whatever their width."""
    layers = (
        FullyConnected(
            name="reservoir", weights=np.ones((inputs + units, units), np.int8), activation=Activation.BOUNDED_RELU
        ),
        FullyConnected(name="heads", weights=np.ones((units, outputs), np.int8)),
    )
    widths = np.array_split(np.arange(outputs), heads)
    named = tuple(Head(name=f"head {i}", start=int(w[0]), width=len(w)) for i, w in enumerate(widths))
    program = Program(name="conductor", layers=layers, heads=named)
    placed = mesh.plan(program, chip)
    call = costs.cost(program, 1, chip)
    where = f"NP {placed.span.start} .. {placed.span.stop - 1}"
    return len(placed.span), where, call, call * 0.0


def _figure(quantity: Quantity | None) -> str:
    return "same call" if quantity is None or not quantity.value else str(quantity).split(" (")[0]


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

    def explain(self) -> Explanation:
        """Return what this program, and programs of 2 to 55 heads, take under every shipped profile; printable."""
        weights = self.weights
        seen = weights.inputs * weights.passthrough + weights.units  # the lines of the readout
        sizes = sorted({*((n, n) for n in SCALED_HEADS), (len(self.heads.heads), weights.outputs)})
        return Explanation(
            _row(weights.inputs, weights.units, n, width, seen, profile)
            for n, width in sizes
            for profile in PROFILES.values()
        )

    def run_on(
        self, device: NpuDevice | None = None, *, precision: str = "W8A8", calibration: ArrayLike | None = None
    ) -> ConductorRun:
        """Return the program ready to run: in software, or with both products on a device.

        Ranges on the device are those that the weights say, or measured on `calibration`; without either it is refused.
        """
        if device is None:
            return SoftwarePass(self.weights)
        return DevicePass(self.weights, device, precision, calibration)
