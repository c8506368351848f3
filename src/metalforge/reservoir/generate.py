r"""Random networks from a seed: real matrices, or 4-bit integers times one scale, which an int4 device holds exactly.

    W = scale * Q,    Q in -7 .. 7

The spectral radius of W is scale times that of Q, so the scale, one host float, makes it exact.
"""

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.core.schema import FeatureSchema

from .activations import ActivationName
from .matrices import Distribution, Kind, nonzero_radius, random_matrix, scaled, to_kind, with_spectral_radius
from .sparse import Matrix, to_dense
from .weights import EsnWeights, UnstableReservoirWarning

LARGEST = 7
"""Largest integer of four bits on a symmetric grid: the chip has no -8."""


class Int4Matrix(NamedTuple):
    """A matrix scale * integers; `integers` is int8 of shape (rows, columns) within -7 .. 7."""

    integers: NDArray[np.int8]
    scale: float

    def real(self, dtype: Any = np.float64, kind: Kind = "dense") -> Matrix:
        """Return scale * integers, each rounded once to `dtype`."""
        return to_kind((self.scale * self.integers.astype(np.float64)).astype(dtype), kind)


def make_esn(
    units: int,
    inputs: int,
    *,
    seed: int,
    spectral_radius: float = 0.9,
    leak: float = 1.0,
    input_scaling: float = 1.0,
    bias_scaling: float = 0.0,
    connectivity: float = 0.1,
    input_connectivity: float = 1.0,
    distribution: Distribution = "normal",
    input_distribution: Distribution = "uniform",
    activation: ActivationName = "tanh",
    kind: Kind = "dense",
    grid: Literal["int4"] | None = None,
    feedback: int = 0,
    feedback_scaling: float = 1.0,
    dtype: Any = np.float64,
    features: FeatureSchema | None = None,
) -> EsnWeights:
    """Return a random network without a readout; the same arguments give the same network.

    Recurrent connections follow `distribution` and are scaled to the spectral radius by their eigenvalues. Input
    connections follow `input_distribution` times `input_scaling`, those from `feedback` outputs likewise with
    `feedback_scaling`, all of them connected; the bias is uniform within +-`bias_scaling`. Connectivities are shares of
    connections, the same number for every unit.

    With `grid="int4"` the matrices are integers of -7 .. 7 times a scale each; the largest input weight of each unit is
    then `input_scaling`. The bias stays real: the host adds it.

    Each matrix has a stream of its own, so that another connectivity or leak leaves the other matrices as they were.
    Warns when the spectral radius is above 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SpecError(f"`seed` must be a whole number, not negative. Got {seed!r}")
    if grid not in (None, "int4"):
        raise SpecError(f"`grid` must be None (real weights) or int4. Got {grid!r}")
    for name, scaling in (("input_scaling", input_scaling), ("feedback_scaling", feedback_scaling)):
        if not 0 < scaling < np.inf:
            raise SpecError(f"`{name}` must be above 0 and finite. Got {scaling}")
    if not 0 <= bias_scaling < np.inf:
        raise SpecError(f"`bias_scaling` must be 0 or more, and finite. Got {bias_scaling}")
    if feedback < 0:
        raise SpecError(f"`feedback` must be 0 or a number of outputs. Got {feedback}")
    if spectral_radius > 1:
        warnings.warn(
            f"spectral radius {spectral_radius:.4g} is above 1: the state may not forget its start",
            UnstableReservoirWarning,
            stacklevel=2,
        )
    for_in, for_res, for_bias, for_feedback = np.random.default_rng(seed).spawn(4)

    w_res = _connections(
        for_res, units, units, distribution, connectivity, grid=grid, kind=kind, radius=spectral_radius, dtype=dtype
    )
    w_in = _connections(
        for_in, units, inputs, input_distribution, input_connectivity, grid=grid, factor=input_scaling, dtype=dtype
    )
    w_fb = None
    if feedback:
        w_fb = _connections(
            for_feedback, units, feedback, input_distribution, 1.0, grid=grid, factor=feedback_scaling, dtype=dtype
        )
    return EsnWeights(
        w_in=to_dense(w_in),
        w_res=w_res,
        bias=for_bias.uniform(-bias_scaling, bias_scaling, units).astype(dtype),
        leak=leak,
        activation=activation,
        w_fb=None if w_fb is None else to_dense(w_fb),
        features=features,
    )


def int4_grid(
    rng: np.random.Generator,
    rows: int,
    columns: int,
    *,
    distribution: Distribution = "normal",
    connectivity: float = 1.0,
    kind: Kind = "dense",
    spectral_radius: float | None = None,
    largest: float = 1.0,
) -> Int4Matrix:
    r"""Return a random matrix on the int4 grid: connections drawn as `random_matrix` does, then rounded row by row.

        q = sign(x) ceil(7 |x| / max |x| of its row)

    Rounding up keeps every connection (|q| >= 1), and every row holds a 7 or -7. So quantisation by the largest weight
    of the tensor, or of each row, finds these integers again and loses nothing. Ternary connections are -7 and 7.
    The scale makes the spectral radius `spectral_radius`, or without one the largest weight `largest`.
    """
    drawn = random_matrix(rng, rows, columns, distribution=distribution, connectivity=connectivity, kind=kind)
    x = to_dense(drawn)
    share = np.abs(x) / np.abs(x).max(axis=1, keepdims=True)
    integers = np.copysign(np.ceil(LARGEST * share), x).astype(np.int8)
    if spectral_radius is None:
        return Int4Matrix(integers, largest / LARGEST)
    if not 0 < spectral_radius < np.inf:
        raise SpecError(f"`spectral_radius` must be above 0 and finite. Got {spectral_radius}")
    return Int4Matrix(integers, spectral_radius / nonzero_radius(to_kind(integers.astype(np.float64), kind)))


def _connections(
    rng: np.random.Generator,
    rows: int,
    columns: int,
    distribution: Distribution,
    connectivity: float,
    *,
    grid: Literal["int4"] | None,
    dtype: Any,
    kind: Kind = "dense",
    radius: float | None = None,
    factor: float = 1.0,
) -> Matrix:
    """Return a matrix of a spectral radius, or without one times a factor; real, or on the grid."""
    if grid == "int4":
        on_grid = int4_grid(
            rng,
            rows,
            columns,
            distribution=distribution,
            connectivity=connectivity,
            kind=kind,
            spectral_radius=radius,
            largest=factor,
        )
        return on_grid.real(dtype, kind)
    drawn = random_matrix(rng, rows, columns, distribution=distribution, connectivity=connectivity, kind=kind)
    fitted = scaled(drawn, factor) if radius is None else with_spectral_radius(drawn, radius)
    return fitted.astype(dtype)
