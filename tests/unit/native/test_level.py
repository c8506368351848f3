import importlib
import os
import subprocess
import sys

import numpy as np
import pytest

from metalforge import native
from metalforge.core import KernelError, SpecError, UnknownNameError


def test_the_best_level_is_picked(monkeypatch):
    monkeypatch.delenv("METALFORGE_ISA", raising=False)
    assert native.level() == native.available_levels()[-1]
    assert native.kernels().level == native.level()


def test_the_environment_overrides_it(monkeypatch, level):
    monkeypatch.setenv("METALFORGE_ISA", level)
    assert native.level() == level
    assert native.kernels().level == level


def test_an_unknown_level_lists_the_known_ones(monkeypatch):
    monkeypatch.setenv("METALFORGE_ISA", "v5")
    with pytest.raises(UnknownNameError, match="known: portable, v2, v3, v4"):
        native.level()
    with pytest.raises(UnknownNameError, match=r"build.*`sse`"):
        native.kernels("sse")


def test_a_level_this_cpu_cannot_run_is_refused(monkeypatch):
    absent = next(name for name in ("portable", "v4", "v3", "v2") if name not in native.available_levels())
    monkeypatch.setenv("METALFORGE_ISA", absent)
    with pytest.raises(KernelError, match=f"asks for `{absent}`"):
        native.level()


def test_threads_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    monkeypatch.delenv("METALFORGE_THREADS", raising=False)
    assert native.default_threads() == 3
    monkeypatch.setenv("METALFORGE_THREADS", "5")
    assert native.default_threads() == 5
    for bad in ("0", "two", "-1", "99999"):
        monkeypatch.setenv("METALFORGE_THREADS", bad)
        with pytest.raises(SpecError, match=r"METALFORGE_THREADS.*integer"):
            native.default_threads()


def test_all_levels_live_in_one_process():
    modules = {name: native.kernels(name) for name in native.available_levels()}
    assert {module.level for module in modules.values()} == set(modules)


def test_the_gil_is_released():
    """A kernel runs in a thread while this one keeps counting; with the GIL held it could not."""
    code = (
        "import threading, numpy as np\n"
        "from metalforge import native\n"
        "out = np.empty((1 << 22, 2))\n"
        "native.kernels()\n"
        "running = threading.Event(); done = threading.Event()\n"
        "def work():\n"
        "    running.set()\n"
        "    native.kernels().normal(out, 1, 0, 0, 0, 0, 1)\n"
        "    done.set()\n"
        "t = threading.Thread(target=work); t.start(); running.wait()\n"
        "ticks = 0\n"
        "while not done.is_set(): ticks += 1\n"
        "print(ticks)\n"
    )
    env = os.environ | {"PYTHONSWITCHINTERVAL": "0.005"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert int(done.stdout) > 100


def test_selftest_passes_and_notices_a_broken_kernel(monkeypatch):
    assert all(check.passed for check in native.selftest())
    module = importlib.import_module("metalforge.native.self_checks")
    monkeypatch.setattr(module, "_ANSWER", (0, 0, 0, 0))
    assert not module.selftest()[0].passed


def test_ceilings_are_positive(kernels):
    assert kernels.fma_f64(100, 1) == 2 * 12 * (kernels.vector_bytes // 8) * 100
    assert kernels.fma_f32(100, 2) == 2 * 12 * (kernels.vector_bytes // 4) * 100 * 2
    assert kernels.philox_rounds(100) > 0
    source, target = np.arange(1000.0), np.zeros(1000)
    kernels.copy(source, target, 2)
    assert np.array_equal(source, target)
