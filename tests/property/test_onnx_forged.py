"""Damaged ONNX files: whatever is changed, the answer is a graph or a SpecError."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.onnx_import import load_onnx

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
