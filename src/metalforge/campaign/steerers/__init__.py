"""Steerers: observations go in by `tell`, the next places come out by `ask`.

All speak the protocol of `metalforge.core.steering`; `build_steerer` makes one by name, `restore` from its state. What
stands at the end of this file is all that a campaign knows of each.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.on_demand import on_demand
from metalforge.core.steering import Steerer, SteererState

from .registry import ANY, SystemScan, find_steerer, register_steerer, steerer_names

if TYPE_CHECKING:
    from .bisection import Bisection
    from .curve import CurveSteerer
    from .gaussian_process import GaussianProcess
    from .generator import GeneratorSteerer
    from .posterior import PosteriorPeak
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
__getattr__, __dir__ = on_demand(__name__, __all__)


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


def _constructor(name: str) -> Callable[..., Steerer]:
    """Return the constructor of a class above, whose module is imported when it is called."""

    def construct(low: float, high: float, **settings: Any) -> Steerer:
        made: Steerer = __getattr__(name)(low, high, **settings)
        return made

    return construct


def _even(volume: SystemScan) -> int:
    """Return the points of an even scan whose runs can be joined, where they can be."""
    from .uniform import even_points

    if volume.reach is None:
        return volume.initial
    return max(volume.initial, even_points(volume.low, volume.high, volume.reach))


def _process(volume: SystemScan) -> Steerer:
    return build_steerer(
        "gaussian-process",
        volume.low,
        volume.high,
        initial=volume.initial,
        fresh_cost=volume.fresh_cost,
        reach=volume.reach,
        seed=volume.seed,
    )


def _curve(volume: SystemScan) -> Steerer:
    return build_steerer("curve", volume.low, volume.high, initial=volume.initial, fresh_cost=volume.fresh_cost)


# The process, whose prior may come from the conductor's head (`running.expecting`).
register_steerer(None, name="conductor", make=_process, adaptive=True, expects=True, of=("peak",))
register_steerer(
    _constructor("GaussianProcess"),
    name="gaussian-process",
    make=_process,
    adaptive=True,
    expects=True,
    of=("peak",),
)
register_steerer(
    _constructor("Uniform"),
    name="uniform",
    make=lambda volume: build_steerer("uniform", volume.low, volume.high, points=_even(volume)),
    first_points=_even,
)
register_steerer(_constructor("Gaps"), name="gaps")
register_steerer(_constructor("CurveSteerer"), name="curve", make=_curve, adaptive=True, of=("curve",))
register_steerer(
    _constructor("Bisection"), name="bisection", first_points=lambda volume: 2, adaptive=True, of=("crossing",)
)
