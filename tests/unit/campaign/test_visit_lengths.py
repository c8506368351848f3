"""How long visits are: by the spec, or by the schedule head where it is trusted; both are written down."""

from functools import partial
from math import log

import msgspec
import pytest

from metalforge.campaign.running import heads as running_heads
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.heads import load_heads
from metalforge.campaign.running.lengths import SAMPLES, VisitLengths
from metalforge.campaign.running.screen import Screen
from metalforge.campaign.spec import Budget
from metalforge.campaign.store.records import Assigned, Screened
from metalforge.campaign.without_heads import decided_otherwise
from reference.small_campaigns import ROUNDS, run_until
from reference.trusted_heads import scores

USUAL = ROUNDS.steering.visit
SPEC = msgspec.structs.replace(ROUNDS, name="lengths", budget=Budget(trajectories=1000))


@pytest.fixture(params=[True, False], ids=["trusted", "untrusted"])
def trusted(request, monkeypatch):
    names = ("schedule",) if request.param else ("phase",)
    monkeypatch.setattr(running_heads, "default_scores", partial(scores, *names))
    return request.param


@pytest.fixture
def said(monkeypatch):
    """What the screen reads of every chain: 2 tau_int of 12 updates below beta 5.1, of a thousand above."""

    def read(self, block):
        return {"schedule": log(12.0) if block.beta < 5.1 else log(1000.0)}

    monkeypatch.setattr(Screen, "_read", read)


@pytest.mark.usefixtures("said")
def test_visits_are_as_long_as_a_trusted_head_says_within_bounds(trusted, tmp_path):
    with Campaign.open(SPEC, tmp_path / "run") as campaign:
        state = campaign.run()
    noted = [d for d in state.decisions if d.what == "visit-length"]
    assert noted
    assert {d.trusted for d in noted} == {trusted}
    assert {d.baseline for d in noted} == {float(USUAL)}
    assert {d.head for d in noted} == {"schedule"}
    assert {d.value for d in noted} <= {12.0 * SAMPLES, 2.0 * USUAL}
    lengths = {visit.updates for visit in state.visits[:-1]}
    assert lengths == ({USUAL, 12 * SAMPLES, 2 * USUAL} if trusted else {USUAL})
    # Every visit after the first round has its note, and the account adds them up.
    assert len(noted) == len([v for v in state.visits if v.round > 0])
    entries = [e for e in decided_otherwise(state) if e.what == "visit-length"]
    assert all(e.unit == "updates" and e.trusted == trusted for e in entries)


@pytest.mark.chaos
@pytest.mark.usefixtures("said")
@pytest.mark.parametrize("trusted", [True], indirect=True)
def test_a_campaign_that_is_resumed_decides_the_same_lengths(trusted, tmp_path):
    with Campaign.open(SPEC, tmp_path / "whole") as campaign:
        whole = campaign.run()
    with Campaign.open(SPEC, tmp_path / "parts") as campaign:
        state = run_until(campaign, 150)
    while state.finished is None:
        with Campaign.resume(tmp_path / "parts") as campaign:
            state = run_until(campaign, state.trajectories + 300)
    assert trusted
    assert state.digest() == whole.digest()
    assert [v.updates for v in state.visits] == [v.updates for v in whole.visits]


def test_out_of_their_domain_and_before_a_word_the_spec_decides(monkeypatch, tmp_path):
    with Campaign.open(SPEC, tmp_path / "run") as campaign:
        state = run_until(campaign, 60)
    chain = next(iter(state.chains.values()))
    dims = SPEC.lattice.volumes[0]
    for other in state.chains.values():
        other.screened.clear()
    screened = Screened(
        chain=chain.id, step=50, route="software", heads={"schedule": log(1e6)}, flagged=False, chi=None
    )
    for known, kinds, updates in ((True, None, 2 * USUAL), (False, None, USUAL), (True, (), USUAL)):
        shown = scores("schedule")
        shown = shown if kinds is None else msgspec.structs.replace(shown, tested_on=kinds)
        monkeypatch.setattr(running_heads, "default_scores", lambda shown=shown: shown)
        chain.screened.clear()
        if known:
            chain.screened.append(screened)
        lengths = VisitLengths(load_heads(SPEC))
        assert lengths.of(state, dims, 5.05, chain, USUAL, 3) == updates
        visit = Assigned(
            visit=3, round=1, chain=chain.id, stream=0, dims=dims, beta=5.05, updates=updates, fresh=False,
            substrate="cpu:0", by="x", reason="",
        )  # fmt: skip
        assert len(lengths.notes(visit)) == (updates != USUAL)
        assert lengths.notes(visit) == []
