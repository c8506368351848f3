r"""A network as one C99 header: tables, a reset and a step, with nothing to link but the maths library.

    void NAME_reset(real *state, real *y);
    void NAME_step(const real *u, real *state, real *y);

`real` is float or double, as the weights are. `state` holds NAME_UNITS numbers and changes in place; `y` holds
NAME_OUTPUTS and, with output feedback, brings the output of the step before. Without a readout `y` is not touched. The
header compiles as C++ too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metalforge.core.arrays import Reals
from metalforge.core.errors import SpecError
from metalforge.core.files import PathLike, replacing
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights

from .tables import Quantizer, WeightTable, piecewise_bends, update_tables

LINE = 100
"""Characters in a row of a table, about."""
FUNCTIONS: Mapping[str, str] = {
    "tanh": "return tanh{f}(x);",
    "relu": "return x > 0 ? x : 0;",
    "bounded_relu": "return x < 0 ? 0 : x > 1 ? 1 : x;",
    "identity": "return x;",
    "sigmoid": "return 1 / (1 + exp{f}(-x));",
    "gelu": "return 0.5{f} * x * (1 + erf{f}(x * 0.70710678118654752440{f}));",
    "piecewise_tanh": """static const {real} knots[{count}] = {{{knots}}};
  static const {real} bends[{count}] = {{{bends}}};
  {real} size = fabs{f}(x), sum = 0;
  int k;
  for (k = 0; k < {count}; ++k) sum += bends[k] * (size < knots[k] ? size : knots[k]);
  return x < 0 ? -sum : sum;""",
}
"""Bodies of f(x); {f} is the suffix of float functions and numbers."""


def write_c_header(
    weights: EsnWeights, path: PathLike, *, name: str = "esn", quantizer: Quantizer | None = None
) -> None:
    """Write a network as a C header whose functions and tables begin with `name`.

    With a `quantizer` W_in, W_res and W_fb are int8 tables with a scale a row. A sparse W_res is stored by rows without
    its zeros.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise SpecError(f"`name` must be a C identifier: letters, digits and underscores. Got `{name}`")
    with replacing(path) as stream:
        stream.write(("\n".join(_header(weights, name, quantizer)) + "\n").encode())


def _header(weights: EsnWeights, name: str, quantizer: Quantizer | None) -> Iterator[str]:
    """Give the header piece by piece."""
    real, upper = ("float" if weights.dtype == np.float32 else "double"), name.upper()
    outputs = weights.outputs or weights.feedback
    yield (
        f"/* An echo state network: {weights.inputs} inputs, {weights.units} units, {outputs} outputs; "
        f"{weights.activation}, leak {weights.leak:.9g}.\n"
        "   s' = (1 - a) s + a f(W_in u + W_res s + W_fb y + b),  y = W_out [s; u] + b_out.  Written by metalforge. */"
    )
    yield f"#ifndef {upper}_H\n#define {upper}_H\n\n#include <math.h>\n#include <stdint.h>\n"
    for label, count in (("INPUTS", weights.inputs), ("UNITS", weights.units), ("OUTPUTS", outputs)):
        yield f"#define {upper}_{label} {count}"
    yield ""
    tables = update_tables(weights, quantizer)
    for label, table in tables.items():
        yield from _matrix(name, label, table, weights if label == "w_res" else None)
    yield _array(f"{name}_bias", weights.bias)
    if weights.w_out is not None and weights.out_bias is not None:
        yield _array(f"{name}_w_out", weights.w_out)
        yield _array(f"{name}_out_bias", weights.out_bias)
    yield f"\nstatic inline {real} {name}_f({real} x) {{\n  {_function(weights, real)}\n}}\n"
    yield _reset(name, upper, real, outputs)
    yield _step(weights, name, upper, real, tables)
    yield f"#endif /* {upper}_H */"


def _matrix(name: str, label: str, table: WeightTable, sparse: EsnWeights | None) -> Iterator[str]:
    """Give the tables of a matrix: all of it, or (for a sparse W_res) starts, columns and values of its rows."""
    if sparse is None or isinstance(sparse.w_res, np.ndarray):
        yield _array(f"{name}_{label}", table.values)
    else:
        rows = csr_array(to_dense(sparse.w_res) != 0)
        places = np.repeat(np.arange(sparse.units), np.diff(rows.indptr)), rows.indices
        yield _array(f"{name}_{label}", table.values[places])
        yield _array(f"{name}_{label}_columns", rows.indices.astype(np.uint16 if sparse.units <= 2**16 else np.uint32))
        yield _array(f"{name}_{label}_starts", rows.indptr.astype(np.uint32))
    if table.scales is not None:
        yield _array(f"{name}_{label}_scales", table.scales)


def _array(name: str, values: Reals) -> str:
    """Return the definition of a table, in C order; reals are written so that they are read back exactly."""
    flat = values.ravel()
    if flat.dtype.kind == "f":
        words, kind = [_literal(x) for x in flat], "float" if flat.dtype == np.float32 else "double"
    else:
        words, kind = [str(x) for x in flat], f"{flat.dtype}_t"
    # A matrix without any connection still needs a table: C has no empty arrays.
    return f"static const {kind} {name}[{max(1, flat.size)}] = {{\n{_wrapped(words or ['0'])}}};"


def _literal(x: np.floating[Any]) -> str:
    """Return the shortest number that C reads back as the same one of its type."""
    return np.format_float_scientific(x, trim="0", exp_digits=1) + ("f" if x.dtype == np.float32 else "")


def _wrapped(words: list[str]) -> str:
    rows, row = [], " "
    for word in words:
        if len(row) + len(word) + 2 > LINE:
            rows.append(row)
            row = " "
        row += f" {word},"
    return "\n".join([*rows, row]) + "\n"


def _function(weights: EsnWeights, real: str) -> str:
    knots, bends = (np.array(part, weights.dtype) for part in zip(*piecewise_bends(), strict=True))
    return FUNCTIONS[weights.activation].format(
        real=real,
        f="f" if real == "float" else "",
        count=len(knots),
        knots=", ".join(map(_literal, knots)),
        bends=", ".join(map(_literal, bends)),
    )


def _reset(name: str, upper: str, real: str, outputs: int) -> str:
    clear = f"\n  for (i = 0; i < {upper}_OUTPUTS; ++i) y[i] = 0;" if outputs else "\n  (void)y;"
    return (
        f"static inline void {name}_reset({real} *state, {real} *y) {{\n  int i;\n"
        f"  for (i = 0; i < {upper}_UNITS; ++i) state[i] = 0;{clear}\n}}\n"
    )


def _step(weights: EsnWeights, name: str, upper: str, real: str, tables: Mapping[str, WeightTable]) -> str:
    """Return the step: every sum from the old state first, then the new one, then the outputs."""
    leak = weights.dtype.type(weights.leak)
    read = {"w_in": ("INPUTS", "u"), "w_res": ("UNITS", "state"), "w_fb": ("OUTPUTS", "y")}
    products = []
    for label, table in tables.items():
        width, vector = f"{upper}_{read[label][0]}", read[label][1]
        loop, place = f"j = 0; j < {width}; ++j", f"i * {width} + j"
        if label == "w_res" and not isinstance(weights.w_res, np.ndarray):
            starts, place = f"(int){name}_w_res_starts", "j"
            loop, vector = f"j = {starts}[i]; j < {starts}[i + 1]; ++j", f"state[{name}_w_res_columns[j]]"
        else:
            vector += "[j]"
        scale = "" if table.scales is None else f"{name}_{label}_scales[i] * "
        products.append(
            f"    part = 0;\n    for ({loop}) part += {name}_{label}[{place}] * {vector};\n    sum += {scale}part;"
        )
    kept = "" if weights.leak == 1 else f"{_literal(1 - leak)} * state[i] + {_literal(leak)} * "
    return "\n".join(
        [
            f"static inline void {name}_step(const {real} *u, {real} *state, {real} *y) {{",
            f"  {real} next[{upper}_UNITS], sum, part;",
            "  int i, j;",
            f"  for (i = 0; i < {upper}_UNITS; ++i) {{",
            f"    sum = {name}_bias[i];",
            *products,
            f"    next[i] = {kept}{name}_f(sum);",
            "  }",
            f"  for (i = 0; i < {upper}_UNITS; ++i) state[i] = next[i];",
            *_readout(weights, name, upper),
            "}\n",
        ]
    )


def _readout(weights: EsnWeights, name: str, upper: str) -> list[str]:
    if weights.w_out is None:
        return ["  (void)y;"]
    width = f"({upper}_UNITS + {upper}_INPUTS)" if weights.passthrough else f"{upper}_UNITS"
    lines = [
        f"  for (i = 0; i < {upper}_OUTPUTS; ++i) {{",
        f"    sum = {name}_out_bias[i];",
        f"    for (j = 0; j < {upper}_UNITS; ++j) sum += {name}_w_out[i * {width} + j] * state[j];",
    ]
    if weights.passthrough:
        lines.append(
            f"    for (j = 0; j < {upper}_INPUTS; ++j) sum += {name}_w_out[i * {width} + {upper}_UNITS + j] * u[j];"
        )
    return [*lines, "    y[i] = sum;", "  }"]
