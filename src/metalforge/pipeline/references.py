"""Stages by name: `module:attribute` or an entry point of the group `metalforge.stages`, with parameters.

A stage that was made from a name, or that can be named (a function of a module; a dataclass or struct of scalars), can
be written to a file; a lambda or a closure cannot, and says so when it is asked to.
"""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from metalforge.core.errors import SpecError
from metalforge.core.plugins import load_plugin, plugin_names, strangers_code

from .items import field_names
from .stages import FunctionStage, IterableSource, Stage, as_stage

STAGES = "metalforge.stages"


def resolve_stage(
    impl: Any, parameters: Mapping[str, Any] | None
) -> tuple[Stage[Any, Any], str | None, dict[str, Any]]:
    """Return a stage with the name and the parameters that make it again; the name is None when there is none."""
    if isinstance(impl, str):
        return _make(impl, dict(parameters or {})), impl, dict(parameters or {})
    if parameters:
        raise SpecError("`parameters` are for a stage given by name; pass the stage as it is")
    stage = as_stage(impl)
    use, known = _name_of(stage)
    return stage, use, known


def load_reference(text: str) -> Any:
    """Return the object that `module:attribute` or an entry point names."""
    if ":" not in text:
        if text in plugin_names(STAGES):
            return load_plugin(STAGES, text)
        known = ", ".join(plugin_names(STAGES)) or "none"
        raise SpecError(f"`{text}` is neither `module:attribute` nor a registered stage; registered: {known}")
    module, _, attribute = text.partition(":")
    with strangers_code(f"stage `{text}` cannot be loaded"):
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    return found


def _make(use: str, parameters: dict[str, Any]) -> Stage[Any, Any]:
    found = load_reference(use)
    with strangers_code(f"stage `{use}` does not take the parameters {parameters}"):
        if isinstance(found, type):
            return as_stage(found(**parameters))
        if parameters:
            found = found(**parameters)
    return as_stage(found)


def _name_of(stage: Stage[Any, Any]) -> tuple[str | None, dict[str, Any]]:
    impl = stage.written
    if isinstance(stage, FunctionStage | IterableSource):
        return (_path(impl) if callable(impl) else None), {}
    kind = type(impl)
    path, known, wanted = _path(kind), field_names(kind), inspect.signature(kind).parameters
    if path is None or (known is None and wanted):
        return None, {}
    return path, {name: getattr(impl, name) for name in known or () if name in wanted}


def _path(thing: Any) -> str | None:
    """Return `module:attribute` when importing it gives the very same thing."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "<")
    if module in (None, "__main__") or "<" in name:
        return None
    try:
        found = load_reference(f"{module}:{name}")
    except SpecError:
        return None
    return f"{module}:{name}" if found is thing else None
