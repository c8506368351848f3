"""Weight matrices as they are deployed: reals, or small integers with a scale per row.

How weights become integers is the caller's choice: `quantizer` is any function from a matrix to an object with `values`
and `scales`, such as ``partial(metalforge.substrates.npu.quantize.quantize, bits=4)``. Only the matrices of the state
update are quantised: a readout of few bits loses what was fitted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Reals, SpecError
from metalforge.reservoir.activations import KNOTS, SLOPES
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights

Quantizer: TypeAlias = Callable[[Reals], Any]
"""Of a matrix: `values`, integers of at most 8 bits, and `scales`, one per row or one in all; w = scale * value."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightTable:
    """A matrix: reals, or int8 with a scale per row (None: there are none)."""

    values: NDArray[Any]
    scales: Reals | None = None

    @property
    def int4(self) -> bool:
        """Whether the integers fit 4 bits."""
        return self.scales is not None and bool(self.values.min() >= -8 and self.values.max() <= 7)


def on_raw(weights: EsnWeights) -> EsnWeights:
    """Return the network of raw inputs and outputs: what its features and heads say is folded into its weights.

    The offset and scale of a head with an activation of its own come after it, and are left to the caller with it.
    """
    w_in, bias, w_out, out_bias = weights.w_in, weights.bias, weights.w_out, weights.out_bias
    units = weights.units
    if weights.features is not None:
        offset, scale = np.array([(float(f.offset), float(f.scale)) for f in weights.features.features]).T
        w_in = w_in / scale
        bias = bias - w_in @ offset
        if weights.passthrough and w_out is not None and out_bias is not None:
            w_out = np.hstack([w_out[:, :units], w_out[:, units:] / scale])
            out_bias = out_bias - w_out[:, units:] @ offset
    if weights.heads is not None and w_out is not None and out_bias is not None:
        weights.heads.expect_no_base("an export")
        linear = {h.name: h for h in weights.heads.heads if h.activation == "identity" and (h.offset or h.scale != 1)}
        if linear and weights.w_fb is not None:
            raise SpecError("heads with an offset or a scale cannot be exported with feedback, which sees them without")
        w_out, out_bias = w_out.astype(np.float64), out_bias.astype(np.float64)
        for head in linear.values():
            span = weights.heads.span(head.name)
            w_out[span] *= head.scale
            out_bias[span] = out_bias[span] * head.scale + head.offset
    real = weights.dtype
    return replace(
        weights,
        w_in=w_in.astype(real, copy=False),
        bias=bias.astype(real, copy=False),
        w_out=None if w_out is None else w_out.astype(real, copy=False),
        out_bias=None if out_bias is None else out_bias.astype(real, copy=False),
        features=None,
        heads=None,
    )


def update_tables(weights: EsnWeights, quantizer: Quantizer | None) -> Mapping[str, WeightTable]:
    """Return the tables of the state update by name: w_in, w_res and, where there is feedback, w_fb."""
    found = {"w_in": weights.w_in, "w_res": to_dense(weights.w_res)}
    if weights.w_fb is not None:
        found["w_fb"] = weights.w_fb
    return {name: _table(name, matrix, quantizer) for name, matrix in found.items()}


def _table(name: str, matrix: Reals, quantizer: Quantizer | None) -> WeightTable:
    if quantizer is None:
        return WeightTable(matrix)
    rows = quantizer(matrix)
    values, scales = np.asarray(rows.values), np.asarray(rows.scales)
    if values.shape != matrix.shape or values.dtype.kind not in "iu" or scales.shape not in ((1,), matrix.shape[:1]):
        raise SpecError(
            f"the quantizer must give integers of shape {matrix.shape} and scales of ({matrix.shape[0]},) or (1,) for "
            f"`{name}`. Got {values.dtype} of {values.shape} and scales of {scales.shape}"
        )
    if values.min() < -128 or values.max() > 127:
        raise SpecError(f"integers of `{name}` must fit 8 bits. Got {values.min()} .. {values.max()}")
    return WeightTable(values.astype(np.int8), np.broadcast_to(scales, matrix.shape[:1]).astype(matrix.dtype))


def piecewise_bends() -> tuple[tuple[float, float], ...]:
    """Return (knot, bend) of the piecewise tanh: f(x) = sign(x) sum of bend * min(|x|, knot).

    A piece of slope s from one knot to the next is s (min(|x|, end) - min(|x|, start)); summed by parts.
    """
    return tuple((knot, SLOPES[k] - SLOPES[k + 1]) for k, knot in enumerate(KNOTS[1:]))
