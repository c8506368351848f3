"""Every example runs to its end, in its quick form and without a warning."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUG_INS = {"ising.py"}
"""Files that a spec names: tests/unit/campaign/test_ising.py scans with it."""
SCRIPTS = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name not in PLUG_INS)


@pytest.mark.parametrize("example", SCRIPTS, ids=lambda p: p.name)
def test_examples_run(example):
    command = [sys.executable, "-W", "error", str(example), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_users_own_file_is_typed(tmp_path):
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        os.devnull,
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
    ]
    user = ROOT / "examples" / "typed_user.py"
    done = subprocess.run([*command, str(user)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
