"""Plug-ins by entry point, or in files that somebody names: built-ins and strangers are found the same way.

A plug-in that fails to import is warned about by name and skipped, so that one broken package cannot take the others
down; asking for a missing one lists what is installed.
"""

import os
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from .errors import MetalforgeError, PluginError, SpecError, UnknownNameError

FILES = "METALFORGE_PLUGINS"
"""The environment variable that names files of plug-ins, as PATH names folders; processes that are started have it."""
_PREFIX = "metalforge_plugin_"


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


def plugin_folder(group: str, name: str) -> Path | None:
    """Return the folder of the package or module that has a plug-in, without importing any of it."""
    if (entry := _entries(group).get(name)) is None:
        return None
    root, *inner = entry.module.split(".")
    found = find_spec(root)
    if found is None or not found.submodule_search_locations:
        return None
    folders = (Path(place).joinpath(*inner) for place in found.submodule_search_locations)
    return next((folder for folder in folders if folder.is_dir()), None)


def load_files(paths: Iterable[Path | str]) -> None:
    """Run Python files that register what they have, each once; their names are kept for processes started later."""
    for path in paths:
        where = Path(path).resolve()
        name = f"{_PREFIX}{where.stem}"
        if (known := sys.modules.get(name)) is not None:
            if known.__file__ != str(where):
                raise PluginError(f"{where}: another plug-in file has this name, {known.__file__}\nhint: rename one")
            continue
        if not where.is_file():
            raise PluginError(f"{where}: there is no such plug-in file")
        spec = spec_from_file_location(name, where)
        if spec is None or spec.loader is None:
            raise PluginError(f"{where}: a plug-in must be a Python file, *.py")
        module = module_from_spec(spec)
        sys.modules[name] = module
        try:
            with strangers_code(f"plug-in file {where} failed", PluginError):
                spec.loader.exec_module(module)
        except PluginError:
            del sys.modules[name]
            raise
        named = [part for part in os.environ.get(FILES, "").split(os.pathsep) if part]
        if str(where) not in named:
            os.environ[FILES] = os.pathsep.join([*named, str(where)])


def loaded_files() -> tuple[str, ...]:
    """Return the files of plug-ins that were loaded, in order."""
    return tuple(str(module.__file__) for name, module in sys.modules.items() if name.startswith(_PREFIX))


def with_plugins(command: str) -> str:
    """Return a command line of ours with the files of plug-ins that it needs to do what this process does."""
    return " ".join([command, *(f"--plugin {shlex.quote(file)}" for file in loaded_files())])


def load_named_files() -> None:
    """Run the files that the environment names."""
    load_files(part for part in os.environ.get(FILES, "").split(os.pathsep) if part)
