"""Programs as bytes: the same bytes for the same program, and safe to read whoever wrote them.

    MFP1 | SHA-256 of what follows | MessagePack map with the fields of `_Stored`

Weights are packed row by row, 8 / bits to a byte with the lowest bits first; other arrays are little-endian. Everything
wrong is a `ProgramError`. Memory stays within a small multiple of the bytes read. The checksum finds damage; it does
not say who wrote a program. Schema and provenance are free text: show them quoted.
"""

import hashlib
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import PathLike, opened, replacing

from .program import Activation, Encoding, FullyConnected, Head, Program, ProgramError, weight_limits
from .quantize import pack_bits, unpack_bits

IDENTIFIER = b"MFP1"
HEADER = len(IDENTIFIER) + hashlib.sha256().digest_size
MAX_BYTES = 1 << 28
"""The largest file written or read. A full layer of 57334 inputs and 4096 units takes half of it."""
OF_PROGRAM = ("name", "encoding", "heads", "schema", "provenance")
OF_LAYER = ("name", "weight_bits", "input_bits", "activation", "activation_bits")
"""Fields that are stored as they are."""
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Name = Annotated[str, msgspec.Meta(max_length=400)]
"""Printable: names end up in messages and on terminals."""


class _Layer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    inputs: Count
    units: Count
    weight_bits: Count
    input_bits: Count
    activation: Activation
    activation_bits: Count
    weights: bytes
    thresholds: bytes
    act_steps: bytes


class _Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    layers: Annotated[tuple[_Layer, ...], msgspec.Meta(max_length=1024)]
    encoding: Encoding
    heads: Annotated[tuple[Head, ...], msgspec.Meta(max_length=1 << 16)]
    scales: bytes
    schema: Annotated[str, msgspec.Meta(max_length=1 << 20)]
    provenance: Annotated[tuple[tuple[Name, str], ...], msgspec.Meta(max_length=4096)]
    ranges: bytes


def to_bytes(program: Program) -> bytes:
    """Return the program as bytes: the same ones for the same program."""
    stored = _Stored(
        **_taken(program, OF_PROGRAM),
        layers=tuple(map(_packed, program.layers)),
        scales=program.scales.astype("<f8").tobytes(),
        ranges=program.ranges.astype("<f8").tobytes(),
    )
    try:
        body = msgspec.msgpack.encode(stored)
    except UnicodeEncodeError as error:
        raise ProgramError(f"texts of a program must be ones that UTF-8 can hold: {error.reason}") from error
    _check_size(HEADER + len(body))
    _decoded(body)  # what cannot be read is not written
    return IDENTIFIER + hashlib.sha256(body).digest() + body


def from_bytes(data: bytes | bytearray | memoryview) -> Program:
    """Return the program that `to_bytes` was given; raises `ProgramError` for anything else, however it was made."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ProgramError(f"a program is read from bytes. Got {type(data).__name__}")
    _check_size(memoryview(data).nbytes)
    begin, digest, body = bytes(data[:4]), bytes(data[4:HEADER]), bytes(data[HEADER:])
    if begin != IDENTIFIER:
        hint = "; a newer metalforge may read it" if begin[:3] == IDENTIFIER[:3] else ": not a program"
        raise ProgramError(f"a program begins with {IDENTIFIER!r}. Got {begin!r}{hint}")
    if hashlib.sha256(body).digest() != digest:
        raise ProgramError("the checksum does not match the content: the program is damaged; get a fresh copy")
    stored = _decoded(body)
    return Program(
        **_taken(stored, OF_PROGRAM),
        layers=tuple(_unpacked(layer, f"layers[{i}]") for i, layer in enumerate(stored.layers)),
        scales=_numbers(stored.scales, "<f8", "scales").astype(np.float64),
        ranges=_numbers(stored.ranges, "<f8", "ranges").astype(np.float64) if stored.ranges else np.zeros(0),
    )


def save(program: Program, path: PathLike) -> None:
    """Write the program to a file: `path` holds the old content or the new, whatever fails in between."""
    data = to_bytes(program)
    with replacing(path, ProgramError) as stream:
        stream.write(data)


def load(path: PathLike) -> Program:
    """Return the program in a file; errors name the file."""
    with opened(path, ProgramError) as (stream, size):
        return from_bytes(stream.read(min(size, MAX_BYTES + 1)))  # read(n) sets n bytes aside, however short the file


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise ProgramError(f"a program must be at most {MAX_BYTES} bytes. Got {size}")


def _decoded(body: bytes) -> _Stored:
    try:
        stored = msgspec.msgpack.decode(body, type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProgramError(f"not a program: {error}") from error
    for name in (stored.name, *(head.name for head in stored.heads), *(key for key, _ in stored.provenance)):
        if not name.isprintable():
            raise ProgramError(f"names must be printable characters. Got {name[:100]!r}")
    if msgspec.msgpack.encode(stored) != body:  # fields that are missing, unknown or there twice
        raise ProgramError("not a program: its fields are other ones than those of a program that was written")
    return stored


def _taken(record: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _packed(layer: FullyConnected) -> _Layer:
    return _Layer(
        **_taken(layer, (*OF_LAYER, "inputs", "units")),
        weights=pack_bits(layer.weights, layer.weight_bits).tobytes(),
        thresholds=layer.threshold.astype("<i4").tobytes(),
        act_steps=layer.act_step.astype("<f4").tobytes(),
    )


def _unpacked(layer: _Layer, where: str) -> FullyConnected:
    weight_limits(layer.weight_bits)  # refuses other widths
    packed = np.frombuffer(layer.weights, np.uint8)
    weights = unpack_bits(packed, layer.weight_bits, layer.inputs * layer.units, f"{where}.weights")
    return FullyConnected(
        **_taken(layer, OF_LAYER),
        weights=weights.reshape(layer.inputs, layer.units),
        threshold=_numbers(layer.thresholds, "<i4", f"{where}.thresholds").astype(np.int32),
        act_step=_numbers(layer.act_steps, "<f4", f"{where}.act_steps").astype(np.float32),
    )


def _numbers(data: bytes, kind: str, where: str) -> NDArray[Any]:
    """Return the numbers in some bytes, at least one: an empty variable would stand for its default."""
    if not data or len(data) % np.dtype(kind).itemsize:
        raise ProgramError(f"`{where}` must be whole numbers of {np.dtype(kind).itemsize} bytes, at least one")
    return np.frombuffer(data, kind)
