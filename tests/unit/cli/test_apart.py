"""A verb in a child process: its exit code, its sudden end, a cluster that does not answer, and signals."""

import subprocess
import sys

import pytest

from metalforge.campaign.running.campaign import Campaign
from reference.small_campaigns import ROUNDS

SCRIPT = """
import os, signal, sys, threading
from functools import partial
from pathlib import Path
from metalforge.cli import apart
from metalforge.cli.guard import guarded
from metalforge.core.errors import SpecError
import typer

def ends(tell):
    tell(True)

def exits(tell):
    raise typer.Exit(3)

def fails(tell):
    raise SpecError("wrong")

def lost(tell):
    tell(True)
    os._exit(1)

def killed(tell):
    os.kill(os.getpid(), signal.SIGKILL)

def stands_still(tell):
    woken = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: woken.set())
    tell(True)
    while not woken.wait(0.01):
        pass
    tell(True)

def never_leaves(tell):
    tell(False)
    threading.Event().wait()

def never_ends(tell):
    print("runs", flush=True)
    threading.Event().wait()

class Wakes:
    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        self._stream.write(text)
        os.kill(os.getpid(), signal.SIGUSR1)

    def flush(self):
        self._stream.flush()

def run():
    apart.SILENT_S = apart.CLOSE_S = 0.05
    child = apart.Apart(globals()[sys.argv[1]], Path(sys.argv[2]))
    if sys.argv[1] == "stands_still":
        sys.stderr = Wakes(sys.stderr)
    try:
        child.wait()
    except typer.Exit as ended:
        return ended.exit_code
    return 0

sys.exit(guarded(run))
"""


def command(verb, directory):
    return [sys.executable, "-c", SCRIPT, verb, str(directory)]


@pytest.mark.parametrize(
    ("verb", "code", "lines"),
    [
        ("ends", 0, 0),
        ("exits", 3, 0),
        ("fails", 2, 1),
        ("lost", 75, 1),
        ("killed", 75, 1),
        ("stands_still", 0, 2),
        ("never_leaves", 75, 1),
    ],
)
def test_the_end_of_the_child_is_that_of_the_command(verb, code, lines, tmp_path):
    done = subprocess.run(command(verb, tmp_path), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, lines), done.stderr
    assert "Traceback" not in done.stderr


def test_a_campaign_whose_cluster_was_lost_is_to_be_resumed(tmp_path):
    Campaign.open(ROUNDS, tmp_path / "run").close()
    done = subprocess.run(command("lost", tmp_path / "run"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 75
    assert f"metalforge resume {tmp_path / 'run'}" in done.stderr


def test_the_child_ends_when_the_command_is_killed(tmp_path):
    with subprocess.Popen(command("never_ends", tmp_path), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "runs\n"
        parent.kill()
        assert parent.stdout.read() == ""  # which the child has open, too
