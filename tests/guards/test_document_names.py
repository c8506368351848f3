"""Names of the design documents lead to things that are there."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest
import typer.main

from metalforge.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "document_names.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")][2:]
ASKED = {
    "step_hybrid_tanh",
    "HybridRecurrentStep",
    "EsnSubstrate",
    "SoftwareBackend",
    "DeviceManager",
    "InferenceExecutor",
    "load_conductor",
}


def test_every_name_that_is_looked_for_has_its_row():
    assert len(ROWS) > 30
    assert set(re.findall(r"`([A-Za-z_]+)", " ".join(row[0] for row in ROWS))) >= ASKED
    assert all("`metalforge." in row[1] for row in ROWS)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(metalforge\.[\w.]+)`", PAGE))))
def test_what_it_points_to_exists(name):
    assert resolve_name(name) is not None


@pytest.mark.parametrize("verb", sorted(set(re.findall(r"`metalforge ([\w ]+)`", PAGE))))
def test_the_verbs_it_names_exist(verb):
    known = typer.main.get_command(app)
    for word in verb.split():
        if not hasattr(known, "commands"):
            break  # an argument
        assert word in known.commands
        known = known.commands[word]
