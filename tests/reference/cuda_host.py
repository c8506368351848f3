"""A card that is the host: the CUDA kernels compiled as C++ (cuda_host.hpp), memory that is NumPy's.

For machines without a GPU: the engine's own code, its kernels, their indices and their bits, slowly.
"""

import ctypes
import os
import subprocess
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np

from metalforge.native.cuda.card import CardLimits
from metalforge.native.cuda.grid import CudaEngine
from metalforge.native.cuda.precision import Fp64Choice
from metalforge.native.cuda.solver import CLUSTER_BLOCKS

HERE = Path(__file__).parent
NATIVE = Path(__file__).parents[2] / "src/metalforge/native"
RECORD = "mf::gpu::Work"
REALS = {"f64": "double", "f32": "float"}
ONE_AT_A_TIME = Lock()
"""Fibres are the library's own."""
FLAGS = ["-std=c++20", "-O1", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared"]


class HostCard:
    """What `Card` asks for, done at once."""

    name, cache_bytes = "cuda:0", 1 << 20
    limits = CardLimits(multiprocessors=4, shared_bytes=227 << 10, clusters=True)

    def __init__(self, folder):
        self._folder, self._libraries = folder, {}
        self.launches = 0

    def zeros(self, count, kind):
        return np.zeros(count, kind)

    def address(self, memory):
        return memory.ctypes.data

    def write(self, memory, host):
        memory[...] = host

    def read(self, memory):
        return memory.copy()

    def copy(self, target, source):
        target[...] = source

    def clear(self, memory):
        memory[...] = 0

    def capture(self, work):
        return work

    def wait(self):
        pass

    def launch(self, file, precision, kernel, blocks, threads, record, shared=0, meeting=""):
        library = self._library(file, precision)
        function = ctypes.cast(getattr(library, kernel), ctypes.c_void_p)
        self.launches += 1
        together = {"": 1, "cluster": CLUSTER_BLOCKS, "grid": blocks[0]}[meeting]
        with ONE_AT_A_TIME:
            library.run(function, record.ctypes.data_as(ctypes.c_void_p), *blocks, threads, shared, together)

    def _library(self, file, precision):
        if (file, precision) not in self._libraries:
            self._libraries[file, precision] = ctypes.CDLL(str(compiled(self._folder, file, precision)))
        return self._libraries[file, precision]


@cache
def compiled(folder, file, precision):
    """Compile a kernel file for the host, once for all modules of a session of tests, and return the library."""
    target = folder.parent / "cuda-host" / f"{file}.{precision}.so"
    if target.exists():
        return target
    target.parent.mkdir(exist_ok=True)
    made = target.with_suffix(f".{os.getpid()}")
    text = f'#include "{NATIVE / "cuda" / file}"\nCUDA_HOST_RUNNER({RECORD})\n'
    includes = [f"-I{NATIVE}", f"-I{NATIVE / 'cuda'}", "-include", str(HERE / "cuda_host.hpp")]
    command = [
        "g++",
        *FLAGS,
        "-Wno-unknown-pragmas",
        *includes,
        f"-DMF_REAL={REALS[precision]}",
        "-x",
        "c++",
        "-",
        "-o",
        str(made),
    ]
    subprocess.run(command, input=text, text=True, check=True)
    return made.replace(target)


def host_engine(folder, strategy="native", pair_share=None):
    """Return an engine on the host card; the libraries go beside `folder`, of which tests have one each."""
    choice = Fp64Choice.of(strategy, pair_share)
    return CudaEngine(HostCard(folder), (host_engine, (folder, strategy, pair_share)), choice)
