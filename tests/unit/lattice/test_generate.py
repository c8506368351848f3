import json
import os
import signal
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice import Chain, ChainSpec, GaugeField, HmcSpec
from metalforge.lattice.generate import Generation, Job
from metalforge.lattice.io import read_links, write_links
from metalforge.lattice.observables import COLUMNS
from reference import command_line

MAIN = [sys.executable, "-W", "error", "-c", "from metalforge.cli import main; main()", "lattice"]
SPEC = ChainSpec(dims=(4, 4, 4, 4), beta=5.6, seed=3, algorithm="hmc", hmc=HmcSpec(n_steps=4))


def call(*arguments, cwd, code=0):
    return command_line.call("lattice", *arguments, cwd=cwd, code=code)


@pytest.mark.parametrize("stop_after", [3, 17, 31, 44])
def test_an_interrupted_run_gives_the_numbers_of_an_uninterrupted_one(tmp_path, stop_after):
    """Stopped in the warm-up (with and without the accept test) and in the measurement."""
    job = Job(warmup=30, trajectories=20, out=str(tmp_path / "run"))
    whole = Generation(Chain(SPEC), Job(warmup=30, trajectories=20))
    assert whole.run()
    part = Generation(Chain(SPEC), job)
    seen = []
    assert not part.run(should_stop=lambda: len(seen) >= stop_after, on_update=lambda *row: seen.append(row))
    resumed = Generation.resume(tmp_path / "run")
    assert resumed.remaining == 50 - stop_after
    assert resumed.run()
    assert resumed.series == whole.series
    assert resumed.chain.spec == whole.chain.spec
    assert np.array_equal(resumed.chain.field.links, whole.chain.field.links)


def test_a_finished_run_can_be_made_longer(tmp_path):
    run = Generation(Chain(SPEC), Job(warmup=5, trajectories=10, out=str(tmp_path)))
    run.run()
    longer = Generation.resume(tmp_path / "checkpoint.h5", trajectories=15)
    longer.run()
    assert longer.series["plaquette"][:10] == run.series["plaquette"]
    assert longer.measured == 15


@pytest.mark.parametrize("fields", [{"warmup": -1}, {"trajectories": 0}, {"save_every": -1}])
def test_bad_jobs(fields):
    with pytest.raises(SpecError, match="must be at least"):
        Job(**({"warmup": 1, "trajectories": 1} | fields))


@pytest.mark.parametrize("format", ["nersc", "ildg", "hdf5"])
def test_configurations_of_single_precision_are_kept_as_such(tmp_path, format):
    spec = msgspec.structs.replace(SPEC, precision="f32")
    run = Generation(Chain(spec), Job(warmup=2, trajectories=2, out=str(tmp_path), format=format, save_every=1))
    run.run()
    kept = sorted(tmp_path.glob("configuration-*"))
    assert len(kept) == 2
    assert np.array_equal(read_links(kept[-1]).links, run.chain.field.to_links())


def test_a_checkpoint_of_a_bare_chain_is_not_a_run(tmp_path):
    Chain(SPEC).save(tmp_path / "checkpoint.h5")
    with pytest.raises(SpecError, match="resumed"):
        Generation.resume(tmp_path)


def test_generate_json_has_the_documented_keys(tmp_path):
    common = ("generate", "--dims", 4, 4, 4, 4, "--warmup", 10, "--trajectories", 20, "--seed", 5, "--json")
    keys = {"plaquette", "polyakov_abs", "susceptibility", "acceptance", "exp_minus_dh"}
    hmc = json.loads(call(*common, "--algorithm", "hmc", cwd=tmp_path).stdout)
    assert all(set(hmc[k]) == {"mean", "error", "tau_int"} for k in keys)
    assert {"n_measurements", "updates_per_second", "threads", "isa"} <= set(hmc)
    assert hmc["n_measurements"] == 20
    assert hmc["susceptibility"]["tau_int"] == hmc["polyakov_abs"]["tau_int"]
    heatbath = json.loads(call(*common, cwd=tmp_path).stdout)
    assert heatbath["acceptance"] is None
    assert heatbath["exp_minus_dh"] is None
    assert not list(tmp_path.iterdir())


def test_a_run_too_short_for_errors_still_gives_its_means(tmp_path):
    options = ("generate", "--dims", 4, 4, 4, 4, "--warmup", 1, "--trajectories", 3, "--algorithm", "hmc")
    record = json.loads(call(*options, "--json", cwd=tmp_path).stdout)
    assert record["n_measurements"] == 3
    assert 0 < record["plaquette"]["mean"] < 1
    assert record["plaquette"]["error"] is None
    assert record["susceptibility"]["mean"] >= 0
    assert "plaquette" in call(*options, cwd=tmp_path).stdout


@pytest.mark.parametrize(("name", "suffix"), [("nersc", "nersc"), ("ildg", "ildg"), ("hdf5", "h5")])
def test_configurations_are_kept_and_measured(tmp_path, name, suffix):
    call(
        "generate", "--dims", 4, 4, 4, 6, "--warmup", 2, "--trajectories", 10, "--out", "run", "--format", name,
        "--save-every", 5, "--trace", "trace.jsonl", cwd=tmp_path,
    )  # fmt: skip
    files = sorted((tmp_path / "run").glob(f"configuration-*.{suffix}"))
    assert [f.stem for f in files] == ["configuration-00000007", "configuration-00000012"]
    trace = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [row["phase"] for row in trace] == ["warmup"] * 2 + ["measure"] * 10
    measured = json.loads(call("measure", *files, "--flow", 0.2, "--json", cwd=tmp_path).stdout)
    assert [m["plaquette"] for m in measured] == pytest.approx([trace[6]["plaquette"], trace[11]["plaquette"]])
    assert {"t0", "w0", "charge", "polyakov_abs"} <= set(measured[0])
    field = GaugeField.from_links(read_links(files[-1]).links)
    assert abs(field.polyakov()) == pytest.approx(measured[-1]["polyakov_abs"])


def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_resume(tmp_path):
    command = [*MAIN, "generate", "--dims", "4", "4", "4", "4", "--warmup", "5", "--trajectories", "1000000",
               "--out", "run", "--trace", "trace.jsonl"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    trace = tmp_path / "trace.jsonl"
    while process.poll() is None and (not trace.exists() or trace.stat().st_size < 20_000):
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "metalforge lattice generate --resume run/checkpoint.h5" in errors
    assert "Traceback" not in errors
    run = Generation.resume(tmp_path / "run")
    assert run.measured > 0
    call("generate", "--resume", "run", "--trajectories", run.measured + 8, cwd=tmp_path)
    assert Generation.resume(tmp_path / "run").measured == run.measured + 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "--dims", 7, 8, 8, 4), "four even integers"),
        (("generate", "--beta", "nan"), "`beta` must be"),
        (("generate", "--algorithm", "metropolis"), "algorithm"),
        (("generate", "--integrator", "omelyan3"), "did you mean `omelyan"),
        (("generate", "--trajectories", 0), "`trajectories` must be at least 1"),
        (("generate", "--resume", "nowhere"), "nowhere"),
        (("measure", "nothing.nersc"), "nothing.nersc"),
    ],
)
def test_wrong_input_is_exit_two(tmp_path, arguments, message):
    done = call(*arguments, cwd=tmp_path, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_starts_from_a_file(tmp_path):
    chain = Chain(SPEC)
    chain.run(3)
    write_links(tmp_path / "c.nersc", chain.field.to_links(), "nersc")
    options = ("generate", "--dims", 4, 4, 4, 4, "--beta", 5.6, "--warmup", 0, "--trajectories", 8, "--json")
    summaries = [json.loads(call(*options, "--start", s, cwd=tmp_path).stdout) for s in ("c.nersc", "cold")]
    assert summaries[0]["spec"]["start"] == "file"
    assert summaries[0]["plaquette"]["mean"] != summaries[1]["plaquette"]["mean"]
    wrong = call("generate", "--dims", 4, 4, 4, 6, "--start", "c.nersc", cwd=tmp_path, code=2)
    assert "but the spec says (4, 4, 4, 6)" in wrong.stderr


def test_a_run_does_not_overwrite_another(tmp_path):
    arguments = ("generate", "--dims", 4, 4, 4, 4, "--warmup", 1, "--trajectories", 8, "--out", "run")
    call(*arguments, cwd=tmp_path)
    done = call(*arguments, cwd=tmp_path, code=2)
    assert "exists already" in done.stderr
    assert "--resume run/checkpoint.h5" in done.stderr


def test_series_of_a_checkpoint_must_be_whole(tmp_path):
    run = Generation(Chain(SPEC), Job(warmup=0, trajectories=2, out=str(tmp_path)))
    run.run()
    del run.series["delta_h"]
    run.save()
    with pytest.raises(SpecError, match="must hold series " + ", ".join(COLUMNS)):
        Generation.resume(tmp_path)
