"""The command line as a user's shell sees it: real processes, stdout, stderr, exit codes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from metalforge import __version__, native
from metalforge.campaign.spec import presets
from metalforge.cli import machine
from metalforge.core import PlacementError
from metalforge.native.cuda.precision import Fp64Choice, Fp64Strategy
from metalforge.substrates import WORKLOADS
from metalforge.substrates.cuda_ import CudaSubstrate

ROOT = Path(__file__).parents[3]


def run(*arguments, cwd=ROOT, **environment):
    command = [sys.executable, "-W", "error", "-m", "metalforge", *arguments]
    env = {k: v for k, v in os.environ.items() if k != "METALFORGE_ISA"} | environment
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)


def test_the_module_is_the_command_from_any_folder(tmp_path):
    done = run("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"metalforge {__version__}\n", "")
    wrong = run("scan", "--preset", "no-such", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "no-such" in wrong.stderr


def test_doctor_json_has_the_documented_keys():
    done = run("doctor", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert {"version", "python", "isa", "threads", "substrates", "extras"} <= set(record)
    assert record["isa"] == native.level()
    for substrate in record["substrates"]:
        assert {"kind", "name", "capabilities", "properties"} <= set(substrate)
    assert {"cuda", "npu", "onnx", "ray"} <= set(record["extras"])
    for state in record["extras"].values():
        assert state == "installed" or "pip install 'metalforge[" in state
    for needed in record["cluster"]:
        assert needed["version"] or "pip install" in needed["remedy"]
    assert all(check["passed"] for check in record["checks"])


def test_the_version_is_one_line():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"metalforge {__version__}\n")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sc", ["scan"]),
        ("re", ["resume", "replay", "report"]),
        ("lattice ", ["generate", "measure"]),
        ("scan --preset ", list(presets())),
        ("scan --preset quenched-nt2", ["quenched-nt2"]),
    ],
)
def test_a_shell_completes_verbs_and_presets(typed, offered):
    words = f"metalforge {typed}"
    done = run(_METALFORGE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == offered


def test_the_completion_script_calls_this_program():
    done = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0, done.stderr
    assert "_METALFORGE_COMPLETE=complete_bash" in done.stdout
    assert "complete -o default" in done.stdout


def test_doctor_shows_the_level_that_the_environment_asks_for():
    name = native.available_levels()[0]
    assert f"level {name} of" in run("doctor", METALFORGE_ISA=name).stdout


def test_piped_output_is_plain_text():
    done = run("devices")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "akd1000-emulated" in done.stdout
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout


def test_devices_json_names_each_meter():
    record = json.loads(run("devices", "--json").stdout)
    assert all({"name", "unavailable"} == set(s["meter"]) for s in record["substrates"])


def test_route_json_carries_reason_cost_and_alternatives():
    record = json.loads(run("route", "esn_npu_inference", "--json").stdout)
    assert record["kind"] == "npu"
    assert record["cost"]["latency"] == {
        "source": "modelled",
        "value": 650e-6,
        "unit": "s",
        "profile": "akd1000-published",
    }
    assert {r["name"]: r["reason"] for r in record["rejected"]}["cpu:0"] == "cannot: lacks quant8"


def test_route_without_a_workload_shows_all():
    records = json.loads(run("route", "--json").stdout)
    assert [r["workload"] for r in records] == list(WORKLOADS)
    assert all(("substrate" in r) != ("unplaceable" in r) for r in records)
    text = run("route").stdout
    assert all(name in text for name in WORKLOADS)


def test_route_of_a_file(tmp_path):
    path = tmp_path / "w.toml"
    path.write_text('name = "mine"\nneeds = ["f64"]\nflops = 1e6\nbytes_moved = 8e3\n')
    done = run("route", str(path))
    assert done.returncode == 0
    assert "-> cpu:0" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("route", "latice_cg"), 2, "did you mean `lattice_cg`?"),
        (("route", "md_force", "--policy", "latncy"), 2, "did you mean `latency`?"),
        (("route", "absent.toml"), 2, "absent.toml: cannot be read"),
        (("bench", "nativ"), 2, "did you mean `native`?"),
        (("frobnicate",), 2, "No such command"),
        (("doctor", "--jsn"), 2, "No such option"),
    ],
)
def test_wrong_usage_is_exit_two_with_a_hint_on_stderr(arguments, code, message):
    done = run(*arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_what_this_machine_cannot_do_is_exit_three():
    done = run("doctor", METALFORGE_ISA="portable" if "portable" not in native.available_levels() else "v2")
    assert done.returncode == 3
    assert done.stderr.startswith("error: METALFORGE_ISA asks for")


def test_bench_lists_its_suites_and_needs_a_source_tree(tmp_path):
    assert "native" in [s["suite"] for s in json.loads(run("bench", "--json").stdout)]
    done = run("bench", cwd=tmp_path)
    assert done.returncode == 2
    assert "clone of the repository" in done.stderr


def test_bench_runs_a_suite_with_ratio_and_ceiling(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    suite = tmp_path / "benchmarks" / "tiny"
    suite.mkdir(parents=True)
    for file in (Path(__file__).parents[3] / "benchmarks").glob("*.py"):
        shutil.copy(file, suite.parent)
    (suite / "bench_one.py").write_text(
        "from benchmarks.rows import BenchRow\nfrom metalforge.core import Measured\n"
        "def rows():\n"
        "    q = lambda v: Measured(value=v, unit='GB/s', how='test')\n"
        "    yield BenchRow(name='one', value=q(3.0), peer=q(1.5), ceiling=q(6.0))\n"
    )
    text = run("bench", "tiny", cwd=tmp_path).stdout
    assert "2.00" in text
    assert "50 %" in text
    record = json.loads(run("bench", "tiny", "--json", cwd=tmp_path).stdout)
    assert (record["rows"][0]["ratio"], record["rows"][0]["fraction"]) == (2.0, 0.5)


def test_a_broken_plugin_is_a_warning_not_a_failure(tmp_path):
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[metalforge.substrates]\nstranger = no_such_module:discover\n")
    command = [sys.executable, "-m", "metalforge", "devices", "--json"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0
    assert "warning: skipped: plug-in `stranger`" in done.stderr
    assert json.loads(done.stdout)["substrates"]


def test_on_a_terminal_tables_are_drawn_and_no_color_is_respected():
    """A pseudo-terminal: colours unless NO_COLOR says otherwise."""
    pty = pytest.importorskip("pty")

    def on_terminal(**environment):
        output = bytearray()

        def read(descriptor):
            data = os.read(descriptor, 4096)
            output.extend(data)
            return data

        keep = dict(os.environ)
        os.environ.update({"TERM": "xterm-256color", "COLUMNS": "120"} | environment)
        sink = os.open(os.devnull, os.O_WRONLY)
        saved = os.dup(1)
        os.dup2(sink, 1)
        try:
            pty.spawn([sys.executable, "-m", "metalforge", "devices"], read, lambda _: b"")
        finally:
            os.dup2(saved, 1)
            os.close(saved)
            os.close(sink)
            os.environ.clear()
            os.environ.update(keep)
        return output.decode()

    coloured, plain = on_terminal(), on_terminal(NO_COLOR="1")
    assert "akd1000-emulated" in coloured
    assert "akd1000-emulated" in plain
    assert "\u2500" in plain
    colour = re.compile(r"\x1b\[[\d;]*(?:3[0-7]|38)[;m]")
    assert colour.search(coloured)
    assert not colour.search(plain)


def test_doctor_says_how_cards_use_double_precision(monkeypatch, capsys):
    """Strategy and figures of each card; one that fails says why, and the rest is there."""

    def engine(index, strategy):
        if index == 1:
            raise PlacementError("cuda:1 cannot be opened: no room\nhint: wait")
        return SimpleNamespace(fp64=Fp64Choice(asked=Fp64Strategy(strategy), measured={0: 6e-4, 1: 7e-4, 64: 4e-3}))

    here = machine.substrates.discover()
    cards = (CudaSubstrate(0, "one", {}), CudaSubstrate(1, "other", {}))
    found = msgspec.structs.replace(here, substrates=(*here.substrates, *cards))
    monkeypatch.setattr(machine.substrates, "discover", lambda: found)
    monkeypatch.setattr("metalforge.native.cuda.engine.cuda_engine", engine)
    machine.doctor(as_json=True)
    fp64 = json.loads(capsys.readouterr().out)["fp64"]
    assert fp64["cuda:0"]["strategy"] == "native"
    assert fp64["cuda:0"]["seconds"] == {"native": 6e-4, "concurrent": 7e-4, "hybrid": 4e-3}
    assert "no room" in fp64["cuda:1"]["line"]
    machine.doctor(as_json=False)
    assert "native, measured: native 0.6 ms" in capsys.readouterr().out
