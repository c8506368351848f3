"""Strangers' files are read or refused with a reason: no traceback, no more than 512 MB, no more than 5 s each."""

import pytest

from .bombs import LARGE, MODELS
from .reader import Reader


@pytest.fixture(scope="module")
def reader(arena):
    made = Reader(arena)
    yield made
    made.close()


def exploded(bomb, reader, arena):
    """Return what is wrong after a file was explained; it must be refused, or taken."""
    (arena / "bomb.onnx").write_bytes(bomb())
    return reader.call("npu", "explain", "bomb.onnx")


@pytest.mark.parametrize("bomb", MODELS, ids=lambda bomb: bomb.__name__)
def test_a_small_file_cannot_take_all_memory_or_time(bomb, reader, arena):
    assert exploded(bomb, reader, arena).fault == ""


@pytest.mark.chaos
@pytest.mark.parametrize("bomb", LARGE, ids=lambda bomb: bomb.__name__)
def test_the_largest_models_are_taken_in_time(bomb, reader, arena):
    came = exploded(bomb, reader, arena)
    assert (came.code, came.fault) == (0, "")
