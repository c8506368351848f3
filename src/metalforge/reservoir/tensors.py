"""A network as safetensors: its arrays by name, and one JSON record of everything that is not an array.

The record is the metadata entry `metalforge`. Arrays: `w_in`, `bias`; `w_res`, or for CSR `w_res.indptr`,
`w_res.indices` and `w_res.data`, or for block-16 `w_res.columns` and `w_res.values`; `w_fb`, `w_out` and `out_bias`
where there are any. The same network gives the same bytes.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from scipy.sparse import csr_array

from metalforge.core import FeatureSchema, HeadLayout, PathLike, SpecError, escaped

from .activations import ActivationName
from .sparse import BlockSparse, Kind, Matrix, arrays_of, checked_csr, kind_of
from .weights import EsnWeights, Ranges

T = TypeVar("T")
FORMAT: Final = "metalforge.esn"
VERSION = 1
ENTRY = "metalforge"

_STORED_TYPES = {"float32": "F32", "float64": "F64", "int32": "I32"}
"""How the library calls what NumPy calls so."""
_W_RES: dict[str, dict[str, int]] = {
    "dense": {"w_res": 2},
    "csr": {"w_res.indptr": 1, "w_res.indices": 1, "w_res.data": 1},
    "block16": {"w_res.columns": 2, "w_res.values": 3},
}
"""Names and dimensions of the arrays of each kind of recurrent matrix."""
_OPTIONAL = {"w_fb": 2, "w_out": 2, "out_bias": 1}
_INTEGERS = {"w_res.indptr", "w_res.indices", "w_res.columns"}


class _Tag(msgspec.Struct, frozen=True):
    """What a reader must know before it reads on; other fields belong to the version."""

    format: str
    version: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything about a network that is not an array, and the checksum of all of it."""

    format: Literal["metalforge.esn"]
    version: int
    kind: Kind
    real: Literal["float32", "float64"]
    activation: ActivationName
    leak: float
    passthrough: bool
    features: FeatureSchema | None
    features_fingerprint: str | None
    heads: HeadLayout | None
    heads_fingerprint: str | None
    sha256: str
    ranges: tuple[float, float] | None = None
    """Of inputs and states."""
    ridge: float | None = None


def encode(weights: EsnWeights) -> bytes:
    """Return the file's bytes."""
    arrays = {"w_in": weights.w_in, "bias": weights.bias, **_from_matrix(weights.w_res)}
    for name in _OPTIONAL:
        value = getattr(weights, name)
        if value is not None:
            arrays[name] = value
    # Rows one after the other, whatever order they were in: the checksum and the file agree on the bytes.
    arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    # As they will be read: an offset given as 5 is 5.0 in the file, and its fingerprint another.
    features = msgspec.convert(msgspec.to_builtins(weights.features), FeatureSchema | None)
    heads = msgspec.convert(msgspec.to_builtins(weights.heads), HeadLayout | None)
    record = _Record(
        format=FORMAT,
        version=VERSION,
        kind=kind_of(weights.w_res),
        real="float32" if weights.dtype == np.float32 else "float64",
        activation=weights.activation,
        leak=float(weights.leak),
        passthrough=bool(weights.passthrough),
        features=features,
        features_fingerprint=None if features is None else features.fingerprint(),
        heads=heads,
        heads_fingerprint=None if heads is None else heads.fingerprint(),
        sha256="",
        ranges=None if weights.ranges is None else (float(weights.ranges.u), float(weights.ranges.s)),
        ridge=None if weights.ridge is None else float(weights.ridge),
    )
    record = msgspec.structs.replace(record, sha256=_checksum(record, arrays))
    # One entry only: the library writes several in an order of its own.
    return save(arrays, metadata={ENTRY: msgspec.json.encode(record).decode()})


def read(path: PathLike) -> EsnWeights:
    """Return the network in a file; raises SpecError for anything that `encode` did not write."""
    with opened_tensors(path) as file:
        entries = file.metadata() or {}
        if ENTRY not in entries:
            raise SpecError(f"no metadata entry `{ENTRY}`: these arrays do not say what network they make")
        record = decoded_entry(ENTRY, entries[ENTRY], _Record, FORMAT, VERSION)
        # Names, types and dimensions first: nothing is read of a file that is refused for them.
        dimensions = {"w_in": 2, "bias": 1, **_W_RES[record.kind]}
        found = set(file.keys())
        missing, unknown = set(dimensions) - found, found - set(dimensions | _OPTIONAL)
        if missing or unknown:
            raise SpecError(
                f"a {record.kind} network wants the arrays {', '.join(sorted(dimensions))}. "
                f"Missing: {sorted(missing) or 'none'}; unknown: {sorted(unknown) or 'none'}"
            )
        for name in found:
            wanted, stored = "int32" if name in _INTEGERS else record.real, file.get_slice(name)
            kind, shape, n = stored.get_dtype(), tuple(stored.get_shape()), (dimensions | _OPTIONAL)[name]
            if kind != _STORED_TYPES[wanted] or len(shape) != n:
                raise SpecError(f"`{name}` must be {wanted} of {n} dimensions. Got {kind} {shape}")
        arrays = {name: file.get_tensor(name) for name in found}
    check_sha256(record.sha256, _checksum(record, arrays))
    return EsnWeights(
        w_in=arrays["w_in"],
        w_res=_to_matrix(record.kind, arrays, len(arrays["w_in"])),
        bias=arrays["bias"],
        leak=record.leak,
        activation=record.activation,
        w_fb=arrays.get("w_fb"),
        w_out=arrays.get("w_out"),
        out_bias=arrays.get("out_bias"),
        passthrough=record.passthrough,
        features=record.features,
        heads=record.heads,
        ranges=None if record.ranges is None else Ranges(*record.ranges),
        ridge=record.ridge,
    )


def _from_matrix(matrix: Matrix) -> dict[str, NDArray[Any]]:
    if isinstance(matrix, csr_array):
        matrix = matrix.copy()
        matrix.sum_duplicates()  # and in order: one way to write a matrix, and the only one that is read
        if matrix.nnz > np.iinfo(np.int32).max:
            raise SpecError(f"at most 2^31 - 1 connections can be written. Got {matrix.nnz}")
    arrays = {f"w_res.{name}".rstrip("."): array for name, array in arrays_of(matrix).items()}
    return {name: array.astype(np.int32) if name in _INTEGERS else array for name, array in arrays.items()}


def _to_matrix(kind: Kind, arrays: dict[str, NDArray[Any]], units: int) -> Matrix:
    if kind == "dense":
        return arrays["w_res"]
    if kind == "block16":
        return BlockSparse(units, units, arrays["w_res.columns"], arrays["w_res.values"])
    parts = tuple(arrays[f"w_res.{name}"] for name in ("data", "indices", "indptr"))
    matrix = checked_csr(parts, (units, units))
    if matrix.nnz != len(parts[0]) or not matrix.has_canonical_format:
        raise SpecError("`w_res.indices` of a row must increase, and there must be no more than its rows hold")
    return matrix


def _checksum(record: _Record, arrays: dict[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of the record, but for this field, and of all arrays by name: type, shape and bytes."""
    return arrays_digest(msgspec.json.encode(msgspec.structs.replace(record, sha256="")), arrays).hex()


@contextmanager
def opened_tensors(path: PathLike) -> Iterator[Any]:
    """Give an open safetensors file."""
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise SpecError(f"not a safetensors file, or a damaged one ({escaped(str(error))})") from error


def decoded_entry(entry: str, text: str, kind: type[T], format: str, version: int) -> T:
    """Return the record that an entry of metadata holds; raises for another format or version than these."""
    try:
        tag = msgspec.json.decode(text, type=_Tag)
        if tag.format != format:
            raise SpecError(f"`format` must be {format}. Got {tag.format!r}")
        if tag.version != version:
            raise SpecError(
                f"this is version {tag.version} of {format}; this metalforge reads version {version}"
                + ("\nhint: a newer metalforge wrote it" if tag.version > version else "")
            )
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise SpecError(f"metadata entry `{entry}`: {escaped(str(error))}") from error


def arrays_digest(first: bytes, arrays: dict[str, NDArray[Any]]) -> bytes:
    """Return the SHA-256 of some bytes and of all arrays by name: type, shape and bytes."""
    digest = hashlib.sha256(first)
    for name, array in sorted(arrays.items()):
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def check_sha256(said: str, found: str) -> None:
    """Raise where a file's checksum is not that of its content."""
    if said != found:
        raise SpecError("`sha256` does not match the content: the file is damaged; get a fresh copy")


def metadata(data: bytes) -> dict[str, str]:
    """Return the metadata of an encoded network."""
    found: dict[str, str] = msgspec.json.decode(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    return found


def with_metadata(data: bytes, name: str, text: str) -> bytes:
    """Return an encoded network with one more entry of text in its metadata; its checksum does not cover it."""
    length = int.from_bytes(data[:8], "little")
    header = msgspec.json.decode(data[8 : 8 + length])
    header["__metadata__"][name] = text
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % 8)  # the format wants arrays aligned; they are addressed from the header's end
    return len(encoded).to_bytes(8, "little") + encoded + data[8 + length :]
