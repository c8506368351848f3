"""Block-16 sparsity: sixteen neighbouring units share the units they listen to.

A product then reads one state value and sixteen weights at a time, which vectors do well; a free CSR pattern needs a
gather for every weight. Reservoirs of both kinds do equally well (`benchmarks/reservoir/` and its README say how they
compare).
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metalforge.core import BriefRepr, Reals, SpecError

BLOCK = 16
"""Units that share their inputs: a vector of sixteen floats on AVX-512, two of eight on AVX2."""


def in_blocks(full: Reals) -> Reals:
    """Return a matrix (rows, columns) as (blocks, 16, columns); zeros fill the last block."""
    padded = np.zeros((-(-len(full) // BLOCK) * BLOCK, full.shape[1]), full.dtype)
    padded[: len(full)] = full
    return padded.reshape(-1, BLOCK, full.shape[1])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockSparse(BriefRepr):
    """A matrix (rows, columns): entry r of block b in column `columns[b, k]` is `values[b, k, r]`.

    `columns` is int32 of shape (blocks, per_block), each row increasing; `values` is (blocks, per_block, 16). Rows past
    `rows` in the last block are zero.
    """

    rows: int
    n_columns: int
    columns: NDArray[np.int32]
    values: Reals

    def __post_init__(self) -> None:
        blocks = -(-self.rows // BLOCK)
        c, v = self.columns, self.values
        if c.dtype != np.int32 or c.ndim != 2 or c.shape[0] != blocks or v.shape != (*c.shape, BLOCK):
            raise SpecError(
                f"a block-sparse matrix of {self.rows} rows wants int32 `columns` ({blocks}, k) and `values` "
                f"({blocks}, k, {BLOCK}). Got {c.dtype} {c.shape} and {v.shape}"
            )
        if c.size and (c.min() < 0 or c.max() >= self.n_columns or np.any(np.diff(c, axis=1) <= 0)):
            raise SpecError(f"`columns` of a block must increase and lie in 0 .. {self.n_columns - 1}")
        if np.any(v.transpose(0, 2, 1).reshape(blocks * BLOCK, -1)[self.rows :]):
            raise SpecError(f"`values` of rows past {self.rows} must be zero")

    @classmethod
    def of(cls, full: Reals, columns: NDArray[np.int32]) -> "BlockSparse":
        """Return a full matrix as far as it lies in these columns of its blocks."""
        rows, n_columns = full.shape
        blocks = in_blocks(full)
        values = np.take_along_axis(blocks, columns[:, np.newaxis, :].astype(np.intp), axis=2).transpose(0, 2, 1)
        return cls(rows, n_columns, columns, np.ascontiguousarray(values))

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows, self.n_columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return self.values.dtype

    def astype(self, dtype: Any) -> "BlockSparse":
        """Return a copy with values of another type."""
        return BlockSparse(self.rows, self.n_columns, self.columns, self.values.astype(dtype))

    def to_dense(self) -> Reals:
        """Return the matrix in full."""
        full = np.zeros((len(self.columns), BLOCK, self.n_columns), self.values.dtype)
        for block, (columns, values) in enumerate(zip(self.columns, self.values, strict=True)):
            full[block, :, columns] = values
        return full.reshape(-1, self.n_columns)[: self.rows]


Matrix: TypeAlias = Reals | csr_array | BlockSparse
"""What a recurrent matrix may be."""
Kind: TypeAlias = Literal["dense", "csr", "block16"]
"""How a matrix is kept."""


def kind_of(matrix: Matrix) -> Kind:
    """Return how a matrix is kept."""
    return "block16" if isinstance(matrix, BlockSparse) else "csr" if isinstance(matrix, csr_array) else "dense"


def to_dense(matrix: Matrix) -> Reals:
    """Return a matrix in full."""
    if isinstance(matrix, BlockSparse):
        return matrix.to_dense()
    if isinstance(matrix, csr_array):
        return np.asarray(matrix.toarray())
    return matrix


def checked_csr(parts: tuple[NDArray[Any], ...], shape: tuple[int, int]) -> csr_array:
    """Return the recurrent matrix of CSR values, columns and row starts; all are checked, as SciPy trusts indices."""
    try:
        matrix = csr_array(parts, shape=shape)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise SpecError(f"`w_res` is not a valid CSR matrix: {error}") from error
    return matrix


def arrays_of(matrix: Matrix) -> dict[str, NDArray[Any]]:
    """Return what a matrix is made of, by name: where its connections are, and at the end their weights."""
    if isinstance(matrix, BlockSparse):
        return {"columns": matrix.columns, "values": matrix.values}
    if isinstance(matrix, csr_array):
        return {"indptr": matrix.indptr, "indices": matrix.indices, "data": matrix.data}
    return {"": matrix}


def weights_of(matrix: Matrix) -> Reals:
    """Return the weights that a matrix keeps."""
    return list(arrays_of(matrix).values())[-1]
