"""`metalforge search`, as a shell sees it: its JSON, its files, its exit codes."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from metalforge.cli import search as module
from metalforge.core.errors import PlacementError, SpecError, UnknownNameError
from metalforge.hybrid import load
from metalforge.hybrid.search import search_task
from metalforge.hybrid.search.tasks import TASKS, WASHOUT
from metalforge.reservoir import load_weights
from metalforge.reservoir.metrics import nrmse
from reference.command_line import call

app = typer.Typer()
app.command()(module.search)
SHORT = ["--trials", "6", "--finalists", "1", "--profile", "akd1000-claimed", "--max-latency", "6e-5"]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def test_json_has_exactly_what_was_promised(tmp_path):
    result = run(*SHORT, "--tolerance", "100", "--storage", str(tmp_path / "s.sqlite"), "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert set(found) == {"candidates", "seconds", "best"}
    assert found["candidates"] == 6
    assert found["seconds"] > 0
    best = found["best"]
    assert set(best) == {"params", "error", "error_int4", "latency", "energy"}
    assert best["latency"] == {"source": "modelled", "value": 54e-6, "unit": "s", "profile": "akd1000-claimed"}
    assert best["energy"]["unit"] == "J"
    assert 0 < best["error"] <= best["error_int4"] < 10
    assert set(best["params"]) == {
        "units",
        "spectral_radius",
        "leak",
        "input_scaling",
        "bias_scaling",
        "connectivity",
        "activation",
        "ridge",
        "heads",
    }
    assert "[6/6]" in result.stderr
    again = run(*SHORT, "--tolerance", "100", "--storage", str(tmp_path / "s.sqlite"), "--json")
    assert json.loads(again.stdout)["best"] == best  # nothing was searched anew
    with pytest.raises(SpecError, match="another kind"):
        run(*SHORT, "--task", "lorenz", "--storage", str(tmp_path / "s.sqlite"))


def test_text_shows_the_baselines_and_a_missed_tolerance_is_exit_code_1(tmp_path):
    result = run(*SHORT, "--tolerance", "0", "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "no finalist is within 0%" in result.stderr
    for words in ("6 candidates", "searched, int4 W4A4", "linear on 30 lags", "modelled: akd1000-claimed", "wrote"):
        assert words in result.stdout
    assert (tmp_path / "out" / "reservoir.mfp").exists()
    # What it leaves is complete: raw inputs in, raw outputs out, and the error that it told.
    raw = TASKS["narma10"][1](1)["test"]
    np.save(tmp_path / "x.npy", raw.inputs)
    call("npu", "run", "out", "--input", "x.npy", "-o", "y.npy", cwd=tmp_path)
    counted = [y[:, WASHOUT:].reshape(-1, 1) for y in (raw.targets, np.load(tmp_path / "y.npy"))]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert nrmse(*counted) == pytest.approx(report["best"]["error_int4"], rel=1e-4)
    kept = load_weights(tmp_path / "out" / "weights.safetensors")
    assert kept.features == search_task("narma10").features
    assert kept.ranges.u > 1
    with load(tmp_path / "out") as model:
        assert model.provenance["task"] == "narma10"


def test_what_is_wrong_is_told(tmp_path):
    with pytest.raises(UnknownNameError, match="search task"):
        run("--task", "sunspots", "--trials", "1")
    with pytest.raises(PlacementError, match="cheapest step"):
        run("--trials", "2", "--max-latency", "1e-6")
    assert run("--trials", "0").exit_code == 2


def test_an_interrupt_says_how_to_go_on(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module._Progress, "__call__", stop)
    file = tmp_path / "s.sqlite"
    result = CliRunner().invoke(app, ["--trials", "40", "--storage", str(file)])
    assert "the same command goes on from there" in result.stderr
    assert file.exists()
    assert result.exit_code == 130
