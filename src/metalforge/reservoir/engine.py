r"""The state update in compiled kernels: a step or a sequence, of one network input or of a batch.

    s' = (1 - a) s + a f(W_in u + W_res s + b)

Shapes: a state is (units,) and a batch of them (samples, units). The inputs of a step are (inputs,) or (samples,
inputs), of a sequence (steps, inputs) or (samples, steps, inputs). A batch is a product of matrices: weights are read
once for several samples.

All arithmetic is in the real type of the weights. A unit's sum has one order (b, then inputs, then states, each by its
number), so the dense, CSR and block-sparse form of a matrix, a step and a sequence, a sample alone and in a batch, and
any number of threads give the same bits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from metalforge.core import Reals, SpecError
from metalforge.native import kernels, thread_count

from .sparse import BlockSparse, checked_csr
from .weights import EsnWeights


def init(weights: EsnWeights, batch: int | None = None) -> Reals:
    """Return a state at rest, (units,), or (batch, units)."""
    return np.zeros(weights.units if batch is None else (batch, weights.units), weights.dtype)


class EsnEngine:
    """A network whose weights lie ready for the kernels: a function of state and input, without a state of its own.

    With feedback weights an input is [u; y], `inputs` wide: the outputs of the step before follow the inputs. `threads`
    is for batches (None: the package default); it changes no result.
    """

    __slots__ = ("_run", "_step", "dtype", "inputs", "native", "threads", "units", "weights")

    def __init__(self, weights: EsnWeights, *, threads: int | None = None) -> None:
        self.weights = weights
        self.units = weights.units
        self.inputs = weights.inputs + weights.feedback
        self.dtype = weights.dtype
        self.threads = thread_count(threads)
        self.native = _pack(weights, self.threads)
        self._step: Callable[..., Reals] = self.native.step
        self._run: Callable[..., None] = self.native.run

    def __reduce__(self) -> Any:
        return partial(EsnEngine, threads=self.threads), (self.weights,)

    def step(self, state: ArrayLike, u: ArrayLike, out: Reals | None = None) -> Reals:
        """Return the state after one step from `state` with input `u`; both single or both a batch.

        The result is a new array, or `out`, which may be `state` itself. Arrays of another type or order are converted.
        Raises TypeError or ValueError (OverflowError when the state leaves the finite numbers).
        """
        try:  # arrays that are right already go straight in: everything else is converted and tried once more
            return self._step(state, u, out)
        except (TypeError, ValueError):
            start, inputs = self._reals("state", state), self._reals("u", u)
        return self._step(start, inputs, out)

    def run(self, u: ArrayLike, state: ArrayLike | None = None, out: Reals | None = None) -> Reals:
        """Return the states after each row of `u`, (steps, units) or (samples, steps, units).

        It starts from `state`, which stays as it is, or from rest, and writes to `out` where that is given. Raises as
        `step` does; SpecError when `u` is neither a sequence nor a batch of them.
        """
        inputs = self._reals("u", u)
        if inputs.ndim not in (2, 3):
            raise SpecError(
                f"`u` must be of shape (steps, {self.inputs}) or (samples, steps, {self.inputs}). Got {inputs.shape}"
                "\nhint: one step is `step(state, u)`"
            )
        if state is None:
            start = init(self.weights, None if inputs.ndim == 2 else inputs.shape[0])
        else:
            start = self._reals("state", state)
        states: Reals = np.empty((*inputs.shape[:-1], self.units), self.dtype) if out is None else out
        self._run(inputs, start, states)
        return states

    def _reals(self, name: str, values: Any) -> Reals:
        """Return values as a C-ordered array of this network's type; raises when they are not real numbers."""
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise SpecError(f"`{name}` must hold real numbers. Got an array of {array.dtype}")
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf, which the kernel refuses by name
            return np.ascontiguousarray(array, self.dtype) if array.ndim else np.array(array, self.dtype)


class Affine:
    """y = b + W x, with the terms of a row in the order of their numbers: the same bits alone and in any batch.

    `native` takes x in two parts, of which the first has `first` numbers (all, without).
    """

    def __init__(self, matrix: Reals, bias: Reals | None = None, *, first: int | None = None) -> None:
        self.outputs, self.inputs = matrix.shape
        self.dtype = matrix.dtype
        module = kernels()
        kind = module.Affine_f32 if matrix.dtype == np.float32 else module.Affine_f64
        offset = np.zeros(self.outputs, matrix.dtype) if bias is None else np.ascontiguousarray(bias)
        self.native: Any = kind(np.ascontiguousarray(matrix), offset, first or self.inputs)

    def __call__(self, x: Reals) -> Reals:
        """Return y (..., outputs) for x (..., inputs), in one part."""
        given = np.ascontiguousarray(x, self.dtype)
        y: Reals = np.empty((*given.shape[:-1], self.outputs), self.dtype)
        self.native.outputs(given.reshape(-1, self.inputs), None, y.reshape(-1, self.outputs))
        return y


def _pack(weights: EsnWeights, threads: int) -> Any:
    """Return the native network; the recurrent matrix keeps its form."""
    kind = getattr(kernels(), "Esn_f32" if weights.dtype == np.float32 else "Esn_f64")
    common = {
        "w_in": np.ascontiguousarray(weights.w_driven),
        "bias": np.ascontiguousarray(weights.bias),
        "leak": float(weights.leak),
        "activation": weights.activation,
        "threads": threads,
    }
    w_res = weights.w_res
    # A matrix that stores nothing goes in as zeros: the kernels refuse empty arrays.
    if isinstance(w_res, BlockSparse):
        if w_res.columns.size == 0:
            w_res = csr_array(w_res.shape, dtype=weights.dtype)
        else:
            columns, values = np.ascontiguousarray(w_res.columns), np.ascontiguousarray(w_res.values)
            return kind.blocks(columns=columns, values=values, **common)
    if isinstance(w_res, csr_array):
        indptr, indices, data = _rows(w_res)
        return kind.csr(indptr=indptr, indices=indices, data=data, **common)
    return kind.dense(w_res=np.ascontiguousarray(w_res), **common)


def _rows(matrix: csr_array) -> tuple[NDArray[np.int32], NDArray[np.int32], Reals]:
    """Return row starts, columns and values, columns increasing: the order of the sums, whatever order they came in."""
    # Another object over the same arrays, which the check may trim.
    matrix = checked_csr((matrix.data, matrix.indices, matrix.indptr), matrix.shape)
    if matrix.nnz > np.iinfo(np.int32).max:
        raise SpecError(f"`w_res` must store fewer than 2^31 weights. Got {matrix.nnz}")
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if matrix.nnz == 0:
        starts = np.ones(matrix.shape[0] + 1, np.int32)
        starts[0] = 0
        return starts, np.zeros(1, np.int32), np.zeros(1, matrix.dtype)
    starts, columns = (np.ascontiguousarray(part, np.int32) for part in (matrix.indptr, matrix.indices))
    return starts, columns, np.ascontiguousarray(matrix.data)
