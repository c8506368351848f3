"""Plug-ins by entry point: built-ins and strangers are found the same way.

A plug-in that fails to import is warned about by name and skipped, so that one broken package cannot take the others
down; asking for a missing one lists what is installed.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import MetalforgeError, PluginError, SpecError, UnknownNameError


class PluginWarning(UserWarning):
    """A plug-in was skipped."""


@contextmanager
def strangers_code(what: str, kind: type[MetalforgeError] = SpecError) -> Iterator[None]:
    """Make what a stranger's code raises an error of this kind; `sys.exit` too, which would end us in peace."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = str(error) if isinstance(error, MetalforgeError) else f"{type(error).__name__}: {error}"
        raise kind(f"{what}: {said}") from error


@cache
def _entries(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda e: e.name)}


def plugin_names(group: str) -> tuple[str, ...]:
    """Return the names registered in `group`, sorted, without importing any."""
    return tuple(_entries(group))


def load_plugin(group: str, name: str) -> Any:
    """Import and return one plug-in; raises `UnknownNameError` or `PluginError`."""
    entries = _entries(group)
    if name not in entries:
        raise UnknownNameError(f"plug-in of group {group}", name, entries)
    with strangers_code(f"plug-in `{name}` ({entries[name].value}) failed to import", PluginError):
        return entries[name].load()


def load_plugins(group: str) -> dict[str, Any]:
    """Import every plug-in of a group; broken ones are skipped with a `PluginWarning` that names them."""
    loaded = {}
    for name in plugin_names(group):
        try:
            loaded[name] = load_plugin(group, name)
        except PluginError as error:
            warn_broken(str(error))
    return loaded


def warn_broken(message: str) -> None:
    """Warn that a plug-in was skipped."""
    warnings.warn(f"skipped: {message}", PluginWarning, stacklevel=3)
