"""Steerers: observations go in by `tell`, the next beta come out by `ask`.

All speak the protocol of `metalforge.core.steering`; `build_steerer` makes one by name, `restore` from its state.
"""

from collections.abc import Callable
from typing import Any

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.steering import Steerer, SteererState

from .gaps import Gaps
from .gaussian_process import GaussianProcess, reweighting_reach
from .generator import as_generator, from_generator
from .posterior import Peak
from .uniform import Uniform, even_points

__all__ = [
    "STEERERS",
    "Gaps",
    "GaussianProcess",
    "Peak",
    "Uniform",
    "as_generator",
    "build_steerer",
    "even_points",
    "from_generator",
    "restore",
    "reweighting_reach",
]

STEERERS: dict[str, Callable[..., Steerer]] = {steerer.name: steerer for steerer in (Uniform, Gaps, GaussianProcess)}
"""Steerers by name; each takes (beta_min, beta_max) and settings by keyword."""


def build_steerer(name: str, beta_min: float, beta_max: float, **settings: Any) -> Steerer:
    """Return a new steerer by name, with the settings of its constructor."""
    if name not in STEERERS:
        raise UnknownNameError("steerer", name, STEERERS)
    try:
        return STEERERS[name](beta_min, beta_max, **settings)
    except TypeError as error:
        raise SpecError(f"steerer `{name}` does not take these settings: {error}") from error


def restore(state: SteererState) -> Steerer:
    """Return the steerer of a state, told all that it was told."""
    steerer = build_steerer(state.name, state.beta_min, state.beta_max, **state.settings)
    if state.observations:
        steerer.tell(state.observations)
    return steerer
