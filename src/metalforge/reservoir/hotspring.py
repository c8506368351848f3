"""hotSpring's weight files, in and out: one JSON object of flat lists of float32, rows one after the other.

hotSpring writes `w_in` (units x inputs), `w_res`, `w_out` (outputs x units), their sizes, `leak_rate` and, later, an
`activation`; where it is absent, tanh is meant. (Its production code writes Tanh even for networks that were trained
with the piecewise line: ask whoever made the file.) There is no place for names of features or heads.
"""

from typing import Annotated, BinaryIO, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError, escaped

from .activations import ActivationName
from .sparse import to_dense
from .weights import EsnWeights

LARGEST_FILE = 1 << 28
"""Bytes of JSON that are read at most: some four thousand units. Numbers take several times that in memory."""

_OUR_NAMES: dict[str, ActivationName] = {"Tanh": "tanh", "ReluTanhApprox": "piecewise_tanh"}
_THEIR_NAMES: dict[str, Literal["Tanh", "ReluTanhApprox"]] = {"tanh": "Tanh", "piecewise_tanh": "ReluTanhApprox"}


Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]


class _Exported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """hotSpring's record, field for field."""

    w_in: list[float]
    w_res: list[float]
    w_out: list[float]
    input_size: Size
    reservoir_size: Size
    output_size: Size
    leak_rate: float
    activation: Literal["Tanh", "ReluTanhApprox"] = "Tanh"


def decode(stream: BinaryIO, size: int) -> EsnWeights:
    """Return the network, float32, in a file of `size` bytes; without a readout when it has no outputs."""
    if size > LARGEST_FILE:
        raise SpecError(f"at most {LARGEST_FILE} bytes of JSON are read. Got {size}\nhint: keep it as .safetensors")
    try:
        found = msgspec.json.decode(stream.read(size), type=_Exported)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SpecError(f"not a weight file of hotSpring: {escaped(str(error))}") from error
    units, inputs, outputs = found.reservoir_size, found.input_size, found.output_size
    if units < 1 or inputs < 1:
        raise SpecError(f"a network wants at least one unit and one input. Got {units} and {inputs}")
    return EsnWeights(
        w_in=_array("w_in", found.w_in, units, inputs),
        w_res=_array("w_res", found.w_res, units, units),
        w_out=_array("w_out", found.w_out, outputs, units) if outputs or found.w_out else None,
        leak=found.leak_rate,
        activation=_OUR_NAMES[found.activation],
    )


def encode(weights: EsnWeights) -> bytes:
    """Return the file's bytes; raises SpecError when something of the network has no place in it.

    A sparse matrix is written in full, since its numbers are the same.
    """
    lost = {
        "a bias": np.any(weights.bias),
        "a bias of the readout": weights.out_bias is not None and np.any(weights.out_bias),
        "feedback": weights.w_fb is not None,
        "inputs that the readout sees": weights.passthrough,
        "a feature schema": weights.features is not None,
        "a head layout": weights.heads is not None,
        "ranges": weights.ranges is not None,
        f"activation {weights.activation}": weights.activation not in _THEIR_NAMES,
        "float64 (hint: weights.astype(np.float32))": weights.dtype != np.float32,
    }
    if any(lost.values()):
        names = ", ".join(name for name, is_lost in lost.items() if is_lost)
        raise SpecError(f"hotSpring's JSON has no place for {names}\nhint: write .safetensors")
    return msgspec.json.encode(
        _Exported(
            w_in=weights.w_in.ravel().tolist(),
            w_res=to_dense(weights.w_res).ravel().tolist(),
            w_out=[] if weights.w_out is None else weights.w_out.ravel().tolist(),
            input_size=weights.inputs,
            reservoir_size=weights.units,
            output_size=weights.outputs,
            leak_rate=float(weights.leak),
            activation=_THEIR_NAMES[weights.activation],
        )
    )


def _array(name: str, values: list[float], rows: int, columns: int) -> NDArray[np.float32]:
    # The count is compared before anything is made: sizes are what a forged file says.
    if len(values) != rows * columns:
        raise SpecError(f"`{name}` must hold {rows} x {columns} = {rows * columns} numbers. Got {len(values)}")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return np.array(values, np.float64).astype(np.float32).reshape(rows, columns)
