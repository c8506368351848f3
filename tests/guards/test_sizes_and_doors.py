"""Packages meet at their front doors, and nothing in them is too long to be read at once."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "metalforge"
MODULES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
LONGEST_MODULE, LONGEST_FUNCTION, LARGEST_PACKAGE, ALL = 500, 80, 15_000, 64_000


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def imports(tree: ast.Module) -> list[ast.ImportFrom]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def test_packages_import_each_other_through_front_doors():
    found = {
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.module}"
        for path, tree in MODULES.items()
        for node in imports(tree)
        if not node.level and (node.module or "").startswith("metalforge.")
        if node.module.split(".")[1] != room(path) and node.module.count(".") > 1
    }
    assert not found


@pytest.mark.parametrize("door", sorted(PACKAGE.glob("*/__init__.py")), ids=lambda door: door.parent.name)
def test_a_name_that_a_front_door_imports_late_is_no_module_of_the_package(door):
    """The module, once imported, would stand where the name is looked for."""
    tree = MODULES[door]
    late = [node for node in imports(tree) if node.level == 1 and node not in tree.body]
    folders = {path.parent.name for path in door.parent.glob("*/__init__.py")}
    modules = {path.stem for path in door.parent.glob("*.py")} | folders
    assert not {alias.name for node in late for alias in node.names} & modules


def test_modules_and_functions_are_short():
    long = {str(path.relative_to(PACKAGE)) for path in MODULES if len(path.read_text().splitlines()) > LONGEST_MODULE}
    long |= {
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.end_lineno - node.lineno >= LONGEST_FUNCTION
    }
    assert not long


def test_no_package_is_too_large_nor_are_all_together():
    lines: dict[str, int] = {}
    for path in MODULES:
        lines[room(path)] = lines.get(room(path), 0) + len(path.read_text().splitlines())
    assert max(lines.values()) <= LARGEST_PACKAGE
    assert sum(lines.values()) <= ALL
