"""Random matrices from a generator: full, CSR or block-16, of a given share of connections and spectral radius."""

from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from metalforge.core import Doubles, Reals, SpecError, require_known, require_positive

from .sparse import BLOCK, BlockSparse, Kind, Matrix, in_blocks, to_dense
from .weights import spectral_radius

Distribution: TypeAlias = Literal["normal", "uniform", "ternary"]
"""Of the connections: standard normal, uniform in -1 .. 1, or -1 and 1 alike (0 is where there is no connection)."""

LOST_IN_ROUNDING = 1e-7
"""A spectral radius below this share of the matrix's norm is rounding: eigenvalues of a nilpotent matrix of index 2 can
come out of LAPACK as large as the root of epsilon, 1.5e-8."""


def random_matrix(
    rng: np.random.Generator,
    rows: int,
    columns: int,
    *,
    distribution: Distribution = "normal",
    connectivity: float = 1.0,
    kind: Kind = "dense",
) -> Matrix:
    """Return a float64 matrix whose rows have k = round(connectivity * columns) connections each, and at least one.

    The k columns of a row are drawn without repetition; in a block-16 matrix they are drawn once for sixteen rows. So
    every unit listens to equally many others, and the share of non-zero entries is k / columns exactly. `dense` and
    `csr` give the same matrix for the same generator.
    """
    require_known("distribution", distribution, get_args(Distribution))
    require_known("kind of matrix", kind, get_args(Kind))
    if rows < 1 or columns < 1:
        raise SpecError(f"a matrix wants at least one row and one column. Got {rows} and {columns}")
    if not 0 < connectivity <= 1:
        raise SpecError(f"`connectivity` must be above 0 and at most 1 (a share of connections). Got {connectivity}")
    k = max(1, round(connectivity * columns))
    if kind == "block16":
        blocks = -(-rows // BLOCK)
        chosen = _columns(rng, blocks, columns, k)
        values = _values(rng, distribution, (blocks, k, BLOCK))
        values[-1, :, rows - (blocks - 1) * BLOCK :] = 0
        return BlockSparse(rows, columns, chosen, values)
    chosen, values = _columns(rng, rows, columns, k), _values(rng, distribution, (rows, k))
    if kind == "csr":
        starts = np.arange(0, rows * k + 1, k)
        return csr_array((values.ravel(), chosen.ravel(), starts), shape=(rows, columns))
    full = np.zeros((rows, columns))
    np.put_along_axis(full, chosen.astype(np.intp), values, axis=1)
    return full


def with_spectral_radius(matrix: Matrix, radius: float) -> Matrix:
    """Return the matrix times the factor that makes its largest |eigenvalue| `radius`, exact to rounding.

    Raises SpecError when no factor can: when there is no cycle of connections, or the eigenvalues cancel to nothing.
    """
    require_positive(radius=radius)
    return scaled(matrix, radius / nonzero_radius(matrix))


def scaled(matrix: Matrix, factor: float) -> Matrix:
    """Return the matrix times a factor, of the same kind and type."""
    if isinstance(matrix, BlockSparse):
        return BlockSparse(matrix.rows, matrix.n_columns, matrix.columns, matrix.values * factor)
    return matrix * factor


def nonzero_radius(matrix: Matrix) -> float:
    """Return the spectral radius; raises SpecError where it is zero, or so small that it is rounding."""
    if matrix.shape[0] != matrix.shape[1]:
        raise SpecError(f"only a square matrix has a spectral radius. Got {matrix.shape}")
    sparse = matrix if isinstance(matrix, csr_array) else csr_array(to_dense(matrix))
    if not _has_cycle(sparse):
        raise SpecError(
            "no unit of this matrix reaches itself, so its spectral radius is 0 whatever the scale"
            "\nhint: raise `connectivity`, or scale by a factor of your own"
        )
    # A large matrix is multiplied many times to find its eigenvalues, whichever kind it is: mostly zeros go fastest so.
    found = spectral_radius(sparse if sparse.nnz < sparse.shape[0] ** 2 / 4 else to_dense(matrix))
    if not found > LOST_IN_ROUNDING * float(np.linalg.norm(sparse.data)):
        raise SpecError(
            f"the eigenvalues of this matrix cancel (largest {found:.2g}): take another seed or distribution"
        )
    return found


def to_kind(full: Reals, kind: Kind) -> Matrix:
    """Return a full matrix kept in another way, without its zeros; the inverse of `to_dense`.

    All blocks of a block-16 matrix have as many columns as the fullest; zeros fill the others.
    """
    require_known("kind of matrix", kind, get_args(Kind))
    if kind == "dense":
        return full
    if kind == "csr":
        return csr_array(full)
    used = np.any(in_blocks(full), axis=1)
    k = max(1, int(used.sum(axis=1).max()))
    # A stable sort puts used columns first, in order; the first k, sorted again, are the used ones and some empty ones.
    chosen = np.sort(np.argsort(~used, axis=1, kind="stable")[:, :k], axis=1)
    return BlockSparse.of(full, chosen.astype(np.int32))


def _columns(rng: np.random.Generator, groups: int, columns: int, k: int) -> NDArray[np.int32]:
    """Return k different columns per group, increasing; nothing is drawn when all are taken."""
    if k == columns:
        return np.tile(np.arange(columns, dtype=np.int32), (groups, 1))
    drawn = [rng.choice(columns, k, replace=False, shuffle=False) for _ in range(groups)]
    return np.sort(np.array(drawn, np.int32), axis=1)


def _values(rng: np.random.Generator, distribution: Distribution, shape: tuple[int, ...]) -> Doubles:
    if distribution == "normal":
        return rng.normal(size=shape)
    if distribution == "uniform":
        return rng.uniform(-1, 1, shape)
    return rng.choice([-1.0, 1.0], shape)


def _has_cycle(matrix: csr_array) -> bool:
    """Return whether some unit reaches itself: in a loop of its own, or in a strong component with others."""
    components, _ = connected_components(matrix, directed=True, connection="strong")
    return bool(np.any(matrix.diagonal())) or components < matrix.shape[0]
