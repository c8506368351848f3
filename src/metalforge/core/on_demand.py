"""Front doors of packages: names that are imported when they are first used, so a package is cheap to enter."""

import ast
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any


def on_demand(package: str, exported: Sequence[str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package for its `__all__`, which is what users are told of.

    The imports that type checkers see under `if TYPE_CHECKING` name the module of each name, and hold more than
    `__all__`: what other packages use besides. A name that is not among them is a module of the package.
    """
    tree = ast.parse(Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
    homes = {alias.name: node.module for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name not in exported and name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: Any = import_module(f"{package}.{homes.get(name, name)}")
        if name not in homes:
            return found
        return getattr(found, name) if hasattr(found, name) else import_module(f"{found.__name__}.{name}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *exported})

    return get, names
