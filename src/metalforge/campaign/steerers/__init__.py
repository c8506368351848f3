"""Steerers: observations go in by `tell`, the next places come out by `ask` (the protocol of `core.steering`).

One registration each is all that spec, planner and evidence know of a steerer that a campaign may name:

    register_steerer(MySteerer)                                         made with (low, high)
    register_steerer(MySteerer, make=lambda volume: MySteerer(volume.low, volume.high, seed=volume.seed))

A class of another package needs no line here: the entry-point group `metalforge.steerers` is looked through for a name
that nobody registered.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from math import ceil
from typing import Any, NamedTuple

from metalforge.core import Steerer, UnknownNameError, load_named_files, load_plugin, plugin_names

GROUP = "metalforge.steerers"
ANY = ("peak", "curve", "crossing")
"""What a campaign may look for along its coordinate."""
SPACING = 2.5
"""Distance of an even scan's points in reaches: neighbours overlap by a sixth or more, and fewer warm-ups are paid."""


class SystemScan(NamedTuple):
    """What a campaign knows of a volume when it makes the steerer of its visits."""

    low: float
    high: float
    system: Sequence[int]
    initial: int = 5
    """Points that the spec wants first."""
    fresh_cost: float = 1.0
    """What a new point costs, over more statistics at one that is there."""
    seed: int = 1
    reach: float | None = None
    """How far from a chain reweighting says something, where it does."""

    @property
    def points(self) -> int:
        """The points of an even scan whose runs can be joined, where they can be."""
        joined = 0 if self.reach is None else ceil((self.high - self.low) / (SPACING * self.reach))
        return max(self.initial, joined)


class SteererKind(NamedTuple):
    """A registered steerer: how a campaign makes it, how many points it begins with, whether it looks at results."""

    make: Callable[[SystemScan], Steerer]
    first_points: Callable[[SystemScan], int]
    adaptive: bool
    """Whether it looks at results; one that does not is left alone by the evidence, too, as what it is compared with
    must not be steered."""
    expects: bool
    """Whether it takes what is known of a peak beforehand, by `expect(prior)`."""
    of: tuple[str, ...] = ANY
    """Targets that it is for."""


_KINDS: dict[str, SteererKind] = {}


def register_steerer(
    kind: Any,
    *,
    name: str | None = None,
    make: Callable[[SystemScan], Steerer] | None = None,
    first_points: Callable[[SystemScan], int] = lambda volume: volume.initial,
    adaptive: bool = False,
    expects: bool = False,
    of: tuple[str, ...] = ANY,
) -> None:
    """Add a steerer by its class, whose `name` a spec then may have; `kind` None wants a name and a `make`."""
    made = make or (lambda volume: kind(volume.low, volume.high))
    _KINDS[name or kind.name] = SteererKind(made, first_points, adaptive, expects or hasattr(kind, "expect"), of)


def steerer_names(target: str | None = None) -> tuple[str, ...]:
    """Return every name that a spec may have; with a target, of those that may look for it: plug-ins look for any."""
    known = [name for name, kind in _KINDS.items() if target is None or target in kind.of]
    return (*known, *(name for name in plugin_names(GROUP) if name not in _KINDS))


def find_steerer(name: str) -> SteererKind:
    """Return a steerer by name: a registered one, or that of a plug-in."""
    if name not in _KINDS:
        load_named_files()
    if name not in _KINDS:
        if name not in plugin_names(GROUP):
            raise UnknownNameError("steerer", name, steerer_names())
        register_steerer(load_plugin(GROUP, name), name=name, adaptive=True)
    return _KINDS[name]


def _named(module: str, kind: str, *options: str) -> Callable[[SystemScan], Any]:
    """Return what makes a steerer of this package, whose module is imported when one is made."""
    return lambda scan: getattr(import_module(f"{__name__}.{module}"), kind)(
        scan.low, scan.high, **{name: getattr(scan, name) for name in options}
    )


_process = _named("gaussian_process", "GaussianProcess", "initial", "fresh_cost", "reach", "seed")
# The process, whose prior may come from the conductor's head (`running.advice`).
register_steerer(None, name="conductor", make=_process, adaptive=True, expects=True, of=("peak",))
register_steerer(None, name="gaussian-process", make=_process, adaptive=True, expects=True, of=("peak",))
register_steerer(
    None, name="uniform", make=_named("uniform", "Uniform", "points"), first_points=lambda scan: scan.points
)
register_steerer(None, name="gaps", make=_named("uniform", "Gaps"))
_curve = _named("curve", "CurveSteerer", "initial", "fresh_cost")
register_steerer(None, name="curve", make=_curve, adaptive=True, of=("curve",))
_bisection = _named("bisection", "Bisection")
register_steerer(None, name="bisection", make=_bisection, first_points=lambda scan: 2, adaptive=True, of=("crossing",))
