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


@pytest.fixture(scope="module")
def arena():
    """A folder for a module's attacks."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="chaos-", dir=place) as folder:
        yield Path(folder)
