"""Campaigns on clusters: the rows of one machine whatever is killed, and work for nodes that come."""

import os
import signal

import pytest

from metalforge.campaign.calling import command
from metalforge.cluster import LocalCluster
from metalforge.cluster.local import ClusterFolder
from metalforge.cluster.marked import kill_all, wait_until
from reference.far_campaigns import (
    FREE,
    LATE_S,
    STEADY,
    SUPERVISOR,
    WORKER,
    FarCampaign,
    left_alone,
    longer,
    node_faults,
)
from reference.struck_nodes import kill_node

pytestmark = pytest.mark.cluster


def test_a_killed_worker_and_a_killed_node_change_no_row(nodes, whole, tmp_path):
    far = FarCampaign(tmp_path, STEADY, nodes)
    driver = far.scan()
    assert far.reached(300)
    far.strike(WORKER)
    assert far.reached(900)
    lost = far.other_nodes()[0]
    kill_node(nodes, lost)
    assert far.ended(driver) == 0, far.said
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
    assert far.ended(driver) == -signal.SIGKILL
    back = far.attach()
    assert far.ended(back) == 0, far.said
    assert far.faults(whole) == []
    assert len(far.state.resumed) == 1
    assert wait_until(lambda: not far.processes(SUPERVISOR), LATE_S)


def test_a_machine_is_given_up_before_it_goes(nodes, tmp_path):
    far = FarCampaign(tmp_path, longer(STEADY, 50_000), nodes)
    driver = far.scan()
    assert far.reached(300)
    # The head's machine: its raylet is the one that a command on this machine finds.
    assert far.verb("cluster", "leave", "--cluster", nodes.address, "--reason", "sold").wait(LATE_S) == 0, far.said
    assert not far.processes(WORKER, node=0)
    state = far.until(lambda state: any("sold" in d.reason for d in state.decisions if d.what == "lane"))
    assert far.reached(state.trajectories + 500)  # its chains go on elsewhere
    driver.send_signal(signal.SIGINT)
    assert far.ended(driver) == 75, far.said
    assert not any(d.what in ("abandoned", "fault") for d in far.state.decisions)


def test_paused_and_interrupted_it_has_everything_in_files_and_goes_on(nodes, tmp_path):
    spec = longer(STEADY, 9000)  # the signal must come before its end
    far = FarCampaign(tmp_path, spec, nodes)
    driver = far.scan()
    assert far.reached(300)
    for _ in range(4):  # more often than a lane may fail: a pause is no failure
        assert command(far.directory, "pause").accepted
        rows = far.state.trajectories
        far.until(lambda state: state.samples and state.samples[-1].paused)
        assert far.state.trajectories == rows
        assert command(far.directory, "resume").accepted
    driver.send_signal(signal.SIGINT)
    assert far.ended(driver) == 75, far.said
    assert f"metalforge resume {far.directory}" in far.said
    assert "Traceback" not in far.said
    assert far.state.interrupted[-1].reason == "SIGINT"
    assert wait_until(lambda: not far.processes(WORKER), LATE_S)
    assert far.ended(far.resume()) == 0, far.said
    assert far.faults(left_alone(spec, tmp_path / "whole")) == []


@pytest.mark.long
def test_where_everything_was_killed_it_is_resumed(whole, tmp_path):
    far = FarCampaign(tmp_path, STEADY, "local:2x1")
    driver = far.scan()
    assert far.reached(300)
    place = ClusterFolder.of(far.cluster.folder)
    os.kill(far.cluster.keeper, signal.SIGKILL)
    kill_all(f"{place.cluster}:")
    driver.kill()
    far.ended(driver)
    assert far.state.finished is None
    assert far.ended(far.resume()) == 0, far.said
    assert far.faults(whole) == []
    assert LocalCluster.find(far.directory / "cluster") is None


def test_commands_and_nodes_that_come_get_work_and_nodes_that_go_lose_their_lanes(nodes, told, tmp_path):
    far = FarCampaign(tmp_path, longer(FREE, 12_000), nodes)
    driver = far.scan()
    assert far.reached(300)
    before = {visit.substrate for visit in far.state.visits}
    for beta in (5.011, 5.022, 5.033, 5.044):  # more commands than a lane may fail: each ends a graph and begins one
        assert command(far.directory, "coupling", at=beta).accepted
    assert command(far.directory, "system", system="2,2,2,2").accepted
    assert command(far.directory, "extend", trajectories=12_000).accepted
    far.until(lambda state: any(visit.system == (2, 2, 2, 2) for visit in state.visits))
    assert not any("lost" in d.reason for d in far.state.decisions if d.what == "lane")
    with node_faults(told):
        nodes.add_node(1)
    state = far.until(lambda state: {visit.substrate for visit in state.visits} - before)
    assert state.finished is None
    lost = far.other_nodes()[0]
    kill_node(nodes, lost)
    state = far.until(lambda state: any("lost" in d.reason for d in state.decisions if d.what == "lane"))
    assert far.ended(driver) == 0, far.said
    assert far.state.finished.stopped_by == "trajectories"
