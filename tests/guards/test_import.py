"""`import metalforge` must be cheap and harmless."""

import importlib
import json
import pkgutil
import subprocess
import sys

import metalforge

HEAVY = [
    "akida", "cupy", "h5py", "matplotlib", "numpy", "onnx", "onnxruntime", "optuna", "pandas", "pynvml",
    "ray", "rich", "scipy", "sklearn", "starlette", "torch", "typer", "uvicorn",
]  # fmt: skip


def _in_a_fresh_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_import_loads_no_heavy_library_and_takes_little_cpu_time():
    loaded, seconds = _in_a_fresh_process(
        "import sys, time, json\n"
        "before = set(sys.modules); start = time.process_time()\n"
        "import metalforge\n"
        "seconds = time.process_time() - start\n"
        "print(json.dumps([sorted(set(sys.modules) - before), seconds]))\n"
    )
    assert not {name.split(".")[0] for name in loaded} & set(HEAVY)
    assert not [name for name in loaded if "_kernels" in name]
    assert seconds < 0.5


def test_the_live_page_needs_no_heavy_library_for_its_first_data():
    loaded = _in_a_fresh_process(
        "import sys, json\n"
        "from metalforge.cli.main import assembled\n"
        "assembled('dashboard')\n"
        "import metalforge.dashboard.opening\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    assert "uvicorn" in loaded
    heavy = {"h5py", "matplotlib", "metalforge.conductor", "metalforge.hybrid", "metalforge.reservoir", "scipy"}
    assert not heavy & set(loaded)


def test_no_module_imports_a_library_of_an_extra():
    rooms = [m.name for m in pkgutil.walk_packages(metalforge.__path__, "metalforge.") if "._" not in m.name]
    assert "metalforge.statistics" in rooms
    assert len(rooms) > 10
    loaded = _in_a_fresh_process(
        "import importlib, sys, json\n"
        f"for room in {rooms!r}: importlib.import_module(room)\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    assert not set(loaded) & {"akida", "cupy", "onnx", "pyerrors", "pymbar", "pynvml", "ray", "torch"}


def test_every_room_exports_what_it_says():
    rooms = "core native substrates lattice lattice.io statistics reservoir hybrid pipeline testing cli"
    rooms += " campaign cluster conductor dashboard"
    for name in rooms.split():
        room = importlib.import_module(f"metalforge.{name}")
        assert sorted(room.__all__) == sorted(set(room.__all__))
        assert all(hasattr(room, exported) for exported in room.__all__)
        assert room.__doc__


def test_a_lattice_campaign_loads_nothing_of_other_physics_devices_or_networks(tmp_path):
    # 200 modules are a bound of issue 36: a module that tiny does not need is imported where it is used.
    loaded = _in_a_fresh_process(
        "import contextlib, io, json, sys\n"
        "from metalforge.cli.main import main\n"
        f"sys.argv = ['metalforge', 'scan', '--preset', 'tiny', '--out', {str(tmp_path / 'run')!r}]\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main()\n"
        "print(json.dumps(sorted(name for name in sys.modules if name.startswith(('metalforge', 'onnx')))))\n"
    )
    assert (tmp_path / "run" / "report.html").exists()
    packages = {".".join(name.split(".")[:2]) for name in loaded}
    assert "metalforge.lattice" in packages
    assert not packages & {"metalforge.plasma", "metalforge.hybrid", "metalforge.cluster"}
    assert not [name for name in loaded if name.startswith(("onnx", "metalforge.native.cuda"))]
    assert len(loaded) <= 200
