"""Weight files: every network comes back as it was, and damaged or invented bytes never become another one."""

import json
import struct
import tracemalloc
import warnings
from contextlib import suppress
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from metalforge.core.errors import SpecError
from metalforge.core.schema import Feature, FeatureSchema, HeadLayout, HeadSpec
from metalforge.reservoir.activations import ACTIVATIONS
from metalforge.reservoir.files import load_weights, save_weights
from metalforge.reservoir.matrices import to_kind
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights

TEXT = st.text(st.characters(exclude_categories=["Cs"]).filter(str.isprintable), max_size=12)
NUMBERS = st.floats(-1e6, 1e6)
MEMORY = 64, 1 << 20
"""Bytes a reader may use: this many for each byte of the file, and this many besides."""


def reals(dtype, shape):
    # A radius of at most 1 by row sums keeps the warning out of the way.
    return arrays.arrays(dtype, shape, elements=st.floats(-0.125, 0.125, width=32))


@st.composite
def networks(draw, *, for_the_origin=False):
    dtype = np.float32 if for_the_origin else draw(st.sampled_from([np.float32, np.float64]))
    units, inputs, outputs = draw(st.integers(1, 7)), draw(st.integers(1, 4)), draw(st.integers(0, 4))
    full = draw(reals(dtype, (units, units)))
    w_out = draw(reals(dtype, (outputs, units))) if outputs else None
    if for_the_origin:
        name = draw(st.sampled_from(["tanh", "piecewise_tanh"]))
        return EsnWeights(
            w_in=draw(reals(dtype, (units, inputs))),
            w_res=full,
            w_out=w_out,
            leak=draw(st.floats(0.001, 1)),
            activation=name,
        )
    kind = draw(st.sampled_from(["dense", "csr", "block16"]))
    names = draw(st.lists(TEXT, min_size=inputs, max_size=inputs, unique=True))
    schema = FeatureSchema(
        name=draw(TEXT),
        version=draw(st.integers(-3, 9)),
        features=tuple(Feature(name=n, unit=draw(TEXT), offset=draw(NUMBERS), scale=2.0) for n in names),
    )
    heads = HeadLayout(name=draw(TEXT), heads=tuple(HeadSpec(name=str(i)) for i in range(outputs))) if outputs else None
    passthrough = bool(outputs) and draw(st.booleans())
    if passthrough:
        w_out = draw(reals(dtype, (outputs, units + inputs)))
    return EsnWeights(
        w_in=draw(reals(dtype, (units, inputs))),
        w_res=to_kind(full, kind),
        bias=draw(reals(dtype, units)),
        leak=draw(st.floats(0.001, 1)),
        activation=draw(st.sampled_from(sorted(ACTIVATIONS))),
        w_fb=draw(reals(dtype, (units, outputs))) if outputs and draw(st.booleans()) else None,
        w_out=w_out,
        passthrough=passthrough,
        features=schema if draw(st.booleans()) else None,
        heads=heads if draw(st.booleans()) else None,
    )


def same(a, b):
    for f in fields(EsnWeights):
        one, other = getattr(a, f.name), getattr(b, f.name)
        if type(one) is not type(other):
            return False
        if hasattr(one, "dtype"):
            if one.dtype != other.dtype or to_dense(one).tobytes() != to_dense(other).tobytes():
                return False
        elif one != other:
            return False
    return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("forged")


def loaded(path, data):
    """What the bytes are read as, with the memory that takes checked; SpecError is the only error there may be."""
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a forged network may be unstable
            return load_weights(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MEMORY[0] * len(data) + MEMORY[1]


@given(network=networks())
@settings(max_examples=50)
def test_every_network_comes_back_as_it_was(folder, network):
    path = folder / "whole.safetensors"
    save_weights(network, path)
    assert same(load_weights(path), network)


@given(network=networks(for_the_origin=True))
@settings(max_examples=30)
def test_every_network_the_origin_can_hold_comes_back_as_it_was(folder, network):
    path = folder / "whole.json"
    save_weights(network, path)
    again = load_weights(path)
    assert same(again, network)


@given(network=networks(), data=st.data())
@settings(max_examples=70)
def test_a_damaged_file_is_refused_or_the_same_network(folder, network, data):
    path = folder / "damaged.safetensors"
    save_weights(network, path)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(SpecError):
        assert same(loaded(path, bytes(whole)), network)


@given(network=networks(), data=st.data())
@settings(max_examples=30)
def test_a_file_cut_short_or_made_longer_is_refused(folder, network, data):
    path = folder / "cut.safetensors"
    save_weights(network, path)
    whole = path.read_bytes()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    longer = whole + data.draw(st.binary(min_size=1, max_size=20))
    for changed in (cut, longer):
        with pytest.raises(SpecError, match=str(path)):
            loaded(path, changed)


SIZES = st.one_of(st.integers(0, 9), st.sampled_from([2**20, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64, 2**70, -1]))


@given(network=networks(), data=st.data())
@settings(max_examples=70)
def test_a_forged_header_allocates_nothing_it_does_not_hold(folder, network, data):
    path = folder / "header.safetensors"
    save_weights(network, path)
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    for _ in range(data.draw(st.integers(1, 3))):
        entry = header[data.draw(st.sampled_from(sorted(set(header) - {"__metadata__"})))]
        field = data.draw(st.sampled_from(["shape", "data_offsets", "dtype"]))
        if field == "dtype":
            entry["dtype"] = data.draw(st.sampled_from(["F64", "F32", "F16", "BF16", "I32", "I64", "U8", "BOOL", "F8"]))
        else:
            entry[field] = data.draw(st.lists(SIZES, min_size=0, max_size=4))
    text = json.dumps(header).encode()
    claimed = data.draw(st.one_of(st.just(len(text)), SIZES.filter(lambda n: 0 <= n < 2**64)))
    with suppress(SpecError):
        assert same(loaded(path, struct.pack("<Q", claimed) + text + whole[8 + length :]), network)


@given(network=networks(for_the_origin=True), data=st.data())
@settings(max_examples=70)
def test_forged_json_is_refused_or_says_what_it_holds(folder, network, data):
    path = folder / "forged.json"
    save_weights(network, path)
    record = json.loads(path.read_text())
    values = st.one_of(SIZES, st.none(), st.booleans(), st.floats(allow_nan=False), TEXT, st.lists(NUMBERS, max_size=5))
    for name in data.draw(st.lists(st.sampled_from([*record, "extra"]), min_size=1, max_size=3, unique=True)):
        if data.draw(st.booleans()):
            record.pop(name, None)
        else:
            record[name] = data.draw(values)
    with suppress(SpecError):
        found = loaded(path, json.dumps(record).encode())
        assert found.w_in.ravel() == pytest.approx(np.array(record["w_in"], np.float32))
        assert found.w_res.ravel() == pytest.approx(np.array(record["w_res"], np.float32))
        assert found.units == record["reservoir_size"]
        assert found.leak == record["leak_rate"]


@given(data=st.binary(max_size=300))
@settings(max_examples=70)
def test_bytes_of_chance_are_refused_under_any_name(folder, data):
    for name in ("chance.safetensors", "chance.json", "chance.bin"):
        with pytest.raises(SpecError, match=name):
            loaded(folder / name, data)
