r"""The slope of a loss in the inputs, through states that came from anywhere: exact, or a straight-through estimate.

With the recursion of `reservoir.gradient`, of which only the part that ends in the inputs is needed here,

    p_t = W_in u_t + W_res s_{t-1} + b      d_t = a f'(p_t) l_t
    l_{t-1} = (1 - a) l_t + W_res^T d_t     dL/du_t = W_in^T d_t

and s_t given. Where s_t are the network's own states in float this is the exact gradient. Where a device with rounding
made them, the derivative of rounding is zero almost everywhere and tells an attacker nothing; taking it for one, at the
states that the device really had, is the straight-through estimate (Y. Bengio, N. Leonard, A. Courville, "Estimating or
propagating gradients through stochastic neurons", 2013; as an attack, A. Athalye, N. Carlini, D. Wagner, "Obfuscated
gradients give a false sense of security", ICML 2018).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.reservoir.activations import activation
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights

__all__ = ["input_slope"]

Reals = NDArray[np.floating[Any]]


def input_slope(weights: EsnWeights, u: Reals, states: Reals, last: Reals) -> Reals:
    """Return dL/du (series, steps, inputs) from dL/ds of the last states (series, units), all series from rest.

    `u` is (series, steps, inputs) and `states` (series, steps, units): those after each step, on whatever substrate.
    """
    if weights.w_fb is not None:
        raise SpecError("slopes in the inputs are for networks without output feedback")
    if states.shape != (*u.shape[:2], weights.units) or last.shape != (len(u), weights.units):
        raise SpecError(
            f"`states` must be {(*u.shape[:2], weights.units)} and `last` {(len(u), weights.units)}. "
            f"Got {states.shape} and {last.shape}"
        )
    w_res = to_dense(weights.w_res)
    keep, leak = weights.dtype.type(1 - weights.leak), weights.dtype.type(weights.leak)
    pre = u @ weights.w_in.T + weights.bias
    pre[:, 1:] += states[:, :-1] @ w_res.T
    damping = leak * activation(weights.activation).derivative(pre)
    carried, delta = last, np.empty_like(damping)
    for t in reversed(range(u.shape[1])):
        delta[:, t] = damping[:, t] * carried
        carried = keep * carried + delta[:, t] @ w_res
    return np.asarray(delta @ weights.w_in)
