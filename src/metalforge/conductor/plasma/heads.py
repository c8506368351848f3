r"""Two heads on one reservoir: a window goes in frame by frame, ln D* and ln eta* come out, as means over its frames.

    s' = (1 - a) s + a tanh(W_in x + W_res s + b),      y = W_out [s; x] + b_out,      reading = mean of y

over the frames from which all lags are known. The readout is linear, so the mean of what it says is what it says of
the mean: it is a ridge from means over windows to labels of whole runs. It is drawn not to zero but to what is known
without learning, up to a constant:

    ln D* = ln MSD(40) + const,      ln eta* = ln MSD(0.4) - ln MSD(40) + const

displacements after a long time, and Stokes-Einstein, D* eta* Gamma = const, since MSD(t) = t^2 / Gamma at short times.
So a head is at worst about what it must beat. The penalty of each is chosen by leaving out whole state points; what was
said of those gives the head's error.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from metalforge.core import Doubles
from metalforge.plasma import Transport
from metalforge.reservoir import EsnWeights, collect

from .frames import SETTLED

LAYOUT = "plasma-2"
HEADS = ("transport_D", "transport_eta")
YEH_HUMMER = 0.2101
"""(D* - D_N*) Gamma eta* L of a cubic box (I.-C. Yeh, G. Hummer, 2004)."""


@cache
def taught_diffusion(found: Transport, length: float) -> float:
    """Return D* as heads are taught it: D_N* + 0.2101 / (Gamma eta* L), what a liquid would have without borders.

    It is a few percent above the D* that is quoted (`plasma.transport.left_out`), which is to be had of it.
    """
    return found.diffusion.mean + YEH_HUMMER / (found.gamma_measured.mean * found.viscosity.mean * length)


def mean_states(weights: EsnWeights, inputs: Sequence[Doubles]) -> Doubles:
    """Return the mean of [s; x] over the settled frames of each window, (windows, units + features)."""
    given = [np.asarray(one, weights.dtype) for one in inputs]
    pairs = collect(weights, given, washout=SETTLED, passthrough=True)
    return np.array([np.asarray(x, np.float64).mean(axis=0) for x, _ in pairs])


def said_of(weights: EsnWeights, inputs: Sequence[Doubles]) -> Doubles:
    """Return ln D* and ln eta* of windows, (windows, 2), in software."""
    _, w_out, out_bias = weights.head_readout()
    return np.asarray(mean_states(weights, inputs) @ w_out.T + out_bias, np.float64)
