"""Campaigns on silicon that runs many chains at once, alone and beside cores."""

import hashlib
from collections import Counter
from functools import partial
from math import prod

import msgspec
import pytest

from metalforge.campaign.report.sections_of_run import updates_by_lane
from metalforge.campaign.running import lanes, producer_lane
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.producer import Producer
from metalforge.campaign.spec import Budget, CampaignSpec, LaneSpec, Running, Steering, WarmUpPolicy
from metalforge.campaign.steerers.gaussian_process import GaussianProcess
from metalforge.campaign.theory import WideWork
from metalforge.core.errors import PlacementError, SpecError, UnknownNameError
from metalforge.core.rows import CountedWarmUp
from metalforge.lattice import Chain
from metalforge.lattice.campaign import Lattice
from metalforge.plasma.trajectory import TrajectoryRun
from reference.small_campaigns import PARTICLES, QUICK, ROUNDS, WITH_QUARKS, GrowingMeter, run_until
from reference.wide_engine import WideCard, WideEngine, with_cards

CARD = Running(block=30, checkpoint_s=0.0, substrate="cuda:0")
WIDE = msgspec.structs.replace(
    QUICK, running=CARD, budget=Budget(trajectories=1400), steering=Steering(visit=20, initial=4)
)


BOXES = msgspec.structs.replace(
    PARTICLES,
    running=Running(block=4, checkpoint_s=0.0, substrate="cuda:0", deterministic=True),
    budget=Budget(trajectories=500),
    steering=Steering(visit=10, initial=4),
)
"""Four boxes of 104 particles on a card that 400 keep busy."""
EACH = pytest.mark.parametrize("spec", [WIDE, BOXES], ids=["links", "particles"])


BESIDE = msgspec.structs.replace(WIDE, running=Running(block=30, producers=1, checkpoint_s=0.0))
"""On a card and a core."""


@pytest.fixture
def card(monkeypatch):
    """The engine of a card that this machine now has."""
    engine = WideEngine()
    with_cards(monkeypatch, engine)
    return engine


def run(spec, folder, updates=None):
    with Campaign.open(spec, folder) as campaign:
        return campaign.run() if updates is None else run_until(campaign, updates)


def run_resumed(folder):
    with Campaign.resume(folder) as campaign:
        return campaign.run()


def links_of(spec, log):
    """Return the digest of a chain's links after its complete visits, run on one core."""
    chain = Chain(spec.theory.chain(log.system, log.coordinate, seed=spec.seed, stream=log.stream, start=log.start))
    chain.run(log.complete)
    return hashlib.sha256(chain.field.to_links().tobytes()).hexdigest()[:32]


def particles_of(spec, log, engine):
    """Return the digest of a trajectory's particles after its complete visits, run alone on the card's engine."""
    wanted = spec.theory.trajectory(log.system, log.coordinate, seed=spec.seed, stream=log.stream, start=log.start)
    alone = TrajectoryRun(
        wanted, spec.theory.update_time, CountedWarmUp(total=spec.warmup.longest), engine=engine, fill=0.0
    )
    while alone.log.end < log.complete:
        if alone.log.end == log.warmup:
            alone.end_warmup()
        alone.step()
    return alone.digest()


def check_links(state, engine=None):
    complete = [log for log in state.chains.values() if log.complete]
    assert complete
    alone = links_of if state.spec.theory.table() == "lattice" else partial(particles_of, engine=engine)
    assert [log.digest for log in complete] == [alone(state.spec, log) for log in complete]


@EACH
def test_four_chains_run_at_once_and_each_has_the_bits_it_has_alone(tmp_path, card, spec):
    card.busy_sites = 4 * prod(spec.theory.systems[0])
    state = run(spec, tmp_path / "run")
    assert state.finished.stopped_by == "trajectories"
    assert Counter(card.sizes).most_common(1)[0][0] == 4
    assert {log.substrate for log in state.chains.values()} == {"cuda:0"}
    assert [silicon.device for silicon in state.opened.silicon if silicon.role == "produces"] == ["cuda:0"]
    check_links(state, card)
    assert all(log.phase == "measure" for log in state.chains.values())


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("budget", [60, 200, 600, 2000])
def test_a_budget_that_does_not_fill_a_device_is_spent_on_complete_visits(
    tmp_path, card, monkeypatch, budget, deterministic
):
    """A device of thirty chains, whose usual visits and warm-ups would take 8,400 updates."""
    card.busy_sites = 30 * prod(WIDE.theory.systems[0])
    monkeypatch.setattr(Lattice, "wide", WideWork(26, 102, visit=4))
    spec = msgspec.structs.replace(
        WIDE,
        budget=Budget(trajectories=budget),
        warmup=WarmUpPolicy(longest=40, shortest=10),
        steering=Steering(visit=60, initial=5),
        running=msgspec.structs.replace(CARD, deterministic=deterministic),
    )
    state = run(spec, tmp_path / "run")
    assert state.finished.stopped_by == "trajectories"
    assert not state.open_visits
    assert all(log.complete == log.rows > log.warmup for log in state.chains.values())
    assert 0.8 * budget < state.trajectories <= budget
    assert budget - state.trajectories < 15  # the shortest visit
    assert budget < 2000 or len({log.coordinate for log in state.chains.values()}) >= 5  # the first points


def test_every_update_of_a_batch_is_read(tmp_path, card):
    state = run(WIDE, tmp_path / "run")
    assert not [d for d in state.decisions if d.what == "reader"]  # nothing was missing
    assert all(log.screened[-1].heads for log in state.chains.values())


@EACH
def test_a_card_runs_no_more_chains_at_a_time_than_it_is_told(tmp_path, card, spec):
    few = msgspec.structs.replace(spec.running, producers=2, deterministic=True)
    state = run(
        msgspec.structs.replace(spec, running=few, budget=Budget(trajectories=400 if spec is WIDE else 40)),
        tmp_path / "run",
    )
    assert max(card.sizes) == 2
    assert max(Counter(visit.round for visit in state.visits).values()) == 2
    check_links(state, card)


@pytest.mark.chaos
@pytest.mark.parametrize("deterministic", [False, True])
def test_orders_grow_where_volleys_are_short_and_not_by_the_clock(tmp_path, card, monkeypatch, deterministic):
    seen, block_of = [], Producer._block

    def made(self, *arguments):
        seen.append(block := block_of(self, *arguments))
        return block

    monkeypatch.setattr(Producer, "_block", made)
    monkeypatch.setattr(producer_lane, "VOLLEY_S", 1e9)
    monkeypatch.setattr(Lattice, "wide", WideWork(16, 64, visit=4))
    running = msgspec.structs.replace(CARD, deterministic=deterministic, block=10)
    spec = msgspec.structs.replace(WIDE, running=running, steering=Steering(visit=60, initial=4))
    state = run(spec, tmp_path / "run")
    rows = [sum(len(s.columns["plaquette"]) for s in block.segments) for block in seen]
    assert max(rows) == (16 if deterministic else 64)
    check_links(state)


@EACH
@pytest.mark.chaos
@pytest.mark.parametrize("stopped", [False, True])
def test_rounds_on_a_card_are_the_same_every_time(tmp_path, card, spec, stopped):
    card.busy_sites = 4 * prod(spec.theory.systems[0])
    spec = msgspec.structs.replace(spec, running=msgspec.structs.replace(spec.running, deterministic=True))
    one = run(spec, tmp_path / "one")
    if stopped:
        run(spec, tmp_path / "other", spec.budget.trajectories // 2)
        # Half of what was computed has lost its checkpoint: it is computed again and held against the journal.
        for file in sorted((tmp_path / "other" / "chains").glob("*.h5"))[::2]:
            file.unlink()
    other = run_resumed(tmp_path / "other") if stopped else run(spec, tmp_path / "other")
    assert {log.id: (log.coordinate, log.digest) for log in one.chains.values()} == {
        log.id: (log.coordinate, log.digest) for log in other.chains.values()
    }
    assert max(Counter(visit.round for visit in one.visits).values()) == 4


def test_points_for_a_volley_are_asked_at_once_and_spread(tmp_path, card, monkeypatch):
    asked, ask = [], GaussianProcess.ask

    def asking(self, n=1, pending=()):
        asked.append((n, found := ask(self, n, pending)))
        return found

    monkeypatch.setattr(GaussianProcess, "ask", asking)
    run(WIDE, tmp_path / "run")
    assert asked[0][0] == 4
    assert any(n > 1 for n, _ in asked[1:])
    for _, found in asked:
        betas = [one.coordinate for one in found]
        assert len(set(betas)) == len(betas)


@pytest.mark.chaos
@pytest.mark.parametrize("killed", [False, True])
def test_what_began_on_a_card_goes_on_on_cores(tmp_path, card, monkeypatch, killed):
    before = run(BESIDE, tmp_path / "run", 600)
    assert before.finished is None
    assert {"cuda:0"} <= {log.substrate for log in before.chains.values()}
    if killed:  # no checkpoint was written in time: all rows are computed again and held against the journal
        for file in (tmp_path / "run" / "chains").glob("*.h5"):
            file.unlink()
    with_cards(monkeypatch)
    after = run_resumed(tmp_path / "run")
    assert after.finished is not None
    assert {log.substrate for log in after.chains.values() if log.rows > before.chains.get(log.id, log).rows} <= {
        "cpu:0"
    }
    check_links(after)


def test_a_card_that_vanishes_leaves_its_chains_to_the_cores(tmp_path, card, monkeypatch):
    meters = []
    card.lost_after = 150
    monkeypatch.setattr(WideCard, "meter", lambda self: meters.append(GrowingMeter()) or meters[-1])
    state = run(WIDE, tmp_path / "run")
    assert "a card" not in state.opened.host  # which is the machine that it is in
    assert len(meters) == 1
    assert state.energy["cuda:0", "measured"].energy.value == meters[0].joules  # what it spent before it was lost
    assert state.finished.stopped_by == "trajectories"
    (lost,) = [d for d in state.decisions if d.what == "lane"]
    assert (lost.by, "device unavailable" in lost.reason) == ("cuda:0", True)
    # Visits that the card was to make are made by the core.
    assert any(v.substrate == "cuda:0" and "cpu:0" in state.chains[v.chain].made_on for v in state.visits)
    assert not state.open_visits
    check_links(state)


def test_trajectories_of_a_card_that_vanishes_wait_for_it(tmp_path, card):
    """No other engine goes on with them bit for bit; what was made stays."""
    spec = msgspec.structs.replace(BOXES, budget=Budget(trajectories=60))
    card.lost_after = 20
    with pytest.raises(SpecError, match=r"run on cuda:0, this is cpu:.*they would not continue bit for bit"):
        run(spec, tmp_path / "run")
    card.lost_after = None
    state = run_resumed(tmp_path / "run")
    assert state.finished.stopped_by == "trajectories"
    assert {name for log in state.chains.values() for name in log.made_on} == {"cuda:0"}


@EACH
@pytest.mark.chaos
def test_a_batch_that_does_not_fit_is_halved_and_that_is_said(tmp_path, card, spec):
    card.fits, card.busy_sites = 2, 4 * prod(spec.theory.systems[0])
    state = run(spec, tmp_path / "run")
    assert state.finished.stopped_by == "trajectories"
    assert max(card.sizes) == 2
    assert "2 are tried: cuda:0 has no room for 4" in next(d.reason for d in state.decisions if d.what == "lane")
    check_links(state, card)


def test_a_card_and_cores_run_together_unless_told_otherwise(tmp_path, card):
    state = run(BESIDE, tmp_path / "run")
    assert {log.substrate for log in state.chains.values()} == {"cuda:0", "cpu:0"}
    check_links(state)
    (wide, its, *_), (core, *_) = updates_by_lane(state)
    assert (wide, its, core) == ("cuda:0", "cuda:0, a card", "cpu:0")
    assert [lane.name for lane in lanes.lanes_here(BESIDE)] == ["cuda:0", "cpu:0"]
    assert [lane.name for lane in lanes.lanes_here(ROUNDS)] == ["cpu:0", "cpu:1"]  # the same rows on every machine
    large = msgspec.structs.replace(BESIDE, theory=Lattice(volumes=((16, 16, 16, 4), (8, 8, 8, 4))))
    assert [lane.systems for lane in lanes.lanes_here(large)] == [(), ((8, 8, 8, 4),)]
    cores = msgspec.structs.replace(BESIDE, running=msgspec.structs.replace(BESIDE.running, substrate="cpu"))
    assert [lane.name for lane in lanes.lanes_here(cores)] == ["cpu:0"]


@pytest.mark.chaos
def test_two_lanes_on_a_card_run_a_volume_each(tmp_path, card):
    volumes = ((4, 4, 4, 2), (4, 4, 8, 2))
    told = tuple(LaneSpec(substrate="cuda:0", systems=(dims,)) for dims in volumes)
    spec = msgspec.structs.replace(
        WIDE,
        theory=Lattice(volumes=volumes, beta_min=4.9, beta_max=5.3),
        running=Running(block=30, checkpoint_s=0.0, lanes=told),
    )
    state = run(spec, tmp_path / "run")
    assert {(log.system, log.substrate) for log in state.chains.values()} == {
        (volumes[0], "cuda:0"),
        (volumes[1], "cuda:0.1"),
    }
    check_links(state)


def test_chains_of_two_strategies_on_a_card_do_not_mix(tmp_path, card):
    told = (LaneSpec(substrate="cuda:0"), LaneSpec(substrate="cuda:0", variant="hybrid"))
    running = Running(block=30, checkpoint_s=0.0, lanes=told)
    spec = msgspec.structs.replace(WIDE, running=running, budget=Budget(trajectories=2400))
    state = run(spec, tmp_path / "run")
    assert {frozenset(log.made_on) for log in state.chains.values()} == {
        frozenset({"cuda:0"}),
        frozenset({"cuda:0:hybrid.1"}),
    }
    assert not state.migrations
    again = run_resumed(tmp_path / "run")
    assert again.trajectories == state.trajectories


def test_trajectories_run_one_chain_at_a_time_on_a_card(tmp_path, card):
    lattice = msgspec.structs.replace(WIDE.theory, algorithm="hmc", n_steps=4)
    spec = msgspec.structs.replace(WIDE, theory=lattice, budget=Budget(trajectories=150))
    assert [who.sites for who in lanes.arranged("C", spec, lanes.lanes_here(spec)).lanes] == [0]
    state = run(spec, tmp_path / "run")
    assert not card.sizes
    assert {lane for log in state.chains.values() for lane in log.made_on} == {"cuda:0"}


def test_orderings_are_compared_by_joules_where_every_kind_of_silicon_is_metered(tmp_path, card):
    spec = msgspec.structs.replace(BESIDE, ordering="auto", budget=Budget(seconds=1.5))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        campaign._meters |= dict.fromkeys(campaign._meters, GrowingMeter())
        state = campaign.run()
    assert "samples per joule" in state.chosen.reason
    assert {name: entry.energy.value > 0 for (name, _), entry in state.energy.items()} == {
        "cuda:0": True,
        "cpu:0": True,
    }


def test_quarks_stay_where_they_are_and_particles_take_the_card(card):
    def unless_told_otherwise(spec):
        return [lane.name for lane in lanes.lanes_here(spec)]

    assert unless_told_otherwise(msgspec.structs.replace(QUICK, theory=WITH_QUARKS)) == ["cpu:0", "cpu:1"]
    assert unless_told_otherwise(msgspec.structs.replace(BOXES, running=Running())) == ["cuda:0"]  # and no core beside
    assert unless_told_otherwise(msgspec.structs.replace(BOXES, running=Running(deterministic=True, producers=1))) == [
        "cpu:0"
    ]


def test_a_card_produces_and_a_core_checks_every_configuration(tmp_path, card):
    state = run(msgspec.structs.replace(BESIDE, ordering="D", budget=Budget(trajectories=300)), tmp_path / "run")
    assert not any(log.unchecked for log in state.chains.values())
    (drift,) = state.drift.values()
    assert (drift.substrate, drift.checks) == ("cpu:0", state.trajectories)
    assert max(drift.largest[name] for name in ("action", "plaquette", "polyakov")) < 1e-12


def test_what_cannot_run_is_refused_by_name(card):
    def lanes_of(**running):
        return lanes.lanes_here(CampaignSpec(theory=Lattice(), running=Running(**running)))

    with pytest.raises(UnknownNameError, match="cuda:3"):
        lanes_of(substrate="cuda:3")
    with pytest.raises(PlacementError, match="hybrid"):
        lanes_of(lanes=(LaneSpec(substrate="cpu", variant="hybrid"),))
    with pytest.raises(SpecError, match="nobody"):
        CampaignSpec(
            theory=Lattice(volumes=((8, 8, 8, 4), (4, 4, 4, 4))),
            running=Running(lanes=(LaneSpec(substrate="cpu", systems=((8, 8, 8, 4),)),)),
        )
    with pytest.raises(SpecError, match=r"running\.lanes"):
        Running(substrate="cpu", lanes=(LaneSpec(substrate="cpu"),))
