"""The exceptions of metalforge.

All derive from `MetalforgeError`; those of other packages are defined where they are raised.

Messages say what was wanted, what came and what to do; a ``hint:`` line gives the command where there is one.
"""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from math import inf
from typing import TypeVar

T = TypeVar("T")


class MetalforgeError(Exception):
    """Base of every error that metalforge raises on purpose."""

    def __str__(self) -> str:
        # KeyError, one of the bases below, would print the repr of the message.
        return str(self.args[0]) if self.args else ""


class SpecError(MetalforgeError):
    """A record or file does not say what it must."""


class UnknownNameError(MetalforgeError, KeyError):
    """A name that is not in a list of names; the message lists them and the nearest one."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        self.name = name
        names = sorted(known)
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        message = f"unknown {what} `{name}`; known: {', '.join(names) or 'none'}"
        if near:
            message += f"\nhint: did you mean `{near[0]}`?"
        super().__init__(message)


def find(what: str, name: str, known: Mapping[str, T]) -> T:
    """Return what has this name, or raise an error that lists the names there are."""
    require_known(what, name, known)
    return known[name]


def require_known(what: str, name: str, known: Collection[str]) -> None:
    """Raise an error that lists the names there are, where this is none of them."""
    if name not in known:
        raise UnknownNameError(what, name, known)


def require_positive(**values: float | None) -> None:
    """Raise an error that names the first of these numbers that is not above 0 or not finite; None is no number."""
    for name, value in values.items():
        if value is not None and not 0 < value < inf:
            raise SpecError(f"`{name}` must be above 0 and finite. Got {value}")


def require_not_negative(**values: float) -> None:
    """Raise an error that names the first of these numbers that is below 0 or not finite."""
    for name, value in values.items():
        if not 0 <= value < inf:
            raise SpecError(f"`{name}` must be 0 or more, and finite. Got {value}")


def require_shares(**values: float) -> None:
    """Raise an error that names the first of these numbers that is not above 0 and at most 1."""
    for name, value in values.items():
        if not 0 < value <= 1:
            raise SpecError(f"`{name}` must be above 0 and at most 1. Got {value}")


def require_at_least(least: int, **values: int | None) -> None:
    """Raise an error that names the first of these numbers that is less than that; None is no number."""
    for name, value in values.items():
        if value is not None and value < least:
            raise SpecError(f"`{name}` must be at least {least}. Got {value}")


def require_one_of(*known: str, **values: str) -> None:
    """Raise an error that names the first of these words that is not known."""
    for name, value in values.items():
        if value not in known:
            raise SpecError(f"`{name}` must be {', '.join(known[:-1])} or {known[-1]}. Got `{value}`")


class PluginError(MetalforgeError):
    """A plug-in is missing or breaks its contract."""


class KernelError(MetalforgeError):
    """The compiled kernels cannot be loaded or fail their self-test."""


class PlacementError(MetalforgeError):
    """No substrate can do what was asked."""


class ClusterLostError(PlacementError):
    """A cluster that ran a campaign has ended or does not answer; the campaign can be resumed."""


class DeviceLostError(MetalforgeError):
    """A device does not answer any more: what it held is lost, and chains go on from their checkpoints."""


class MeterUnavailableError(MetalforgeError):
    """An energy counter that cannot be read: never a silent zero."""


class InternalError(MetalforgeError):
    """Results or records that contradict each other, whatever the user gave: a fault of metalforge, to be reported."""
