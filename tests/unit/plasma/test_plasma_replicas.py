"""Replicas in one batch: the numbers of runs alone, and files of their own."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from metalforge.cli.main import app
from metalforge.core.errors import SpecError
from metalforge.native.cpu_engine import cpu_engine
from metalforge.plasma import PlasmaJob, PlasmaReplicas, PlasmaRun, PlasmaSpec
from metalforge.plasma.replicas import replicas_of, resumed

SPEC = PlasmaSpec(gamma=60.0, kappa=3.0, particles=170)
JOB = PlasmaJob(warmup=10, time=10)


def same_run(one, other):
    assert np.array_equal(one.particles.unwrapped, other.particles.unwrapped)
    assert one.measured == other.measured
    assert all(np.array_equal(column, other.series[name]) for name, column in one.series.items())
    for a, b in zip(one.correlations.means(), other.correlations.means(), strict=True):
        assert np.array_equal(a, b, equal_nan=True)  # long lags have nothing yet


@pytest.mark.parametrize("threads", [1, 2])
def test_replicas_have_the_numbers_of_runs_alone(threads):
    # The warm-up of one ends before those of the others, and another is hotter.
    engine = cpu_engine(threads=threads)
    asked = replicas_of(SPEC, JOB, 3)
    asked[1] = (PlasmaSpec(gamma=80.0, kappa=3.0, particles=170, stream=1), PlasmaJob(warmup=0, time=10))
    together = PlasmaReplicas([PlasmaRun(spec, job, engine=engine) for spec, job in asked])
    assert together.run()
    for (spec, job), run in zip(asked, together.runs, strict=True):
        alone = PlasmaRun(spec, job, threads=1)
        alone.run()
        same_run(alone, run)
    assert len({run.particles.positions[0, 0] for run in together.runs}) == 3


def test_a_folder_of_replicas_goes_on_where_it_was_stopped(tmp_path):
    engine = cpu_engine(threads=2)
    runs = [PlasmaRun(spec, job, engine=engine) for spec, job in replicas_of(SPEC, JOB, 2)]
    PlasmaReplicas(runs).run()
    job = PlasmaJob(warmup=10, time=10, out=str(tmp_path), trace=str(tmp_path / "t.jsonl"))
    stopped = PlasmaReplicas([PlasmaRun(spec, one, engine=engine) for spec, one in replicas_of(SPEC, job, 2)])
    stops = iter([False, True])
    assert not stopped.run(should_stop=lambda: next(stops))
    done = CliRunner().invoke(app, ["plasma", "run", "--resume", str(tmp_path), "--threads", "2", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["replicas"]
    for run, one in zip(runs, found, strict=True):
        assert one["gamma_measured"]["mean"] == run.summary().gamma_measured.mean
    for run, again in zip(runs, resumed(tmp_path, engine=lambda began_on: engine), strict=True):
        assert again.remaining == 0
        same_run(run, again)
    assert (tmp_path / "t.replica-0001.jsonl").read_text()


def test_the_verb_runs_replicas_and_refuses_those_without_folders(tmp_path):
    point = ["plasma", "run", "--gamma", "60", "--kappa", "3", "--particles", "170", "--warmup", "0", "--time", "10"]
    said = CliRunner().invoke(app, [*point, "--replicas", "2"])
    assert "--out" in str(said.exception)
    out = ["--out", str(tmp_path / "both"), "--substrate", "cpu"]
    done = CliRunner().invoke(app, [*point, "--replicas", "2", *out])
    assert done.exit_code == 0, done.output
    assert "2 replicas" in done.stdout
    assert "1/1" in done.stdout
    assert sorted(Path(tmp_path / "both").glob("*/checkpoint.h5"))
    again = CliRunner().invoke(app, [*point, "--replicas", "2", *out])
    assert "exists already" in str(again.exception)


def test_replicas_that_do_not_match_are_refused():
    engine = cpu_engine(threads=1)
    other = PlasmaSpec(gamma=60.0, kappa=3.0, particles=180)
    with pytest.raises(SpecError, match="180"):
        PlasmaReplicas([PlasmaRun(spec, JOB, engine=engine) for spec in (SPEC, other)])
    with pytest.raises(SpecError, match="replicas"):
        replicas_of(SPEC, JOB, 0)
    with pytest.raises(SpecError, match="one run"):
        PlasmaReplicas([])


def test_a_run_goes_on_on_the_kind_of_engine_it_began_on(tmp_path):
    engine = cpu_engine(threads=1)
    run = PlasmaRun(SPEC, PlasmaJob(warmup=0, time=10, out=str(tmp_path)), engine=engine)
    run.run()
    asked = []

    def opens(began_on):
        asked.append(began_on)
        return engine

    assert PlasmaRun.resume(tmp_path, engine=opens).engine is engine
    assert asked == [engine.name]


def test_a_lost_replica_leaves_the_others_where_they_are():
    engine = cpu_engine(threads=1)
    runs = [PlasmaRun(spec, PlasmaJob(warmup=0, time=10), engine=engine) for spec, _ in replicas_of(SPEC, JOB, 2)]
    runs[0].particles.velocities[0] = 1e6
    with pytest.raises(Exception, match="finite numbers"):
        PlasmaReplicas(runs).step()
    assert runs[0].measured == 0
    assert runs[1].measured == 1
