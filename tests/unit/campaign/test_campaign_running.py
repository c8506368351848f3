"""What ends a campaign, where its chains run, and what its checkpoints cost."""

import os
import threading

import msgspec
import pytest

from metalforge.campaign.extending import Extension
from metalforge.campaign.report.result import Results
from metalforge.campaign.running import campaign as campaigns
from metalforge.campaign.running import producer as producers
from metalforge.campaign.running.batches import Together
from metalforge.campaign.running.book import write_estimates
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.orders import Order, Volley
from metalforge.campaign.running.point import Tools
from metalforge.campaign.running.producer import ChainPool, Producer
from metalforge.campaign.spec import Budget, Steering, WarmUpPolicy
from metalforge.campaign.store.chain_files import chain_files
from metalforge.campaign.store.records import Assigned, Migrated
from metalforge.core.errors import SpecError
from metalforge.core.rows import ChainFaultError
from metalforge.lattice.run import ChainRun
from metalforge.native.cpu_engine import cpu_engine
from reference.small_campaigns import QUICK, ROUNDS, GrowingMeter


def test_the_target_error_ends_a_campaign_and_it_says_so(tmp_path):
    spec = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=20_000, target_error=0.05))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished.stopped_by == "target"
    assert state.trajectories < 10_000
    assert state.latest(spec.theory.volumes[0]).error <= 0.05


def test_a_campaign_goes_on_where_its_last_rows_undo_the_evidence(tmp_path, monkeypatch):
    undone = []

    def contradicted(book):
        write_estimates(book)
        if not undone:
            undone.append(book.state.trajectories)
            book.write(msgspec.structs.replace(book.state.estimates[-1], established=False))

    monkeypatch.setattr(campaigns, "write_estimates", contradicted)
    spec = msgspec.structs.replace(QUICK, budget=Budget(trajectories=20_000, target_error=0.07))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished.stopped_by == "target"
    assert state.trajectories > undone[0]
    assert state.estimates[-1].established


@pytest.mark.parametrize("budget", [Budget(trajectories=1500), Budget(trajectories=20_000, target_error=0.07)])
@pytest.mark.parametrize("spec", [QUICK, ROUNDS])
def test_the_last_estimate_is_the_result_that_is_quoted(spec, budget, tmp_path):
    with Campaign.open(msgspec.structs.replace(spec, budget=budget), tmp_path / "run") as campaign:
        state = campaign.run()
        seen = campaign.view().systems[0]
    quoted, last = Results(state).systems[0], state.estimates[-1]
    top = spec.theory.report.sections(Results(state), {}, "")[0]
    assert last.trajectories == state.trajectories
    assert (last.result, last.error) == (quoted.transition.result, quoted.transition.error)
    assert (seen.result, seen.error, seen.evidence) == (last.result, last.error, quoted.evidence)
    assert f"all {len(seen.evidence)} requirements" in top or not quoted.established
    if state.finished.stopped_by == "target":
        assert quoted.established
        assert quoted.transition.error <= budget.target_error


def test_joules_end_a_campaign_where_a_meter_reads_them(tmp_path):
    spec = msgspec.structs.replace(QUICK, budget=Budget(joules=12.0))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        campaign._meters |= dict.fromkeys(campaign._meters, GrowingMeter())
        state = campaign.run()
    assert state.finished.stopped_by == "joules"
    assert state.energy["cpu:0", "measured"].energy.value >= 12.0


def test_joules_without_a_meter_are_refused_before_anything_runs(tmp_path):
    spec = msgspec.structs.replace(QUICK, budget=Budget(joules=12.0))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        meter = GrowingMeter()
        meter.unavailable = lambda: "test: nothing to read"
        campaign._meters |= dict.fromkeys(campaign._meters, meter)
        with pytest.raises(SpecError, match=r"energy meter"):
            campaign.run()
        assert campaign.state.trajectories == 0


SMALL = msgspec.structs.replace(ROUNDS, warmup=WarmUpPolicy(longest=60, shortest=20))


@pytest.mark.parametrize("budget", [80, 90, 110, 150, 300])
@pytest.mark.parametrize("quick", [False, True])
def test_a_small_budget_is_used_up_by_shorter_visits(tmp_path, budget, quick):
    running = msgspec.structs.replace(ROUNDS.running, deterministic=not quick)
    spec = msgspec.structs.replace(SMALL, running=running, budget=Budget(trajectories=budget))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished.stopped_by == "trajectories"
    assert not state.open_visits
    assert budget - 20 < state.trajectories <= budget  # a visit measures at least 20 updates
    assert all(log.complete > log.warmup for log in state.chains.values())


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({}, 60 + 20),
        ({"steering": Steering(visit=20, initial=4)}, 60 + 10),
        ({"warmup": WarmUpPolicy(longest=60, shortest=20, cheap=15)}, 60 + 15 + 20),
    ],
    ids=["plain", "short visits", "cheap"],
)
def test_a_budget_without_room_for_one_visit_is_refused_with_the_least_that_has(tmp_path, changes, least):
    def of(budget):
        return msgspec.structs.replace(SMALL, budget=Budget(trajectories=budget), **changes)

    with pytest.raises(SpecError, match=rf"budget\.trajectories.*at least {least} .*Got {least - 1}"):
        Campaign.open(of(least - 1), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    with Campaign.open(of(least), tmp_path / "run") as campaign:
        assert campaign.run().trajectories > 0


def test_a_campaign_that_ends_without_an_update_is_an_error(tmp_path):
    spec = msgspec.structs.replace(QUICK, budget=Budget(seconds=1e-9))
    with Campaign.open(spec, tmp_path / "run") as campaign, pytest.raises(SpecError, match="seconds"):
        campaign.run()
    with Campaign.resume(tmp_path / "run") as campaign, pytest.raises(SpecError, match="seconds"):
        campaign.run()
    with Campaign.resume(tmp_path / "run", more=Extension(trajectories=200, seconds=600.0)) as campaign:
        assert campaign.run().trajectories > 0


def test_one_lane_without_room_for_a_visit_leaves_those_of_others_to_end(tmp_path):
    """Two lanes, of which one has a visit that takes the whole budget: it is completed."""
    running = msgspec.structs.replace(QUICK.running, producers=2)
    spec = msgspec.structs.replace(SMALL, running=running, budget=Budget(trajectories=140))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished.stopped_by == "trajectories"
    assert state.visits[0].visit not in state.open_visits
    assert state.chains[state.visits[0].chain].complete >= state.visits[0].updates


ASSIGNED = Assigned(
    at=0.0,
    visit=0,
    round=0,
    chain="c0000",
    stream=0,
    system=(4, 4, 4, 2),
    coordinate=5.1,
    updates=100,
    fresh=True,
    substrate="cpu:0",
    by="test",
    reason="test",
)


@pytest.fixture
def brief(tmp_path):
    """What a producer is told of a chain that was assigned and has no rows."""
    with Campaign.open(ROUNDS, tmp_path / "run") as campaign:
        campaign.book.write(ASSIGNED)
        return campaign.state.chains["c0000"].snapshot()


def tools(directory):
    return Tools(spec=ROUNDS, files=chain_files(directory), engine=cpu_engine(threads=1))


@pytest.fixture
def pool(tmp_path, brief):
    """The chains of a producer, with one that was taken up."""
    pool = ChainPool(tools(tmp_path / "run"))
    pool.open(brief)
    return pool


def move(chain, updates):
    """Run an order of so many updates."""
    chain.begin(updates, 100)
    assert Together().advance([chain], lambda: False) == {}
    chain.take_segments()


def test_a_chain_that_moves_to_another_producer_goes_on_bit_for_bit(pool, brief, tmp_path):
    stays = pool.held["c0000"]
    move(stays, 30)
    assert pool.save(stays)
    other = ChainPool(tools(tmp_path / "run"))
    moved = other.open(brief)
    moved.take_segments()  # what the journal has by now; the brief is from before
    assert moved.digest() == stays.digest()
    for chain in (stays, moved):
        move(chain, 30)
    assert moved.digest() == stays.digest()
    assert moved.rows == stays.rows == 60


def test_a_decision_that_the_journal_lacks_comes_from_the_checkpoint(pool, brief, tmp_path):
    """A process that is killed between the checkpoint and the journal: the end of the warm-up is not forgotten."""
    chain = pool.held["c0000"]
    move(chain, 100)
    assert chain.measured > 0
    ((made,), _) = chain.take_told()
    pool.save(chain)
    again = ChainPool(tools(tmp_path / "run")).open(brief)
    assert again.rows == chain.rows
    assert again.take_told() == ([made], [])


def test_chains_that_move_are_released_by_the_one_before_and_the_journal_says_so(tmp_path):
    """Three chains on two producers: sooner or later a visit goes to the producer that did not have the chain."""
    spec = msgspec.structs.replace(ROUNDS, steering=msgspec.structs.replace(ROUNDS.steering, initial=3, most=3))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished is not None
    assert state.migrations
    for move in state.migrations:
        assert isinstance(move, Migrated)
        assert {move.source, move.target} == {"cpu:0", "cpu:1"}
        assert 0 < move.step <= state.chains[move.chain].rows


def test_checkpoints_take_no_more_than_their_share_of_the_time(pool, brief, monkeypatch):
    """A save that takes a second is made at most every twenty seconds of a chain's time."""
    now = [0.0]
    monkeypatch.setattr(producers.time, "monotonic", lambda: now[0])
    chain = pool.open(brief)
    move(chain, 1)
    saves = []
    save = type(chain).save

    def slow(self, path):
        now[0] += 1.0
        saves.append(now[0])
        save(self, path)

    monkeypatch.setattr(type(chain), "save", slow)
    for _ in range(400):
        now[0] += 0.5
        pool.keep(chain)
    assert len(saves) >= 5
    assert len(saves) * 1.0 <= 0.06 * now[0]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads")
def test_a_producer_pins_its_own_thread_only(tmp_path):
    cores = os.sched_getaffinity(0)
    seen = {}
    producer = Producer(tools(tmp_path), "cpu:0", stopping=lambda: False, core=min(cores))

    def run():
        producer._pin()
        seen["there"] = os.sched_getaffinity(threading.get_native_id())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen["there"] == {min(cores)}
    assert os.sched_getaffinity(0) == cores


def test_the_journal_says_on_which_machine_and_from_which_commit_it_ran(tmp_path, monkeypatch):
    monkeypatch.setattr(campaigns, "checked_out_commit", lambda package: f"commit of {package.name}")
    with Campaign.open(QUICK, tmp_path / "run") as campaign:
        opened = campaign.state.opened
    assert "cores" in opened.host
    assert opened.commit == "commit of metalforge"


def test_a_chain_that_fails_is_given_up_once_and_the_campaign_goes_on(tmp_path, monkeypatch):
    """Two orders of a visit are on their way when its chain fails: the second must not take it up again."""
    step = ChainRun.step

    def failing(self, **options):
        if self.chain.spec.stream == 1 and self.log.end >= 10:
            raise ChainFaultError("test")
        return step(self, **options)

    monkeypatch.setattr(ChainRun, "step", failing)
    with Campaign.open(QUICK, tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished is not None
    assert [(d.chain, d.step, d.by) for d in state.decisions if d.what == "abandoned"] == [("c0001", 10, "validator")]


def test_a_brief_does_not_replace_a_chain_that_is_held(tmp_path, brief):
    """After a crash the orders that were waiting each come again with a brief: the first takes the chain up."""
    producer = Producer(tools(tmp_path / "run"), "cpu:0", stopping=lambda: False)
    order = Order(visit=0, chain="c0000", updates=10, until=100, known=brief)
    first, second = (producer.step(None, Volley("cpu:0", (order,)))[1][0].blocks[0] for _ in range(2))
    assert (first.segments[0].first, first.step) == (0, 10)
    assert (second.segments[0].first, second.step) == (10, 20)
    assert first.took
    assert not second.took
