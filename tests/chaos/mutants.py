"""Files of every kind that the NPU's verbs read, changed from seeds: by bytes, and by meaning with all checksums right.

A mutant is read by a verb of its kind in another process (`reader`); what comes of it is any documented answer.
"""

import hashlib
import io
import random
import string
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np
import onnx
from onnx import helper
from safetensors.numpy import load

from metalforge.core.errors import MetalforgeError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.hybrid.deployed import deploy, record
from metalforge.hybrid.model.onnx_import import load_onnx
from metalforge.hybrid.model.onnx_import.operators import REASONS
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.reservoir import hotspring, tensors
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.sparse import Kind
from metalforge.substrates.npu import wire
from metalforge.substrates.npu.compile import compile_linear
from reference.onnx_models import constant, int4, model, node

from .bombs import COLOURED, array
from .damages import BINARY, TEXT
from .reader import Came, Reader

INTEGERS = (0, 1, -1, 2, 3, 7, 255, 2**15, 2**31 - 1, -(2**31), 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
WORDS = ("", "x", "y", "w", "Relu", "MatMul", "tanh", "a" * 5000, COLOURED, "../../etc/passwd", "%s%n{0}", "\0", "n")
LINES = {
    "onnx": (("explain", "{}"), ("explain", "{}", "--json"), ("compile", "{}", "-o", "out.mfp")),
    "npy": (("explain", "{}"), ("compile", "{}", "-o", "out.mfp"), ("run", "good.mfp", "{}")),
    "npz": (
        ("run", "good.mfp", "{}"),
        ("explain", "good.onnx", "--calibration", "{}"),
        ("evaluate", "good.onnx", "--inputs", "{}", "--targets", "y.npy", "--precision", "W4A4"),
    ),
    "mfp": (("inspect", "{}"), ("run", "{}", "x.npy"), ("explain", "{}")),
    "safetensors": (("explain", "{}"), ("compile", "{}", "-o", "out.mfp")),
    "json": (("explain", "{}"), ("compile", "{}", "-o", "out.mfp")),
    "mfd": (("run", "{}", "--input", "x.npy"),),
}
"""Verbs of `npu` that read each kind."""
WEIGHTS = {"onnx": 6, "npy": 3, "npz": 2, "mfp": 3, "safetensors": 3, "json": 2, "mfd": 3}
"""How often each kind is taken."""


class Mutant(NamedTuple):
    """One file and what came of it."""

    seed: int
    kind: str
    how: str
    came: Came


class Nursery:
    """Right files of every kind, from which the others are made, in a folder."""

    def __init__(self, folder: Path, reader: Reader) -> None:
        self._folder, self._reader = folder, reader
        self._originals: dict[str, list[bytes]] = {
            "onnx": [made.SerializeToString() for made in _models()],
            "npy": [_saved(np.save, one) for one in _arrays()],
            "npz": [_saved(np.savez, _arrays()[0]), _saved(np.savez_compressed, *_arrays())],
            "mfp": [wire.to_bytes(program) for program in _programs()],
            "safetensors": [tensors.encode(one) for one in _networks()],
            "mfd": _deployed(folder),
            "json": [msgspec.json.format(hotspring.encode(one)) for one in _networks()[:1]],
        }
        for kind, (first, *_) in self._originals.items():
            (folder / f"good.{kind}").write_bytes(first)
        np.save(folder / "x.npy", np.ones((2, 6)))
        np.save(folder / "y.npy", np.arange(60) % 3)

    def rights(self) -> list[Came]:
        """Return what comes of the right files, by every verb that reads them."""
        return self._reader.calls([_line(line, f"good.{kind}") for kind, lines in LINES.items() for line in lines])

    def attack(self, seeds: Iterable[int]) -> list[Mutant]:
        """Make a file of each seed and have them read."""
        made = [self._made(seed) for seed in seeds]
        came = self._reader.calls([line for _, _, _, line in made])
        for path in self._folder.glob("mutant-*"):
            path.unlink()
        return [Mutant(*what[:3], one) for what, one in zip(made, came, strict=True)]

    def _made(self, seed: int) -> tuple[int, str, str, tuple[str, ...]]:
        rng = random.Random(seed)
        (kind,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        data = rng.choice(self._originals[kind])
        changes = (*(TEXT if kind == "json" else BINARY), *([BY_MEANING[kind]] * 12 if kind in BY_MEANING else []))
        change = rng.choice(changes)
        name = f"mutant-{seed}.{kind}"
        (self._folder / name).write_bytes(change(data, rng))
        return seed, kind, change.__name__.strip("_"), _line(rng.choice(LINES[kind]), name)


def _line(line: tuple[str, ...], name: str) -> tuple[str, ...]:
    return ("npu", *(word.format(name) for word in line))


def _deployed(folder: Path) -> list[bytes]:
    """Return a plan with parts on the chip and on the host, and a network."""
    found, path = [], folder / "deployed.mfd"
    graph = replace(load_onnx(_models()[0]), ranges={"x": 3.0})
    for source in (OperationRouter(objective="hw_only").plan(graph), _networks()[1]):
        deploy(source, path)
        found.append(path.read_bytes())
    path.unlink()
    return found


def _saved(save: Callable[..., None], *arrays: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, *arrays)
    return stream.getvalue()


def _arrays() -> list[Any]:
    rng = np.random.default_rng(3)
    return [
        rng.normal(size=(60, 6)),
        np.arange(12, dtype=np.uint8).reshape(2, 6),
        np.array(["a", "bc"]),
        np.ones(6, "f4"),
    ]


def _programs() -> list[Any]:
    rng = np.random.default_rng(4)
    return [p for outputs in (3, 20) for p in compile_linear("layer", rng.normal(size=(outputs, 6))).programs]


def _networks() -> list[Any]:
    heads = HeadLayout(name="two", heads=(HeadSpec(name="a"), HeadSpec(name="b", width=2, activation="softmax")))
    readout = np.random.default_rng(5).normal(size=(3, 16)).astype(np.float32)
    made = [make_esn(16, 2, seed=1, kind=kind, connectivity=0.5).astype(np.float32) for kind in get_args(Kind)]
    return [one.with_readout(readout, heads=heads if i else None) for i, one in enumerate(made)]


def _models() -> list[Any]:
    """Every kind of thing that the importer does."""
    rng = np.random.default_rng(6)

    def reals(name: str, *shape: int) -> Any:
        return constant(name, rng.normal(size=shape).astype(np.float32))

    def i64(name: str, *values: int) -> Any:
        return constant(name, np.array(values, np.int64))

    layers = [
        node("Gemm", ["x", "w", "b"], ["p"], transB=1),
        node("Relu", ["p"], ["q"]),
        node("MatMul", ["q", "v"], ["r"]),
        node("Softmax", ["r"], ["y"], axis=-1),
    ]
    quantised = [node("DequantizeLinear", ["q", "s"], ["w"], axis=0), node("MatMul", ["x", "w"], ["y"])]
    images = [
        node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["m"], ["s"]),
        node("Gather", ["s", "first"], ["n"], axis=0),
        node("Concat", ["n", "rest"], ["shape"], axis=0),
        node("Reshape", ["m", "shape"], ["f"]),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    gates = [node("GRU", ["x", "w", "r"], ["h", "last"], hidden_size=2), node("Squeeze", ["last", "axes"], ["y"])]
    body = [helper.make_node("Tanh", ["a"], ["t"]), helper.make_node("Mul", ["t", "t"], ["b"])]
    called = model([node("mine", ["x"], ["y"], domain="own")], {"x": ["n", 4]}, ["y"], domains=["own"])
    called.functions.append(helper.make_function("own", "mine", ["a"], ["b"], body, [helper.make_opsetid("", 21)]))
    shuffled = [
        node("Split", ["x", "parts"], ["a", "b"], axis=1),
        node("Pad", ["a", "pads"], ["p"]),
        node("Tile", ["b", "twice"], ["t"]),
        node("Slice", ["t", "from", "to", "axis"], ["s"]),
        node("Concat", ["p", "s"], ["c"], axis=1),
        node("ReduceMean", ["c", "axis"], ["y"], keepdims=0),
    ]
    mixed = [
        node("Gather", ["table", "ids"], ["e"], axis=0),
        node("MatMul", ["e", "w"], ["p"]),
        node("MatMul", ["x", "v"], ["q"]),
        node("Add", ["p", "q"], ["z"]),
        node("Tanh", ["z"], ["y"]),
    ]
    ids = model(mixed, {"x": ["n", 4], "ids": ["n"]}, ["y"], [reals("table", 9, 2), reals("w", 2, 3), reals("v", 4, 3)])
    ids.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    learned = node(
        "LinearClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", coefficients=[0.5] * 12, intercepts=[0.1] * 3,
        classlabels_ints=[0, 1, 2], post_transform="SOFTMAX",
    )  # fmt: skip
    cell = [node("RNN", ["x", "w", "r", "", "", "h"], ["s"], hidden_size=4), node("MatMul", ["s", "v"], ["y"])]
    first = [reals("w", 1, 4, 3), reals("r", 1, 4, 4), reals("h", 1, 1, 4), reals("v", 4, 2)]
    half = constant("w", np.ones((4, 3), np.float16))
    numbers = [i64("parts", 2, 4), i64("pads", 0, 1, 0, 1), i64("twice", 1, 2), i64("from", 1), i64("to", 5)]
    return [
        model(layers, {"x": ["n", 6]}, ["y"], [reals("w", 5, 6), reals("b", 5), reals("v", 5, 3)]),
        model(quantised, {"x": ["n", 4]}, ["y"], [int4("q", rng.integers(-7, 8, (4, 3))), reals("s", 4)]),
        model(
            images,
            {"x": ["n", 1, 6, 6]},
            ["y"],
            [reals("k", 2, 1, 3, 3), i64("first", 0), i64("rest", 18), reals("w", 18, 3)],
        ),
        model(gates, {"x": [5, "n", 3]}, ["y"], [reals("w", 1, 6, 3), reals("r", 1, 6, 2), i64("axes", 0)]),
        called,
        ids,
        model([learned], {"x": ["n", 4]}, ["label", "y"], domains=["ai.onnx.ml"]),
        model(cell, {"x": [5, "n", 3]}, ["y"], first),
        model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", "t", 4]}, ["y"], [half], dtype=np.float16, opset=13),
        model(shuffled, {"x": ["n", 6]}, ["y"], [*numbers, i64("axis", 1)]),
    ]


def _value(old: Any, rng: random.Random) -> Any:
    """Return another value of a kind."""
    match old:
        case bool():
            return not old
        case int():
            return rng.choice([*INTEGERS, old + 1, old - 1, old * 2])
        case float():
            return rng.choice(REALS)
        case bytes():
            damage = rng.choice(BINARY)
            return damage(old or b"x", rng)
        case _:
            return rng.choice([*WORDS, old + "\x1b[7m", "".join(rng.sample(string.printable, 8))])


def _messages(message: Any) -> list[Any]:
    found = [message]
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in value if field.is_repeated else (value,):
                found += _messages(one)
    return found


def proto_changed(data: bytes, rng: random.Random) -> bytes:
    """A model with other fields: values, one more or less of something, in another order, another operator."""
    made = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        message = rng.choice(_messages(made))
        if isinstance(message, onnx.NodeProto) and rng.random() < 0.4:
            message.op_type = rng.choice([*REASONS, *WORDS, "If", "Loop", "Scan", "ZipMap"])
            continue
        fields = message.ListFields()
        if not fields:
            continue
        field, value = rng.choice(fields)
        try:
            if not field.is_repeated:
                if field.type == field.TYPE_MESSAGE:
                    message.ClearField(field.name)
                else:
                    setattr(message, field.name, _value(value, rng))
            elif rng.random() < 0.3:
                kept = rng.sample(list(value), rng.randint(0, len(value)))
                kept += kept if rng.random() < 0.3 else []
                del value[:]
                value.extend(kept)
            elif field.type != field.TYPE_MESSAGE:
                value[rng.randrange(len(value))] = _value(value[0], rng)
        except (ValueError, TypeError):
            pass  # a number that the field cannot hold
    return made.SerializeToString()


def header_changed(data: bytes, rng: random.Random) -> bytes:
    """An array with another header, and the same numbers."""
    descr = rng.choice(["<f8", "|u1", "<i4", ">f4", "<U3", "|O", "<c16", "<M8[s]", "|V9", "<f2", "bogus", "<U0", "|b1"])
    extents = [rng.choice([*INTEGERS, 5, 6, 12]) for _ in range(rng.choice([0, 1, 2, 2, 3, 40]))]
    shape = rng.choice([tuple(extents), extents, "x", (1.5,), None, (True, 6)])
    header = f"{{'descr': {descr!r}, 'fortran_order': {rng.choice([True, False, 3])}, 'shape': {shape!r}, }}"
    return array(rng.choice([header, header[:-4], header + "(" * 50])) + data[128:]


def program_changed(data: bytes, rng: random.Random) -> bytes:
    """A program with other fields, whose checksum is right."""
    record = msgspec.msgpack.decode(data[36:])
    place = rng.choice([record, record["encoding"], *record["layers"], *record["heads"]])
    name = rng.choice(list(place))
    value = place[name]
    if isinstance(value, bytes):
        place[name] = rng.randbytes(rng.choice([len(value), len(value) + 8]))
    elif isinstance(value, list):
        place[name] = value * rng.choice([0, 2, 3])
    else:
        place[name] = rng.choice([*INTEGERS, *REALS, *WORDS])
    body = msgspec.msgpack.encode(record)
    return wire.IDENTIFIER + hashlib.sha256(body).digest() + body


def tensors_changed(data: bytes, rng: random.Random) -> bytes:
    """A network whose header says something else, with a checksum that is right where the arrays still fit."""
    length = int.from_bytes(data[:8], "little")
    header = msgspec.json.decode(data[8 : 8 + length])
    record = msgspec.json.decode(header["__metadata__"]["metalforge"])
    if rng.random() < 0.5:
        name = rng.choice(list(record))
        record[name] = rng.choice([*INTEGERS, *WORDS, None, [], {}, True, 1e308])
        with suppress(msgspec.ValidationError):
            typed = msgspec.convert({**record, "sha256": ""}, tensors._Record)
            record["sha256"] = tensors._checksum(typed, load(data))
        header["__metadata__"]["metalforge"] = msgspec.json.encode(record).decode()
    else:
        entry = header[rng.choice([name for name in header if name != "__metadata__"])]
        match rng.randrange(4):
            case 0:
                entry["dtype"] = rng.choice(["F32", "F64", "I32", "F16", "BF16", "U8", "BOOL", "F8_E4M3", "x"])
            case 1:
                entry["shape"] = [rng.choice([*INTEGERS, 4, 16]) for _ in range(rng.choice([0, 1, 2, 3]))]
            case 2:
                entry["data_offsets"] = [rng.choice([*INTEGERS, 4, 64]) for _ in range(2)]
            case _:
                header[rng.choice(WORDS)] = dict(entry)
    text = msgspec.json.encode(header)
    if rng.random() < 0.1:
        length = rng.choice([2**62, 2**32, 0, 3, len(text) + 1])
        return length.to_bytes(8, "little") + text + data[8 + length :]
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def plan_changed(data: bytes, rng: random.Random) -> bytes:
    """A deployed model with another value somewhere in its record, and a checksum that is right."""
    length = int.from_bytes(data[:8], "little")
    header = msgspec.json.decode(data[8 : 8 + length])
    texts = header["__metadata__"]
    found = msgspec.json.decode(texts[record.ENTRY])
    places: list[tuple[Any, Any]] = []
    waiting = [found["model"]]
    while waiting:
        one = waiting.pop()
        for key, value in one.items() if isinstance(one, dict) else enumerate(one):
            places.append((one, key))
            waiting += [value] if isinstance(value, dict | list) else []
    one, key = rng.choice(places)
    old = one[key]
    if isinstance(old, dict | list) or rng.random() < 0.2:
        one[key] = rng.choice([None, [], {}, 0, "x", {"Add": {}}, {"onnx": "a0"}, {"network": "a0"}, {"array": "a1"}])
    else:
        one[key] = _value(old, rng) if old is not None else rng.choice([0, "x", []])
    arrays = load(data)
    with suppress(msgspec.MsgspecError, MetalforgeError, KeyError):
        model = msgspec.convert(found["model"], record.EsnRecord | record.PlanFile)
        below = (
            tensors.arrays_digest(b"", arrays) if isinstance(model, record.PlanFile) else texts[tensors.ENTRY].encode()
        )
        found["sha256"] = record._checksum(model, below)
    texts[record.ENTRY] = msgspec.json.encode(found).decode()
    text = msgspec.json.encode(header)
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def values_changed(data: bytes, rng: random.Random) -> bytes:
    """JSON with another value in a field, one field more or less, or lists within lists."""
    record = msgspec.json.decode(data)
    name = rng.choice(list(record))
    match rng.randrange(5):
        case 0:
            del record[name]
        case 1:
            record[rng.choice(WORDS)] = 1
        case 2 if isinstance(record[name], list):
            record[name] = record[name] * rng.choice([0, 2]) + [rng.choice(INTEGERS)]
        case 3:
            return b"[" * 100_000 if rng.random() < 0.1 else msgspec.json.encode(record).replace(b"0.", b"1e9", 40)
        case _:
            record[name] = rng.choice([*INTEGERS, *WORDS, None, [], {}, True, 1e308])
    return msgspec.json.encode(record)


BY_MEANING: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "onnx": proto_changed,
    "npy": header_changed,
    "mfp": program_changed,
    "safetensors": tensors_changed,
    "json": values_changed,
    "mfd": plan_changed,
}
