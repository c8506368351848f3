"""Strangers' files are read or refused with a reason: no traceback, no more than 512 MB, no more than 5 s each."""

import pytest

from . import ledger
from .bombs import LARGE, MODELS
from .mutants import LINES, Nursery
from .reader import Reader

SHORT, LONG, BATCH = 600, 100_000, 500


@pytest.fixture(scope="module")
def reader(arena):
    made = Reader(arena)
    yield made
    made.close()


@pytest.fixture(scope="module")
def nursery(arena, reader):
    return Nursery(arena, reader)


def exploded(bomb, reader, arena):
    """Return what is wrong after a file was explained; it must be refused, or taken."""
    (arena / "bomb.onnx").write_bytes(bomb())
    return reader.call("npu", "explain", "bomb.onnx")


@pytest.mark.parametrize("bomb", MODELS, ids=lambda bomb: bomb.__name__)
def test_a_small_file_cannot_take_all_memory_or_time(bomb, reader, arena):
    assert exploded(bomb, reader, arena).fault == ""


@pytest.mark.parametrize("bomb", LARGE, ids=lambda bomb: bomb.__name__)
def test_the_largest_models_are_taken_in_time(bomb, reader, arena):
    came = exploded(bomb, reader, arena)
    assert (came.code, came.fault) == (0, "")


def test_right_files_are_read_by_every_verb(nursery):
    assert [came.said for came in nursery.rights() if came.code or came.fault] == []


@pytest.mark.parametrize("part", range(4))
def test_changed_files_are_read_or_refused(nursery, part):
    found = nursery.attack(range(SHORT * part, SHORT * (part + 1)))
    assert [mutant for mutant in found if mutant.came.fault] == []
    assert {mutant.kind for mutant in found} == set(LINES)
    assert {mutant.came.code for mutant in found} >= {0, 2}


@pytest.mark.long
def test_a_hundred_thousand_changed_files_in_parts(nursery):
    def attack(seed):
        found = nursery.attack(range(BATCH * seed, BATCH * (seed + 1)))
        ended = {0: "taken", 1: "failed a check", 2: "refused", 3: "does not fit"}
        done = ledger.counted(f"{mutant.kind}, {ended.get(mutant.came.code, 'fault')}" for mutant in found)
        done["largest MB"] = max(mutant.came.megabytes for mutant in found)
        done["largest seconds"] = max(mutant.came.seconds for mutant in found)
        return done, [f"seed {m.seed}: {m.kind}, {m.how}: {m.came.fault}" for m in found if m.came.fault]

    assert ledger.add_up("files", range(LONG // BATCH), attack) == []
