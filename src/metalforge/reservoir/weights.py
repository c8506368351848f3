r"""The weights of an echo state network, validated when they are made.

    s' = (1 - a) s + a f(W_in u + W_res s + W_fb y + b)         state, of `units`
    y  = W_out [s; u] + b_out                                   output; u only with `passthrough`

Shapes: W_in (units, inputs), W_res (units, units), W_fb (units, outputs), b (units,), W_out (outputs, units) or
(outputs, units + inputs). `y` in the first line is the output of the step before. (H. Jaeger, GMD Report 148, 2001;
M. Lukosevicius, "A practical guide to applying echo state networks", 2012, for the leak.)
"""

import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from metalforge.core import BriefRepr, FeatureSchema, HeadLayout, Reals, SpecError, one_thread

from .activations import ActivationName, activation
from .sparse import BlockSparse, Matrix, to_dense, weights_of

DENSE_EIGENVALUES = 300
"""Up to so many units all eigenvalues are computed; beyond, Arnoldi iterations find the largest in less time."""
ARNOLDI_VALUES, ARNOLDI_VECTORS = 4, 60
"""Eigenvalues that must converge, and vectors of the subspace: random matrices have many of almost the same size, for
which SciPy's 20 vectors often are too few. Within 3e-14 of LAPACK, and twice as fast at 500 units."""
ARNOLDI_RESTARTS = 100
"""Restarts before all eigenvalues are computed after all; random matrices need a few tens."""


class UnstableReservoirWarning(UserWarning):
    """The recurrent matrix has a spectral radius above 1: the state may not forget its start."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The largest |input| and |state|: what the lines of a chip show; larger ones are clamped there."""

    u: float
    s: float

    def __post_init__(self) -> None:
        if not (0 < self.u < float("inf") and 0 < self.s < float("inf")):
            raise SpecError(f"ranges must be finite numbers above 0. Got {self.u} of inputs and {self.s} of states")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class EsnWeights(BriefRepr):
    """A network: immutable, of one real type (float32 or float64), with or without a readout.

    Arrays are kept as they come (no copies) and must not be changed afterwards; `replace` makes a changed one. `ranges`
    is its calibration for devices of few bits, measured on the data that it was made for; None where nobody did.
    `ridge` is the penalty that its readout was fitted with; None where it was not, or nobody knows.
    """

    w_in: Reals
    w_res: Matrix
    bias: Reals = None  # type: ignore[assignment]  # zeros, which __post_init__ makes
    leak: float = 1.0
    activation: ActivationName = "tanh"
    w_fb: Reals | None = None
    w_out: Reals | None = None
    out_bias: Reals | None = None
    passthrough: bool = False
    features: FeatureSchema | None = None
    heads: HeadLayout | None = None
    ranges: Ranges | None = None
    ridge: float | None = None

    def __post_init__(self) -> None:
        activation(self.activation)
        _matrix("w_in", self.w_in, (None, None))
        if self.w_in.dtype not in (np.float32, np.float64):
            raise SpecError(f"weights must be float32 or float64. Got {self.w_in.dtype}")
        units, inputs = self.w_in.shape
        if isinstance(self.w_res, np.ndarray):
            _matrix("w_res", self.w_res, (units, units))
        elif isinstance(self.w_res, csr_array | BlockSparse):
            if self.w_res.shape != (units, units):
                raise SpecError(f"`w_res` must have shape {(units, units)}. Got {self.w_res.shape}")
            require_finite("w_res", weights_of(self.w_res))
        else:
            kind = f"a SciPy {self.w_res.format} matrix" if issparse(self.w_res) else type(self.w_res).__name__
            raise SpecError(
                f"`w_res` must be a NumPy array, a scipy.sparse.csr_array or a BlockSparse. Got {kind}"
                "\nhint: scipy.sparse.csr_array(matrix)"
            )
        given: Reals | None = self.bias
        if given is None:
            object.__setattr__(self, "bias", np.zeros(units, self.dtype))
        _matrix("bias", self.bias, (units,))
        if not 0 < self.leak <= 1:
            raise SpecError(f"`leak` must be above 0 and at most 1. Got {self.leak}")
        if self.w_out is not None:
            width = units + inputs * self.passthrough
            _matrix("w_out", self.w_out, (None, width))
            if self.out_bias is None:
                object.__setattr__(self, "out_bias", np.zeros(self.w_out.shape[0], self.dtype))
            _matrix("out_bias", self.out_bias, (self.w_out.shape[0],))
        elif self.out_bias is not None:
            raise SpecError("`out_bias` without `w_out` has no meaning; give both")
        if self.w_fb is not None:
            _matrix("w_fb", self.w_fb, (units, None if self.w_out is None else self.w_out.shape[0]))
        for name in ("w_res", "bias", "w_fb", "w_out", "out_bias"):
            value = getattr(self, name)
            if value is not None and value.dtype != self.dtype:
                raise SpecError(f"all weights must be {self.dtype}, as `w_in` is. Got `{name}` of {value.dtype}")
        if self.features is not None and len(self.features) != inputs:
            raise SpecError(
                f"feature schema `{self.features.name}` names {len(self.features)} inputs, `w_in` has {inputs}"
            )
        if self.heads is not None and self.w_out is not None and self.heads.width != self.outputs:
            raise SpecError(
                f"head layout `{self.heads.name}` names {self.heads.width} outputs, `w_out` has {self.outputs}"
            )

    @property
    def units(self) -> int:
        """Size of the state."""
        return int(self.w_in.shape[0])

    @property
    def inputs(self) -> int:
        """Size of an input."""
        return int(self.w_in.shape[1])

    @property
    def outputs(self) -> int:
        """Rows of the readout; 0 without one."""
        return 0 if self.w_out is None else int(self.w_out.shape[0])

    def head_readout(self) -> tuple[HeadLayout, Reals, Reals]:
        """Return the layout of the heads, `w_out` and `out_bias`; raises `SpecError` for a network without them."""
        if self.heads is None or self.w_out is None or self.out_bias is None:
            raise SpecError("this network has no readout with a head layout\nhint: with_readout(..., heads=layout)")
        return self.heads, self.w_out, self.out_bias

    @property
    def feedback(self) -> int:
        """Outputs that are fed back; 0 without feedback."""
        return 0 if self.w_fb is None else int(self.w_fb.shape[1])

    @property
    def w_driven(self) -> Reals:
        """[W_in | W_fb]: what is fed back comes in beside the input."""
        return self.w_in if self.w_fb is None else np.concatenate([self.w_in, self.w_fb], axis=1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.w_in.dtype

    def astype(self, dtype: Any) -> "EsnWeights":
        """Return the same network in another real type."""
        arrays = {
            f.name: value.astype(dtype)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray | csr_array | BlockSparse)
        }
        return replace(self, **arrays)  # type: ignore[arg-type]  # by name

    def with_readout(
        self,
        w_out: Reals,
        out_bias: Reals | None = None,
        *,
        passthrough: bool | None = None,
        heads: HeadLayout | None = None,
        ridge: float | None = None,
    ) -> "EsnWeights":
        """Return the network with another readout, cast to its type; everything not given stays as it is.

        `ridge` belongs to the readout: that of the old one does not stay.
        """
        return replace(
            self,
            w_out=np.asarray(w_out, self.dtype),
            out_bias=np.zeros(len(w_out), self.dtype) if out_bias is None else np.asarray(out_bias, self.dtype),
            passthrough=self.passthrough if passthrough is None else passthrough,
            heads=self.heads if heads is None else heads,
            ridge=ridge,
        )

    def output(self, state: Reals, u: Reals | None = None) -> Reals:
        """Return y for states (..., units), and inputs (..., inputs) where the readout sees them."""
        if self.w_out is None or self.out_bias is None:
            raise SpecError("this network has no readout yet\nhint: fit one, or use with_readout(...)")
        if not self.passthrough:
            return np.asarray(state @ self.w_out.T + self.out_bias)
        if u is None:
            raise SpecError("this readout sees the inputs too: give `u`")
        w_state, w_input = self.w_out[:, : self.units], self.w_out[:, self.units :]
        return np.asarray(state @ w_state.T + u @ w_input.T + self.out_bias)


def spectral_radius(matrix: Matrix) -> float:
    """Return the largest |eigenvalue|: exact by LAPACK up to 300 units, by Arnoldi iterations beyond, on one core.

    Power iteration is not used: on a matrix without symmetry the norm of its iterates is not the spectral radius.
    """
    n = matrix.shape[0]
    with one_thread():  # threads of BLAS would only wait for each other
        if n > DENSE_EIGENVALUES:
            from scipy.sparse.linalg import ArpackError, eigs

            if isinstance(matrix, BlockSparse):
                matrix = csr_array(matrix.to_dense())
            start = np.random.default_rng(0).normal(size=n)  # a fixed start: the same matrix gives the same number
            how = {"k": ARNOLDI_VALUES, "ncv": ARNOLDI_VECTORS, "maxiter": ARNOLDI_RESTARTS}
            try:
                found = eigs(matrix.astype(np.float64), v0=start, return_eigenvectors=False, **how)
                return float(np.abs(found).max())
            except ArpackError:
                pass  # a ring of eigenvalues of one size, as orthogonal matrices have, or no eigenvalue but zero
        return float(np.abs(np.linalg.eigvals(to_dense(matrix).astype(np.float64))).max())


def check_echo_state(weights: EsnWeights) -> float:
    """Return the spectral radius; warn when it is above 1, or when the activation does not bound the state."""
    radius = spectral_radius(weights.w_res)
    if radius > 1 + 1e-9:
        warnings.warn(
            f"spectral radius {radius:.4g} is above 1: the state may not forget its start; "
            "scale w_res down unless that is meant",
            UnstableReservoirWarning,
            stacklevel=2,
        )
    return radius


def require_finite(name: str, values: NDArray[Any]) -> None:
    """Return if all numbers are finite; raises for the first that is not."""
    if not np.all(np.isfinite(values)):
        bad = np.argwhere(~np.isfinite(values))[0]
        raise SpecError(f"`{name}` must be finite. Got {values[tuple(bad)]} at {tuple(int(i) for i in bad)}")


def _matrix(name: str, value: Any, shape: tuple[int | None, ...]) -> None:
    """Return if a value is a finite float array of this shape (None: any extent but zero)."""
    wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ")"
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        came = f"{value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise SpecError(f"`{name}` must be a float array of shape {wanted}. Got {came}")
    matches = value.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
    if not matches or 0 in value.shape:
        raise SpecError(f"`{name}` must have shape {wanted}, not empty. Got {value.shape}")
    require_finite(name, value)
