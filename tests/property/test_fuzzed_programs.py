"""Programs as bytes: every program comes back as it was, and damaged bytes never become another program."""

import hashlib
import struct
import tracemalloc
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from metalforge.substrates.npu import wire
from metalforge.substrates.npu.program import (
    Activation,
    Encoding,
    FullyConnected,
    Head,
    Program,
    ProgramError,
    weight_limits,
)

BITS = st.sampled_from([1, 2, 4])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = TEXT.filter(str.isprintable)
MEMORY = 32, 1 << 17
"""Bytes a reader may use: this many for each byte read, and this many besides. 1-bit weights become 8 times larger."""


@st.composite
def programs(draw):
    n_layers = draw(st.integers(1, 3))
    digits = draw(st.integers(1, 3))
    widths = draw(st.lists(st.integers(1, 9), min_size=n_layers, max_size=n_layers))
    outputs = draw(st.integers(1, 7))
    widths.append(outputs * digits)
    names = draw(st.lists(NAMES.filter(bool), min_size=n_layers, max_size=n_layers, unique=True))
    bits = draw(BITS)
    layers = []
    for i, name in enumerate(names):
        inputs, units = widths[i], widths[i + 1]
        weight_bits, activation_bits = draw(BITS), draw(BITS)
        low, high = weight_limits(weight_bits)
        hidden = i < n_layers - 1 or draw(st.booleans())
        weights = draw(arrays.arrays(np.int8, (inputs, units), elements=st.integers(low, high)))
        layers.append(
            FullyConnected(
                name=name,
                weights=np.asfortranarray(weights) if draw(st.booleans()) else weights,
                weight_bits=weight_bits,
                input_bits=bits,
                activation=Activation.BOUNDED_RELU if hidden else Activation.LINEAR,
                activation_bits=activation_bits,
                threshold=draw(arrays.arrays(np.int32, units, elements=st.integers(-(1 << 19), (1 << 19) - 1))),
                act_step=draw(arrays.arrays(np.float32, units, elements=st.floats(0.0625, 65535, width=32))),
            )
        )
        bits = activation_bits
    cuts = sorted(draw(st.sets(st.integers(0, outputs), max_size=4)))
    spans = list(pairwise(cuts))
    heads = draw(st.lists(NAMES, min_size=len(spans), max_size=len(spans), unique=True))
    return Program(
        name=draw(NAMES),
        layers=tuple(layers),
        encoding=Encoding(
            activation_bits=draw(st.sampled_from([4, 8, 12, 16])),
            digits=digits,
            signed=draw(st.sampled_from(["unsigned", "zero_point", "two_rail"])),
        ),
        heads=tuple(Head(name=h, start=a, width=b - a) for h, (a, b) in zip(heads, spans, strict=True)),
        scales=draw(arrays.arrays(np.float64, outputs, elements=st.floats(allow_nan=False, allow_infinity=False))),
        schema=draw(TEXT),
        provenance=tuple(draw(st.lists(st.tuples(NAMES, TEXT), max_size=3))),
    )


def values(program):
    """Everything a program holds, to the last bit, with the types of its arrays."""

    def bits(array):
        return array.dtype.str, array.shape, array.tobytes()

    layers = tuple(
        (
            *(getattr(layer, n) for n in ("name", "weight_bits", "input_bits", "activation", "activation_bits")),
            *(bits(getattr(layer, n)) for n in ("weights", "threshold", "act_step")),
        )
        for layer in program.layers
    )
    rest = (program.name, program.encoding, program.heads, program.schema, program.provenance)
    return layers, bits(program.scales), rest


def small():
    return Program(
        name="\N{SNOWFLAKE}",
        layers=(
            FullyConnected(
                name="h", weights=np.array([[-7, 7, 1]], np.int8), input_bits=1, activation=Activation.BOUNDED_RELU
            ),
            FullyConnected(name="o", weights=np.array([[1, -1]] * 3, np.int8), weight_bits=2),
        ),
        encoding=Encoding(digits=2),
        heads=(Head(name="a", start=0, width=1),),
        schema="s",
        provenance=(("k", "v"),),
    )


SMALL = wire.to_bytes(small())
BODY = SMALL[36:]


def verdict(data, wanted):
    """True for the same program, False for a `ProgramError`; anything else fails the test."""
    try:
        program = wire.from_bytes(data)
    except ProgramError:
        return False
    assert values(program) == values(wanted)
    return True


@settings(max_examples=120)
@given(programs())
def test_programs_come_back_as_they_were_and_always_as_the_same_bytes(program):
    data = wire.to_bytes(program)
    again = wire.from_bytes(data)
    assert values(again) == values(program)
    assert wire.to_bytes(again) == data == wire.to_bytes(program)
    assert all(layer.weights.flags.c_contiguous and layer.weights.flags.writeable for layer in again.layers)


def test_every_truncation_is_noticed():
    assert verdict(SMALL, small())
    assert not any(verdict(SMALL[:length], small()) for length in range(len(SMALL)))


def test_every_single_flipped_bit_is_noticed():
    for bit in range(8 * len(SMALL)):
        data = bytearray(SMALL)
        data[bit // 8] ^= 1 << bit % 8
        assert not verdict(data, small())


def sealed(body):
    """Bytes whose checksum is right: whoever can write a file can write that."""
    return wire.IDENTIFIER + hashlib.sha256(body).digest() + bytes(body)


def test_behind_a_right_checksum_too_there_is_a_valid_program_or_an_error():
    loaded = []
    for bit in range(8 * len(BODY)):
        data = bytearray(BODY)
        data[bit // 8] ^= 1 << bit % 8
        with suppress(ProgramError):
            loaded.append(wire.from_bytes(sealed(data)))
    assert len(loaded) > 100
    assert all(values(wire.from_bytes(wire.to_bytes(program))) == values(program) for program in loaded)


@settings(max_examples=150)
@given(st.data())
def test_pieces_of_a_file_in_other_places_give_a_program_or_an_error(data):
    mixed = bytearray(BODY)
    for _ in range(data.draw(st.integers(1, 4))):
        length = data.draw(st.sampled_from([2, 4, 8, 32]))
        source, target = (data.draw(st.integers(0, len(BODY) - length)) for _ in range(2))
        mixed[target : target + length] = BODY[source : source + length]
    with suppress(ProgramError):
        assert wire.from_bytes(sealed(mixed)).outputs > 0


@settings(max_examples=150)
@given(st.binary(max_size=400), st.booleans())
def test_garbage_is_refused(garbage, with_checksum):
    with pytest.raises(ProgramError):
        wire.from_bytes(sealed(garbage) if with_checksum else garbage)


@settings(max_examples=40)
@given(programs(), st.data())
def test_flipped_bits_of_any_program_never_make_another(program, data):
    mixed = bytearray(wire.to_bytes(program))
    for bit in data.draw(st.lists(st.integers(0, 8 * len(mixed) - 1), min_size=1, max_size=8)):
        mixed[bit // 8] ^= 1 << bit % 8
    before = bytes(mixed)
    verdict(mixed, program)
    assert mixed == before


def peak_bytes(data):
    tracemalloc.start()
    try:
        with suppress(ProgramError):
            wire.from_bytes(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def one_layer(inputs, units, **fields):
    weights = (np.arange(inputs * units) % 2).astype(np.int8).reshape(inputs, units)
    return Program(name="p", layers=(FullyConnected(name="a", weights=weights, weight_bits=1),), **fields)


def tiny_layers(count):
    return tuple(
        FullyConnected(name=str(i), weights=np.ones((1, 1), np.int8), activation=Activation.BOUNDED_RELU)
        for i in range(count)
    )


@pytest.mark.parametrize(
    "program",
    [
        one_layer(1500, 1500),
        one_layer(1, 2000, heads=tuple(Head(name=str(i), start=i, width=1) for i in range(2000))),
        one_layer(1, 5000, heads=(Head(name="all", start=0, width=5000),)),
        one_layer(1, 1, provenance=tuple((str(i), "") for i in range(2000))),
        one_layer(1, 1, schema="\N{SNOWFLAKE}" + "s" * (1 << 19)),
        Program(name="p", layers=tiny_layers(300)),
    ],
    ids=["weights", "heads", "wide head", "provenance", "text", "layers"],
)
def test_reading_takes_memory_in_proportion_to_what_is_read(program):
    data = wire.to_bytes(program)
    per_byte, besides = MEMORY
    assert len(data) > 9000
    assert peak_bytes(data) < per_byte * len(data) + besides


def test_lies_about_lengths_take_no_memory():
    largest = 0
    for at in range(len(BODY)):
        data = bytearray(BODY)
        struct.pack_into(">BI", data := data.ljust(at + 5, b"\0"), at, 0xC6, 0x0FFFFFFF)  # "here are 256 MB of bytes"
        largest = max(largest, peak_bytes(sealed(data)))
    assert 0 < largest < MEMORY[1]
