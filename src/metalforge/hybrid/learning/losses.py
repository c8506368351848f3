r"""Losses of outputs and their slopes: y and a target go in, L and dL/dy come out.

    mse              L = |y - t|^2 / outputs                dL/dy = 2 (y - t) / outputs
    cross_entropy    L = -sum_k t_k log softmax(y)_k        dL/dy = softmax(y) sum_k t_k - t

The slope in a readout y = W x + b is then dL/dW = dL/dy x^T and dL/db = dL/dy.
"""

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from metalforge.core.errors import UnknownNameError
from metalforge.reservoir.series import SeriesError

__all__ = ["LossName", "LossSlope", "as_target", "check_loss", "loss_and_slope"]

LossName: TypeAlias = Literal["mse", "cross_entropy"]
Doubles: TypeAlias = NDArray[np.float64]


class LossSlope(NamedTuple):
    """A loss and its slope in the outputs."""

    value: float
    slope: Doubles


def check_loss(loss: str) -> None:
    """Return if a loss has this name."""
    if loss not in get_args(LossName):
        raise UnknownNameError("loss", loss, get_args(LossName))


def as_target(target: ArrayLike, outputs: int, loss: LossName) -> Doubles:
    """Return a target as (outputs,) numbers, which may be NaN; a whole number names a class under cross-entropy."""
    given = np.asarray(target)
    if loss == "cross_entropy" and given.ndim == 0 and given.dtype.kind in "iu":
        if not 0 <= int(given) < outputs:
            raise SeriesError(f"classes must be 0 .. {outputs - 1}. Got {int(given)}")
        return np.asarray(np.eye(outputs)[int(given)])
    if given.dtype.kind not in "iufb" or given.shape != (outputs,):
        also = ", or a class" if loss == "cross_entropy" else ""
        raise SeriesError(
            f"a target must be {outputs} real numbers, one per output{also}. Got {given.dtype} of shape {given.shape}"
        )
    return given.astype(np.float64)


def loss_and_slope(y: Doubles, target: Doubles, loss: LossName) -> LossSlope:
    """Return the loss of outputs (outputs,) against a target of that shape, and its slope.

    For rows (rows, outputs) it is the mean over them.
    """
    rows = y.size // y.shape[-1]
    if loss == "mse":
        error = y - target
        with np.errstate(over="ignore"):  # of a readout that diverges: the guard sees infinity
            return LossSlope(float(np.vdot(error, error)) / error.size, 2 / error.size * error)
    logs = log_softmax(y, axis=-1)
    slope = np.exp(logs) * target.sum(axis=-1, keepdims=True) - target
    return LossSlope(float(-np.vdot(target, logs)) / rows, slope / rows)
