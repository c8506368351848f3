"""A resume changes nothing of the physics: who ends a warm-up, what heads say, and how they are judged."""

from functools import partial

import msgspec
import pytest

from metalforge.campaign.running import heads as running_heads
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, Running, Screening, Steering, WarmUpPolicy
from metalforge.lattice.campaign import Lattice
from reference.small_campaigns import ROUNDS, WITH_QUARKS, one_update
from reference.trusted_heads import scores

QUENCHED = Lattice(
    volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3, algorithm="hmc", integrator="leapfrog", n_steps=4
)
LONGEST = 48


def _spec(lattice, **running):
    cheap = 4 if lattice.flavors else 0
    return msgspec.structs.replace(
        ROUNDS,
        theory=lattice,
        budget=Budget(trajectories=LONGEST + 4 + 12),
        warmup=WarmUpPolicy(longest=LONGEST, shortest=10, cheap=cheap),
        steering=Steering(visit=10, initial=2),
        screening=Screening(every=2, device="software"),
        running=Running(block=5, deterministic=True, checkpoint_s=0.0, **{"producers": 1, **running}),
    )


@pytest.fixture
def trusting(monkeypatch):
    """Scores in which the early stop of the head was shown to be unbiased, and with less than it asks for."""
    monkeypatch.setattr(running_heads, "default_scores", partial(scores, sure=0.5, in_a_row=3, factor=1.0))


def _run(spec, directory):
    with Campaign.open(spec, directory) as campaign:
        return campaign.run()


def _ends(state):
    return [(d.chain, d.step, d.by, d.value, d.reason) for d in state.decisions if d.what == "warmup-ends"]


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("lattice", [QUENCHED, WITH_QUARKS], ids=["quenched", "sea"])
def test_a_stop_after_every_row_of_a_warm_up_does_not_move_its_end(lattice, tmp_path):
    spec = _spec(lattice)
    whole = _run(spec, tmp_path / "whole")
    log = whole.chains["c0000"]
    assert len(set(log.columns["n_steps"][log.cheap : log.warmup])) > 1, "the steps must be tuned on the way"
    assert _ends(whole)[0][2] == "head:thermalization"
    directory = tmp_path / "parts"
    with Campaign.open(spec, directory) as campaign:
        state = one_update(campaign)
    stops = 0
    while state.finished is None and not state.chains["c0000"].measured:
        with Campaign.resume(directory) as campaign:
            state = one_update(campaign)
        stops += 1
    assert stops >= log.warmup
    with Campaign.resume(directory) as campaign:
        state = campaign.run()
    assert _ends(state) == _ends(whole)
    assert state.digest() == whole.digest()


def _readings(state):
    return {(seen.chain, seen.step): (seen.heads, seen.chi) for c in state.chains.values() for seen in c.screened}


@pytest.mark.parametrize("lattice", [ROUNDS.theory, QUENCHED, WITH_QUARKS], ids=["heatbath", "quenched", "sea"])
def test_readings_are_the_same_whoever_runs_the_blocks(lattice, tmp_path):
    """A process for every block: the reservoir goes on where it was, not from rest."""
    spec = _spec(lattice)
    whole = _run(spec, tmp_path / "whole")
    directory = tmp_path / "parts"
    with Campaign.open(spec, directory) as campaign:
        state = one_update(campaign, 5)
    while state.finished is None:
        with Campaign.resume(directory) as campaign:
            state = one_update(campaign, 5)
    assert len(state.resumed) > 10
    assert state.digest() == whole.digest()
    readings, wanted = _readings(state), _readings(whole)
    assert len(wanted) > 10
    assert any(heads for heads, _ in wanted.values())
    assert {key: readings[key] for key in wanted} == wanted


def _judged(state):
    return {d.by: (d.value, d.reason) for d in state.decisions if d.what == "judged"}


def _pairs(tmp_path, ordering, *isolation):
    spec = msgspec.structs.replace(_spec(QUENCHED), ordering=ordering, budget=Budget(trajectories=400))
    for i, kind in enumerate(isolation):
        running = msgspec.structs.replace(spec.running, producers=2, isolation=kind)
        yield _judged(_run(msgspec.structs.replace(spec, running=running), tmp_path / f"{i}"))


def test_heads_are_judged_alike_in_every_run(tmp_path):
    """Chains run side by side, and which of them is faster makes no difference."""
    one, other = _pairs(tmp_path, "C", "thread", "thread")
    assert one == other
    assert one["rejection"][0] is not None


@pytest.mark.chaos
def test_heads_are_judged_where_producers_are_processes_and_nobody_screens(tmp_path):
    threads, processes = _pairs(tmp_path, "D", "thread", "process")
    assert processes == threads
    assert "rejection" in threads
