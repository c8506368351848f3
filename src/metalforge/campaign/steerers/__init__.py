"""Steerers: observations go in by `tell`, the next places come out by `ask`.

All speak the protocol of `metalforge.core.steering`; `build_steerer` makes one by name, `restore` from its state. What
stands at the end of this file is all that a campaign knows of each.
"""

from typing import Any

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.steering import Steerer, SteererState

from .bisection import Bisection
from .curve import CurveSteerer
from .gaussian_process import GaussianProcess
from .generator import GeneratorSteerer
from .posterior import PosteriorPeak
from .registry import ANY, SystemScan, find_steerer, register_steerer, steerer_names
from .uniform import Gaps, Uniform, even_points

__all__ = [
    "ANY",
    "Bisection",
    "CurveSteerer",
    "Gaps",
    "GaussianProcess",
    "GeneratorSteerer",
    "PosteriorPeak",
    "SystemScan",
    "Uniform",
    "build_steerer",
    "even_points",
    "find_steerer",
    "register_steerer",
    "restore",
    "steerer_names",
]


def build_steerer(name: str, low: float, high: float, **settings: Any) -> Steerer:
    """Return a new steerer by name, with the settings of its constructor."""
    kind = find_steerer(name).kind
    if kind is None:
        constructed = [known for known in steerer_names() if find_steerer(known).kind is not None]
        raise UnknownNameError("steerer with a constructor", name, constructed)
    try:
        return kind(low, high, **settings)
    except TypeError as error:
        raise SpecError(f"steerer `{name}` does not take these settings: {error}") from error


def restore(state: SteererState) -> Steerer:
    """Return the steerer of a state, told all that it was told."""
    steerer = build_steerer(state.name, state.low, state.high, **state.settings)
    if state.observations:
        steerer.tell(state.observations)
    return steerer


def _even(volume: SystemScan) -> int:
    """Return the points of an even scan whose runs can be joined, where they can be."""
    if volume.reach is None:
        return volume.initial
    return max(volume.initial, even_points(volume.low, volume.high, volume.reach))


def _process(volume: SystemScan) -> Steerer:
    return GaussianProcess(
        volume.low,
        volume.high,
        initial=volume.initial,
        fresh_cost=volume.fresh_cost,
        reach=volume.reach,
        seed=volume.seed,
    )


# The process, whose prior may come from the conductor's head (`running.expecting`).
register_steerer(None, name="conductor", make=_process, adaptive=True, expects=True, of=("peak",))
register_steerer(GaussianProcess, make=_process, adaptive=True, of=("peak",))
register_steerer(
    Uniform,
    make=lambda volume: Uniform(volume.low, volume.high, points=_even(volume)),
    first_points=_even,
)
register_steerer(Gaps)
register_steerer(
    CurveSteerer,
    make=lambda volume: CurveSteerer(volume.low, volume.high, initial=volume.initial, fresh_cost=volume.fresh_cost),
    adaptive=True,
    of=("curve",),
)
register_steerer(Bisection, first_points=lambda volume: 2, adaptive=True, of=("crossing",))
