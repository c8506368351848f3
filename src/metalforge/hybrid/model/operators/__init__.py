"""ONNX operators in NumPy: arrays in, arrays out, in the type of the arrays.

Each is a function of the operator's inputs by position (None where an optional one is absent) and its attributes by
name, with the defaults of the standard; it has no other attributes, so that one it does not know is an error and never
ignored. They follow the newest form of an operator; `onnx_model` turns older forms into it. (ONNX operator
specification, opsets 11 to 25; onnxruntime is the oracle of the tests.)
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

from . import arithmetic, quantized, recurrent, reductions, shaping, windows

__all__ = ["ML_OPERATORS", "OPERATORS", "compute"]

Array = NDArray[Any]

OPERATORS: Mapping[str, Callable[..., Any]] = {
    **arithmetic.TABLE,
    **quantized.TABLE,
    **recurrent.TABLE,
    **reductions.TABLE,
    **shaping.TABLE,
    **windows.TABLE,
}
"""By name."""
ML_OPERATORS = frozenset({"ArrayFeatureExtractor", "Scaler"})
"""Those of the domain ai.onnx.ml; all others belong to the standard domain."""


def compute(
    op_type: str, inputs: Sequence[Array | None], attributes: Mapping[str, Any], n_outputs: int = 1
) -> tuple[Array, ...]:
    """Return the first outputs of an operator; raises `SpecError` when it cannot take these inputs or attributes."""
    operator = OPERATORS.get(op_type)
    if operator is None:
        raise SpecError(f"unknown operator `{op_type}`; known: {', '.join(sorted(OPERATORS))}")
    known = _attributes(op_type)
    if strange := sorted(set(attributes) - known):
        raise SpecError(f"attribute `{strange[0]}` is not supported; supported: {', '.join(sorted(known)) or 'none'}")
    try:
        # Overflow to inf and 0/0 to NaN are results that the standard defines, not faults of the program.
        with np.errstate(all="ignore"):
            found = operator(*inputs, **attributes)
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        came = ", ".join("none" if x is None else f"{x.dtype} {x.shape}" for x in inputs)
        raise SpecError(f"cannot take its inputs ({error}). Got {came}") from error
    outputs = found if isinstance(found, tuple) else (found,)
    if n_outputs > len(outputs):
        raise SpecError(f"has {len(outputs)} outputs here. Got a model that wants {n_outputs}")
    return tuple(np.asarray(value) for value in outputs[:n_outputs])


@cache
def _attributes(op_type: str) -> frozenset[str]:
    parameters = signature(OPERATORS[op_type]).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)
