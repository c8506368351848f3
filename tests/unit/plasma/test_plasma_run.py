"""Runs: what is refused, what is found, and the same bits after an interruption."""

import json
import subprocess
import sys

import numpy as np
import pytest

from metalforge.cli.main import app
from metalforge.core.errors import SpecError
from metalforge.plasma import PlasmaJob, PlasmaRun, PlasmaSpec, cutoff_of, least_particles

POINT = {"gamma": 60.0, "kappa": 3.0, "particles": 170}


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"kappa": 0.0}, "Ewald"),
        ({"kappa": float("nan")}, "kappa"),
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": float("nan")}, "gamma"),
        ({"gamma": -3.0}, "gamma"),
        ({"particles": 31}, "particles"),
        ({"kappa": 1.0, "particles": 1345}, "1346"),
        ({"dt": 0.2}, "dt"),
        ({"tol": 0.0}, "tol"),
        ({"start": "bcc"}, "250"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_run_is_refused(wrong, word):
    with pytest.raises(SpecError, match=word):
        PlasmaSpec(**(POINT | wrong))


@pytest.mark.parametrize(
    ("kappa", "tol", "cutoff", "n"), [(1, 1e-4, 8.9, 1346), (2, 1e-4, 5.6, 340), (3, 1e-5, 5.1, 258)]
)
def test_cut_offs_are_those_of_the_table(kappa, tol, cutoff, n):
    assert cutoff_of(kappa, tol) == pytest.approx(cutoff, abs=0.05)
    assert least_particles(cutoff_of(kappa, tol)) == n


def test_a_run_that_was_interrupted_has_the_bits_of_one_that_was_not(tmp_path):
    spec = PlasmaSpec(**POINT)
    whole = PlasmaRun(spec, PlasmaJob(warmup=10, time=30), threads=1)
    whole.run()
    trace = tmp_path / "trace.jsonl"
    run = PlasmaRun(spec, PlasmaJob(warmup=10, time=30, out=str(tmp_path), trace=str(trace)), threads=2)
    stops = iter([False] * (whole.particles.step // spec.block_steps - 2) + [True])
    assert not run.run(should_stop=lambda: next(stops))
    command = ["-m", "metalforge", "plasma", "run", "--resume", str(tmp_path), "--threads", "1", "--json"]
    done = subprocess.run([sys.executable, *command], capture_output=True, check=True)
    again = PlasmaRun.resume(tmp_path, threads=1)
    assert again.remaining == 0
    assert np.array_equal(again.particles.unwrapped, whole.particles.unwrapped)
    for name, column in whole.series.items():
        assert np.array_equal(column, again.series[name]), name
    of_both = zip(whole.correlations.segments(), again.correlations.segments(), strict=True)
    assert all(np.array_equal(a, b) for a, b in of_both)
    found, summary = json.loads(done.stdout), whole.summary()
    for name in ("gamma_measured", "u_over_gamma", "pressure"):
        quoted = getattr(summary, name)
        assert found[name] == {"mean": quoted.mean, "error": quoted.error, "tau_int": quoted.tau_int}
        assert quoted.error > 0
    assert abs(found["energy_drift_kt"]) < 1e-3
    assert found["warmup"]["reason"] in ("steady", "longest")
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [line["stress_xy"] for line in lines] == whole.series["stress_xy"][-len(lines) :].tolist()
    assert {"time", "kinetic", "potential", "virial", "stress_2zz-xx-yy"} <= lines[0].keys()


def test_damage_and_foreign_files_are_refused(tmp_path):
    run = PlasmaRun(PlasmaSpec(**POINT), PlasmaJob(warmup=0, time=10, out=str(tmp_path)), threads=1)
    run.run()
    path = tmp_path / "checkpoint.h5"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"x" + whole[len(whole) // 2 + 1 :])
    with pytest.raises(SpecError, match="checkpoint"):
        PlasmaRun.resume(tmp_path)
    path.write_bytes(b"no")
    with pytest.raises(SpecError, match="HDF5"):
        PlasmaRun.resume(tmp_path)


def test_a_new_run_does_not_write_over_an_old_one(tmp_path):
    (tmp_path / "checkpoint.h5").write_bytes(b"old")
    command = ["plasma", "run", "--gamma", "60", "--kappa", "3", "--particles", "170", "--out"]
    with pytest.raises(SpecError, match="--resume"):
        app([*command, str(tmp_path)], standalone_mode=False)
    with pytest.raises(SpecError, match="--gamma"):
        app(["plasma", "run", "--kappa", "1"], standalone_mode=False)
