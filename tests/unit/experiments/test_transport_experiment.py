"""The table of transport: its file, its parts, and what it says of what is missing."""

import msgspec
import pytest

from experiments import Settings
from experiments import transport as study
from experiments.lines import append_lines, read_lines
from metalforge.core.errors import SpecError
from metalforge.native import cpu_engine

POINT = study.StatePoint(3.0, 100.0, 170, 4, 380.0)


@pytest.fixture(autouse=True)
def plan(monkeypatch):
    """One point, four short runs."""
    monkeypatch.setattr(study, "POINTS", (POINT,))
    monkeypatch.setattr(study, "WARMUP", 40.0)


def quiet(*_):
    """Say nothing."""


def test_runs_go_to_a_file_once_in_parts_and_make_a_table(tmp_path):
    file = tmp_path / "lines.jsonl"
    first = study.run(Settings(file=str(file), shard="1/2"), quiet)
    assert [line.stream for line in read_lines(file, study.TransportFound)] == [0, 2]
    assert any("2 of 4 runs" in line for line in first.words)
    study.run(Settings(file=str(file)), quiet)
    lines = read_lines(file, study.TransportFound)
    assert sorted(line.stream for line in lines) == [0, 1, 2, 3]
    table = study.run(Settings(file=str(file), shard="table"), quiet)
    assert table.lines[1][0] == "3, 100"
    assert 0.02 < float(table.table[0]["D*"].partition("(")[0]) < 0.05
    assert [passed for asked, _, passed in table.checks if "viscosity" in asked] == [False]  # four short runs
    frozen = [msgspec.structs.replace(line, crystalline=True, seed=2) for line in lines]
    append_lines(file, frozen)
    assert "4 froze" in study.run(Settings(file=str(file), shard="table", seed=2), quiet).words[-1]


def test_cores_do_one_run_after_another():
    parts = study.parts((POINT,), peer=True)
    assert [len(batch) for batch in study._volleys(parts, cpu_engine(threads=1))] == [1] * len(parts)
    assert {part.code for part in parts} == {"metalforge", "lammps"}


def test_a_peer_that_is_not_here_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(study, "lammps_is_here", lambda: False)
    with pytest.raises(SpecError, match="LAMMPS"):
        study.run(Settings(file=str(tmp_path / "x"), only="lammps"), quiet)
