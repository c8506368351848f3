"""Where attacks happen: in memory if there is such a place.

Processes are killed here and not machines, so nothing depends on what has reached the disk; flushing to one would
take most of the time.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reference.far_nodes import cluster, nodes, told

__all__ = ["arena", "cluster", "nodes", "told"]

MEMORY = Path("/dev/shm")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark all that is here; the same mark elsewhere is of campaigns that are killed in tests of their own."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.chaos)


@pytest.fixture(scope="module")
def arena():
    """A folder for a module's attacks."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="chaos-", dir=place) as folder:
        yield Path(folder)
