r"""The operations of a model, as data: what each holds, what shapes it takes and gives, how precise it must be.

An op holds parameters and no behaviour; `software` computes it, `router` places it. Shapes include the batch axis,
which is None: a vector of 50 inputs is ``(None, 50)``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from metalforge.core import Array, BriefRepr, Reals, SpecError, require_positive
from metalforge.reservoir import EsnWeights, weights_of
from metalforge.substrates import Quantized, quantize

Shape: TypeAlias = tuple[int | None, ...]
"""Extents; None is the batch."""
ElementwiseName: TypeAlias = Literal[
    "tanh", "sigmoid", "gelu", "relu", "bounded_relu", "identity", "piecewise_tanh", "softmax"
]
ELEMENTWISE: tuple[str, ...] = get_args(ElementwiseName)
"""Activations; softmax runs over the last axis."""
NAMED = 4
"""Operators that the kind of a part in ONNX names."""


def entries(shape: Shape) -> int:
    """Return the numbers of one sample."""
    return prod(n or 1 for n in shape)


class Precision(StrEnum):
    """What an op's weights need."""

    ANY = "any"
    """May be quantised, within the tolerance of the plan."""
    INT4 = "int4"
    """Lie on an int4 grid already: the chip computes with them exactly."""
    INT8 = "int8"
    """Are integers of up to 8 bits: two digits on the chip, exactly."""
    FLOAT = "float"
    """Must stay as they are."""


class Op(BriefRepr):
    """Base of all ops. `kind` names the row of the routing table; `arity` is the number of inputs, None for any."""

    kind: str
    arity: ClassVar[int | None] = 1
    precision: Precision = Precision.ANY
    stateful: ClassVar[bool] = False

    __slots__ = ()

    def shapes(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shapes of the outputs; raises `SpecError` when the inputs do not fit."""
        return (inputs[0],)

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return 0

    def flops(self, inputs: Sequence[Shape]) -> float:
        """Return floating point operations for one sample: two per weight, or one per output where there are none."""
        if self.parameters:
            return 2.0 * self.parameters * entries(inputs[0][:-1])
        return float(sum(map(entries, self.shapes(inputs))))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FullyConnectedOp(Op):
    """y = W x + b over the last axis; W is (outputs, inputs), real or quantised already."""

    kind: ClassVar[str] = "fully_connected"  # type: ignore[misc]
    weights: Reals | Quantized
    bias: Reals | None = None
    precision: Precision = Precision.ANY

    def __post_init__(self) -> None:
        w = self.matrix
        if w.ndim != 2 or 0 in w.shape or w.dtype.kind != "f" or not np.all(np.isfinite(w)):
            raise SpecError(
                f"`weights` must be finite reals of shape (outputs, inputs), not empty. Got {w.dtype} of {w.shape}"
            )
        if self.bias is not None and (self.bias.shape != w.shape[:1] or not np.all(np.isfinite(self.bias))):
            raise SpecError(f"`bias` must be {w.shape[0]} finite reals. Got shape {self.bias.shape}")

    @property
    def matrix(self) -> Reals:
        """The weights as reals."""
        return self.weights.dequantize() if isinstance(self.weights, Quantized) else self.weights

    @property
    def int4_exact(self) -> bool:
        """Whether one int4 digit and a scale per row hold the weights without loss (to float32 rounding)."""
        if isinstance(self.weights, Quantized):
            return bool(np.abs(self.weights.values).max(initial=0) <= 7)
        q = quantize(self.weights, 4)
        return bool(np.all(np.abs(q.error) <= 1e-6 * np.abs(self.weights).max(axis=1, keepdims=True)))

    @property
    def parameters(self) -> int:
        """Weights and bias."""
        return int(self.matrix.size + (0 if self.bias is None else self.bias.size))

    def shapes(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """(..., inputs) to (..., outputs)."""
        outputs, width = self.matrix.shape
        if not inputs[0] or inputs[0][-1] != width:
            raise SpecError(f"wants inputs of width {width}, its weights being ({outputs}, {width}). Got {inputs[0]}")
        return ((*inputs[0][:-1], int(outputs)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise(Op):
    """An activation by name."""

    function: ElementwiseName

    def __post_init__(self) -> None:
        if self.function not in ELEMENTWISE:
            raise SpecError(f"unknown activation `{self.function}`; known: {', '.join(ELEMENTWISE)}")

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The function's name."""
        return self.function


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RecurrentStep(Op):
    """s' = (1 - a) s + a f(W_in u + W_res s + b); the executor keeps s, one row per sample, from call to call."""

    kind: ClassVar[str] = "recurrent_step"  # type: ignore[misc]
    stateful: ClassVar[bool] = True
    weights: EsnWeights

    def __post_init__(self) -> None:
        if self.weights.w_fb is not None:
            raise SpecError("output feedback makes a cycle, which a graph cannot have; use HybridEsn for it")

    @property
    def parameters(self) -> int:
        """Input, recurrent and bias weights; of a sparse matrix those that it stores."""
        w = self.weights
        return weights_of(w.w_res).size + w.units * (w.inputs + 1)

    def shapes(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """(None, inputs) to (None, units)."""
        if inputs[0] != (None, self.weights.inputs):
            raise SpecError(f"wants inputs (None, {self.weights.inputs}). Got {inputs[0]}")
        return ((None, self.weights.units),)


SequenceOutput: TypeAlias = Literal["states", "last"]
"""Of a sequence: all its states, or the last one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RecurrentSequence(RecurrentStep):
    """The same step over a whole sequence in one call: ONNX's RNN. Nothing is kept from call to call.

    Inputs are (steps, batch, inputs) and, where they do not start from rest, states (1, batch, units). `gives` names
    the outputs: `states` is (steps, 1, batch, units), `last` (1, batch, units). `reverse` goes from the last to the
    first; states stay in the places of their inputs.
    """

    arity: ClassVar[int | None] = None
    stateful: ClassVar[bool] = False
    gives: tuple[SequenceOutput, ...] = ("states",)
    reverse: bool = False

    def shapes(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """(steps, batch, inputs) to what it gives."""
        units, x = self.weights.units, inputs[0]
        if len(x) != 3 or x[2] != self.weights.inputs or x[0] is None:
            raise SpecError(f"wants inputs (steps, batch, {self.weights.inputs}), so many steps. Got {x}")
        if inputs[1:] not in ([], [(1, x[1], units)]):
            raise SpecError(f"wants a start of shape {(1, x[1], units)}. Got {', '.join(map(str, inputs[1:]))}")
        found: dict[str, Shape] = {"states": (x[0], 1, x[1], units), "last": (1, x[1], units)}
        return tuple(found[name] for name in self.gives)

    def steps(self, inputs: Sequence[Array], step: Callable[[Array, Array], Array]) -> tuple[Array, ...]:
        """Return what it gives, by `step(u, s)` for one time step of all samples."""
        x = inputs[0]
        s = inputs[1][0] if len(inputs) > 1 else np.zeros((x.shape[1], self.weights.units), x.dtype)
        states = np.empty((len(x), 1, *s.shape), x.dtype)
        for t in reversed(range(len(x))) if self.reverse else range(len(x)):
            s = states[t, 0] = step(x[t], s)
        found = {"states": states, "last": s[np.newaxis]}
        return tuple(found[name] for name in self.gives)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalIntegration(Op):
    """s' = (1 - a) s + a x: a leaky memory of its input, kept by the executor."""

    kind: ClassVar[str] = "temporal_integration"  # type: ignore[misc]
    stateful: ClassVar[bool] = True
    leak: float

    def __post_init__(self) -> None:
        if not 0 < self.leak <= 1:
            raise SpecError(f"`leak` must be above 0 and at most 1. Got {self.leak}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutOp(Op):
    """The same value for several heads."""

    kind: ClassVar[str] = "fan_out"  # type: ignore[misc]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concat(Op):
    """Inputs side by side on an axis."""

    kind: ClassVar[str] = "concat"  # type: ignore[misc]
    arity: ClassVar[int | None] = None
    axis: int = -1

    def shapes(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """The extents of the axis add up."""
        rank = len(inputs[0])
        axis = self.axis + rank if self.axis < 0 else self.axis
        rest = {(len(s), s[:axis], s[axis + 1 :]) for s in inputs}
        extents = [s[axis] if axis < len(s) else None for s in inputs]
        if not 0 <= axis < rank or len(rest) != 1 or None in extents:
            raise SpecError(f"inputs must agree on every axis but {self.axis}. Got {', '.join(map(str, inputs))}")
        return ((*inputs[0][:axis], sum(n for n in extents if n is not None), *inputs[0][axis + 1 :]),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Op):
    """The sum of inputs of one shape."""

    kind: ClassVar[str] = "add"  # type: ignore[misc]
    arity: ClassVar[int | None] = None

    def shapes(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """The common shape."""
        if len(set(inputs)) != 1:
            raise SpecError(f"inputs must have one shape. Got {', '.join(map(str, inputs))}")
        return (inputs[0],)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient(Op):
    """dL/dW of a fully connected node `of`, averaged over the batch; inputs: its input x, its result y, the target.

    `mse`: L = |y - t|^2 / outputs, dL/dW = 2 (y - t) x^T / outputs. `cross_entropy`: of softmax(y) against
    probabilities t, dL/dW = (softmax(y) - t) x^T.
    """

    kind: ClassVar[str] = "gradient"  # type: ignore[misc]
    arity: ClassVar[int | None] = 3
    of: str
    loss: Literal["mse", "cross_entropy"] = "mse"

    def shapes(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """(outputs, inputs): no batch."""
        x, y, target = inputs
        if len(x) != 2 or len(y) != 2 or y != target:
            raise SpecError(f"wants x (None, n), y and target (None, m). Got {x}, {y} and {target}")
        return ((y[1], x[1]),)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientUpdate(Op):
    """W <- W - rate dL/dW of node `of`; takes the gradient, gives the new weights."""

    kind: ClassVar[str] = "weight_update_gradient"  # type: ignore[misc]
    of: str
    rate: float

    def __post_init__(self) -> None:
        require_positive(rate=self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationUpdate(Op):
    """W <- W with a fraction of its entries drawn anew around their old values; nothing comes in, new weights go out.

    The mutation of call number n is that of seed (seed, n): the same calls give the same weights.
    """

    kind: ClassVar[str] = "weight_update_mutation"  # type: ignore[misc]
    arity: ClassVar[int | None] = 0
    of: str
    shape: tuple[int, int]
    fraction: float = 0.05
    scale: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.fraction <= 1 and 0 < self.scale < float("inf")):
            raise SpecError("`fraction` must be in (0, 1] and `scale` a positive number")

    def shapes(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """The shape of the weights."""
        return (self.shape,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SoftwareOnly(Op):
    """ONNX operators that only the host runs, as one whole; `reason` says why no NPU does.

    Their outputs' shapes are known to whoever made it.
    """

    operators: tuple[str, ...]
    run: Callable[[Sequence[Array]], Sequence[Array]]
    """Arrays in, in the order of the node's inputs; arrays out."""
    output_shapes: tuple[Shape, ...] = ()
    output_bounds: tuple[tuple[float, float] | None, ...] = ()
    """The smallest and largest number that each output can hold, where its operators limit it."""
    reason: str = "no NPU has this op"
    parameters: int = 0
    operations: float = 0.0
    """Floating point operations for one sample; 0 where one per output says enough."""
    arity: ClassVar[int | None] = None

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The ONNX names, the first few of many."""
        more = len(self.operators) - NAMED
        return "+".join(self.operators[:NAMED]) + (f"+{more} more" if more > 0 else "")

    def shapes(self, inputs: Sequence[Shape]) -> tuple[Shape, ...]:
        """What the importer found."""
        return self.output_shapes

    def flops(self, inputs: Sequence[Shape]) -> float:
        """What the importer counted, or one per output."""
        return self.operations or float(sum(map(entries, self.output_shapes)))
