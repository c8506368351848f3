"""Exact gradients by backpropagation through time: a loss's slope in the states goes in, that in all else comes out.

With p_t = W_in u_t + W_res s_{t-1} + b, s_t = (1 - a) s_{t-1} + a f(p_t) and g_t the loss's own slope in s_t:

    l_t = g_t + (1 - a) l_{t+1} + W_res^T d_{t+1}       d_t = a f'(p_t) l_t
    dW_in = sum d_t u_t^T    dW_res = sum d_t s_{t-1}^T    db = sum d_t    da = sum l_t . (f(p_t) - s_{t-1})
    du_t = W_in^T d_t        ds_0 = (1 - a) l_1 + W_res^T d_1

(P. J. Werbos, "Backpropagation through time", 1990.) At a kink the slope is the one `activations` gives. Teacher-forced
output feedback is part of the inputs: `u` is then [u; y before], as the engine takes it, and `w_fb` has its gradient.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metalforge.core import Reals, SpecError

from .activations import activation
from .engine import EsnEngine
from .losses import LossName, as_targets, check_loss, loss_and_slope
from .series import SeriesError, as_steps
from .sparse import BlockSparse, Matrix, to_dense
from .weights import EsnWeights


class Gradients(NamedTuple):
    """The gradient in each part, of its shape, type and kind; summed over the series of a batch.

    `w_res` has entries where the matrix has connections, so that a step along it grows no new ones. `inputs` is of
    the shape of `u`, `state` of the first state. `w_fb` is None without feedback. `end` is no gradient: the state after
    the last step.
    """

    w_in: Reals
    w_res: Matrix
    bias: Reals
    leak: float
    w_fb: Reals | None
    w_out: Reals
    out_bias: Reals
    inputs: Reals
    state: Reals
    end: Reals


def loss_gradient(
    weights: EsnWeights,
    u: Reals,
    targets: NDArray[Any],
    *,
    loss: LossName = "mse",
    washout: int = 0,
    last_state_only: bool = False,
    state: Reals | None = None,
) -> tuple[float, Gradients]:
    """Return a loss of the outputs and its gradient in everything, the inputs too (whose sign is an FGSM attack).

    `u` is (T, width), or (series, T, width) for a batch; it starts from `state` or from rest. mse: the mean of
    (y - target)^2 over all counted outputs. cross_entropy: the mean over counted steps of
    -sum_k target_k log softmax(y)_k; targets are probabilities, or whole numbers that name a class. Steps from
    `washout` on count, or the last of each series only. Targets are those of the counted steps: (T - washout, ...),
    with `last_state_only` (outputs,) or a class; a batch has its series before that.
    """
    check_loss(loss)
    w_out = weights.w_out
    if w_out is None:
        raise SpecError("this network has no readout yet\nhint: fit one, or use with_readout(...)")
    engine = EsnEngine(weights)
    u = _inputs(u, engine.inputs, weights)
    steps = u.shape[-2]
    if not 0 <= washout < steps:
        raise SeriesError(f"`washout` must leave at least one of {steps} steps. Got {washout}")
    start = np.zeros((*u.shape[:-2], weights.units), weights.dtype)
    if state is not None:
        start[...] = state
    states = engine.run(u, start)
    before = np.concatenate([start[..., None, :], states[..., :-1, :]], axis=-2)
    own = u[..., : weights.inputs]
    outputs = weights.output(states, own)

    counted = -1 if last_state_only else slice(washout, None)
    wanted = as_targets(targets, outputs[..., counted, :].shape, loss)
    if not np.all(np.isfinite(wanted)):
        raise SeriesError("targets must be finite. Got NaN or infinity")
    value, in_counted = loss_and_slope(outputs[..., counted, :], wanted, loss)
    slope = np.zeros_like(outputs)
    slope[..., counted, :] = in_counted

    seen = np.concatenate([states, own], axis=-1) if weights.passthrough else states
    in_seen = slope @ w_out
    pre, l_all, d_all, carried = backwards(weights, u, before, in_seen[..., : weights.units])
    inputs = np.asarray(d_all @ weights.w_driven)
    if weights.passthrough:
        inputs[..., : weights.inputs] += in_seen[..., weights.units :]
    rows, out_rows = d_all.reshape(-1, weights.units), slope.reshape(-1, weights.outputs)
    in_driven = rows.T @ u.reshape(len(rows), -1)
    return value, Gradients(
        w_in=in_driven[:, : weights.inputs],
        w_res=_where_connected(rows.T @ before.reshape(len(rows), -1), weights.w_res),
        bias=np.asarray(rows.sum(axis=0)),
        leak=float(np.sum(l_all * (activation(weights.activation).value(pre) - before), dtype=np.float64)),
        w_fb=None if weights.w_fb is None else in_driven[:, weights.inputs :],
        w_out=out_rows.T @ seen.reshape(len(out_rows), -1),
        out_bias=np.asarray(out_rows.sum(axis=0)),
        inputs=inputs,
        state=carried,
        end=states[..., -1, :].copy(),
    )


def backwards(weights: EsnWeights, u: Reals, before: Reals, slope: Reals) -> tuple[Reals, Reals, Reals, Reals]:
    """Return p, l and d of every step, and ds_0; `before` holds the states that each step started from."""
    keep, leak = weights.dtype.type(1 - weights.leak), weights.dtype.type(weights.leak)
    # A sparse matrix stays sparse: from the right, d @ W, it needs its transpose once.
    w_res = weights.w_res if isinstance(weights.w_res, csr_array) else to_dense(weights.w_res)
    pre = u @ weights.w_driven.T + _rows_times(before, w_res.T) + weights.bias
    damping = leak * activation(weights.activation).derivative(pre)
    l_all, d_all = np.empty_like(slope), np.empty_like(slope)
    carried = np.zeros_like(slope[..., 0, :])
    for t in reversed(range(slope.shape[-2])):
        l_all[..., t, :] = slope[..., t, :] + carried
        d_all[..., t, :] = damping[..., t, :] * l_all[..., t, :]
        carried = keep * l_all[..., t, :] + _rows_times(d_all[..., t, :], w_res)
    return pre, l_all, d_all, carried


def _rows_times(rows: Reals, matrix: Any) -> Reals:
    """Return rows (..., n) @ matrix, also where SciPy takes no more than two axes."""
    return np.asarray(rows.reshape(-1, rows.shape[-1]) @ matrix).reshape(rows.shape)


def _where_connected(full: Reals, like: Matrix) -> Matrix:
    """Return a dense gradient with the connections and the kind of a matrix."""
    if isinstance(like, BlockSparse):
        return BlockSparse.of(full, like.columns)
    if isinstance(like, csr_array):
        rows = np.repeat(np.arange(like.shape[0]), np.diff(like.indptr))
        return csr_array((full[rows, like.indices], like.indices, like.indptr), shape=like.shape)
    return full


def _inputs(u: Reals, width: int, weights: EsnWeights) -> Reals:
    """Return inputs (T, width) or (series, T, width), contiguous and of the weights' type."""
    if np.ndim(u) == 3:
        return np.stack([as_steps(f"u[{i}]", series, width, weights.dtype) for i, series in enumerate(u)])
    return as_steps("u", u, width, weights.dtype)
