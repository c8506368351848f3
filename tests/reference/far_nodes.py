"""A cluster of three nodes for the tests of a file, as fixtures: whoever wants them imports them into a conftest."""

import pytest

from metalforge.cluster import start_local
from reference.far_campaigns import node_faults


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The file that says which node has which faults."""
    return tmp_path_factory.mktemp("faults") / "faults.json"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, told):
    with node_faults(told):
        made = start_local(3, 1, tmp_path_factory.mktemp("cluster") / "nodes")
    yield made
    made.stop()


@pytest.fixture
def nodes(cluster, told):
    """The cluster with three nodes of one core, whatever the test before has left of it."""
    told.unlink(missing_ok=True)
    while len(cluster.nodes()) < 3:
        with node_faults(told):
            cluster.add_node(1)
    return cluster
