"""Observables: numbers of a configuration that rows of a chain have because a spec asks for them by name.

    register_observable("ising", Observable(name="up", measure=lambda seen: float((seen.arrays["spins"] > 0).mean())))

`measure` is given the configuration as its theory shows it. Packages name theirs by the entry-point group
`metalforge.observables`, under THEORY.NAME; files are named as those of theories are (`core.plugins`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import SpecError, UnknownNameError
from .plugins import load_named_files, load_plugin, plugin_names, strangers_code
from .rows import PHASES, Phase

GROUP = "metalforge.observables"
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observable:
    """A number that is measured on a configuration, as a column of rows."""

    name: str
    measure: Callable[[Any], float | None]
    label: str = ""
    """The heading of its column in a report; empty for one that has none of its own."""
    phases: tuple[Phase, ...] = PHASES
    """In which it is measured."""
    transform: Callable[[Floats], Floats] = np.asarray
    """What is averaged: the column itself, or something of every row."""
    error: bool = True
    """Whether the mean is quoted with a Gamma-method error."""
    text: Callable[[float, float], str] | None = None
    """The mean and its error in a table; None: as numbers with errors are written."""


Kind = TypeVar("Kind", bound=Observable)
_REGISTERED: dict[tuple[str, str], Observable] = {}


def register_observable(theory: str, observable: Kind) -> Kind:
    """Make an observable of a theory known by its name, which no other of that theory may have."""
    key = theory, observable.name
    if not observable.name.isidentifier() or key in _REGISTERED:
        raise SpecError(f"an observable needs a name of its own, letters and digits. Got `{observable.name}`")
    _REGISTERED[key] = observable
    return observable


def observables_of(theory: str) -> Mapping[str, Observable]:
    """Return the registered observables of a theory by name, in the order of registration."""
    return {name: observable for (of, name), observable in _REGISTERED.items() if of == theory}


def find_observables(theory: str, names: Iterable[str]) -> tuple[Observable, ...]:
    """Return observables of a theory by name: registered ones, or those of plug-ins."""
    return tuple(_found(theory, name) for name in names)


def _found(theory: str, name: str) -> Observable:
    if (theory, name) not in _REGISTERED:
        load_named_files()
    if (theory, name) not in _REGISTERED:
        if (entry := f"{theory}.{name}") not in plugin_names(GROUP):
            raise UnknownNameError(f"observable of `{theory}`", name, observables_of(theory))
        register_observable(theory, load_plugin(GROUP, entry))
    return _REGISTERED[theory, name]


class Measurements:
    """Measures observables on every so-many-th configuration; rows between have the last value (`RowLog.held`)."""

    def __init__(self, observables: Iterable[Observable] = (), every: int = 1) -> None:
        self.observables, self.every = tuple(observables), every
        self.names = tuple(observable.name for observable in self.observables)

    def is_due(self, update: int) -> bool:
        """Return whether the configuration after this update, counted from 0, is measured."""
        return bool(self.observables) and update % self.every == 0

    def until_due(self, update: int) -> int:
        """Return how many updates, from this one on, end with one whose configuration is measured."""
        return -update % self.every + 1

    def of(self, seen: Any, update: int, phase: Phase) -> dict[str, float]:
        """Return what the configuration after an update has; nothing where it is not due."""
        if not self.is_due(update):
            return {}
        values = {}
        for observable in (one for one in self.observables if phase in one.phases):
            with strangers_code(f"the observable `{observable.name}` failed after update {update}"):
                if (value := observable.measure(seen)) is not None:
                    values[observable.name] = float(value)
        return values
