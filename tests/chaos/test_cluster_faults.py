"""Nodes of a cluster that are there and do wrong: silent, with a full disk or another clock, or with links that are
no numbers. Campaigns end with the rows of one machine."""

import json
import os
import signal

import msgspec
import pytest

from metalforge.cluster.marked import wait_until
from reference.far_campaigns import STEADY, WORKER, FarCampaign, left_alone, longer
from reference.struck_nodes import signal_raylet

pytestmark = [pytest.mark.cluster, pytest.mark.long]

SPEC = longer(STEADY, 6000)
SILENT_S = 30.0
LASTING = msgspec.structs.replace(
    longer(STEADY, 12_000),
    name="lasting",
    theory=msgspec.structs.replace(STEADY.theory, volumes=((8, 8, 8, 4),), beta_min=5.5, beta_max=5.8),
)
"""Longer than that on two cores, wherever it runs: 160 updates a second on each."""


@pytest.fixture(scope="module")
def whole(arena):
    return left_alone(SPEC, arena / "whole")


def lanes(far):
    """What the journal says of lanes."""
    return [decision.reason for decision in far.state.decisions if decision.what == "lane"]


def stands_still(seconds):
    wait_until(lambda: False, seconds)


def test_a_node_and_then_a_worker_that_are_silent_for_half_a_minute(nodes, arena, tmp_path):
    far = FarCampaign(tmp_path, LASTING, nodes)
    driver = far.scan()
    assert far.reached(300)
    cut_off = far.other_nodes()[0]
    signal_raylet(nodes, cut_off, signal.SIGSTOP)
    stands_still(SILENT_S)
    assert far.state.finished is None
    signal_raylet(nodes, cut_off, signal.SIGCONT)  # where the head has given it up it ends when it hears of that
    assert far.reached(sum(chain.rows for chain in far.state.chains.values()) + 100)
    number = next(number for number in far.other_nodes() if number != cut_off)
    still = far.processes(WORKER, number)[0]
    os.kill(still, signal.SIGSTOP)
    stands_still(SILENT_S)
    os.kill(still, signal.SIGCONT)
    assert far.ended(driver) == 0, far.said
    assert far.faults(left_alone(LASTING, arena / "lasting")) == []


def test_one_whose_disk_is_full(nodes, told, whole, tmp_path):
    told.write_text(json.dumps({str(nodes.nodes()[1].number): ["full"]}))
    far = FarCampaign(tmp_path, SPEC, nodes)
    assert far.ended(far.scan()) == 0, far.said
    assert far.faults(whole) == []
    assert any("File too large" in reason for reason in lanes(far)), lanes(far)


def test_where_all_disks_are_full_it_is_resumed_when_there_is_room(nodes, told, whole, tmp_path):
    told.write_text(json.dumps({str(node.number): ["full"] for node in nodes.nodes()}))
    far = FarCampaign(tmp_path, SPEC, nodes)
    assert far.ended(far.scan()) == 75, far.said
    assert "File too large" in far.said
    assert f"metalforge resume {far.directory}" in far.said
    assert "Traceback" not in far.said
    assert far.state.finished is None
    told.unlink()
    assert far.ended(far.resume()) == 0, far.said
    assert far.faults(whole) == []


def test_one_whose_clock_is_wrong(nodes, told, whole, tmp_path):
    told.write_text(json.dumps({str(nodes.nodes()[1].number): ["clock"]}))
    far = FarCampaign(tmp_path, SPEC, nodes)
    assert far.ended(far.scan()) == 0, far.said
    assert far.faults(whole) == []
    assert far.state.finished.seconds < 3600.0


def test_one_that_returns_garbage(nodes, told, whole, tmp_path):
    told.write_text(json.dumps({str(node.number): ["nan"] for node in nodes.nodes()[1:]}))
    far = FarCampaign(tmp_path, SPEC, nodes)
    assert far.ended(far.scan()) == 0, far.said
    assert far.faults(whole) == []
    assert [decision for decision in far.state.decisions if decision.what == "fault"]
