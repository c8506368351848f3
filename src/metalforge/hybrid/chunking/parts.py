r"""Some rows of a reservoir, on a device or in software: they give their part of a step from the whole state.

    s'_R = (1 - a) s_R + a f(W_in,R u + W_res,R s + b_R)        rows R; s is the state of all units

In software the rows are a network of their own whose inputs are [u; s] and which has no recurrent weights. The kernels
add bias, inputs and states of a unit in the order of their numbers, so that sum has the order, and the bits, that it
has in the whole network. A sparse matrix keeps its form: the network then has all units, and weights for these rows
only; zeros that are not stored change no sum.

(On a device a row's integers and scale depend on that row alone, and joining integers is exact. So rows give the same
potentials in whatever program they are, and a network in chunks is one `DeviceMatrix` for each.)
"""

from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metalforge.hybrid.running.device_matrix import DeviceMatrix
from metalforge.hybrid.running.failure import DeviceGuard, OnFailure
from metalforge.reservoir.engine import Engine
from metalforge.reservoir.sparse import BlockSparse, to_dense
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.residency import DevicePrograms

from .plan import Chunk

__all__ = ["ChunkPart", "software_weights"]

Reals: TypeAlias = NDArray[np.floating[Any]]


class ChunkPart:
    """One chunk at work: its rows on the device, in software, or in software since the device failed."""

    def __init__(self, weights: EsnWeights, chunk: Chunk, programs: DevicePrograms | None, policy: OnFailure) -> None:
        self.chunk, self.guard = chunk, DeviceGuard(policy)
        self.span = slice(chunk.rows.start, chunk.rows.stop)
        self.matrix: DeviceMatrix | None = None
        if chunk.compiled is not None and programs is not None:
            self.matrix = DeviceMatrix(chunk.compiled, programs, chunk.name)
        self._weights = weights

    def product(self, lines: Reals, *, backwards: bool) -> NDArray[np.float64] | None:
        """Return pre-activations (batch, rows) from the device; None where these rows are the host's."""
        matrix = self.matrix
        return None if matrix is None else self.guard.call(lambda: matrix(lines, backwards=backwards), lambda: None)

    def in_software(self, u: Reals, s: Reals) -> Reals:
        """Return new states (batch, rows) for inputs and states of all units: the bits of the whole network."""
        if not isinstance(self._weights.w_res, np.ndarray):
            return self._engine.step(s, u)[:, self.span]
        return self._engine.step(np.ascontiguousarray(s[:, self.span]), np.concatenate([u, s], axis=1))

    @cached_property
    def _engine(self) -> Engine:
        return Engine(software_weights(self._weights, self.chunk.rows))


def software_weights(weights: EsnWeights, rows: range) -> EsnWeights:
    """Return the network of some rows: inputs [u; s] and no recurrence, or all units with these rows' weights."""
    span, w_res = slice(rows.start, rows.stop), weights.w_res
    bare = replace(weights, w_out=None, out_bias=None, heads=None, features=None)
    if isinstance(w_res, np.ndarray):
        w_in = np.hstack([weights.w_driven[span], w_res[span]])
        nothing = csr_array((len(rows), len(rows)), dtype=weights.dtype)
        return replace(bare, w_in=w_in, w_res=nothing, bias=weights.bias[span], w_fb=None)
    full = csr_array(to_dense(w_res)) if isinstance(w_res, BlockSparse) else w_res
    kept = full.copy()
    kept.sum_duplicates()
    start, stop = kept.indptr[rows.start], kept.indptr[rows.stop]
    starts = np.clip(kept.indptr, start, stop) - start
    own = csr_array((kept.data[start:stop], kept.indices[start:stop], starts), shape=w_res.shape)
    return replace(bare, w_res=own)
