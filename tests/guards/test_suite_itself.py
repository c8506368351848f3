"""Guards over the test suite: a test that cannot fail is worse than none."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
FILES = sorted(TESTS.rglob("test_*.py"))
CHECKS = {"raises", "warns", "check_substrate"}


def _asserts(function, helpers=frozenset()):
    """Whether a function asserts, by itself or through a helper of its own file that does."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return not isinstance(node.test, ast.Constant)
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in CHECKS or called in helpers or called.startswith("assert_"):
                return True
    return False


def _helpers(tree):
    """Names of functions at module level that assert and are no tests, such as a shared comparison."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("test")]
    return {function.name for function in functions if _asserts(function)}


def _tests(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield node


def _exits(tree):
    """Calls at module level that end the run or skip the file."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name in {"exit", "quit", "sys.exit", "os._exit", "pytest.skip", "pytest.exit"}:
                    yield name


def problems(source):
    tree = ast.parse(source)
    helpers = _helpers(tree)
    found = [f"{test.name} has no assertion" for test in _tests(tree) if not _asserts(test, helpers)]
    found += [f"module-level {name}()" for name in _exits(tree)]
    found += [
        f"{node.func.attr}() waits instead of asking"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep"
    ]
    return found


def test_there_are_test_files():
    assert len(FILES) > 5


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(TESTS)))
def test_every_test_asserts_and_no_module_exits(path):
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def test_a():\n    print(1)\n", "test_a has no assertion"),
        ("def test_a():\n    assert True\n", "test_a has no assertion"),
        ("def look():\n    print(1)\ndef test_a():\n    look()\n", "test_a has no assertion"),
        ("import sys\nsys.exit(0)\n", "module-level sys.exit()"),
        ("import pytest\npytest.skip('later', allow_module_level=True)\n", "module-level pytest.skip()"),
        ("import time\ndef test_a():\n    time.sleep(1)\n    assert time\n", "sleep() waits"),
    ],
)
def test_the_guard_itself_notices(source, problem):
    assert any(problem in p for p in problems(source))


def test_what_make_test_leaves_out_has_a_target_that_integration_calls():
    left_out = dict(re.findall(r"^SLOW_(\w+) := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert left_out
    assert [path for paths in left_out.values() for path in paths.split() if not (ROOT / path).exists()] == []
    called = (ROOT / ".ci" / "run").read_text().splitlines()
    assert {"make test", "make test-chaos", "make test-cluster", *(f"make test-{name}" for name in left_out)} <= set(
        called
    )
