r"""One step of a network as an ONNX model, for any runtime that has the standard operators.

    u, x -> x_next, y          u (batch, inputs), x and x_next (batch, units), y (batch, outputs)

The caller carries x. With output feedback there is a third input, `y_before`; without a readout there is no `y`, which
is the linear output W_out [x_next; u] + b_out (activations of heads are left to the caller, as `EsnWeights.output`
leaves them).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core import PathLike, PluginError, SpecError, replacing
from metalforge.reservoir.weights import EsnWeights

from .tables import Quantizer, WeightTable, on_raw, piecewise_bends, update_tables

OPSET = 21
"""The first with 4-bit integers."""
IR_VERSION = 10
"""The file format that came with it."""
OPERATORS = {"tanh": "Tanh", "relu": "Relu", "identity": "Identity", "sigmoid": "Sigmoid", "gelu": "Gelu"}
"""Activations that are operators; the others are made of `Clip`."""


def export_onnx_step(
    weights: EsnWeights, path: PathLike, *, quantizer: Quantizer | None = None, name: str = "reservoir_step"
) -> None:
    """Write the step of a network to a file, in its own real type.

    Inputs and outputs are raw: the scaling that the network's features and heads say is part of its weights.

    With a `quantizer` W_in, W_res and W_fb are stored as INT4 or INT8 with a scale per row and a `DequantizeLinear`
    before each product (float32 networks only, as the operator is). The products are `Gemm`: after `DequantizeLinear`
    onnxruntime fuses a `MatMul`, but not a `Gemm`, into a form that by default rounds the activations to 8 bits too.
    """
    try:
        import onnx
        import onnx.checker
        import onnx.helper
    except ImportError as error:
        raise PluginError(
            f"writing ONNX files wants the package `onnx` ({error})\nhint: pip install 'metalforge[onnx]'"
        ) from error
    if quantizer is not None and weights.dtype != np.float32:
        raise SpecError("integer weights want a float32 network\nhint: weights.astype(np.float32)")
    model = _Step(onnx, on_raw(weights), quantizer).model(name)
    onnx.checker.check_model(model, full_check=True)
    with replacing(path) as stream:
        stream.write(model.SerializeToString())


class _Step:
    """The nodes and constants of one step, in the order they are added."""

    def __init__(self, onnx: Any, weights: EsnWeights, quantizer: Quantizer | None) -> None:
        self.onnx, self.weights = onnx, weights
        self.tables = update_tables(weights, quantizer)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def model(self, name: str) -> Any:
        """Return the message."""
        w = self.weights
        inputs = {"u": w.inputs, "x": w.units} | ({"y_before": w.feedback} if w.feedback else {})
        self.update()
        outputs = {"x_next": w.units}
        if w.w_out is not None:
            self.readout()
            outputs["y"] = w.outputs
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes,
            name,
            [self.info(value, width) for value, width in inputs.items()],
            [self.info(value, width) for value, width in outputs.items()],
            self.constants,
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="metalforge")

    def update(self) -> None:
        """Add x_next = (1 - a) x + a f(W_in u + W_res x + W_fb y + b)."""
        w = self.weights
        self.real("bias", w.bias)
        sums = [
            self.add("Gemm", ["u", self.matrix("w_in"), "bias"], "from_input", transB=1),
            self.add("Gemm", ["x", self.matrix("w_res")], "from_state", transB=1),
        ]
        if w.feedback:
            sums.append(self.add("Gemm", ["y_before", self.matrix("w_fb")], "from_output", transB=1))
        active = self.activation(self.add("Sum", sums, "sums"), "x_next" if w.leak == 1 else "active")
        if w.leak < 1:
            leak = w.dtype.type(w.leak)
            kept = self.add("Mul", ["x", self.real("keep", 1 - leak)], "kept")
            taken = self.add("Mul", [active, self.real("leak", leak)], "taken")
            self.add("Add", [kept, taken], "x_next")

    def activation(self, source: str, result: str) -> str:
        """Add f and return its name."""
        name = self.weights.activation
        if name in OPERATORS:
            return self.add(OPERATORS[name], [source], result)
        if name == "bounded_relu":
            return self.add("Clip", [source, self.real("zero", 0.0), self.real("one", 1.0)], result)
        terms = []
        for k, (knot, bend) in enumerate(piecewise_bends()):
            # |x| <= knot by clipping on both sides, which keeps the sign.
            ends = [self.real(f"knot_{k}_low", -knot), self.real(f"knot_{k}_high", knot)]
            part = self.add("Clip", [source, *ends], f"clipped_{k}")
            terms.append(self.add("Mul", [part, self.real(f"bend_{k}", bend)], f"term_{k}"))
        return self.add("Sum", terms, result)

    def readout(self) -> None:
        """Add y = W_out [x_next; u] + b_out; u only where the readout sees it."""
        w = self.weights
        features = self.add("Concat", ["x_next", "u"], "features", axis=1) if w.passthrough else "x_next"
        self.add("Gemm", [features, self.real("w_out", w.w_out), self.real("out_bias", w.out_bias)], "y", transB=1)

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def real(self, name: str, value: Any) -> str:
        array = np.asarray(value, self.weights.dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def matrix(self, name: str) -> str:
        """Return the name of a matrix; integers are scaled first."""
        table: WeightTable = self.tables[name]
        if table.scales is None:
            return self.real(name, table.values)
        kinds = self.onnx.TensorProto
        kind, data = (kinds.INT4, _packed(table.values)) if table.int4 else (kinds.INT8, table.values.tobytes())
        integers = self.onnx.helper.make_tensor(f"{name}_integers", kind, table.values.shape, data, raw=True)
        self.constants.append(integers)
        return self.add("DequantizeLinear", [integers.name, self.real(f"{name}_scales", table.scales)], name, axis=0)

    def info(self, name: str, width: int) -> Any:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(self.weights.dtype)
        return self.onnx.helper.make_tensor_value_info(name, kind, ["batch", width])


def _packed(values: NDArray[np.int8]) -> bytes:
    """Return 4-bit integers two per byte, the first in the low half, as ONNX stores them."""
    nibbles = np.zeros(values.size + values.size % 2, np.uint8)
    nibbles[: values.size] = values.ravel().view(np.uint8) & 15
    return (nibbles[0::2] | nibbles[1::2] << 4).tobytes()
