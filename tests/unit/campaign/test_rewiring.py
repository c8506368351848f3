"""Rules that change a campaign while it runs: a slow screen, refused trajectories, visits that wait."""

import threading

import msgspec
import pytest

from metalforge.campaign.orderings import Assignee
from metalforge.campaign.running import acceptance, screen
from metalforge.campaign.running.book import Estimator
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.orders import Answer, Block
from metalforge.campaign.running.planner import QUEUE, Planner
from metalforge.campaign.running.screen import Screen
from metalforge.campaign.spec import Budget, Running, Steering, WarmUpPolicy
from metalforge.lattice.campaign import Lattice
from reference.small_campaigns import QUICK, run_until
from reference.wide_engine import WideEngine, with_cards

COARSE = msgspec.structs.replace(
    QUICK,
    theory=Lattice(
        volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3, algorithm="hmc", n_steps=2, tau=2.0, integrator="leapfrog"
    ),
    warmup=WarmUpPolicy(longest=12, shortest=12),
    steering=Steering(visit=60, initial=2),
    budget=Budget(trajectories=400),
    running=Running(block=30, producers=1, checkpoint_s=0.0),
)
"""Trajectories whose steps are far too coarse for as short a warm-up to mend."""


def decided(state, by):
    return [d for d in state.decisions if d.by == by]


def resumed(folder, updates=None):
    with Campaign.resume(folder) as campaign:
        return campaign.run() if updates is None else run_until(campaign, updates)


@pytest.fixture
def in_time(monkeypatch):
    """Set when the screen keeps up: before, it takes a fifth of a second for a block."""
    gate, seen = threading.Event(), Screen.seen

    def slow(self, part, *, unread=False):
        if not unread:
            gate.wait(0.2)
        return seen(self, part, unread=unread)

    monkeypatch.setattr(Screen, "seen", slow)
    monkeypatch.setattr(screen, "WINDOW_S", 0.4)
    return gate


def run_while(campaign, goes_on):
    """Run a campaign until something is true of its state."""
    write = campaign.book.write

    def writing(*records):
        write(*records)
        if not goes_on(campaign.state):
            campaign.interrupt("test")

    campaign.book.write = writing
    return campaign.run()


def check_rows(state):
    """No block was lost, written twice or out of order."""
    assert state.chains
    for log in state.chains.values():
        assert len(log.column("plaquette", measured=False)) == log.rows == log.step


LONG = msgspec.structs.replace(
    QUICK,
    budget=Budget(trajectories=40_000),
    steering=Steering(visit=400, initial=4),
    running=Running(block=30, producers=2),
    screening=msgspec.structs.replace(QUICK.screening, chi=1e-6),
)


@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.chaos)])
def test_a_slow_screen_leaves_the_way_and_comes_back(tmp_path, in_time, isolation):
    spec = msgspec.structs.replace(LONG, running=msgspec.structs.replace(LONG.running, isolation=isolation))

    def goes_on(state):
        moves = len(decided(state, screen.SCREEN))
        if moves == 1:
            in_time.set()
        return moves < 2

    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = run_while(campaign, goes_on)
    left, back = decided(state, screen.SCREEN)
    assert (left.what, "beside" in left.done) == ("rewired", True)
    assert left.value >= left.baseline == screen.FULL
    assert "in the way" in back.done
    check_rows(state)
    assert any(log.flagged for log in state.chains.values())
    again = resumed(tmp_path / "run", state.trajectories + 300)
    assert again.trajectories >= state.trajectories + 300
    check_rows(again)


def test_nothing_is_rewired_where_that_is_not_wanted(tmp_path, in_time):
    running = msgspec.structs.replace(LONG.running, rewire=False)
    spec = msgspec.structs.replace(LONG, running=running, budget=Budget(seconds=0.8))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    assert not decided(state, screen.SCREEN)
    assert len(next(iter(state.chains.values())).screened) > 0


@pytest.mark.parametrize("deterministic", [False, pytest.param(True, marks=pytest.mark.chaos)])
def test_a_chain_whose_trajectories_are_refused_begins_again_with_finer_steps(tmp_path, deterministic):
    spec = msgspec.structs.replace(COARSE, running=msgspec.structs.replace(COARSE.running, deterministic=deterministic))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    given_up = [d for d in decided(state, acceptance.ACCEPTANCE) if d.what == "abandoned"]
    assert given_up
    for decision in given_up:
        chain = state.chains[decision.chain]
        accepted, steps = (chain.columns[name].array(chain.warmup) for name in ("accepted", "n_steps"))
        assert decision.value < acceptance.LEAST_ACCEPTANCE == decision.baseline
        assert decision.value in [
            accepted[i - acceptance.TRIED : i].mean() for i in range(acceptance.TRIED, len(steps) + 1)
        ]
        assert len(set(steps)) == 1  # nothing is tuned in a measurement
        assert chain.id not in {point.chain for point in state.points(chain.system)}
    for visit in state.visits:
        if visit.instead_of:
            before, chain = state.chains[visit.instead_of], state.chains[visit.chain]
            assert (chain.coordinate, chain.start) == (before.coordinate, before.start)
            assert chain.columns["n_steps"][0] == 2 * before.columns["n_steps"][-1] == visit.n_steps
    assert {visit.instead_of for visit in state.visits} >= {d.chain for d in given_up[:1]}
    assert not state.open_visits.keys() & {v.visit for v in state.visits if state.chains[v.chain].abandoned}


@pytest.mark.chaos
def test_who_dies_between_giving_up_and_beginning_again_begins_again(tmp_path):
    with Campaign.open(msgspec.structs.replace(COARSE, budget=Budget(trajectories=600)), tmp_path / "run") as campaign:
        whole = campaign.run()
    journal = tmp_path / "run" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if b'"abandoned"' in line)
    journal.write_bytes(b"".join(lines[: first + 1]))
    for file in (tmp_path / "run" / "chains").glob("*.h5"):
        file.unlink()
    state = resumed(tmp_path / "run")
    assert state.finished is not None
    lost = next(d.chain for d in whole.decisions if d.what == "abandoned")
    assert [visit.n_steps > 0 for visit in state.visits if visit.instead_of == lost] == [True]


def test_a_warm_up_does_not_end_early_while_trajectories_are_refused(tmp_path):
    spec = msgspec.structs.replace(
        COARSE,
        theory=msgspec.structs.replace(COARSE.theory, tau=3.0, n_steps=1),
        warmup=WarmUpPolicy(longest=40, shortest=20),
        budget=Budget(trajectories=110),
    )
    ends = []
    for rewire in (True, False):
        running = msgspec.structs.replace(spec.running, rewire=rewire)
        with Campaign.open(msgspec.structs.replace(spec, running=running), tmp_path / str(rewire)) as campaign:
            state = campaign.run()
        ends.append([d.what for d in state.chains["c0000"].decisions])
    assert ends[0][0] == "warmup-goes-on"
    assert "warmup-goes-on" not in ends[1]


@pytest.mark.chaos
def test_a_slow_screen_and_coarse_steps_at_once(tmp_path, in_time):
    with Campaign.open(
        msgspec.structs.replace(COARSE, budget=Budget(trajectories=30_000)), tmp_path / "run"
    ) as campaign:
        state = run_while(
            campaign,
            lambda state: not (decided(state, screen.SCREEN) and any(visit.instead_of for visit in state.visits)),
        )
    check_rows(state)
    assert {d.by for d in state.decisions} >= {screen.SCREEN, acceptance.ACCEPTANCE}


@pytest.mark.chaos
def test_a_lane_with_room_takes_over_what_waits_elsewhere(tmp_path, monkeypatch):
    with_cards(monkeypatch, WideEngine(busy_sites=1024))  # eight chains at once
    spec = msgspec.structs.replace(
        QUICK,
        running=Running(block=30, producers=1, checkpoint_s=0.0),
        budget=Budget(trajectories=30_000),
        steering=Steering(visit=400, initial=4),
    )
    with Campaign.open(spec, tmp_path / "run") as campaign:
        before = run_until(campaign, 3000)
    with_cards(monkeypatch, WideEngine(busy_sites=128))  # one
    with Campaign.resume(tmp_path / "run") as campaign:
        state = run_while(campaign, lambda state: "cpu:0" not in {one.target for one in state.migrations})
    assert state.trajectories > before.trajectories
    (first, *_) = decided(state, QUEUE)
    assert (first.what, first.done.rpartition(" ")[2]) == ("rewired", "cpu:0")
    assert first.chain in {one.chain for one in state.migrations}
    check_rows(state)


def test_a_chain_that_is_abandoned_while_another_lane_takes_its_visit_over_is_not_opened_there(tmp_path):
    systems = QUICK.theory.volumes
    lanes = [Assignee("cpu:0", systems), Assignee("cpu:1", systems)]
    with Campaign.open(msgspec.structs.replace(QUICK, budget=Budget(trajectories=5000)), tmp_path / "run") as campaign:
        planner = Planner(campaign.spec, campaign.book, lanes, stop=lambda: None, estimate=Estimator(campaign.book))
        (order,) = next(volley.orders for volley in planner.begin() if volley.substrate == "cpu:0")
        other = planner.lanes[1]
        other.visits[order.visit] = campaign.state.visits[order.visit]
        other.waiting.append(order.visit)
        planner._order(order.visit, other)
        (release,) = planner.lanes[0].outbox
        assert release.release

        def take(**said):
            return planner.take(Answer(substrate="cpu:0", blocks=[Block(visit=order.visit, chain=order.chain, **said)]))

        take(done=True, fault="its rows cannot be reproduced")
        assert campaign.state.chains[order.chain].abandoned
        volleys = take(held=False, released=True)
        assert order.chain not in {follows.chain for volley in volleys for follows in volley.orders}
        assert order.visit not in other.visits
        assert order.visit not in other.waiting
