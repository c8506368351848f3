"""Exports of a room that are imported when they are first used: a room is cheap to enter, whatever it holds."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def on_demand(room: str, **exports: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a room; `exports` names by module, as in ``spec="Budget CampaignSpec"``.

    A module without names is itself what is exported, and two underscores stand for a dot.
    """
    homes = {name: module for module, names in exports.items() for name in names.split()}

    def get(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(f"{room}.{homes[name].replace('__', '.')}"), name)
        elif name in exports:
            value = import_module(f"{room}.{name}")
        else:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        setattr(sys.modules[room], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[room]), *homes, *(name for name, listed in exports.items() if not listed)})

    return get, names
