r"""A network as one C99 header: tables, a reset and a step, with nothing to link but the maths library.

    void NAME_reset(real *state, real *y);
    void NAME_step(const real *u, real *state, real *y);

`real` is float or double, as the weights are. `state` holds NAME_UNITS numbers and changes in place; `y` holds
NAME_OUTPUTS and, with output feedback, brings the output of the step before. Without a readout `y` is not touched. The
header compiles as C++ too. Its text is in `c_header.toml`; here its tables are made.
"""

import re
from pathlib import Path
from string import Template
from textwrap import wrap
from typing import Any

import msgspec
import numpy as np
from scipy.sparse import csr_array

from metalforge.core import PathLike, Reals, SpecError, replacing
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights

from .tables import Quantizer, WeightTable, on_raw, piecewise_bends, update_tables

LINE = 100
"""Characters in a row of a table, about."""
SEEN = {"w_in": ("INPUTS", "u"), "w_res": ("UNITS", "state"), "w_fb": ("OUTPUTS", "y")}
"""What each matrix of the state update is multiplied with, and how long that is."""
_TEXT = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes())


def write_c_header(
    weights: EsnWeights, path: PathLike, *, name: str = "esn", quantizer: Quantizer | None = None
) -> None:
    """Write a network as a C header whose functions and tables begin with `name`.

    Inputs and outputs are raw: the scaling that the network's features and heads say is part of its tables. With a
    `quantizer` W_in, W_res and W_fb are int8 tables with a scale per row. A sparse W_res is stored by rows without
    its zeros.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise SpecError(f"`name` must be a C identifier: letters, digits and underscores. Got `{name}`")
    with replacing(path) as stream:
        stream.write(_header(on_raw(weights), name, quantizer).encode())


def _header(weights: EsnWeights, name: str, quantizer: Quantizer | None) -> str:
    outputs, leak = weights.outputs or weights.feedback, weights.dtype.type(weights.leak)
    knots, bends = (np.array(part, weights.dtype) for part in zip(*piecewise_bends(), strict=True))
    words: dict[str, Any] = {
        "name": name,
        "NAME": name.upper(),
        "real": "float" if weights.dtype == np.float32 else "double",
        "f": "f" if weights.dtype == np.float32 else "",
        "inputs": weights.inputs,
        "units": weights.units,
        "outputs": outputs,
        "activation": weights.activation,
        "leak": f"{weights.leak:.9g}",
        "kept": "" if weights.leak == 1 else f"{_literal(1 - leak)} * state[i] + {_literal(leak)} * ",
        "count": len(knots),
        "knots": ", ".join(map(_literal, knots)),
        "bends": ", ".join(map(_literal, bends)),
        "row": f"({name.upper()}_UNITS + {name.upper()}_INPUTS)" if weights.passthrough else f"{name.upper()}_UNITS",
    }

    def filled(text: str, **more: str) -> str:
        return Template(text).substitute(words, **more)

    tables, products = [], []
    for label, table in update_tables(weights, quantizer).items():
        sparse = label == "w_res" and not isinstance(weights.w_res, np.ndarray)
        tables += (
            _sparse_tables(f"{name}_w_res", table, weights) if sparse else [_array(f"{name}_{label}", table.values)]
        )
        if table.scales is not None:
            tables.append(_array(f"{name}_{label}_scales", table.scales))
        width, vector = SEEN[label]
        scale = "" if table.scales is None else f"{name}_{label}_scales[i] * "
        product = _TEXT["sparse" if sparse else "dense"]
        products.append(filled(product, label=label, width=width, vector=vector, scale=scale))
    tables.append(_array(f"{name}_bias", weights.bias))
    if weights.w_out is not None and weights.out_bias is not None:
        tables += [_array(f"{name}_w_out", weights.w_out), _array(f"{name}_out_bias", weights.out_bias)]
    return filled(
        _TEXT["header"],
        tables="\n".join(tables),
        function=filled(_TEXT["functions"][weights.activation]),
        clear=filled(_TEXT["clear"] if outputs else _TEXT["untouched"]),
        products="\n".join(products),
        readout=filled(
            _TEXT["untouched"] if weights.w_out is None else _TEXT["readout"],
            passthrough=filled(_TEXT["passthrough"]) if weights.passthrough else "",
        ),
    )


def _sparse_tables(name: str, table: WeightTable, weights: EsnWeights) -> list[str]:
    """Return the tables of a sparse W_res: values, columns and starts of its rows."""
    rows = csr_array(to_dense(weights.w_res) != 0)
    places = np.repeat(np.arange(weights.units), np.diff(rows.indptr)), rows.indices
    return [
        _array(name, table.values[places]),
        _array(f"{name}_columns", rows.indices.astype(np.uint16 if weights.units <= 2**16 else np.uint32)),
        _array(f"{name}_starts", rows.indptr.astype(np.uint32)),
    ]


def _array(name: str, values: Reals) -> str:
    """Return the definition of a table, in C order; reals are written so that they are read back exactly."""
    flat = values.ravel()
    if flat.dtype.kind == "f":
        words, kind = [_literal(x) for x in flat], "float" if flat.dtype == np.float32 else "double"
    else:
        words, kind = [str(x) for x in flat], f"{flat.dtype}_t"
    # A matrix without any connection still needs a table: C has no empty arrays.
    rows = wrap(", ".join(words or ["0"]) + ",", LINE - 2, break_on_hyphens=False)
    return f"static const {kind} {name}[{max(1, flat.size)}] = {{\n" + "".join(f"  {row}\n" for row in rows) + "};"


def _literal(x: np.floating[Any]) -> str:
    """Return the shortest number that C reads back as the same one of its type."""
    return np.format_float_scientific(x, trim="0", exp_digits=1) + ("f" if x.dtype == np.float32 else "")
