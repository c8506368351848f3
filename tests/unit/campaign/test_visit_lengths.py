"""How long visits and cheap warm-ups are: by spec and formula, or by heads that are trusted; both are written down."""

from functools import partial
from math import log

import msgspec
import pytest

from metalforge.campaign.running import heads as running_heads
from metalforge.campaign.running import lengths
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.heads import load_heads
from metalforge.campaign.running.lengths import SAMPLES, Lengths
from metalforge.campaign.running.screen import Screen
from metalforge.campaign.spec import Budget, Steering, WarmUpPolicy
from metalforge.campaign.store.records import Assigned, Screened
from metalforge.campaign.without_heads import otherwise
from metalforge.conductor.scores import TestedKind
from metalforge.conductor.shipped import shipped_scores
from reference.small_campaigns import ROUNDS, WITH_QUARKS, run_until
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
        return {"schedule": log(12.0) if block.coordinate < 5.1 else log(1000.0)}

    monkeypatch.setattr(Screen, "_read", read)


@pytest.mark.usefixtures("said")
def test_visits_are_as_long_as_a_trusted_head_says_within_bounds(trusted, tmp_path):
    with Campaign.open(SPEC, tmp_path / "run") as campaign:
        state = campaign.run()
    noted = [d for d in state.decisions if d.what == "visit-length"]
    assert noted
    assert {d.trusted for d in noted} == {trusted}
    last = state.visits[-1].updates
    assert {d.baseline for d in noted} <= {float(USUAL), float(last)}
    assert {d.head for d in noted} == {"schedule"}
    assert {d.value for d in noted} <= {12.0 * SAMPLES, 2.0 * USUAL, float(last)}
    found = {visit.updates for visit in state.visits[:-1]}
    assert found == ({USUAL, 12 * SAMPLES, 2 * USUAL} if trusted else {USUAL})
    # Every visit after the first round has its note, and the account adds them up.
    assert len(noted) == len([v for v in state.visits if v.round > 0])
    entries = [e for e in otherwise(state) if e.what == "visit-length"]
    assert all(e.unit == "updates" and e.trusted == trusted for e in entries)
    assert any(e.differs for e in entries) == trusted
    if trusted:  # the budget left the last visit shorter than the spec has it, with the head and without
        assert last < USUAL
        assert (entries[-1].decided, entries[-1].baseline, entries[-1].differs) == (last, last, False)


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
    dims = SPEC.theory.volumes[0]
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
        plan = Lengths(SPEC, load_heads(SPEC))
        assert plan.visit(state, dims, 5.05, chain, USUAL, 3) == updates
        visit = Assigned(
            visit=3, round=1, chain=chain.id, stream=0, system=dims, coordinate=5.05, updates=updates, fresh=False,
            substrate="cpu:0", by="x", reason="",
        )  # fmt: skip
        assert len(plan.notes(visit)) == (updates != USUAL)
        assert plan.notes(visit) == []


QUENCHED = msgspec.structs.replace(
    ROUNDS,
    name="quenched",
    theory=WITH_QUARKS,
    budget=Budget(trajectories=260),
    warmup=WarmUpPolicy(longest=12, shortest=10, cheap=20),
    steering=Steering(visit=10, initial=4),
)


def shown(trusted, tested=True):
    """Scores of the second layout with its head trusted or not, tested on quenched sweeps or not."""
    found = shipped_scores("gpu-prep-11")
    judged = tuple(
        msgspec.structs.replace(score, trusted=trusted) if score.name == "quenched_length" else score
        for score in found.heads
    )
    kind = TestedKind(
        algorithm="heatbath", n_t=(2,), aspect=(1.0, 4.0), heads=("quenched_length",) if tested else ("x",)
    )
    return msgspec.structs.replace(found, heads=judged, tested_on=(kind,))


@pytest.mark.parametrize("believed", [True, pytest.param(False, marks=pytest.mark.chaos)])
def test_a_quench_is_as_long_as_a_trusted_head_reads_off_the_chains_before(believed, monkeypatch, tmp_path):
    monkeypatch.setattr(lengths, "shipped_scores", lambda layout: shown(believed))
    monkeypatch.setattr(lengths, "_read", lambda head, context, rows: log(1 + 17.2))
    with Campaign.open(QUENCHED, tmp_path / "run") as campaign:
        state = campaign.run()
    noted = {d.chain: d for d in state.decisions if d.what == "cheap-length"}
    assert noted
    assert {(d.value, d.trusted, d.head) for d in noted.values()} == {(17.0, believed, "quenched_length")}
    for visit in state.visits:
        if visit.fresh and visit.chain in noted:
            assert visit.cheap == (17 if believed else noted[visit.chain].baseline)
            assert state.chains[visit.chain].phases.count("quench") == visit.cheap
    entries = [e for e in otherwise(state) if e.what == "cheap-length"]
    assert {(e.unit, e.trusted) for e in entries} == {("updates", believed)}


def test_the_shipped_head_reads_a_length_off_a_first_frame_and_is_not_asked_about_other_chains(monkeypatch, tmp_path):
    with Campaign.open(QUENCHED, tmp_path / "run") as campaign:
        state = run_until(campaign, 60)
    first = next(iter(state.chains.values()))
    dims, heads = QUENCHED.theory.volumes[0], load_heads(QUENCHED)
    monkeypatch.setattr(lengths, "shipped_scores", lambda layout: shown(True))
    assert 1 <= Lengths(QUENCHED, heads).cheap(state, dims, 4.8, first.start, 15, 9) <= 20
    monkeypatch.setattr(lengths, "shipped_scores", lambda layout: shown(True, tested=False))
    assert Lengths(QUENCHED, heads).cheap(state, dims, 4.8, first.start, 15, 9) == 15
