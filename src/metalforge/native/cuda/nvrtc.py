"""Kernels as machine code of a GPU: compiled by NVRTC from the headers here, and kept in the user's cache folder.

NVRTC is a library without driver or card: from its wheel, which CuPy's `ctk` extra and PyTorch bring too, or from an
installed CUDA toolkit.
"""

import ctypes
import ctypes.util
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from metalforge.core import KernelError, MetalforgeError, cache_folder, replacing
from metalforge.native.engine import Precision

HERE = Path(__file__).parent
NATIVE = HERE.parent
REALS: dict[Precision, str] = {"f64": "double", "f32": "float"}
KERNEL_FILES: dict[str, tuple[Precision, ...]] = {
    path.name: ("f64",) if path.name == "pairs.cu" else tuple(REALS) for path in sorted(HERE.glob("*.cu"))
}
"""With the precisions of what each works on."""
OPTIONS = ("--std=c++20", "-fmad=false", f"--include-path={NATIVE}", f"--include-path={HERE}")
"""Contraction is off as on CPUs (CMakeLists.txt), where the same headers give the same bits."""
WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
"""Of CUDA 13, and of CUDA 12, the last that knows sm_70."""


class Nvrtc:
    """NVIDIA's run-time compiler, of the first of `wheels` that is installed, else of a toolkit."""

    def __init__(self, wheels: Sequence[str] = WHEELS) -> None:
        path = Path(_library_path(wheels))
        if path.is_absolute():  # its other half is looked for by name alone, and found where it is loaded already
            for half in path.parent.glob("libnvrtc-builtins.so*"):
                ctypes.CDLL(str(half))
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def _call(self, name: str, *arguments: object) -> int:
        return int(getattr(self._library, name)(*arguments))

    def version(self) -> str:
        """Return the version of CUDA that it speaks."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def architectures(self) -> list[int]:
        """Return what it compiles for, such as 75 and 90."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return list(numbers)

    def compile(self, source: str, architecture: str, *options: str) -> tuple[bytes, str]:
        """Return the machine code (empty: it does not compile) and what the compiler says."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
        every = [option.encode() for option in (*OPTIONS, *options, f"--gpu-architecture={architecture}")]
        status = self._call("nvrtcCompileProgram", program, len(every), (ctypes.c_char_p * len(every))(*every))
        self._call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        self._call("nvrtcGetProgramLog", program, log)
        code = b""
        if status == 0:
            self._call("nvrtcGetCUBINSize", program, ctypes.byref(size))
            image = ctypes.create_string_buffer(size.value)
            self._call("nvrtcGetCUBIN", program, image)
            code = image.raw
        self._call("nvrtcDestroyProgram", ctypes.byref(program))
        return code, log.value.decode() or self._library.nvrtcGetErrorString(status).decode()


def compiled(file: str, precision: Precision, architecture: str) -> Path:
    """Return the machine code of a kernel file, made now or before from the same sources by the same compiler."""
    nvrtc = _nvrtc()
    define = f"-DMF_REAL={REALS[precision]}"
    recipe = "\n".join((nvrtc.version(), architecture, define, file, *OPTIONS[:2], _sources()))
    key = hashlib.sha256(recipe.encode()).hexdigest()[:20]
    path = cache_folder() / "cuda" / f"{Path(file).stem}-{precision}-{architecture}-{key}.cubin"
    if path.exists():
        return path
    code, log = nvrtc.compile((HERE / file).read_text(), architecture, define)
    if not code:
        known = ", ".join(f"sm_{number}" for number in nvrtc.architectures())
        raise KernelError(
            f"{file} does not compile for {architecture} with NVRTC of CUDA {nvrtc.version()}, "
            f"which knows {known}:\n{log}"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as out:
            out.write(code)
    except (OSError, MetalforgeError) as error:
        raise KernelError(
            f"compiled kernels cannot be kept in {path.parent}: {error}\nhint: METALFORGE_CACHE names another folder"
        ) from error
    return path


@cache
def _nvrtc() -> Nvrtc:
    return Nvrtc()


@cache
def _sources() -> str:
    """The hash of every header and kernel file: any of them may be included."""
    texts = [*sorted(NATIVE.glob("*.hpp")), *sorted(HERE.glob("*.cu*"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in texts)).hexdigest()


def _library_path(wheels: Sequence[str]) -> str:
    for wheel in wheels:
        try:
            found = [entry for entry in files(wheel) or () if entry.name.startswith("libnvrtc.so")]
        except PackageNotFoundError:
            continue
        if found:
            return str(found[0].locate())
    for root in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if root and (path := Path(root) / "lib64/libnvrtc.so").exists():
            return str(path)
    if name := ctypes.util.find_library("nvrtc"):
        return name
    raise KernelError(
        "NVRTC, which compiles kernels for GPUs, is not installed\n"
        "hint: pip install 'metalforge[cuda]', or nvidia-cuda-nvrtc alone"
    )
