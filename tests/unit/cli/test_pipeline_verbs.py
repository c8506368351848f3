"""`metalforge pipeline check|show|run`, as a shell sees them."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GOOD = """
name = "squares"
[[stages]]
name = "numbers"
use = "reference.pipeline_stages:Numbers"
parameters = { count = 12 }
substrate = "cpu:0"
[[stages]]
name = "plus"
use = "reference.pipeline_stages:increment"
[[stages]]
name = "sink"
use = "metalforge.pipeline:Collect"
[[edges]]
from = "numbers"
to = "plus"
channel = { kind = "bounded", capacity = 2 }
[[edges]]
from = "plus"
to = "sink"
"""
CYCLE = GOOD + '[[edges]]\nfrom = "sink"\nto = "plus"\nchannel = { kind = "bounded", capacity = 1 }\n'


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "topology.toml"
        path.write_text(text)
        return str(path)

    return write


def verb(*arguments):
    command = [sys.executable, "-W", "error", "-c", "from metalforge.cli import main; main()", "pipeline", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)


def test_check_accepts_and_refuses_with_exit_codes(file):
    done = verb("check", file(GOOD), "--json")
    assert (done.returncode, json.loads(done.stdout)["accepted"]) == (0, True), done.stderr
    done = verb("check", file(CYCLE))
    assert done.returncode == 1
    assert "plus --Bounded(4)--> sink --Bounded(1)--> plus" in done.stdout or "sink --Bounded(1)" in done.stdout
    done = verb("check", file(GOOD.replace("cpu:0", "cpu:9")))
    assert done.returncode == 2
    assert "unknown substrate" in done.stderr


def test_show_draws_text_and_mermaid(file):
    assert "numbers  (on cpu:0, source)\n  --> plus  [Bounded(2)]" in verb("show", file(GOOD)).stdout
    assert verb("show", file(GOOD), "--mermaid").stdout.startswith("flowchart LR")


@pytest.mark.parametrize("runtime", ["threads", "inline"])
def test_run_prints_metrics(file, runtime, tmp_path):
    done = verb("run", file(GOOD), "--runtime", runtime, "--json", "--events", str(tmp_path / "e.jsonl"))
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["status"] == "ended"
    assert {s["stage"]: s["items_processed"] for s in record["stages"]}["sink"] == 12
    assert "run.ended" in (tmp_path / "e.jsonl").read_text()


def test_run_without_json_is_a_table(file):
    done = verb("run", file(GOOD))
    assert "blocked put" in done.stdout
    assert done.stderr == ""


def test_ctrl_c_drains_and_ends_in_bounded_time(file):
    endless = GOOD.replace("pipeline_stages:Numbers", "pipeline_stages:Endless").replace(
        "parameters = { count = 12 }", ""
    )
    events = Path(file(endless)).parent / "events.jsonl"
    command = [sys.executable, "-c", "from metalforge.cli import main; main()", "pipeline", "run", file(endless)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    process = subprocess.Popen(
        [*command, "--events", str(events)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    ticks = threading.Event()
    for _ in range(600):
        if events.exists() and "run.started" in events.read_text():
            break
        ticks.wait(0.05)
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=30)
    finally:
        process.kill()  # an endless run must not outlive a failure
    assert process.returncode == 130
    assert '"run.ended"' in events.read_text()


def test_seconds_end_a_run_in_which_a_thread_hangs_and_the_program_too(file):
    text = GOOD.replace("reference.pipeline_stages:increment", "reference.pipeline_stages:hang_on_odd")
    command = [sys.executable, "-c", "from metalforge.cli import main; main()", "pipeline", "run", file(text)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(
        [*command, "--seconds", "0.2", "--json"], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "abandoned" in done.stderr
    assert "plus" in done.stderr
    assert json.loads(done.stdout)["status"] == "stopped"
