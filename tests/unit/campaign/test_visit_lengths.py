"""Cheap warm-ups are as long as the formula says, or a head that is trusted; both are written down."""

from math import log

import msgspec
import pytest

from metalforge.campaign.report.decisions import otherwise
from metalforge.campaign.running.advice import CheapLengths
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, Steering, WarmUpPolicy
from metalforge.conductor import advisor
from metalforge.conductor.scores import TestedKind
from metalforge.conductor.shipped import shipped_scores
from metalforge.core.advice import ChainPlace
from reference.small_campaigns import ROUNDS, WITH_QUARKS, run_until

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
    monkeypatch.setattr(advisor, "shipped_scores", lambda layout: shown(believed))
    monkeypatch.setattr(advisor, "_first_frame", lambda context, rows: log(1 + 17.2))
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
    place = ChainPlace(QUENCHED.theory.volumes[0], 4.8, first.start)
    with QUENCHED.theory.advisor() as asked:
        lengths = CheapLengths(QUENCHED.warmup.cheap, asked)
        monkeypatch.setattr(advisor, "shipped_scores", lambda layout: shown(True))
        assert 1 <= lengths.cheap(state, place, 15, 9) <= 20
        monkeypatch.setattr(advisor, "shipped_scores", lambda layout: shown(True, tested=False))
        assert lengths.cheap(state, place, 15, 9) == 15
