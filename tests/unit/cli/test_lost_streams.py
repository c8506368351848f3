"""Output that goes away: a campaign runs to its end and leaves its report; what a verb lost is said by its code."""

import os
import resource
import shlex
import signal
import subprocess
import sys

import pytest

from metalforge.campaign import load
from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running.book import Estimator
from reference.command_line import call
from reference.small_campaigns import ROUNDS

COMMAND = [sys.executable, "-W", "error", "-c", "from metalforge.cli import main; main()"]
UNDRAWN = (
    'import metalforge.campaign.report.drawing as it; it._bytes = lambda *_: b\'<svg width="9pt" height="9pt"/>\'; '
)
"""Drawing takes seconds, and other tests look at the figures."""
NO_ROOM = "No space left on device"


def shell(line, cwd, before=""):
    """Run `metalforge`, written M, in a line of a shell."""
    command = f'M() {{ {shlex.join([*COMMAND[:-1], before + COMMAND[-1]])} "$@"; }}\n{line}'
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spec.toml").write_text(spec_text(ROUNDS))
    return tmp_path


def ended_well(directory):
    assert (directory / "report.html").read_text().startswith("<!doctype html>")
    return load(directory).stopped_by == "trajectories"


@pytest.mark.parametrize("verb", ["presets", "devices --json", "--help"])
def test_a_full_disk_behind_stdout_is_one_line_and_its_code(verb, tmp_path):
    done = shell(f"M {verb} >/dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (75, f"error: stdout cannot be written ({NO_ROOM})\n")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("M presets >&-", 75),
        ("M presets >&- 2>&-", 75),
        ("M presets 2>&-", 0),
        ("M scan absent.toml 2>/dev/full", 2),
        ("M scan --nonsense 2>/dev/full", 2),
        ("set -o pipefail; M presets | true", 75),
    ],
)
def test_the_code_says_what_was_lost_and_nothing_else(line, code, tmp_path):
    done = shell(line, tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_file_opened_later_does_not_get_the_number_of_a_closed_stream(folder):
    """The journal of `2>&-` was descriptor 2 once: whatever a library says there went into it."""
    done = shell("M lattice generate --dims 4 4 4 2 --warmup 1 --trajectories 2 --trace t >&- 2>&-; cat t", folder)
    assert [line[:1] for line in done.stdout.splitlines()] == ["{"] * 3


@pytest.mark.parametrize("redirected", ["2>/dev/full >&-", "2>&1 | head -1"])
@pytest.mark.chaos
def test_a_campaign_without_streams_runs_to_its_end(redirected, folder):
    done = shell(f"set -o pipefail; M scan spec.toml --out run {redirected}", folder, UNDRAWN)
    assert done.returncode == 75
    assert ended_well(folder / "run")
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.chaos
@pytest.mark.usefixtures("undrawn")
def test_a_disk_fault_is_one_line_and_the_campaign_goes_on_later(folder):
    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))

    command = [*COMMAND, "scan", "spec.toml", "--out", "run", "--json"]
    done = subprocess.run(command, cwd=folder, preexec_fn=little_room, capture_output=True, text=True, check=False)
    assert done.returncode == 75
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert error.startswith("error: run/")
    assert "metalforge resume run" in done.stderr
    assert len(done.stderr.splitlines()) < 6
    call("resume", "run", "--json", cwd=folder)
    assert ended_well(folder / "run")


@pytest.mark.usefixtures("undrawn")
def test_out_of_memory_is_one_line_and_the_campaign_goes_on_later(folder, monkeypatch):
    def exhausted(*arguments, **options):
        raise MemoryError("Unable to allocate 9 GiB")

    with monkeypatch.context() as patched:
        patched.setattr(Estimator, "__call__", exhausted)
        said = call("scan", "spec.toml", "--out", "run", "--json", cwd=folder, code=3).stderr
    assert [line for line in said.splitlines() if line.startswith("error")] == [
        "error: not enough memory: Unable to allocate 9 GiB"
    ]
    assert "metalforge resume run" in said
    call("resume", "run", "--json", cwd=folder)
    assert ended_well(folder / "run")


@pytest.mark.chaos
def test_watch_ends_when_nobody_looks_any_more(folder):
    with subprocess.Popen([*COMMAND, "scan", "spec.toml", "--out", "run"], cwd=folder, stderr=subprocess.PIPE) as run:
        try:
            for _ in range(4):  # the fourth line is of chains that run
                assert run.stderr.readline()
            os.kill(run.pid, signal.SIGSTOP)
            done = shell("set -o pipefail; M watch run 2>&1 | head -1", folder)
        finally:
            run.kill()
    assert done.returncode == 75
    assert len(done.stdout.splitlines()) == 1
