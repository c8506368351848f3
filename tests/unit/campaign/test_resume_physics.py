"""A resume changes nothing of the physics: when warm-ups end, and the readings of heads."""

import msgspec
import pytest

from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, Running, Screening, Steering, WarmUpPolicy
from metalforge.lattice.campaign import Lattice
from reference.small_campaigns import ROUNDS, WITH_QUARKS, one_update

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
        screening=Screening(device="software"),
        running=Running(block=5, deterministic=True, checkpoint_s=0.0, **{"producers": 1, **running}),
    )


def _run(spec, directory):
    with Campaign.open(spec, directory) as campaign:
        return campaign.run()


def _ends(state):
    return [(d.chain, d.step, d.by, d.reason) for d in state.decisions if d.what == "warmup-ends"]


@pytest.mark.parametrize("lattice", [QUENCHED, WITH_QUARKS], ids=["quenched", "sea"])
def test_a_stop_after_every_row_of_a_warm_up_does_not_move_its_end(lattice, tmp_path):
    spec = _spec(lattice)
    whole = _run(spec, tmp_path / "whole")
    log = whole.chains["c0000"]
    assert len(set(log.columns["n_steps"][log.cheap : log.warmup])) > 1, "the steps must be tuned on the way"
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
