r"""What is searched over, and the network that a point of it stands for.

A candidate is a base network of its size and share of connections, scaled:

    W_res = spectral_radius B,   W_in = input_scaling C,   b = bias_scaling d        B of spectral radius 1

so eigenvalues are found once for each base, not once for each candidate. Bases lie on the four-bit grid
(`reservoir.generate`): a chip then holds W_res without any error, whatever its scale.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from metalforge.core import SpecError
from metalforge.reservoir import ACTIVATIONS, ActivationName, EsnWeights, make_esn, scaled

HeadPlan: TypeAlias = Literal["shared", "split"]
"""Every head reads all units, or each reads a part of the units of its own: a smaller readout."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One candidate: a point of the space."""

    units: int
    spectral_radius: float
    leak: float
    input_scaling: float
    bias_scaling: float
    connectivity: float
    activation: ActivationName
    ridge: float
    heads: HeadPlan = "shared"


class Space(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of a search: choices as tuples, ranges as (low, high). Scalings and ridge are searched by size.

    Sizes are `units`: first, last and step. Few sizes and connectivities mean few bases.
    """

    units: tuple[int, int, int] = (40, 200, 20)
    spectral_radius: tuple[float, float] = (0.2, 1.4)
    leak: tuple[float, float] = (0.1, 1.0)
    input_scaling: tuple[float, float] = (0.003, 2.0)
    bias_scaling: tuple[float, float] = (0.0, 1.0)
    connectivity: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0)
    activation: tuple[ActivationName, ...] = ("tanh", "piecewise_tanh", "sigmoid", "relu")
    ridge: tuple[float, float] = (1e-9, 1e-1)
    heads: tuple[HeadPlan, ...] = ("shared", "split")
    """Searched where the task has several heads."""

    def __post_init__(self) -> None:
        for name in ("spectral_radius", "leak", "input_scaling", "bias_scaling", "ridge"):
            low, high = getattr(self, name)
            if not 0 <= low < high < float("inf") or (low == 0 and name != "bias_scaling"):
                raise SpecError(f"`{name}` must be a range 0 < low < high. Got {low} .. {high}")
        for name in ("connectivity", "activation", "heads"):
            choices = getattr(self, name)
            if not choices or len(set(choices)) != len(choices):
                raise SpecError(f"`{name}` must be one or more different choices. Got {list(choices)}")
        first, last, step = self.units
        if not 2 <= first <= last or step < 1:
            raise SpecError(f"`units` must be first, last and step, from 2 on and rising. Got {list(self.units)}")
        if self.leak[1] > 1 or not all(0 < c <= 1 for c in self.connectivity):
            raise SpecError("leaks end at 1, and connectivities are shares above 0 and at most 1")
        unknown = set(self.activation) - set(ACTIVATIONS)
        if unknown:
            raise SpecError(f"unknown activations {sorted(unknown)}; known: {', '.join(sorted(ACTIVATIONS))}")


@lru_cache(maxsize=256)
def _base(units: int, inputs: int, connectivity: float, seed: int) -> EsnWeights:
    """Return the network of spectral radius 1 that candidates of this size are scaled from."""
    return make_esn(
        units,
        inputs,
        seed=seed,
        spectral_radius=1.0,
        bias_scaling=1.0,
        connectivity=connectivity,
        grid="int4",
        dtype=np.float32,
    )


def build(parameters: Parameters, inputs: int, *, seed: int) -> EsnWeights:
    """Return a candidate's network without a readout, float32; the same arguments give the same network."""
    base = _base(parameters.units, inputs, parameters.connectivity, seed)
    return replace(
        base,
        w_in=base.w_in * np.float32(parameters.input_scaling),
        w_res=scaled(base.w_res, parameters.spectral_radius),
        bias=base.bias * np.float32(parameters.bias_scaling),
        leak=parameters.leak,
        activation=parameters.activation,
    )
