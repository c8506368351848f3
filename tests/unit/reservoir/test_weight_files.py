"""Networks on disk come back as they were; a file that says something else is refused by name."""

import json
import os
from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from metalforge.core.errors import SpecError
from metalforge.core.schema import Feature, FeatureSchema, HeadLayout, HeadSpec
from metalforge.reservoir.files import expect_features, load_weights, save_weights
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.origin import origin_weights
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights, UnstableReservoirWarning

KINDS = ["dense", "csr", "block16"]
FEATURES = FeatureSchema(
    name="run", version=2, features=(Feature(name="β", offset=5, scale=2), Feature(name="plaq"), Feature(name="m"))
)
HEADS = HeadLayout(name="heads", heads=(HeadSpec(name="phase", width=2, activation="softmax"), HeadSpec(name="cg")))


def network(kind="dense", dtype=np.float64, *, units=40, passthrough=True):
    w = make_esn(
        units, 3, seed=3, kind=kind, dtype=dtype, leak=0.3, bias_scaling=0.2, feedback=3, features=FEATURES,
        activation="piecewise_tanh",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    return w.with_readout(
        rng.normal(size=(3, units + 3 * passthrough)).astype(dtype),
        rng.normal(size=3).astype(dtype),
        passthrough=passthrough,
        heads=HEADS,
    )


def same(a, b):
    """Whether two networks are equal in every field, to the bit, and of the same types."""
    for f in fields(EsnWeights):
        one, other = getattr(a, f.name), getattr(b, f.name)
        if type(one) is not type(other):
            return False
        if hasattr(one, "dtype"):
            if one.dtype != other.dtype or not np.array_equal(to_dense(one), to_dense(other)):
                return False
        elif one != other:
            return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_everything_comes_back_as_it_was(tmp_path, kind, dtype):
    w = network(kind, dtype)
    path = tmp_path / "w.safetensors"
    save_weights(w, path)
    assert same(load_weights(path), w)
    assert not same(load_weights(path), replace(w, leak=0.5))
    bare = replace(w, w_fb=None, w_out=None, out_bias=None, passthrough=False, features=None, heads=None)
    save_weights(bare, path)
    assert same(load_weights(path), bare)


def test_the_same_network_gives_the_same_bytes_in_any_memory_order(tmp_path):
    w = network()
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    save_weights(w, one)
    save_weights(replace(w, w_in=np.asfortranarray(w.w_in), w_res=np.asfortranarray(w.w_res)), two)
    assert one.read_bytes() == two.read_bytes()


def test_a_csr_matrix_with_repeated_and_unsorted_entries_is_written_tidily(tmp_path):
    w = network(units=3, passthrough=False)
    untidy = csr_array((np.array([0.1, 0.2, 0.3]), np.array([2, 0, 0]), np.array([0, 3, 3, 3])), shape=(3, 3))
    path = tmp_path / "w.safetensors"
    save_weights(replace(w, w_res=untidy), path)
    assert untidy.nnz == 3
    assert np.allclose(load_weights(path).w_res.toarray(), [[0.5, 0, 0.1], [0, 0, 0], [0, 0, 0]])


def test_a_matrix_without_connections_travels_too(tmp_path):
    path = tmp_path / "w.safetensors"
    for units in (5, 700):  # 700: found by iterations, which cannot start from zero
        for nothing in (np.zeros((units, units)), csr_array((units, units))):
            w = EsnWeights(w_in=np.ones((units, 1)), w_res=nothing)
            save_weights(w, path)
            assert same(load_weights(path), w)


def test_other_tools_read_the_arrays_and_the_record(tmp_path):
    w, path = network("csr", np.float32), tmp_path / "w.safetensors"
    save_weights(w, path)
    arrays = load_file(path)
    assert np.array_equal(arrays["w_in"], w.w_in)
    assert np.array_equal(arrays["w_res.data"], w.w_res.data)
    with safe_open(path, framework="numpy") as file:
        record = json.loads(file.metadata()["metalforge"])
    assert record["format"] == "metalforge.esn"
    assert record["features"]["features"][0]["name"] == "β"
    assert record["features_fingerprint"] == load_weights(path).features.fingerprint()


def test_a_failed_write_keeps_the_old_file(tmp_path):
    w, path = network(dtype=np.float32), tmp_path / "w.json"
    path.write_bytes(b"old")
    with pytest.raises(SpecError, match=r"w\.json: .*no place"):
        save_weights(w, path)
    assert path.read_bytes() == b"old"
    with pytest.raises(SpecError, match=r"no/w\.safetensors: "):
        save_weights(w, tmp_path / "no" / "w.safetensors")
    with pytest.raises(SpecError, match=r"Got `\.pkl`"):
        save_weights(w, tmp_path / "w.pkl")
    assert os.listdir(tmp_path) == ["w.json"]


def test_under_another_name_the_first_bytes_decide(tmp_path):
    w = origin_weights(inputs=3).astype(np.float32)
    for suffix in (".safetensors", ".json"):
        save_weights(w, tmp_path / f"w{suffix}")
        (tmp_path / f"w{suffix}").rename(tmp_path / "w.weights")
        assert same(load_weights(tmp_path / "w.weights"), w)
    for content in (b"", b"PK\x03\x04 a zip", b"\x80\x04\x95pickle"):
        (tmp_path / "w.weights").write_bytes(content)
        with pytest.raises(SpecError, match=r"w\.weights: "):
            load_weights(tmp_path / "w.weights")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("units", [30, 650])
def test_loading_warns_of_a_radius_above_one(tmp_path, kind, units):
    with pytest.warns(UnstableReservoirWarning):
        w = make_esn(units, 1, seed=1, spectral_radius=1.5, kind=kind)
    path = tmp_path / "w.safetensors"
    save_weights(w, path)
    with pytest.warns(UnstableReservoirWarning, match=r"1\.5"):
        load_weights(path)
    assert same(load_weights(path, check_stability=False), w)


def test_a_ring_of_two_thousand_units_is_known_to_be_stable_without_its_eigenvalues(tmp_path, monkeypatch):
    ring = EsnWeights(w_in=np.ones((2000, 1)), w_res=csr_array(np.roll(0.9 * np.eye(2000), 1, axis=0)))
    path = tmp_path / "w.safetensors"
    save_weights(ring, path)
    monkeypatch.setattr("metalforge.reservoir.files.check_echo_state", lambda w: pytest.fail("minutes of iterations"))
    assert same(load_weights(path), ring)


# Forged files.


def forged(path, w, change=lambda record: record, arrays=lambda a: a, entry="metalforge"):
    """Write a network whose record and arrays were changed after the fact, in a well-formed safetensors file."""
    save_weights(w, path)
    with safe_open(path, framework="numpy") as file:
        record = json.loads(file.metadata()["metalforge"])
    save_file(arrays(load_file(path)), path, metadata={entry: json.dumps(change(record))})
    return path


def without(d, *names):
    return {k: v for k, v in d.items() if k not in names}


RECORDS = {
    "another format": (lambda r: r | {"format": "other"}, r"`format` must be metalforge\.esn. Got 'other'"),
    "a newer version": (lambda r: r | {"version": 2, "new": 1}, "version 2 .* reads version 1\nhint: a newer"),
    "version zero": (lambda r: r | {"version": 0}, "version 0"),
    "a huge version": (lambda r: r | {"version": 10**30}, "version"),
    "no version": (lambda r: without(r, "version"), "missing required field `version`"),
    "an unknown field": (lambda r: r | {"extra": 1}, "unknown field `extra`"),
    "a missing field": (lambda r: without(r, "leak"), "missing required field `leak`"),
    "an unknown activation": (lambda r: r | {"activation": "Tanh"}, r"\$\.activation"),
    "an unknown kind": (lambda r: r | {"kind": "coo"}, r"\$\.kind"),
    "another kind": (lambda r: r | {"kind": "csr"}, "Missing: .*w_res.indptr.*unknown: .*'w_res'"),
    "another type": (lambda r: r | {"real": "float32"}, r"must be float32 of \d dimensions. Got F64"),
    "a text for a number": (lambda r: r | {"leak": "0.3"}, "Expected `float`"),
    "another leak": (lambda r: r | {"leak": 0.9}, "`sha256` does not match"),
    "another activation": (lambda r: r | {"activation": "tanh"}, "`sha256` does not match"),
    "another fingerprint": (lambda r: r | {"features_fingerprint": "0" * 16}, "`sha256` does not match"),
    "another scaling": (
        lambda r: r | {"features": r["features"] | {"features": r["features"]["features"][::-1]}},
        "`sha256` does not match",
    ),
    "a feature twice": (
        lambda r: r | {"features": r["features"] | {"features": r["features"]["features"][:1] * 3}},
        "no name twice",
    ),
    "a list": (lambda r: [r], "metadata entry `metalforge`: Expected `object`"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_forged_record_is_refused(tmp_path, name):
    change, says = RECORDS[name]
    path = forged(tmp_path / "w.safetensors", network(), change)
    with pytest.raises(SpecError, match=says) as caught:
        load_weights(path)
    assert str(caught.value).startswith(str(path))


ARRAYS = {
    "a missing array": ("dense", lambda a: without(a, "bias"), r"Missing: \['bias'\]"),
    "an unknown array": ("dense", lambda a: a | {"w": a["bias"]}, r"unknown: \['w'\]"),
    "a wrong type": ("dense", lambda a: a | {"bias": a["bias"].astype(np.float16)}, "`bias` must be float64"),
    "integers": ("dense", lambda a: a | {"w_in": a["w_in"].astype(np.int64)}, "`w_in` must be float64"),
    "a dimension more": ("dense", lambda a: a | {"w_res": a["w_res"][None]}, "`w_res` .* 2 dimensions"),
    "a changed number": ("dense", lambda a: a | {"w_in": a["w_in"] + 1e-9}, "`sha256` does not match"),
    "wide indices": ("csr", lambda a: a | {"w_res.indices": a["w_res.indices"].astype(np.int64)}, "must be int32"),
    "no values": ("block16", lambda a: without(a, "w_res.values"), "Missing"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_forged_arrays_are_refused(tmp_path, name):
    kind, arrays, says = ARRAYS[name]
    path = forged(tmp_path / "w.safetensors", network(kind), arrays=arrays)
    with pytest.raises(SpecError, match=says):
        load_weights(path)


def honest(record, arrays):
    """The record with a checksum that fits: someone forged the file with care."""
    import hashlib

    digest = hashlib.sha256(msgspec.json.encode(record | {"sha256": ""}))
    for name, array in sorted(arrays.items()):
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return record | {"sha256": digest.hexdigest()}


CONTENTS = {
    "a readout of another width": ("dense", lambda a: a | {"w_out": a["w_out"][:, 1:].copy()}, "w_out"),
    "a bias of another length": ("dense", lambda a: a | {"bias": a["bias"][1:]}, "`bias` must have shape"),
    "not a number": ("dense", lambda a: a | {"bias": a["bias"] * np.nan}, "`bias` must be finite"),
    "fewer inputs than features": ("dense", lambda a: a | {"w_in": a["w_in"][:, :2].copy()}, "w_out|feature schema"),
    "a bias of no readout": ("dense", lambda a: without(a, "w_out", "w_fb"), "`out_bias` without `w_out`"),
    "a column out of range": ("csr", lambda a: a | {"w_res.indices": a["w_res.indices"] + 30}, "CSR"),
    "a negative column": ("csr", lambda a: a | {"w_res.indices": a["w_res.indices"] - 40}, "CSR"),
    "columns that go down": ("csr", lambda a: a | {"w_res.indices": a["w_res.indices"][::-1].copy()}, "increase"),
    "a row that ends before it begins": (
        "csr",
        lambda a: a | {"w_res.indptr": np.r_[0, 9, a["w_res.indptr"][2:]].astype(np.int32)},
        "CSR",
    ),
    "rows past the data": ("csr", lambda a: a | {"w_res.indptr": a["w_res.indptr"] * 2}, "CSR"),
    "too few rows": ("csr", lambda a: a | {"w_res.indptr": a["w_res.indptr"][:-1]}, "CSR"),
    "fewer columns than data": ("csr", lambda a: a | {"w_res.indices": a["w_res.indices"][1:]}, "CSR"),
    "a block column out of range": ("block16", lambda a: a | {"w_res.columns": a["w_res.columns"] + 39}, "increase"),
    "padding that is not zero": ("block16", lambda a: a | {"w_res.values": a["w_res.values"] + 1}, "must be zero"),
    "too few blocks": ("block16", lambda a: a | {"w_res.columns": a["w_res.columns"][1:]}, "block-sparse matrix of 40"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_forger_who_knows_the_checksum_makes_no_wrong_network(tmp_path, name):
    kind, change, says = CONTENTS[name]
    w, path = network(kind), tmp_path / "w.safetensors"
    save_weights(w, path)
    arrays = {k: np.ascontiguousarray(v) for k, v in change(load_file(path)).items()}
    forged(path, w, lambda record: honest(record, arrays), lambda _: arrays)
    with pytest.raises(SpecError, match=says) as caught:
        load_weights(path)
    assert "sha256" not in str(caught.value)


def test_the_checksum_of_the_tests_is_the_one_of_the_format(tmp_path):
    w, path = network("csr"), tmp_path / "w.safetensors"
    save_weights(w, path)
    arrays = load_file(path)
    forged(path, w, lambda record: honest(record | {"leak": 0.9}, arrays))
    assert same(load_weights(path), replace(w, leak=0.9))


def test_arrays_of_someone_else_are_refused(tmp_path):
    path = forged(tmp_path / "w.safetensors", network(), entry="model")
    with pytest.raises(SpecError, match="`metalforge`"):
        load_weights(path)
    save_file({"w_in": np.ones((2, 2))}, path)
    with pytest.raises(SpecError, match="`metalforge`"):
        load_weights(path)


def test_a_file_cut_short_is_refused_at_every_length(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(network(units=16), path)
    whole = path.read_bytes()
    for length in [*range(20), *range(20, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(SpecError, match="damaged"):
            load_weights(path)


# hotSpring's JSON.


def exported(**changes):
    record = {
        "w_in": [0.5, -0.25, 0.125, 1, 0, -1], "w_res": [0.5, 0, 0, 0.25], "w_out": [1.5, -2.5],
        "input_size": 3, "reservoir_size": 2, "output_size": 1, "leak_rate": 0.3,
    }  # fmt: skip
    return {k: v for k, v in (record | changes).items() if v is not ...}


def written(path, **changes):
    path.write_text(json.dumps(exported(**changes)))
    return path


def test_a_file_of_the_origin_is_read_row_by_row(tmp_path):
    w = load_weights(written(tmp_path / "w.json"))
    assert w.dtype == np.float32
    assert w.activation == "tanh"
    assert w.leak == 0.3
    assert np.array_equal(w.w_in, [[0.5, -0.25, 0.125], [1, 0, -1]])
    assert np.array_equal(w.w_res, [[0.5, 0], [0, 0.25]])
    assert np.array_equal(w.w_out, [[1.5, -2.5]])
    assert not np.any(w.bias)
    line = load_weights(written(tmp_path / "w.json", activation="ReluTanhApprox"))
    assert line.activation == "piecewise_tanh"
    none = load_weights(written(tmp_path / "w.json", w_out=[], output_size=0))
    assert none.w_out is None


@pytest.mark.parametrize("activation", ["tanh", "piecewise_tanh"])
def test_what_the_origin_can_hold_comes_back_as_it_was(tmp_path, activation):
    w = origin_weights(inputs=5, seed=107, activation=activation).astype(np.float32)
    w = w.with_readout(np.random.default_rng(0).normal(size=(15, 50)).astype(np.float32))
    save_weights(w, tmp_path / "w.json")
    assert same(load_weights(tmp_path / "w.json"), w)
    keys = json.loads((tmp_path / "w.json").read_text()).keys()
    assert keys == {*exported(), "activation"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"w_in": [0.5]}, "`w_in` must hold 2 x 3 = 6 numbers. Got 1"),
        ({"w_res": [0.5] * 5}, "`w_res` must hold 2 x 2 = 4 numbers. Got 5"),
        ({"w_out": []}, "`w_out` must hold 1 x 2"),
        ({"output_size": 0}, "`w_out` must hold 0 x 2 = 0 numbers. Got 2"),
        ({"input_size": 6}, "`w_in` must hold 2 x 6 = 12 numbers. Got 6"),
        ({"input_size": 0, "w_in": []}, "at least one unit and one input"),
        ({"input_size": -3}, "input_size"),
        ({"reservoir_size": 2_000_000_000}, "must hold 2000000000 x 3 = 6000000000 numbers. Got 6"),
        ({"reservoir_size": 10**30}, "reservoir_size"),
        ({"activation": "relu"}, "activation"),
        ({"activation": None}, "activation"),
        ({"leak_rate": 0}, "leak"),
        ({"leak_rate": ...}, "missing required field `leak_rate`"),
        ({"version": 1}, "unknown field `version`"),
        ({"w_out": [None, 1.0]}, r"Expected `float`, got `null` - at `\$.w_out"),
        ({"w_out": [1e300, 1.0]}, "`w_out` must be finite"),
        ({"w_out": [[1.0, 1.0]]}, "Expected `float`"),
    ],
)
def test_a_wrong_file_of_the_origin_is_refused_by_name(tmp_path, changes, says):
    path = written(tmp_path / "w.json", **changes)
    with pytest.raises(SpecError, match=says) as caught:
        load_weights(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"w_in": ' + b"[" * 100_000, b"NaN"])
def test_what_is_not_json_is_refused(tmp_path, content):
    (tmp_path / "w.json").write_bytes(content)
    with pytest.raises(SpecError, match="hotSpring"):
        load_weights(tmp_path / "w.json")


def test_a_file_with_a_hole_of_a_terabyte_is_not_read(tmp_path):
    for name, says in (("w.json", "at most 268435456 bytes"), ("w.safetensors", "not a safetensors file")):
        with open(tmp_path / name, "wb") as stream:
            stream.truncate(1 << 40)
        with pytest.raises(SpecError, match=says):
            load_weights(tmp_path / name)


def test_the_origins_format_refuses_what_it_would_lose(tmp_path):
    w = origin_weights(inputs=3, units=4).astype(np.float32)
    ones = np.ones((1, 4), np.float32)
    cases = {
        "float64": origin_weights(inputs=3, units=4),
        "a bias,|a bias\n": replace(w, bias=np.ones(4, np.float32)),
        "a bias of the readout": w.with_readout(ones, np.ones(1, np.float32)),
        "feedback": replace(w, w_fb=ones.T.copy()),
        "inputs that the readout sees": w.with_readout(np.ones((1, 7), np.float32), passthrough=True),
        "feature schema": replace(w, features=FEATURES),
        "head layout": w.with_readout(np.ones((3, 4), np.float32), heads=HEADS),
        "activation sigmoid": replace(w, activation="sigmoid"),
    }
    for says, network_ in cases.items():
        with pytest.raises(SpecError, match=says):
            save_weights(network_, tmp_path / "w.json")
    assert os.listdir(tmp_path) == []


# What a network is for.


def test_weights_for_other_features_are_refused():
    w = network()
    expect_features(w, FEATURES)
    six = FeatureSchema(name="run", version=2, features=(*FEATURES.features, Feature(name="L")))
    with pytest.raises(SpecError, match=r"3 features, .*4"):
        expect_features(w, six)
    turned = FeatureSchema(name="run", version=2, features=FEATURES.features[::-1])
    with pytest.raises(SpecError, match=r"feature 0 .*'β'.*'m'"):
        expect_features(w, turned)
    first = Feature(name="β", offset=5, scale=2.5)
    scaled = FeatureSchema(name="run", version=2, features=(first, *FEATURES.features[1:]))
    with pytest.raises(SpecError, match=r"scale=2\.5"):
        expect_features(w, scaled)
    with pytest.raises(SpecError, match=r"'run' version 2, .*'run' version 1"):
        expect_features(w, FeatureSchema(name="run", version=1, features=FEATURES.features))


def test_weights_that_do_not_say_their_features_are_refused_with_the_way_out(tmp_path):
    w = load_weights(written(tmp_path / "w.json"))
    with pytest.raises(SpecError, match=r"3 inputs.*`run`") as caught:
        expect_features(w, FEATURES)
    assert "hint:" in str(caught.value)
    expect_features(replace(w, features=FEATURES), FEATURES)
