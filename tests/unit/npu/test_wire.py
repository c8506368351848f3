"""Program files: the layout on the disk, files that lie, and files that fail."""

import hashlib
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from metalforge.substrates.npu import wire
from metalforge.substrates.npu.program import Activation, Encoding, FullyConnected, Head, Program, ProgramError
from metalforge.substrates.npu.quantize import pack_bits, unpack_bits


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
    record = msgspec.msgpack.decode(wire.to_bytes(two_layers())[36:])
    change(record)
    body = msgspec.msgpack.encode(record)
    return wire.IDENTIFIER + hashlib.sha256(body).digest() + body


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


# Files that lie, with a right checksum


def test_without_a_lie_the_forger_gives_the_program():
    assert forged(lambda record: None) == wire.to_bytes(two_layers())


def of_layer(**changes):
    return lambda record: record["layers"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_layer(inputs=2**32 - 1, units=3), "`layers\\[0\\].weights` must have 6442450943 bytes"),
        (of_layer(inputs=2**32), "layers\\[0\\].inputs"),
        (of_layer(inputs=-1), "layers\\[0\\].inputs"),
        (of_layer(inputs=0, weights=b""), "not empty"),
        (of_layer(inputs=3), "`layers\\[0\\].weights` must have 5 bytes for 9 weights of 4 bits. Got 3"),
        (of_layer(weight_bits=3), "weight bits must be 1, 2 or 4. Got 3"),
        (of_layer(weight_bits=0), "weight bits must be 1, 2 or 4. Got 0"),
        (of_layer(weight_bits=8), "weight bits must be 1, 2 or 4. Got 8"),
        (of_layer(input_bits=200), "input bits must be 1, 2 or 4. Got 200"),
        (of_layer(activation="tanh"), "layers\\[0\\].activation"),
        (of_layer(activation="linear"), "must have a bounded ReLU"),
        (of_layer(weights=b"\x88\0\0"), "lie in -7 .. 7. Got -8"),
        (of_layer(thresholds=b""), "`layers\\[0\\].thresholds`"),
        (of_layer(thresholds=bytes(11)), "`layers\\[0\\].thresholds`"),
        (of_layer(thresholds=np.full(3, 2**31 - 1, "<i4").tobytes()), "signed 20-bit"),
        (of_layer(act_steps=np.full(3, np.nan, "<f4").tobytes()), "finite numbers"),
        (of_layer(act_steps=np.ones(4, "<f4").tobytes()), "`act_step` must have 3 entries"),
        (of_layer(name=""), "1 to 100 printable"),
        (of_layer(more=1), "unknown field `more`"),
        (lambda r: r["layers"].clear(), "at least one layer"),
        (lambda r: r["layers"][1].update(weights=bytes([0b11101])), "`layers\\[1\\].weights` must end in zero"),
        (lambda r: r["encoding"].update(signed="both"), "signed"),
        (lambda r: r["encoding"].update(digits=0), "1, 2 or 3 digits"),
        (lambda r: r["heads"][0].update(width=2**32 - 1), "head `a` at 0\\+4294967295"),
        (lambda r: r["heads"].append(r["heads"][0]), "overlaps"),
        (lambda r: r.update(scales=b""), "`scales`"),
        (lambda r: r.update(scales=np.array([np.nan]).tobytes()), "finite float64"),
        (lambda r: r.pop("ranges"), "missing required field `ranges`"),
    ],
)
def test_contents_that_are_no_program(change, message):
    with pytest.raises(ProgramError, match=message):
        wire.from_bytes(forged(change))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begins with"),
        (b"MFP2" + bytes(40), "newer metalforge"),
        (b"NOPE" + bytes(40), "not a program"),
        (b"MFP1" + bytes(40), "checksum"),
        (wire.to_bytes(two_layers()) + b"\0", "checksum"),
        (b"MFP1" + hashlib.sha256(b"\xc1").digest() + b"\xc1", "not a program"),
    ],
)
def test_bytes_that_are_no_program(data, message):
    with pytest.raises(ProgramError, match=message):
        wire.from_bytes(data)


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
        ({"name": "a\nb"}, "printable"),
        ({"name": "n" * 401}, "<= 400"),
        ({"name": 7}, "`str`, got `int`"),
        ({"schema": "\ud800"}, "UTF-8"),
        ({"schema": "s" * (2**20 + 1)}, "<= 1048576"),
        ({"heads": (Head(name="\x1b[2J", start=0, width=1),)}, "printable"),
        ({"provenance": (("seed", 7),)}, "`str`, got `int`"),
        ({"provenance": (("k", "v"),) * 4097}, "<= 4096"),
    ],
)
def test_programs_that_cannot_travel(changes, message):
    layers = (FullyConnected(name="a", weights=np.ones((1, 1), np.int8)),)
    with pytest.raises(ProgramError, match=message):
        wire.to_bytes(Program(**{"name": "p", "layers": layers} | changes))


def test_a_program_must_not_be_larger_than_the_limit(monkeypatch, tmp_path):
    data = wire.to_bytes(two_layers())
    monkeypatch.setattr(wire, "MAX_BYTES", len(data) - 37)
    with pytest.raises(ProgramError, match="at most"):
        wire.from_bytes(data)
    with pytest.raises(ProgramError, match="at most"):
        wire.to_bytes(two_layers())


def test_a_program_of_just_the_largest_size_is_written_and_read(monkeypatch, tmp_path):
    data, path = wire.to_bytes(two_layers()), tmp_path / "program.mfp"
    monkeypatch.setattr(wire, "MAX_BYTES", len(data))
    wire.save(two_layers(), path)
    assert wire.to_bytes(wire.load(path)) == data
    monkeypatch.setattr(wire, "MAX_BYTES", len(data) - 1)
    with pytest.raises(ProgramError, match="at most"):
        wire.load(path)
    with pytest.raises(ProgramError, match="at most"):
        wire.save(two_layers(), path)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["encoding"].clear(),
        lambda record: record["encoding"].update(more=1),
        lambda record: record["heads"][0].update(more=1),
    ],
)
def test_records_in_a_program_have_all_their_fields_and_no_others(change):
    with pytest.raises(ProgramError, match="fields"):
        wire.from_bytes(forged(change))


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
    with pytest.raises(ProgramError, match="printable"):
        wire.save(Program(name="\0", layers=layers), tmp_path / "program.mfp")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_a_file_name_it(tmp_path):
    path = tmp_path / "broken.mfp"
    path.write_bytes(bytes(64))
    with pytest.raises(ProgramError, match=r"broken\.mfp"):
        wire.load(path)
