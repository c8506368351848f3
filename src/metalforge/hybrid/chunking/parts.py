r"""Some rows of a reservoir in software: they give their part of a step from the whole state.

    s'_R = (1 - a) s_R + a f(W_in,R u + W_res,R s + b_R)        rows R; s is the state of all units

The rows are a network of their own whose inputs are [u; s] and which has no recurrent weights. The kernels
add bias, inputs and states of a unit in the order of their numbers, so that sum has the order, and the bits, that it
has in the whole network. A sparse matrix keeps its form: the network then has all units, and weights for these rows
only; zeros that are not stored change no sum.

(On a device a row's integers and scale depend on that row alone, and joining integers is exact. So rows give the same
potentials in whatever program they are, and a network in chunks is one `DeviceMatrix` for each.)
"""

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metalforge.hybrid.esn.paths import input_weights
from metalforge.reservoir.engine import Engine
from metalforge.reservoir.sparse import BlockSparse, to_dense
from metalforge.reservoir.weights import EsnWeights

__all__ = ["SoftwareRows", "software_weights"]

Reals: TypeAlias = NDArray[np.floating[Any]]


class SoftwareRows:
    """Rows in software: bitwise what the whole network gives for them."""

    def __init__(self, weights: EsnWeights, rows: range) -> None:
        self._rows = slice(rows.start, rows.stop)
        self._engine = Engine(software_weights(weights, rows))
        self._whole = self._engine.units == weights.units and not isinstance(weights.w_res, np.ndarray)

    def __call__(self, u: Reals, s: Reals) -> Reals:
        """Return the new states of the rows, (batch, rows), for inputs (batch, inputs) and states (batch, units)."""
        if self._whole:
            return self._engine.step(s, u)[:, self._rows]
        own = np.ascontiguousarray(s[:, self._rows])
        return self._engine.step(own, np.concatenate([u, s], axis=1))


def software_weights(weights: EsnWeights, rows: range) -> EsnWeights:
    """Return the network of some rows: inputs [u; s] and no recurrence, or all units with these rows' weights."""
    span, w_res = slice(rows.start, rows.stop), weights.w_res
    bare = replace(weights, w_out=None, out_bias=None, heads=None, features=None)
    if isinstance(w_res, np.ndarray):
        w_in = np.hstack([input_weights(weights)[span], w_res[span]])
        nothing = csr_array((len(rows), len(rows)), dtype=weights.dtype)
        return replace(bare, w_in=w_in, w_res=nothing, bias=weights.bias[span], w_fb=None)
    full = csr_array(to_dense(w_res)) if isinstance(w_res, BlockSparse) else w_res
    kept = full.copy()
    kept.sum_duplicates()
    start, stop = kept.indptr[rows.start], kept.indptr[rows.stop]
    starts = np.clip(kept.indptr, start, stop) - start
    own = csr_array((kept.data[start:stop], kept.indices[start:stop], starts), shape=w_res.shape)
    return replace(bare, w_res=own)
