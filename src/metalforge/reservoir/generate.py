r"""Random networks from a seed: real matrices, or 4-bit integers times one scale, which an int4 device holds exactly.

    W = scale * Q,    Q in -7 .. 7

The spectral radius of W is scale times that of Q, so the scale, one host float, makes it exact.
"""

import warnings
from typing import Any, Literal

import numpy as np

from metalforge.core import FeatureSchema, Reals, SpecError, require_not_negative, require_positive

from .activations import ActivationName
from .matrices import Distribution, random_matrix, to_kind, with_spectral_radius
from .sparse import Kind, Matrix, kind_of, to_dense
from .weights import EsnWeights, UnstableReservoirWarning

LARGEST = 7
"""Largest integer of four bits on a symmetric grid: the chip has no -8."""


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
    require_positive(input_scaling=input_scaling, feedback_scaling=feedback_scaling)
    require_not_negative(bias_scaling=bias_scaling)
    if feedback < 0:
        raise SpecError(f"`feedback` must be 0 or a number of outputs. Got {feedback}")
    if spectral_radius > 1:
        warnings.warn(
            f"spectral radius {spectral_radius:.4g} is above 1: the state may not forget its start",
            UnstableReservoirWarning,
            stacklevel=2,
        )
    for_in, for_res, for_bias, for_feedback = np.random.default_rng(seed).spawn(4)

    def connections(
        rng: np.random.Generator, columns: int, distribution: Distribution, share: float, kind: Kind = "dense"
    ) -> Matrix:
        drawn = random_matrix(rng, units, columns, distribution=distribution, connectivity=share, kind=kind)
        return drawn if grid is None else int4_grid(drawn)

    def driving(rng: np.random.Generator, columns: int, share: float, scaling: float) -> Reals:
        largest = 1 if grid is None else LARGEST
        return (to_dense(connections(rng, columns, input_distribution, share)) * (scaling / largest)).astype(dtype)

    recurrent = with_spectral_radius(connections(for_res, units, distribution, connectivity, kind), spectral_radius)
    return EsnWeights(
        w_in=driving(for_in, inputs, input_connectivity, input_scaling),
        w_res=recurrent.astype(dtype),
        bias=for_bias.uniform(-bias_scaling, bias_scaling, units).astype(dtype),
        leak=leak,
        activation=activation,
        w_fb=driving(for_feedback, feedback, 1.0, feedback_scaling) if feedback else None,
        features=features,
    )


def int4_grid(matrix: Matrix) -> Matrix:
    r"""Return the connections of a matrix rounded to whole numbers of -7 .. 7, row by row; the kind stays.

        q = sign(x) ceil(7 |x| / max |x| of its row)

    Rounding up keeps every connection (|q| >= 1), and every row holds a 7 or -7. So quantisation of a multiple of it
    by the largest weight of the tensor, or of each row, finds these integers again and loses nothing. Ternary
    connections are -7 and 7.
    """
    x = to_dense(matrix)
    share = np.abs(x) / np.abs(x).max(axis=1, keepdims=True)
    return to_kind(np.copysign(np.ceil(LARGEST * share), x), kind_of(matrix))
