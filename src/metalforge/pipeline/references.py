"""Stages by name: `module:attribute` or an entry point of the group `metalforge.stages`, with parameters."""

import importlib
from collections.abc import Mapping
from typing import Any

from metalforge.core import SpecError, load_plugin, plugin_names, strangers_code

from .stages import Stage, as_stage

STAGES = "metalforge.stages"


def resolve_stage(impl: Any, parameters: Mapping[str, Any] | None) -> Stage[Any, Any]:
    """Return a stage: the one that a text names, made with the parameters, or `impl` itself."""
    if not isinstance(impl, str):
        if parameters:
            raise SpecError("`parameters` are for a stage given by name; pass the stage as it is")
        return as_stage(impl)
    found = _load(impl)
    with strangers_code(f"stage `{impl}` does not take the parameters {dict(parameters or {})}"):
        if isinstance(found, type) or parameters:
            found = found(**(parameters or {}))
    return as_stage(found)


def _load(text: str) -> Any:
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
