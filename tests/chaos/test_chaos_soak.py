"""Nothing is lost or repeated in a graph that is rewired and whose processes are killed, and its memory is flat."""

import gc
import os
import threading

import pytest

from . import ledger
from .soak import growth, is_flat, soak

MINUTES, SOAKS = 10, 6


def open_files():
    gc.collect()  # what earlier tests left open is not of this one
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_a_few_seconds_of_it():
    threads, files = threading.active_count(), open_files()
    found = soak(7, 3.0, 0.05, 0.7)
    assert found.faults == ()
    assert found.items > 0
    assert found.kills >= 1
    assert found.changes >= 1
    assert threading.active_count() == threads
    assert open_files() <= files


def test_twenty_seconds_of_it():
    found = soak(8, 20.0, 0.2, 2.0)
    assert found.faults == ()
    assert found.kills >= 3
    assert found.changes >= 20
    assert is_flat(found.memory), found.memory


def test_memory_that_grows_is_not_flat():
    assert is_flat([10.0, 50.0, *[100.0, 101.0, 99.0] * 6])
    assert not is_flat([100.0 + i for i in range(100)])


@pytest.mark.long
def test_an_hour_of_it_in_parts():
    def one(seed):
        found = soak(100 + seed, 60.0 * MINUTES, 1.0, 10.0)
        done = {"minutes": MINUTES, "items": found.items, "rewirings": found.changes, "kills": found.kills}
        faults = [*found.faults, *([] if is_flat(found.memory) else [f"memory grew: {found.memory[::10]}"])]
        return done | {"largest growth in MB": round(growth(found.memory), 2)}, faults

    assert ledger.add_up("soak", range(SOAKS), one) == []
