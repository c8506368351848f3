r"""Losses of outputs and their slopes: y and a target go in, L and dL/dy come out.

    mse              L = |y - t|^2 / outputs                dL/dy = 2 (y - t) / outputs
    cross_entropy    L = -sum_k t_k log softmax(y)_k        dL/dy = softmax(y) sum_k t_k - t

The slope in a readout y = W x + b is then dL/dW = dL/dy x^T and dL/db = dL/dy.
"""

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from metalforge.core import Doubles, Reals, require_known

from .series import SeriesError

LossName: TypeAlias = Literal["mse", "cross_entropy"]


class LossSlope(NamedTuple):
    """A loss and its slope in the outputs."""

    value: float
    slope: Doubles


def check_loss(loss: str) -> None:
    """Return if a loss has this name."""
    require_known("loss", loss, get_args(LossName))


def as_targets(targets: ArrayLike, shape: tuple[int, ...], loss: LossName) -> Doubles:
    """Return targets as numbers of the outputs' shape (..., outputs), which may be NaN.

    Under cross-entropy whole numbers of shape (...) name classes, and become probabilities of one.
    """
    given, classes = np.asarray(targets), shape[-1]
    if loss == "cross_entropy" and given.dtype.kind in "iu" and given.shape == shape[:-1]:
        if given.min() < 0 or given.max() >= classes:
            raise SeriesError(f"classes must be 0 .. {classes - 1}. Got {given.min()} .. {given.max()}")
        return np.asarray(np.eye(classes)[given])
    if given.dtype.kind not in "iufb" or given.shape != shape:
        also = f", or classes {shape[:-1]}" if loss == "cross_entropy" else ""
        raise SeriesError(
            f"targets must be real numbers of shape {shape}, as the outputs{also}. Got {given.dtype} of {given.shape}"
        )
    return given.astype(np.float64)


def loss_and_slope(y: Reals, target: Doubles, loss: LossName) -> LossSlope:
    """Return the loss of outputs (..., outputs) against targets of that shape, the mean over rows, and its slope."""
    rows = y.size // y.shape[-1]
    if loss == "mse":
        error = y - target
        with np.errstate(over="ignore"):  # of a readout that diverges: the guard sees infinity
            return LossSlope(float(np.vdot(error, error)) / error.size, 2 / error.size * error)
    logs = log_softmax(y, axis=-1)
    slope = np.exp(logs) * target.sum(axis=-1, keepdims=True) - target
    return LossSlope(float(-np.vdot(target, logs)) / rows, slope / rows)
