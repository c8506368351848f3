"""Program files: the layout on the disk, interoperability with FlatBuffers, files that lie, and files that fail."""

import hashlib
import re
import struct
from dataclasses import replace
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
from flatbuffers import number_types
from flatbuffers.table import Table

from metalforge.substrates.npu import flatbuffer, wire
from metalforge.substrates.npu.program import Activation, Encoding, FullyConnected, Head, Program, ProgramError
from metalforge.substrates.npu.quantize import pack_bits, unpack_bits

SCHEMA = Path(wire.__file__).with_name("wire_schema.fbs")


def two_layers():
    return Program(
        name="demo",
        layers=(
            FullyConnected(
                name="hidden",
                weights=np.array([[-7, 7, 0], [1, -1, 3]], np.int8),
                activation=Activation.BOUNDED_RELU,
                activation_bits=2,
                threshold=np.array([5, -6, 7], np.int32),
                act_step=np.array([0.5, 1, 2], np.float32),
            ),
            FullyConnected(name="out", weights=np.array([[1], [0], [1]], np.int8), weight_bits=1, input_bits=2),
        ),
        encoding=Encoding(activation_bits=8, signed="two_rail"),
        heads=(Head(name="a", start=0, width=1),),
        scales=np.array([0.25]),
        schema="features v1",
        provenance=(("seed", "7"),),
    )


def forged(change):
    """Bytes with a right checksum of a record that `change` has spoiled."""
    record = wire._to_record(two_layers())
    change(record)
    record["checksum"] = np.frombuffer(flatbuffer.checksum(record), "u1")
    return flatbuffer.encode(record)


def spoiled(change):
    """Good bytes that `change` has overwritten in place."""
    data = bytearray(wire.to_bytes(two_layers()))
    change(data)
    return bytes(data)


def root(data):
    return Table(data, struct.unpack_from("<I", data)[0])


def place(table, slot):
    """Where a field of a table lies, in FlatBuffers' own counting of slots."""
    return table.Pos + table.Offset(4 + 2 * slot)


def below(table, slot):
    at = place(table, slot)
    return at + struct.unpack_from("<I", table.Bytes, at)[0]


def put(data, at, value):
    struct.pack_into("<I", data, at, value & 0xFFFFFFFF)


# The layout


def test_the_schema_file_says_what_the_reader_does():
    text = re.sub(r"//.*", "", SCHEMA.read_text())
    scalars = {"uint8": "B", "uint16": "H", "uint32": "I", "Activation": "B", "Signed": "B"}
    vectors = {"[uint8]": "u1", "[int32]": "<i4", "[float32]": "<f4", "[float64]": "<f8"}
    tables = dict(re.findall(r"table (\w+) \{(.*?)\}", text, re.S))
    ours = {
        "Layer": flatbuffer.LAYER,
        "Encoding": flatbuffer.ENCODING,
        "Head": flatbuffer.HEAD,
        "Entry": flatbuffer.ENTRY,
        "Program": flatbuffer.PROGRAM,
    }
    assert set(tables) == set(ours)
    for name, body in tables.items():
        fields = re.findall(r"(\w+)\s*:\s*([\w\[\]]+)\s*(\(required\))?\s*;", body)
        assert [field for field, _, _ in fields] == list(ours[name])
        for field, kind, required in fields:
            known = ours[name][field]
            assert bool(required) == (not isinstance(known, str))
            if isinstance(known, str):
                assert known == scalars[kind]
            elif isinstance(known, np.dtype):
                assert known == vectors[kind]
            elif isinstance(known, flatbuffer.Text):
                assert kind == "string"
            elif isinstance(known, flatbuffer.Many):
                assert known.table is ours[kind.strip("[]")]
            else:
                assert known is ours[kind]
    enums = {n: re.findall(r"(\w+) = \d+", body) for n, body in re.findall(r"enum (\w+) : ubyte \{(.*?)\}", text)}
    assert enums == {"Activation": list(wire._ACTIVATIONS), "Signed": list(wire._SIGNED)}
    assert "root_type Program;" in text
    assert re.search(r'file_identifier "(\w+)"', text).group(1).encode() == flatbuffer.IDENTIFIER


@pytest.mark.parametrize(
    ("bits", "weights", "packed"),
    [
        (4, [[-7, 7, 0], [1, -1, 3], [-2, 6, 5]], [0x79, 0x10, 0x3F, 0x6E, 0x05]),
        (2, [[1, -1, 0, 1], [-1, -1, 0, 1], [1, 0, 0, 0]], [0b01001101, 0b01001111, 0b00000001]),
        (2, [[-1]], [0b11]),
        (1, [[1, 0, 0, 1, 1, 0, 0, 0, 1]], [0b00011001, 0b1]),
    ],
)
def test_weights_are_packed_by_rows_lowest_bits_first(bits, weights, packed):
    weights = np.array(weights, np.int8)
    assert pack_bits(weights, bits).tolist() == packed
    assert pack_bits(np.asfortranarray(weights), bits).tolist() == packed
    unpacked = unpack_bits(np.array(packed, np.uint8), bits, weights.size, "w")
    assert unpacked.dtype == np.int8
    assert unpacked.reshape(weights.shape).tolist() == weights.tolist()


def test_flatbuffers_own_accessors_read_the_file():
    data = wire.to_bytes(two_layers())
    assert flatbuffers.util.BufferHasIdentifier(data, 0, flatbuffer.IDENTIFIER)
    program = root(data)
    assert program.GetSlot(4, 0, number_types.Uint16Flags) == flatbuffer.VERSION
    assert program.VectorLen(program.Offset(6)) == 32
    assert program.String(place(program, 2)) == b"demo"
    assert program.VectorLen(program.Offset(10)) == 2
    scales = program.GetVectorAsNumpy(number_types.Float64Flags, program.Offset(16))
    assert scales.tolist() == [0.25]
    layer = Table(data, program.Indirect(program.Vector(program.Offset(10))))
    assert layer.String(place(layer, 0)) == b"hidden"
    assert [layer.GetSlot(slot, 9, number_types.Uint32Flags) for slot in (6, 8)] == [2, 3]
    bits = [layer.GetSlot(slot, 9, number_types.Uint8Flags) for slot in (10, 12, 14, 16)]
    assert bits == [4, 4, 1, 2]
    thresholds = layer.GetVectorAsNumpy(number_types.Int32Flags, layer.Offset(20))
    assert thresholds.tolist() == [5, -6, 7]


def checksum_by_the_schema_comment():
    def text(value):
        return struct.pack("<I", len(value)) + value

    def vector(code, *values):
        return struct.pack(f"<I{len(values)}{code}", len(values), *values)

    layer = text(b"one") + struct.pack("<IIBBBB", 1, 1, 1, 4, 0, 4) + vector("B", 1) + vector("i", 0) + vector("f", 1)
    program = struct.pack("<H", 1) + vector("B", *[0] * 32) + text(b"p") + struct.pack("<I", 1) + layer
    program += struct.pack("<BBB", 4, 1, 0) + vector("I") + vector("d", 2.5) + text(b"") + vector("I") + vector("d")
    return hashlib.sha256(program).digest()


def test_a_file_that_other_code_wrote_is_read():
    # As generated code would write it: in another order, and with zeros left out.
    b = flatbuffers.Builder(0)
    checksum = b.CreateByteVector(checksum_by_the_schema_comment())
    empty = b.CreateString("")
    b.StartVector(4, 0, 4)
    heads = b.EndVector()
    b.StartVector(4, 0, 4)
    provenance = b.EndVector()
    scales = b.CreateNumpyVector(np.array([2.5]))
    ranges = b.CreateNumpyVector(np.zeros(0))
    steps, weights = b.CreateNumpyVector(np.ones(1, np.float32)), b.CreateByteVector(b"\x01")
    thresholds, one, name = b.CreateNumpyVector(np.zeros(1, np.int32)), b.CreateString("one"), b.CreateString("p")
    b.StartObject(10)
    for slot, offset in ((9, steps), (8, thresholds), (7, weights), (0, one)):
        b.PrependUOffsetTRelativeSlot(slot, offset, 0)
    for slot, value in ((1, 1), (2, 1)):
        b.PrependUint32Slot(slot, value, 0)
    for slot, value in ((3, 1), (4, 4), (5, 0), (6, 4)):
        b.PrependUint8Slot(slot, value, 0)
    layer = b.EndObject()
    b.StartVector(4, 1, 4)
    b.PrependUOffsetTRelative(layer)
    layers = b.EndVector()
    b.StartObject(3)
    for slot, value in ((0, 4), (1, 1), (2, 0)):
        b.PrependUint8Slot(slot, value, 0)
    encoding = b.EndObject()
    b.StartObject(10)
    fields = (
        (9, ranges),
        (8, provenance),
        (7, empty),
        (6, scales),
        (5, heads),
        (4, encoding),
        (3, layers),
        (2, name),
        (1, checksum),
    )
    for slot, offset in fields:
        b.PrependUOffsetTRelativeSlot(slot, offset, 0)
    b.PrependUint16Slot(0, 1, 0)
    b.Finish(b.EndObject(), file_identifier=flatbuffer.IDENTIFIER)
    data = bytes(b.Output())
    ours = Program(
        name="p",
        layers=(FullyConnected(name="one", weights=np.ones((1, 1), np.int8), weight_bits=1),),
        scales=np.array([2.5]),
    )
    assert wire.from_bytes(data).fingerprint() == ours.fingerprint()
    assert wire.to_bytes(wire.from_bytes(data)) == wire.to_bytes(ours)


# Files that lie, with a right checksum


def test_without_a_lie_the_forgers_below_give_the_program():
    assert forged(lambda record: None) == spoiled(lambda data: None) == wire.to_bytes(two_layers())
    assert wire.from_bytes(forged(lambda record: None)).fingerprint() == two_layers().fingerprint()


def of_layer(**changes):
    return lambda record: record["layers"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_layer(inputs=2**32 - 1, units=3), "`layers\\[0\\].weights` must have 6442450943 bytes"),
        (of_layer(units=2**32 - 1), "`layers\\[0\\].thresholds` must have 4294967295 entries"),
        (of_layer(inputs=0, weights=np.zeros(0, "u1")), "not empty"),
        (of_layer(inputs=3), "`layers\\[0\\].weights` must have 5 bytes for 9 weights of 4 bits. Got 3"),
        (of_layer(weight_bits=3), "weight bits must be 1, 2 or 4. Got 3"),
        (of_layer(weight_bits=0), "weight bits must be 1, 2 or 4. Got 0"),
        (of_layer(weight_bits=8), "weight bits must be 1, 2 or 4. Got 8"),
        (of_layer(input_bits=200), "input bits must be 1, 2 or 4. Got 200"),
        (of_layer(activation=2), "`layers\\[0\\].activation` must be one of the codes 0 .. 1. Got 2"),
        (of_layer(activation=0), "must have a bounded ReLU"),
        (of_layer(weights=np.array([0x88, 0, 0], "u1")), "lie in -7 .. 7. Got -8"),
        (
            of_layer(thresholds=np.zeros(0, "<i4")),
            "`layers\\[0\\].thresholds` must have 3 entries, one per unit. Got 0",
        ),
        (of_layer(thresholds=np.full(3, 2**31 - 1, "<i4")), "signed 20-bit"),
        (of_layer(act_steps=np.full(3, np.nan, "<f4")), "finite numbers"),
        (of_layer(act_steps=np.ones(4, "<f4")), "`layers\\[0\\].act_steps` must have 3"),
        (of_layer(name=""), "1 to 100 printable"),
        (lambda r: r["layers"].clear(), "at least one layer"),
        (
            lambda r: r["layers"][1].update(weights=np.array([0b11101], "u1")),
            "`layers\\[1\\].weights` must end in zero",
        ),
        (lambda r: r["encoding"].update(signed=3), "`encoding.signed` must be one of the codes 0 .. 2. Got 3"),
        (lambda r: r["encoding"].update(digits=0), "1, 2 or 3 digits"),
        (lambda r: r["heads"][0].update(width=2**32 - 1), "head `a` at 0\\+4294967295"),
        (lambda r: r["heads"].append(r["heads"][0]), "overlaps"),
        (lambda r: r.update(scales=np.zeros(0)), "`scales` must have one entry per output. Got none"),
        (lambda r: r.update(scales=np.array([np.nan])), "finite float64"),
        (lambda r: r.update(version=2), "`version` must be 1. Got 2; a newer metalforge may read it"),
    ],
)
def test_contents_that_are_no_program(change, message):
    with pytest.raises(ProgramError, match=message):
        wire.from_bytes(forged(change))


def swap_layers_for_one(data):
    program = root(data)
    vector = below(program, 3)
    first = vector + 4 + struct.unpack_from("<I", data, vector + 4)[0]
    put(data, vector + 8, first - (vector + 8))


def name_is_schema(data):
    program = root(data)
    put(data, place(program, 7), below(program, 2) - place(program, 7))


def layer_is_program(data):
    program = root(data)
    vector = below(program, 3)
    put(data, vector + 4, program.Pos - (vector + 4))


def encoding_of_zero(data):
    put(data, place(root(data), 4), 0)


def own_vtable(data):
    put(data, root(data).Pos, 0)


def long_scales(data):
    put(data, below(root(data), 6), 2**29 - 1)


def many_layers(data):
    put(data, below(root(data), 3), 1000)


def crooked_root(data):
    put(data, 0, struct.unpack_from("<I", data)[0] + 2)


def hidden_byte(data):
    at = below(root(data), 2) + 4 + len("demo") + 1
    assert data[at] == 0  # padding after the name and its zero
    data[at] = 1


def text_without_end(data):
    data[below(root(data), 2) + 4 + len("demo")] = 1


def text_not_utf8(data):
    data[below(root(data), 2) + 4] = 0xFF


def tall_vtable(data):
    at = root(data).Pos
    struct.pack_into("<H", data, at - struct.unpack_from("<i", data, at)[0], 4 + 2 * (len(flatbuffer.PROGRAM) + 1))


def lost_field(data):
    at = root(data).Pos
    struct.pack_into("<H", data, at - struct.unpack_from("<i", data, at)[0] + 4 + 2 * 3, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap_layers_for_one, "`layers\\[1\\]` shares bytes with another field"),
        (name_is_schema, "`schema` shares bytes with another field"),
        (layer_is_program, "`layers\\[0\\]` lies at bytes"),  # offsets only lead forward, so back is far outside
        (encoding_of_zero, "`encoding` shares bytes with another field"),
        (own_vtable, "`program \\(vtable\\)` shares bytes"),
        (long_scales, "`scales` lies at bytes \\d+ .. \\d+ of \\d+"),
        (many_layers, "`layers` lies at bytes"),
        (crooked_root, "`program` must lie at a multiple of 4 bytes"),
        (hidden_byte, "bytes that belong to no field"),
        (text_without_end, "`name` must end in a zero byte"),
        (text_not_utf8, "`name` must be UTF-8"),
        (tall_vtable, "`program \\(vtable\\)` lies|`program` has fields that version 1|shares bytes"),
        (lost_field, "`layers` is missing"),
        (lambda data: data.__setitem__(slice(4, 8), b"MFP2"), "identifier must be b'MFP1'. Got b'MFP2'; a newer"),
        (lambda data: data.__setitem__(slice(4, 8), b"NOPE"), "identifier must be b'MFP1'. Got b'NOPE': not a program"),
        (lambda data: data.extend(bytes(8)), "bytes that belong to no field"),
        (lambda data: data.extend(bytes(4)), "multiple of 8 bytes"),
        (lambda data: data.clear(), "multiple of 8 bytes. Got 0"),
        (lambda data: data.reverse(), "identifier"),
    ],
)
def test_bytes_that_lead_nowhere(change, message):
    with pytest.raises(ProgramError, match=message):
        wire.from_bytes(spoiled(change))


@pytest.mark.parametrize("data", [None, 8, "MFP1" * 4, [0] * 16, np.zeros(16, np.uint8)])
def test_only_bytes_are_read(data):
    with pytest.raises(ProgramError, match="from bytes"):
        wire.from_bytes(data)


def test_any_kind_of_bytes_is_read():
    data = wire.to_bytes(two_layers())
    for like in (bytearray(data), memoryview(data)):
        assert wire.from_bytes(like).fingerprint() == two_layers().fingerprint()


# What the wire does not take


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a\nb"}, "`name` must be printable"),
        ({"name": "n" * 401}, "`name` must be at most 400 bytes of UTF-8. Got 401"),
        ({"name": 7}, "`name` must be text. Got int"),
        ({"schema": "\ud800"}, "`schema` must be text that UTF-8 can hold"),
        ({"schema": "s" * (2**20 + 1)}, "`schema` must be at most 1048576"),
        ({"heads": (Head(name="\x1b[2J", start=0, width=1),)}, "`heads\\[0\\].name` must be printable"),
        ({"provenance": (("seed", 7),)}, "`provenance\\[0\\].value` must be text. Got int"),
        ({"provenance": (("k", "v"),) * 4097}, "`provenance` must have at most 4096 entries. Got 4097"),
    ],
)
def test_programs_that_cannot_travel(changes, message):
    layers = (FullyConnected(name="a", weights=np.ones((1, 1), np.int8)),)
    with pytest.raises(ProgramError, match=message):
        wire.to_bytes(Program(**{"name": "p", "layers": layers} | changes))


def test_a_program_must_not_be_larger_than_the_limit(monkeypatch):
    data = wire.to_bytes(two_layers())
    monkeypatch.setattr(flatbuffer, "MAX_BYTES", len(data) - 1)
    with pytest.raises(ProgramError, match=f"at most {len(data) - 1} .*Got {len(data)}"):
        wire.from_bytes(data)
    for limit in (len(data) - 1, 64):  # too long with FlatBuffers' own bytes, and too long without them
        monkeypatch.setattr(flatbuffer, "MAX_BYTES", limit)
        with pytest.raises(ProgramError, match=f"at most {limit} bytes"):
            wire.to_bytes(two_layers())


# Files


def test_a_saved_program_is_the_one_that_loads(tmp_path):
    path = tmp_path / "program.mfp"
    wire.save(two_layers(), path)
    wire.save(two_layers(), str(path))
    assert path.read_bytes() == wire.to_bytes(two_layers())
    assert wire.load(path).fingerprint() == two_layers().fingerprint()
    assert list(tmp_path.iterdir()) == [path]


def test_ranges_travel():
    program = replace(two_layers(), encoding=replace(two_layers().encoding, signed="unsigned"))
    told = replace(program, ranges=np.linspace(1, 2, program.inputs))
    assert np.array_equal(wire.from_bytes(wire.to_bytes(told)).ranges, told.ranges)
    assert wire.from_bytes(wire.to_bytes(program)).ranges.size == 0
    assert len(wire.to_bytes(told)) > len(wire.to_bytes(program))
    for wrong in (np.ones(program.inputs + 1), np.zeros(program.inputs), np.full(program.inputs, np.nan)):
        with pytest.raises(ProgramError, match="ranges"):
            replace(program, ranges=wrong)


def test_a_program_that_cannot_travel_touches_no_file(tmp_path):
    layers = (FullyConnected(name="a", weights=np.ones((1, 1), np.int8)),)
    with pytest.raises(ProgramError, match=r"`name`.*printable"):
        wire.save(Program(name="\0", layers=layers), tmp_path / "program.mfp")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_a_file_name_it(tmp_path, monkeypatch):
    path = tmp_path / "broken.mfp"
    path.write_bytes(bytes(64))
    with pytest.raises(ProgramError, match=r"broken\.mfp.*identifier"):
        wire.load(path)
    monkeypatch.setattr(flatbuffer, "MAX_BYTES", 63)
    with pytest.raises(ProgramError, match=r"broken\.mfp.*at most 63"):
        wire.load(path)


def test_every_field_changes_the_checksum():
    record = wire._to_record(two_layers())
    changes = [
        *({key: "x"} for key in ("name", "schema")),
        {"heads": []},
        {"provenance": []},
        {"scales": np.array([0.5])},
        {"encoding": record["encoding"] | {"digits": 2}},
        *({"layers": [record["layers"][0] | {key: 9}]} for key in ("inputs", "units", "weight_bits", "activation")),
    ]
    sums = [flatbuffer.checksum(record), *(flatbuffer.checksum(record | change) for change in changes)]
    assert len(set(sums)) == len(sums)
