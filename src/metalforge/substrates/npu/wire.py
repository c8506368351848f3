"""Programs as bytes: the same bytes for the same program, and safe to read whoever wrote them.

The layout is FlatBuffers, in `wire_schema.fbs`. The library's builder writes it; its accessors trust what they read, so
reading is done here: every offset is checked for bounds and alignment, no byte is used twice, lengths are compared with
what is there before anything is made of them, and the checksum is compared before a `Program` is built. Memory stays
within a small multiple of the bytes read. Everything wrong is a `ProgramError` that names the field.

The checksum finds damage; it does not say who wrote a program. Schema and provenance are free text: show them quoted.
"""

import hashlib
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers  # type: ignore[import-untyped]  # no type information is published; used in `_write` only
import numpy as np
from flatbuffers import number_types
from numpy.typing import NDArray

from .program import Activation, Encoding, FullyConnected, Head, Program, ProgramError, weight_limits

__all__ = ["IDENTIFIER", "MAX_BYTES", "VERSION", "from_bytes", "load", "save", "to_bytes"]

IDENTIFIER = b"MFP1"
"""What stands at byte 4 of every file."""
VERSION = 1
MAX_BYTES = 1 << 28
"""The largest file written or read. A full layer of 57334 inputs and 4096 units takes half of it."""

PathLike = str | os.PathLike[str]
Record = dict[str, Any]
"""The fields of one table by name: what the schema says, not yet what it means."""


@dataclass(frozen=True, slots=True)
class _Scalar:
    code: str  # as in `struct`
    only: int | None = None  # the one value this reader knows

    @property
    def width(self) -> int:
        return struct.calcsize("<" + self.code)


@dataclass(frozen=True, slots=True)
class _Text:
    most: int  # bytes of UTF-8
    printable: bool
    width = 4  # of the offset in the table; the same below


@dataclass(frozen=True, slots=True)
class _Numbers:
    dtype: str
    width = 4


@dataclass(frozen=True, slots=True)
class _Table:
    fields: dict[str, "_Kind"]
    width = 4


@dataclass(frozen=True, slots=True)
class _Many:
    table: _Table
    most: int
    width = 4


_Below = _Text | _Numbers | _Table | _Many
"""What a table holds an offset to."""
_Kind = _Scalar | _Below

# The schema, as the reader and the writer walk it; a test compares it with the .fbs file.
_BYTE, _COUNT = _Scalar("B"), _Scalar("I")
# Names end up in messages and on terminals: short, and without control characters. 400 bytes hold the 100 characters
# that a layer's name may have.
_NAME, _FREE = _Text(400, True), _Text(1 << 20, False)
_LAYER = _Table(
    {
        "name": _NAME,
        "inputs": _COUNT,
        "units": _COUNT,
        "weight_bits": _BYTE,
        "input_bits": _BYTE,
        "activation": _BYTE,
        "activation_bits": _BYTE,
        "weights": _Numbers("u1"),
        "thresholds": _Numbers("<i4"),
        "act_steps": _Numbers("<f4"),
    }
)
_ENCODING = _Table({"activation_bits": _BYTE, "digits": _BYTE, "signed": _BYTE})
_HEAD = _Table({"name": _NAME, "start": _COUNT, "width": _COUNT})
_ENTRY = _Table({"key": _NAME, "value": _FREE})
_PROGRAM = _Table(
    {
        "version": _Scalar("H", only=VERSION),
        "checksum": _Numbers("u1"),
        "name": _NAME,
        "layers": _Many(_LAYER, 1024),
        "encoding": _ENCODING,
        "heads": _Many(_HEAD, 65536),
        "scales": _Numbers("<f8"),
        "schema": _FREE,
        "provenance": _Many(_ENTRY, 4096),
    }
)
_ACTIVATIONS = (Activation.LINEAR, Activation.BOUNDED_RELU)
_SIGNED = ("unsigned", "zero_point", "two_rail")


def to_bytes(program: Program) -> bytes:
    """Return the program as a FlatBuffer: the same bytes for the same program."""
    record = _to_record(program)
    record["checksum"] = np.frombuffer(_checksum(record), "u1")
    data = _encode(record)
    _check_size(len(data))
    return data


def from_bytes(data: bytes | bytearray | memoryview) -> Program:
    """Return the program that `to_bytes` was given; raises `ProgramError` for anything else, however it was made."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ProgramError(f"a program is read from bytes. Got {type(data).__name__}")
    _check_size(memoryview(data).nbytes)
    record = _Reader(bytes(data)).program()
    if record["checksum"].tobytes() != _checksum(record):
        raise ProgramError("`checksum` does not match the content: the program is damaged; get a fresh copy")
    return _to_program(record)


def save(program: Program, path: PathLike) -> None:
    """Write the program to a file: `path` holds the old content or the new, whatever fails in between."""
    data = to_bytes(program)
    target = Path(os.path.realpath(path))  # a symbolic link keeps pointing at its target
    scratch = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        try:
            with open(scratch, "xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
        directory = os.open(target.parent, os.O_RDONLY)  # the rename itself must reach the disk too
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise ProgramError(f"{path}: cannot be written ({error.strerror or error})") from error


def load(path: PathLike) -> Program:
    """Return the program in a file; errors name the file."""
    try:
        # A named pipe would block in open(), a device may never end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ProgramError("not a regular file")
        with open(path, "rb") as stream:
            return from_bytes(stream.read(MAX_BYTES + 1))
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from error
    except OSError as error:
        raise ProgramError(f"{path}: cannot be read ({error.strerror or error})") from error


# Records: what the wire holds, with the meaning on one side and the bytes on the other.


def _to_record(program: Program) -> Record:
    return {
        "version": VERSION,
        "checksum": np.zeros(32, "u1"),
        "name": program.name,
        "layers": [
            {
                "name": layer.name,
                "inputs": layer.inputs,
                "units": layer.units,
                "weight_bits": int(layer.weight_bits),
                "input_bits": int(layer.input_bits),
                "activation": _ACTIVATIONS.index(layer.activation),
                "activation_bits": int(layer.activation_bits),
                "weights": _pack(layer.weights, layer.weight_bits),
                "thresholds": np.ascontiguousarray(layer.threshold, "<i4"),
                "act_steps": np.ascontiguousarray(layer.act_step, "<f4"),
            }
            for layer in program.layers
        ],
        "encoding": {
            "activation_bits": int(program.encoding.activation_bits),
            "digits": int(program.encoding.digits),
            "signed": _SIGNED.index(program.encoding.signed),
        },
        "heads": [{"name": h.name, "start": int(h.start), "width": int(h.width)} for h in program.heads],
        "scales": np.ascontiguousarray(program.scales, "<f8"),
        "schema": program.schema,
        "provenance": [{"key": key, "value": value} for key, value in program.provenance],
    }


def _to_program(record: Record) -> Program:
    layers = tuple(_to_layer(fields, f"layers[{i}]") for i, fields in enumerate(record["layers"]))
    encoding = record["encoding"] | {"signed": _choice(_SIGNED, record["encoding"]["signed"], "encoding.signed")}
    if record["scales"].size == 0:  # would stand for the default
        raise ProgramError("`scales` must have one entry an output. Got none")
    return Program(
        name=record["name"],
        layers=layers,
        encoding=Encoding(**encoding),
        heads=tuple(Head(**fields) for fields in record["heads"]),
        scales=record["scales"].astype(np.float64),
        schema=record["schema"],
        provenance=tuple((entry["key"], entry["value"]) for entry in record["provenance"]),
    )


def _to_layer(fields: Record, where: str) -> FullyConnected:
    inputs, units, bits = fields["inputs"], fields["units"], fields["weight_bits"]
    for name in ("thresholds", "act_steps"):  # an empty one would stand for the default
        if fields[name].size != units:
            raise ProgramError(f"`{where}.{name}` must have {units} entries, one a unit. Got {fields[name].size}")
    return FullyConnected(
        name=fields["name"],
        weights=_unpack(fields["weights"], bits, inputs * units, f"{where}.weights").reshape(inputs, units),
        weight_bits=bits,
        input_bits=fields["input_bits"],
        activation=Activation(_choice(_ACTIVATIONS, fields["activation"], f"{where}.activation")),
        activation_bits=fields["activation_bits"],
        threshold=fields["thresholds"].astype(np.int32),
        act_step=fields["act_steps"].astype(np.float32),
    )


def _choice(choices: tuple[str, ...], code: int, where: str) -> str:
    if code >= len(choices):
        raise ProgramError(f"`{where}` must be one of the codes 0 .. {len(choices) - 1}. Got {code}")
    return choices[code]


def _pack(weights: NDArray[np.int8], bits: int) -> NDArray[np.uint8]:
    """Return weights by rows, 8 / bits to a byte with the lowest bits first; the last byte is filled with zeros."""
    flat = np.ascontiguousarray(weights).reshape(-1).view(np.uint8)
    per_byte = 8 // bits
    packed = np.zeros(-(-flat.size // per_byte), np.uint8)
    for k in range(per_byte):
        lane = flat[k::per_byte]
        packed[: lane.size] |= (lane & ((1 << bits) - 1)) << (bits * k)
    return packed


def _unpack(packed: NDArray[np.uint8], bits: int, count: int, where: str) -> NDArray[np.int8]:
    """Return `count` weights; what they may be is the layer's to check."""
    weight_limits(bits)  # refuses other widths
    wanted = -(-count * bits // 8)
    if packed.size != wanted:
        raise ProgramError(f"`{where}` must have {wanted} bytes for {count} weights of {bits} bits. Got {packed.size}")
    lanes = np.empty((packed.size, 8 // bits), np.uint8)
    for k in range(8 // bits):
        lanes[:, k] = (packed >> (bits * k)) & ((1 << bits) - 1)
    flat = lanes.reshape(-1)
    if flat[count:].any():
        raise ProgramError(f"`{where}` must end in zero bits after the last weight")
    flat = flat[:count]
    if bits > 1:  # the sign bit weighs -2^(bits - 1): flip it and subtract it, modulo 256
        sign = np.uint8(1 << (bits - 1))
        flat ^= sign
        flat -= sign
    return flat.view(np.int8)


def _canonical(kind: _Kind, value: Any, where: str) -> Iterator[bytes]:
    """Yield what the checksum is taken of; raises for a text or a list that the wire does not take."""
    if isinstance(kind, _Scalar):
        yield struct.pack("<" + kind.code, value)
    elif isinstance(kind, _Text):
        text = _utf8(kind, value, where)
        yield struct.pack("<I", len(text))
        yield text
    elif isinstance(kind, _Numbers):
        _check_size(value.nbytes)  # and so the count fits
        yield struct.pack("<I", value.size)
        yield value.data
    elif isinstance(kind, _Many):
        _check_count(kind, len(value), where)
        yield struct.pack("<I", len(value))
        for i, record in enumerate(value):
            yield from _canonical(kind.table, record, f"{where}[{i}]")
    else:
        for name, field in kind.fields.items():
            yield from _canonical(field, value[name], _join(where, name))


def _checksum(record: Record) -> bytes:
    digest, size = hashlib.sha256(), 0
    for part in _canonical(_PROGRAM, record | {"checksum": np.zeros(32, "u1")}, ""):
        digest.update(part)
        size += memoryview(part).nbytes
        _check_size(size)  # before a writer spends memory on it
    return digest.digest()


def _utf8(kind: _Text, text: Any, where: str) -> bytes:
    if not isinstance(text, str):
        raise ProgramError(f"`{where}` must be text. Got {type(text).__name__}")
    if kind.printable and not text.isprintable():
        raise ProgramError(f"`{where}` must be printable characters. Got {text[:100]!r}")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ProgramError(f"`{where}` must be text that UTF-8 can hold: {error.reason}") from error
    if len(data) > kind.most:
        raise ProgramError(f"`{where}` must be at most {kind.most} bytes of UTF-8. Got {len(data)}")
    return data


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise ProgramError(f"a program must be at most {MAX_BYTES} bytes. Got {size}")


def _check_count(kind: _Many, count: int, where: str) -> None:
    if count > kind.most:
        raise ProgramError(f"`{where}` must have at most {kind.most} entries. Got {count}")


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


# Bytes: the generic part, which knows FlatBuffers and the schema but not programs.


def _encode(record: Record) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(_write(builder, _PROGRAM, record), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _write(builder: Any, kind: _Below, value: Any) -> int:
    """Return the place of what was written; scalars are written inside their table."""
    if isinstance(kind, _Text):
        return int(builder.CreateString(value))
    if isinstance(kind, _Numbers):
        return int(builder.CreateNumpyVector(value))
    if isinstance(kind, _Many):
        places = [_write(builder, kind.table, record) for record in value]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):  # the builder works from the end of the buffer to its start
            builder.PrependUOffsetTRelative(place)
        return int(builder.EndVector())
    flags = {"B": number_types.Uint8Flags, "H": number_types.Uint16Flags, "I": number_types.Uint32Flags}
    below = {n: _write(builder, k, value[n]) for n, k in kind.fields.items() if not isinstance(k, _Scalar)}
    builder.StartObject(len(kind.fields))
    for slot, (name, field) in enumerate(kind.fields.items()):
        if isinstance(field, _Scalar):
            builder.PrependSlot(flags[field.code], slot, value[name], None)  # None: write zeros too
        else:
            builder.PrependUOffsetTRelativeSlot(slot, below[name], 0)
    return int(builder.EndObject())


class _Reader:
    """Reads records out of bytes that nobody has checked."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._taken = np.zeros(len(data), np.bool_)  # bytes that belong to a field
        self._vtables: dict[int, tuple[int, ...]] = {}

    def program(self) -> Record:
        """Return the root table."""
        data = self._data
        if len(data) < 8 or len(data) % 8:
            raise ProgramError(f"a program is a multiple of 8 bytes. Got {len(data)}: cut short, or not a program")
        if data[4:8] != IDENTIFIER:
            hint = "; a newer metalforge may read it" if data[4:7] == IDENTIFIER[:3] else ": not a program"
            raise ProgramError(f"the file identifier must be {IDENTIFIER!r}. Got {data[4:8]!r}{hint}")
        self._take(0, 8, 1, "file header")
        record = self._table(_PROGRAM, self._number("I", 0), "")
        free = ~self._taken
        if np.frombuffer(data, np.uint8)[free].any() or free[-8:].all():
            raise ProgramError("there are bytes that belong to no field: the program is damaged or something is hidden")
        return record

    def _take(self, at: int, size: int, align: int, where: str) -> None:
        """Give bytes to a field; raises when they are not in the file, not aligned, or another field's."""
        if at < 0 or at + size > len(self._data):
            raise ProgramError(
                f"`{where}` lies at bytes {at} .. {at + size} of {len(self._data)}: the program is damaged or cut short"
            )
        if at % align:
            raise ProgramError(f"`{where}` must lie at a multiple of {align} bytes. Got {at}: the program is damaged")
        span = self._taken[at : at + size]
        if span.any():
            raise ProgramError(f"`{where}` shares bytes with another field: the program is damaged")
        span[:] = True

    def _number(self, code: str, at: int) -> int:
        return int(struct.unpack_from("<" + code, self._data, at)[0])

    def _vtable(self, table: _Table, at: int, where: str) -> tuple[int, ...]:
        """Return a table's vtable: its own size, the table's size, and the place of each field in it or 0."""
        self._take(at, 4, 4, where)
        place = at - self._number("i", at)
        # Tables of one kind share a vtable, so one that was read already is not new bytes.
        if place not in self._vtables:
            self._take(place, 4, 2, f"{where} (vtable)")
            size = self._number("H", place)
            if size < 4 or size % 2:
                raise ProgramError(f"`{where}` has a vtable of {size} bytes: the program is damaged")
            self._take(place + 4, size - 4, 2, f"{where} (vtable)")
            self._vtables[place] = struct.unpack_from(f"<{size // 2}H", self._data, place)
        vtable = self._vtables[place]
        if len(vtable) > 2 + len(table.fields):
            raise ProgramError(
                f"`{where}` has fields that version {VERSION} does not know; a newer metalforge may read it"
            )
        return vtable

    def _table(self, table: _Table, at: int, where: str) -> Record:
        vtable = self._vtable(table, at, where or "program")
        record: Record = {}
        end = 4
        for slot, (name, kind) in enumerate(table.fields.items(), start=2):
            path, offset = _join(where, name), vtable[slot] if slot < len(vtable) else 0
            if offset == 0:
                if not isinstance(kind, _Scalar):
                    raise ProgramError(f"`{path}` is missing: the program is damaged")
                record[name] = 0
            else:
                end = max(end, offset + kind.width)
                self._take(at + offset, kind.width, kind.width, path)
                if isinstance(kind, _Scalar):
                    record[name] = self._number(kind.code, at + offset)
                else:
                    record[name] = self._below(kind, at + offset, path)
            if isinstance(kind, _Scalar) and kind.only not in (None, record[name]):
                raise ProgramError(f"`{path}` must be {kind.only}. Got {record[name]}; a newer metalforge may read it")
        if not end <= vtable[1] < end + 8:  # padding is never longer
            raise ProgramError(f"`{where or 'program'}` must have {end} bytes and padding. Got {vtable[1]}: damaged")
        return record

    def _below(self, kind: _Below, at: int, where: str) -> Any:
        """Return what the offset at `at` points to."""
        at += self._number("I", at)
        if isinstance(kind, _Table):
            return self._table(kind, at, where)
        self._take(at, 4, 4, where)
        count, start = self._number("I", at), at + 4
        if isinstance(kind, _Numbers):
            dtype = np.dtype(kind.dtype)
            self._take(start, count * dtype.itemsize, dtype.itemsize, where)
            return np.frombuffer(self._data, dtype, count, start)
        if isinstance(kind, _Many):
            _check_count(kind, count, where)
            self._take(start, 4 * count, 4, where)
            return [self._below(kind.table, start + 4 * i, f"{where}[{i}]") for i in range(count)]
        self._take(start, count + 1, 1, where)
        try:
            text = self._data[start : start + count].decode()
        except UnicodeDecodeError as error:
            raise ProgramError(f"`{where}` must be UTF-8: {error.reason} at byte {error.start}") from error
        if self._data[start + count]:
            raise ProgramError(f"`{where}` must end in a zero byte: the program is damaged")
        return text
