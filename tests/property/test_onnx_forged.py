"""Damaged ONNX files: whatever is changed, the answer is a graph or a SpecError."""

from contextlib import suppress
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.onnx_import import load_onnx
from metalforge.hybrid.model.software import SoftwareModel
from reference.onnx_models import constant, model, node

FILE = (Path(__file__).parents[1] / "golden" / "onnx" / "recurrent.onnx").read_bytes()
PLACES = st.integers(0, len(FILE) - 1)


def answer(data):
    """The graph, or why there is none; any other exception fails the test."""
    try:
        return load_onnx(data)
    except SpecError as error:
        return error


def test_the_file_itself_is_taken():
    assert isinstance(answer(FILE), OpGraph)


@settings(max_examples=150)
@given(PLACES)
def test_a_part_of_a_file_is_refused(end):
    found = answer(FILE[:end])
    assert isinstance(found, SpecError)
    assert str(found)


@settings(max_examples=300)
@given(st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_are_refused_or_harmless(changes):
    data = bytearray(FILE)
    for place, value in changes:
        data[place] = value
    assert isinstance(answer(bytes(data)), OpGraph | SpecError)


@settings(max_examples=150)
@given(PLACES, st.integers(1, 40), st.binary(max_size=8))
def test_missing_and_added_bytes_are_refused_or_harmless(place, count, added):
    assert isinstance(answer(FILE[:place] + added + FILE[place + count :]), OpGraph | SpecError)


def i64(*values):
    return np.array(values, np.int64)


def filled(*shape):
    return np.ones(shape, np.float32)


OPERATORS = [
    ("Conv", [filled(4, 2, 3)], {"pads": [1, 0], "strides": [2], "dilations": [1], "group": 1}),
    ("MaxPool", [], {"kernel_shape": [2], "strides": [2], "pads": [0, 1], "ceil_mode": 1}),
    ("AveragePool", [], {"kernel_shape": [3], "strides": [1], "count_include_pad": 1}),
    ("Split", [i64(1, 1)], {"axis": 1}),
    ("Split", [], {"axis": 2, "num_outputs": 2}),
    ("Slice", [i64(0), i64(2), i64(1), i64(1)], {}),
    ("Gather", [i64(0, 1)], {"axis": 1}),
    ("Pad", [i64(0, 0, 1, 0, 0, 2)], {}),
    ("Tile", [i64(1, 2, 1)], {}),
    ("Expand", [i64(2, 1, 2, 1)], {}),
    ("Reshape", [i64(0, -1)], {"allowzero": 0}),
    ("Transpose", [], {"perm": [0, 2, 1]}),
    ("Concat", ["x"], {"axis": 1}),
    ("Flatten", [], {"axis": 1}),
    ("Softmax", [], {"axis": 1}),
    ("ReduceSum", [i64(1)], {"keepdims": 1}),
    ("ArgMax", [], {"axis": 1, "keepdims": 0}),
    ("LayerNormalization", [filled(8)], {"axis": -1}),
    ("LSTM", [filled(1, 8, 8), filled(1, 8, 2)], {"hidden_size": 2}),
]
EXTREMES = st.sampled_from([0, 1, -1, 2, 3, 7, -3, 1000, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63), 2**63 - 1])


@settings(max_examples=400)
@given(st.sampled_from(OPERATORS), st.integers(0, 20), EXTREMES)
def test_extreme_numbers_in_an_operator_are_refused_or_harmless(operator, place, extreme):
    """Neither memory nor the process is lost to an attribute, an axis or an extent."""
    op, constants, attributes = operator
    names = [c if isinstance(c, str) else f"c{i}" for i, c in enumerate(constants)]
    tensors = [constant(f"c{i}", c) for i, c in enumerate(constants) if not isinstance(c, str)]
    outputs = ["y", "z"] if op == "Split" else ["y"]
    made = model([node(op, ["x", *names], outputs, **attributes)], {"x": ["batch", 2, 8]}, outputs, tensors)
    numbers = [(a, i) for a in made.graph.node[0].attribute for i in range(max(1, len(a.ints)))]
    numbers += [(i, j) for i, c in enumerate(tensors) if c.data_type == 7 for j in range(c.dims[0])]
    if numbers:
        where, index = numbers[place % len(numbers)]
        if isinstance(where, int):
            changed = np.frombuffer(tensors[where].raw_data, np.int64).copy()
            changed[index] = extreme
            made.graph.initializer[where].CopyFrom(constant(tensors[where].name, changed))
        elif where.ints:
            where.ints[index] = extreme
        else:
            where.i = extreme
    found = answer(made)
    assert isinstance(found, OpGraph | SpecError)
    if isinstance(found, OpGraph):
        with suppress(SpecError):
            SoftwareModel(found).forward({"x": filled(3, 2, 8)})
