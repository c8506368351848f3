"""What `build` accepts never deadlocks and loses nothing, whatever the schedule."""

from collections import Counter
from itertools import count

import pytest

from . import ledger
from .schedules import attack

SHORT, LONG, BATCH = 5600, 100_000, 1000
BATCHES = 8


def attacked(first, step, wanted):
    """Run so many schedules; return how many graphs were refused on the way, and what was wrong with the others."""
    seeds, ended, faults = count(first, step), Counter(), []
    while ended["ran"] < wanted:
        what, problems = attack(next(seeds))
        ended[what] += 1
        faults += problems
    return ended["refused"], faults


@pytest.mark.parametrize("batch", range(BATCHES))
def test_what_build_accepts_never_deadlocks_and_loses_nothing(batch):
    refused, faults = attacked(batch, BATCHES, SHORT // BATCHES)
    assert faults == []
    assert refused > 0  # the generator also makes graphs that must be refused


@pytest.mark.long
def test_a_hundred_thousand_schedules_in_parts():
    def one(seed):
        refused, faults = attacked(10_000_000 + 100_000 * seed, 1, BATCH)
        return {"ran": BATCH, "refused": refused}, faults

    assert ledger.add_up("schedules", range(LONG // BATCH), one) == []
