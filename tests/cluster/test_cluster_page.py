"""The live page on a campaign of a cluster: it follows the journal of the supervisor, and commands reach that."""

import json

import pytest

from reference.dashboard_pages import served
from reference.far_campaigns import STEADY, FarCampaign

pytestmark = pytest.mark.cluster


def test_the_page_follows_pauses_and_continues_a_campaign_on_a_cluster_which_has_the_same_rows(nodes, whole, tmp_path):
    far = FarCampaign(tmp_path, STEADY, nodes)
    driver = far.scan()
    assert far.reached(60)
    with served(far.directory, control=True) as page:
        page.enter()
        about = page.json("/control")[1]
        sent = {"Origin": f"http://127.0.0.1:{page.port}", "Content-Type": "application/json"}
        sent[about["header"]] = about["value"]

        def command(what):
            status, _, answer = page.ask("/command", "POST", body=json.dumps({"what": what}), **sent)
            assert status == 200, answer
            return json.loads(answer)

        with page.events() as following:
            assert command("pause")["accepted"]
            while following("state")["view"]["status"] != "paused":
                pass
            there = page.json("/machine")[1]
            assert any("node" in stage["isolation"] for stage in there["pipeline"]["stages"])
            assert command("resume")["accepted"]
            while following("state")["view"]["status"] != "finished":
                pass
    assert far.ended(driver) == 0, far.said
    assert [record.what for record in far.state.commands] == ["pause", "resume"]
    assert all(record.by.endswith("(page)") for record in far.state.commands)
    assert far.faults(whole) == []
