"""What a stranger's machine would show: the prerequisites check and the licence check."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_cuda  # noqa: E402
import check_licences  # noqa: E402


def prerequisites(path, **environment):
    command = [shutil.which("sh"), str(ROOT / "tools/check-prerequisites"), "python3"]
    env = {"PATH": str(path)} | environment
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def tools(folder, *names):
    for name in names:
        target = sys.executable if name == "python3" else shutil.which(name)
        (folder / name).symlink_to(target)


def test_no_compiler_is_one_line_with_the_command(tmp_path):
    tools(tmp_path, "python3")
    done = prerequisites(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "metalforge: no C++ compiler found; install one with: apt-get install g++\n"


def test_no_python_is_one_line_with_the_command(tmp_path):
    done = prerequisites(tmp_path)
    assert done.returncode == 1
    assert "python3 not found; install it with: apt-get install" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_old_compiler_is_named(tmp_path):
    tools(tmp_path, "python3", "cat")
    old = tmp_path / "g++"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    (tmp_path / "sh").symlink_to(shutil.which("sh"))
    done = prerequisites(tmp_path)
    assert done.returncode == 1
    assert "g++ cannot compile C++20" in done.stderr


def test_this_machine_passes():
    done = prerequisites(os.environ["PATH"])
    assert (done.returncode, done.stderr) == (0, "")


def test_run_time_dependencies_have_compatible_licences():
    verdicts = check_licences.verdicts("metalforge")
    assert {"numpy", "msgspec", "typer", "rich"} <= set(verdicts)
    assert [name for name, (accepted, _) in verdicts.items() if not accepted] == []


@pytest.mark.parametrize(
    ("licence", "accepted"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND MIT AND Zlib", True),
        ("Apache-2.0 OR BSD-3-Clause", True),
        ("Proprietary", False),
        ("MIT AND LicenseRef-Secret", False),
        ("GPL-2.0-only", False),
        ("", False),
    ],
)
def test_licence_expressions_are_read_by_meaning(licence, accepted):
    assert check_licences.acceptable(licence) is accepted


def test_oracles_of_the_tests_are_no_part_of_a_plain_installation():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {line.split(">")[0] for line in project["project"]["dependencies"]}
    assert not needed & {"pyerrors", "pymbar", "onnx", "onnxruntime", "mpmath", "reservoirpy"}
    assert [line.split(">")[0] for line in project["project"]["optional-dependencies"]["analysis"]] == ["pyerrors"]
    assert {"pyerrors", "pymbar"} <= {line.split(">")[0] for line in project["dependency-groups"]["test"]}


def test_tests_on_clusters_have_what_the_extra_has():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["project"]["optional-dependencies"]["ray"]) <= set(project["dependency-groups"]["cluster"])


def test_every_kernel_header_is_compiled_for_cuda():
    assert set(check_cuda.PROBES) == set(check_cuda.headers())
    # NVRTC has no standard headers; those of CPUs stand behind #if !MF_CUDA in two files.
    for name in set(check_cuda.headers()) - {"platform.hpp", "simd.hpp"}:
        assert "#include <" not in (check_cuda.NATIVE / name).read_text(), name


def test_the_test_of_a_wheel_makes_updates(tmp_path):
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    (tmp_path / "project").mkdir()
    command = shlex.split(built["test-command"].replace("{project}", str(tmp_path / "project")))
    done = subprocess.run([sys.executable, *command[1:], "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert command[0] == "python"
    assert found["trajectories"] > 0.8 * int(command[command.index("--trajectories") + 1])
    assert Path(found["report"]).resolve().is_relative_to(tmp_path)
