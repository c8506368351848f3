"""A new verb is two files: a function in a module of `cli/`, and its name in `VERBS`; help, JSON and errors follow."""

import json
import sys
from math import prod
from types import ModuleType
from typing import Annotated

import pytest
import typer

from metalforge.cli.main import VERBS, assembled
from metalforge.cli.output import Json, print_records
from metalforge.core.errors import SpecError
from reference.command_line import call


def sites(
    dims: Annotated[list[int], typer.Argument(help="Extents of the lattice.")],
    as_json: Json = False,
) -> None:
    """Count the sites of a lattice."""
    if min(dims) < 1:
        raise SpecError(f"extents must be at least 1. Got {min(dims)}")
    record = {"dims": dims, "sites": prod(dims)}
    print_records(as_json, record, "lattice", ("dims", "sites"), [(" ".join(map(str, dims)), str(prod(dims)))])


@pytest.fixture(autouse=True)
def _verb(monkeypatch):
    module = ModuleType("metalforge.cli.counting")  # the first file
    module.sites = sites
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(VERBS, "sites", "counting")  # the line in the second
    assembled.cache_clear()
    yield
    assembled.cache_clear()


def test_the_verb_prints_a_table_or_json(tmp_path):
    assert "128" in call("sites", 4, 4, 4, 2, cwd=tmp_path).stdout
    assert json.loads(call("sites", 4, 4, 4, 2, "--json", cwd=tmp_path).stdout) == {"dims": [4, 4, 4, 2], "sites": 128}


def test_the_docstring_is_the_help_and_the_verb_is_listed(tmp_path):
    assert "Count the sites of a lattice." in call("sites", "--help", cwd=tmp_path).stdout
    assert "Count the sites of a lattice." in call("--help", cwd=tmp_path).stdout


def test_an_error_is_a_line_and_an_exit_code(tmp_path):
    wrong = call("sites", 4, 0, cwd=tmp_path, code=2)
    assert wrong.stdout == ""
    assert "extents must be at least 1" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    call("sites", "four", cwd=tmp_path, code=2)
