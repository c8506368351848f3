"""`benchmarks/gpu/bench_engine.py` without a GPU: launches that do nothing, or kernels compiled for the host."""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.rows import load_benchmark
from metalforge.native.cuda import engine as cuda
from metalforge.native.cuda.grid import CudaEngine
from metalforge.native.cuda.solver import CHECKS, REPORTED
from reference.cuda_host import HostCard, host_engine

FILE = Path(__file__).parents[3] / "benchmarks/gpu/bench_engine.py"
TINY = (4, 4, 4, 4)


class IdleCard(HostCard):
    """Launches nothing; solves report the iterations that were asked for."""

    def launch(self, file, precision, kernel, blocks, threads, record, shared=0, meeting=""):
        self.launches += 1
        if meeting:
            numbers = blocks[1] * (REPORTED + CHECKS)
            memory = (ctypes.c_double * numbers).from_address(int(record["report"]))
            np.frombuffer(memory).reshape(blocks[1], -1)[:, 0] = record["most"]


class Event:
    """A CUDA event, without its time."""

    def record(self, stream):
        self.stream = stream

    def synchronize(self):
        assert self.stream == "stream"


@pytest.fixture
def benchmark(monkeypatch):
    """Return the benchmark on a card, with lattices and chains as small as they can be."""

    def on(engine):
        engine.card._stream = "stream"
        events = SimpleNamespace(Event=Event, get_elapsed_time=lambda first, last: 1.0)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=events))
        monkeypatch.setattr(cuda, "cuda_engine", lambda index: engine)
        module = load_benchmark(FILE)
        for name, value in {
            "SMALL": TINY,
            "ITERATION_GOALS": {TINY: ("", "")},
            "SOLVED_TOGETHER": (2,),
            "SOLVED": (TINY,),
        }.items():
            monkeypatch.setattr(module, name, value)
        return module

    return on


def test_gauge_and_staggered_rows_are_made(benchmark, monkeypatch, tmp_path):
    card = IdleCard(tmp_path)
    module = benchmark(CudaEngine(card, (CudaEngine, ())))
    monkeypatch.setattr(module, "whole_solve", lambda solve: (1.0, SimpleNamespace(iterations=2)))
    assert sum(row.name.startswith("force") for row in module.gauge(True)) == 10  # two forces on five lattices
    rows = list(module.staggered(True))
    assert [row.unit for row in rows] == ["TB/s", "us", "us"] * 2 + ["us"] * 4
    assert card.launches > 1000


@pytest.mark.long
def test_staggered_rows_on_the_host_as_a_card(benchmark, tmp_path):
    rows = list(benchmark(host_engine(tmp_path)).staggered(True))
    assert len(rows) == 10
    assert all(np.isfinite(row.value) for row in rows)
    assert all("iterations" in row.note for row in rows[-2:])
