"""Campaigns on clusters: the rows of one machine whatever is killed, work for nodes that come, clear words otherwise."""

import json
import os
import signal
import subprocess
import sys

import pytest

from metalforge.cluster import LocalCluster, start_local
from metalforge.cluster.local import Place
from metalforge.cluster.marked import kill_all
from reference.far_campaigns import FREE, LATE_S, STEADY, SUPERVISOR, WORKER, FarCampaign, left_alone, longer, node_faults

pytestmark = pytest.mark.cluster


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The campaign as threads of one machine make it."""
    return left_alone(STEADY, tmp_path_factory.mktemp("whole") / "threads")


def test_a_killed_worker_and_a_killed_node_change_no_row(nodes, whole, tmp_path):
    far = FarCampaign(tmp_path, STEADY, nodes)
    driver = far.scan()
    assert far.reached(300)
    far.strike(WORKER)
    assert far.reached(900)
    lost = far.other_nodes()[0]
    nodes.kill_node(lost)
    assert driver.wait(LATE_S) == 0, far.said
    assert far.faults(whole) == []
    moved = [d for d in far.state.decisions if d.what == "lane" and "goes on on node" in d.reason]
    assert moved, [d.reason for d in far.state.decisions if d.what == "lane"]


def test_a_supervisor_comes_back_and_a_driver_too(nodes, whole, tmp_path):
    far = FarCampaign(tmp_path, STEADY, nodes)
    driver = far.scan()
    assert far.reached(300)
    far.strike(SUPERVISOR)
    assert far.reached(900)
    driver.kill()
    assert driver.wait(LATE_S) == -signal.SIGKILL
    back = far.attach()
    assert back.wait(LATE_S) == 0, far.said
    assert far.faults(whole) == []
    assert len(far.state.resumed) == 1
    assert not far.processes(SUPERVISOR)


def test_interrupted_it_has_everything_in_files_and_goes_on(nodes, whole, tmp_path):
    far = FarCampaign(tmp_path, STEADY, nodes)
    driver = far.scan()
    assert far.reached(300)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(LATE_S) == 75, far.said
    assert f"metalforge resume {far.directory}" in far.said
    assert "Traceback" not in far.said
    assert far.state.interrupted[-1].reason == "SIGINT"
    assert not far.processes(WORKER)
    assert far.resume().wait(LATE_S) == 0, far.said
    assert far.faults(whole) == []


def test_where_everything_was_killed_it_is_resumed(whole, tmp_path):
    far = FarCampaign(tmp_path, STEADY, "local:2x1")
    driver = far.scan()
    assert far.reached(300)
    place = Place.of(far.cluster.folder)
    os.kill(far.cluster.keeper, signal.SIGKILL)
    kill_all(f"{place.cluster}:")
    driver.kill()
    driver.wait(LATE_S)
    assert far.state.finished is None
    assert far.resume().wait(LATE_S) == 0, far.said
    assert far.faults(whole) == []
    assert LocalCluster.find(far.directory / "cluster") is None


def test_nodes_that_come_get_work_and_nodes_that_go_lose_their_lanes(nodes, told, tmp_path):
    far = FarCampaign(tmp_path, longer(FREE, 12_000), nodes)
    driver = far.scan()
    assert far.reached(300)
    before = {visit.substrate for visit in far.state.visits}
    with node_faults(told):
        nodes.add_node(1)
    state = far.until(lambda state: {visit.substrate for visit in state.visits} - before)
    assert state.finished is None
    lost = far.other_nodes()[0]
    nodes.kill_node(lost)
    state = far.until(lambda state: any("lost" in d.reason for d in state.decisions if d.what == "lane"))
    assert driver.wait(LATE_S) == 0, far.said
    assert far.state.finished.stopped_by == "trajectories"


def test_two_campaigns_share_what_is_free(nodes, whole, tmp_path):
    first, second = (FarCampaign(place, STEADY, nodes) for place in (tmp_path / "1", tmp_path / "2") if not place.mkdir())
    one = first.scan()
    assert first.reached(60)
    other = second.scan()
    code = other.wait(LATE_S)
    assert code == 3, second.said
    assert "no core is free" in second.said
    assert "hint:" in second.said
    assert not second.directory.exists()
    assert one.wait(LATE_S) == 0, first.said
    assert first.faults(whole) == []


def test_a_lane_that_kills_its_worker_is_quarantined(nodes, told, tmp_path):
    told.write_text(json.dumps({str(nodes.nodes()[1].number): ["dies"]}))
    far = FarCampaign(tmp_path, FREE, nodes)
    assert far.scan().wait(LATE_S) == 0, far.said
    reasons = [d.reason for d in far.state.decisions if d.what == "lane"]
    assert any("quarantined after 3 failures" in reason for reason in reasons), reasons
    assert far.state.finished.stopped_by == "trajectories"
