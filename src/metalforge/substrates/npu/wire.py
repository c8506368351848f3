"""Programs as bytes: the same bytes for the same program, and safe to read whoever wrote them.

The layout is FlatBuffers, in `wire_schema.fbs`; `flatbuffer` writes and reads its tables. Here they get their meaning,
and the checksum is compared before a `Program` is built. Memory stays within a small multiple of the bytes read.
Everything wrong is a `ProgramError` that names the field.

The checksum finds damage; it does not say who wrote a program. Schema and provenance are free text: show them quoted.
"""

import numpy as np

from metalforge.core.files import PathLike, opened, replacing

from .flatbuffer import MAX_BYTES, VERSION, Reader, Record, check_size, checksum, encode
from .program import Activation, Encoding, FullyConnected, Head, Program, ProgramError, weight_limits
from .quantize import pack_bits, unpack_bits

_ACTIVATIONS = (Activation.LINEAR, Activation.BOUNDED_RELU)
_SIGNED = ("unsigned", "zero_point", "two_rail")


def to_bytes(program: Program) -> bytes:
    """Return the program as a FlatBuffer: the same bytes for the same program."""
    record = _to_record(program)
    record["checksum"] = np.frombuffer(checksum(record), "u1")
    data = encode(record)
    check_size(len(data))
    return data


def from_bytes(data: bytes | bytearray | memoryview) -> Program:
    """Return the program that `to_bytes` was given; raises `ProgramError` for anything else, however it was made."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ProgramError(f"a program is read from bytes. Got {type(data).__name__}")
    check_size(memoryview(data).nbytes)
    record = Reader(bytes(data)).program()
    if record["checksum"].tobytes() != checksum(record):
        raise ProgramError("`checksum` does not match the content: the program is damaged; get a fresh copy")
    return _to_program(record)


def save(program: Program, path: PathLike) -> None:
    """Write the program to a file: `path` holds the old content or the new, whatever fails in between."""
    data = to_bytes(program)
    with replacing(path, ProgramError) as stream:
        stream.write(data)


def load(path: PathLike) -> Program:
    """Return the program in a file; errors name the file."""
    with opened(path, ProgramError) as (stream, size):
        return from_bytes(stream.read(min(size, MAX_BYTES + 1)))  # read(n) sets n bytes aside, however short the file


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
                "weights": pack_bits(layer.weights, layer.weight_bits),
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
        "ranges": np.ascontiguousarray(program.ranges, "<f8"),
    }


def _to_program(record: Record) -> Program:
    layers = tuple(_to_layer(fields, f"layers[{i}]") for i, fields in enumerate(record["layers"]))
    encoding = record["encoding"] | {"signed": _choice(_SIGNED, record["encoding"]["signed"], "encoding.signed")}
    if record["scales"].size == 0:  # would stand for the default
        raise ProgramError("`scales` must have one entry per output. Got none")
    return Program(
        name=record["name"],
        layers=layers,
        encoding=Encoding(**encoding),
        heads=tuple(Head(**fields) for fields in record["heads"]),
        scales=record["scales"].astype(np.float64),
        schema=record["schema"],
        provenance=tuple((entry["key"], entry["value"]) for entry in record["provenance"]),
        ranges=record["ranges"].astype(np.float64),
    )


def _to_layer(fields: Record, where: str) -> FullyConnected:
    inputs, units, bits = fields["inputs"], fields["units"], fields["weight_bits"]
    weight_limits(bits)  # refuses other widths
    for name in ("thresholds", "act_steps"):  # an empty one would stand for the default
        if fields[name].size != units:
            raise ProgramError(f"`{where}.{name}` must have {units} entries, one per unit. Got {fields[name].size}")
    return FullyConnected(
        name=fields["name"],
        weights=unpack_bits(fields["weights"], bits, inputs * units, f"{where}.weights").reshape(inputs, units),
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
