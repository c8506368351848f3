"""Exports of a room that are imported when they are first used: a room is cheap to enter, whatever it holds."""

import ast
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any


def on_demand(room: str, exported: Sequence[str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a room for its `__all__`.

    Where a name is from is said once, by the imports that type checkers see under `if TYPE_CHECKING`; a name that is
    not among them is a module of the room.
    """
    tree = ast.parse(Path(str(sys.modules[room].__file__)).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
    homes = {alias.name: node.module for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name not in exported:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        module = import_module(f"{room}.{homes.get(name, name)}")
        value = getattr(module, name) if name in homes else module
        setattr(sys.modules[room], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[room]), *exported})

    return get, names
