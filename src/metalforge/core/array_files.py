"""Arrays out of NumPy's files, .npy and .npz: numbers and text, never pickled objects, whoever wrote the file.

What a header says is compared with the bytes that are there before anything is made of it.
"""

import io
import warnings
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from .arrays import Array
from .errors import SpecError
from .files import PathLike, allowance, opened

LARGEST_FILE = 1 << 31
"""Bytes: what a run on a host can be about, and below what a file with holes in it can say."""
KINDS = "biufU"
"""Truth values, integers, reals and text, as NumPy calls them."""
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_ZIP = b"PK"


def load_arrays(path: PathLike) -> dict[str, Array]:
    """Return the arrays of a file by name: all of an .npz in its order; the one of an .npy, under the file's stem.

    Raises `SpecError`, which names the file, for what is no such file, pickled or empty, or not what its header says.
    """
    with opened(path) as (stream, size):
        if size > LARGEST_FILE:
            raise SpecError(f"arrays of at most {LARGEST_FILE >> 20} MiB are read. Got {size >> 20} MiB")
        archive = stream.read(2) == _ZIP
        stream.seek(0)
        return _members(stream, size) if archive else {Path(path).stem: _array(stream, size)}


def load_array(path: PathLike) -> Array:
    """Return the one array of a file."""
    found = load_arrays(path)
    if len(found) != 1:
        raise SpecError(f"{path}: must hold one array. Got {len(found)}: {', '.join(map(repr, found))}")
    return next(iter(found.values()))


def _members(stream: BinaryIO, size: int) -> dict[str, Array]:
    """Return the arrays of an .npz; what they unpack to is bounded by what is packed."""
    left, found = allowance(size), {}
    try:
        with zipfile.ZipFile(stream) as archive:
            for entry in archive.infolist():
                left -= entry.file_size
                if left < 0:
                    raise SpecError(f"unpacks to more than {allowance(size)} bytes, which no {size} bytes of data do")
                if entry.flag_bits & 1:
                    raise SpecError(f"`{entry.filename}` is encrypted")
                with archive.open(entry) as packed:
                    data = packed.read(entry.file_size)
                name = entry.filename.removesuffix(".npy")
                if name in found:
                    raise SpecError(f"`{name}` is there twice")
                found[name] = _array(io.BytesIO(data), len(data))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError) as error:
        raise SpecError(f"not an .npz archive, or a damaged one ({error})") from error
    if not found:
        raise SpecError("an .npz archive without arrays")
    return found


def _array(stream: BinaryIO, size: int) -> Array:
    """Return the array in a stream of `size` bytes."""
    try:
        version = npy.read_magic(stream)
        if version not in _HEADERS:
            raise SpecError(f"versions 1.0 and 2.0 of the .npy format are read. Got {version[0]}.{version[1]}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            shape, fortran, dtype = _HEADERS[version](stream)
    except (SpecError, OSError):
        raise
    except Exception as error:  # a header is parsed as Python: syntax, types, recursion, numbers too large
        raise SpecError(f"not an .npy array of numbers or text: {error or type(error).__name__}") from error
    if dtype.kind not in KINDS or not dtype.itemsize:
        raise SpecError(f"must hold numbers or text. Got {dtype}")
    needed, there = prod(shape) * dtype.itemsize, size - stream.tell()
    if any(n < 1 for n in shape):
        raise SpecError(f"must not be empty. Got an array of {shape}")
    if needed > there:
        raise SpecError(f"an array of {shape} {dtype} has {needed} bytes; {there} are there: damaged or cut short")
    content = bytearray(needed)
    stream.readinto(content)  # type: ignore[attr-defined]  # of every stream that is given here
    try:
        return np.ndarray(shape, dtype, content, order="F" if fortran else "C")
    except (ValueError, TypeError) as error:  # more dimensions than NumPy has, or extents that are no numbers
        raise SpecError(f"cannot be an array: {error}") from error
