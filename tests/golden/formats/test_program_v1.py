"""`program-v1.mfp` must read to this program from release 0.1 on.

Once that is released, the file is never written again: a reader that cannot read it is wrong.
"""

from pathlib import Path

import numpy as np

from metalforge.substrates.npu import wire
from metalforge.substrates.npu.program import Activation, Encoding, FullyConnected, Head, Program

FILE = Path(__file__).with_name("program-v1.mfp")
CHECKSUM = "32c1bb60242b6f3b40cf18aec8f83cc985f1c658239ccb5884211b9b002b4d46"
"""What the file holds: the definition must keep giving it."""


def expected():
    return Program(
        name="golden program, version 1: \N{GREEK SMALL LETTER BETA} \N{SNOWFLAKE}",
        layers=(
            FullyConnected(
                name="hidden",
                weights=(np.arange(30) * 4 % 15 - 7).astype(np.int8).reshape(6, 5),
                weight_bits=4,
                input_bits=2,
                activation=Activation.BOUNDED_RELU,
                activation_bits=4,
                threshold=np.array([-524288, -1, 0, 1, 524287], np.int32),
                act_step=np.array([0.0625, 0.1, 1, 3.5, 65535], np.float32),
            ),
            FullyConnected(
                name="readout",
                weights=(np.arange(20) * 2 % 3 - 1).astype(np.int8).reshape(5, 4),
                weight_bits=2,
                input_bits=4,
                activation=Activation.LINEAR,
                activation_bits=1,
                threshold=np.array([7, 0, -7, 0], np.int32),
                act_step=np.array([1, 2, 1, 2], np.float32),
            ),
        ),
        encoding=Encoding(activation_bits=12, digits=2, signed="zero_point"),
        heads=(Head(name="second", start=1, width=1), Head(name="first", start=0, width=1)),
        scales=np.array([0.1, -1e-300]),
        schema='{"features": ["plaquette"],\n "heads": ["first", "second"]}',
        provenance=(("made by", "hand"), ("empty", "")),
    )


def test_the_first_version_still_reads_to_the_same_program():
    program, wanted = wire.load(FILE), expected()
    for name in ("name", "encoding", "heads", "schema", "provenance"):
        assert getattr(program, name) == getattr(wanted, name)
    assert program.scales.dtype == np.float64
    assert program.scales.tobytes() == wanted.scales.tobytes()
    assert len(program.layers) == len(wanted.layers)
    for layer, like in zip(program.layers, wanted.layers, strict=True):
        for name in ("name", "weight_bits", "input_bits", "activation", "activation_bits"):
            assert getattr(layer, name) == getattr(like, name)
        for name in ("weights", "threshold", "act_step"):
            values, wanted_values = getattr(layer, name), getattr(like, name)
            assert (values.dtype, values.shape) == (wanted_values.dtype, wanted_values.shape)
            assert values.tobytes() == wanted_values.tobytes()


def test_the_checksum_is_still_made_the_same_way():
    assert bytes.fromhex(CHECKSUM) in FILE.read_bytes()
    assert bytes.fromhex(CHECKSUM) in wire.to_bytes(expected())
