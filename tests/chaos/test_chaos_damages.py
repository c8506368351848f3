"""Damaged journals, checkpoints and specs are refused by name or do no harm."""

import pytest

from . import ledger
from .damages import PARTICLES_LITTLE, TARGETS, Targets

SHORT, LONG, BATCH = 200, 10_000, 100


@pytest.fixture(scope="module")
def targets(arena):
    return Targets(arena)


def damaged(targets, seeds):
    """Attack with these seeds; every outcome is a refusal that names the file, or the same end."""
    found = [targets.attack(seed) for seed in seeds]
    assert [outcome for outcome in found if outcome.fault] == []
    return found


@pytest.mark.parametrize("part", range(4))
def test_damaged_files_are_refused_by_name_or_do_no_harm(targets, part):
    found = damaged(targets, range(SHORT * part, SHORT * (part + 1)))
    assert {outcome.ended for outcome in found} == {"refused", "same"}
    assert len({outcome.target for outcome in found}) == len(TARGETS)


def test_damaged_files_of_particles_are_refused_by_name_or_do_no_harm(arena):
    found = damaged(Targets(arena / "particles", PARTICLES_LITTLE), range(60))
    assert {outcome.ended for outcome in found} == {"refused", "same"}


@pytest.mark.long
def test_ten_thousand_damaged_files_in_parts(targets):
    def attack(seed):
        found = [targets.attack(one) for one in range(BATCH * seed, BATCH * (seed + 1))]
        done = ledger.counted(f"{outcome.target}, {outcome.ended}" for outcome in found)
        return done, [f"seed {outcome.seed}: {outcome.fault}" for outcome in found if outcome.fault]

    assert ledger.add_up("damages", range(LONG // BATCH), attack) == []
