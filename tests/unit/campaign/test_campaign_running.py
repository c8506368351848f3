"""What ends a campaign, where its chains run, and what its checkpoints cost."""

import os
import threading

import msgspec
import pytest

from metalforge.campaign.running import campaign as campaigns
from metalforge.campaign.running import pool as pools
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.monitor import Monitor
from metalforge.campaign.running.pool import ChainPool
from metalforge.campaign.running.producer import Producer
from metalforge.campaign.spec import Budget
from metalforge.campaign.store.records import Assigned, Migrated
from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured
from metalforge.native.cpu_engine import cpu_engine
from reference.small_campaigns import QUICK, ROUNDS


class GrowingMeter:
    """A counter that gains a joule at every reading."""

    name = "test"

    def __init__(self):
        self.joules = 0.0

    def unavailable(self):
        return None

    def total(self):
        self.joules += 1.0
        return Measured(value=self.joules, unit="J", how="test")


def test_the_target_error_ends_a_campaign_and_it_says_so(tmp_path):
    spec = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=20_000, target_error=0.05))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished.stopped_by == "target"
    assert state.trajectories < 10_000
    assert state.latest(spec.lattice.volumes[0]).error <= 0.05


def test_joules_end_a_campaign_where_a_meter_reads_them(tmp_path):
    spec = msgspec.structs.replace(QUICK, budget=Budget(joules=12.0))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        campaign.metered_by(GrowingMeter())
        state = campaign.run()
    assert state.finished.stopped_by == "joules"
    assert state.energy["cpu:0", "measured"].energy.value >= 12.0


def test_joules_without_a_meter_are_refused_before_anything_runs(tmp_path):
    spec = msgspec.structs.replace(QUICK, budget=Budget(joules=12.0))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        meter = GrowingMeter()
        meter.unavailable = lambda: "test: nothing to read"
        campaign.metered_by(meter)
        with pytest.raises(SpecError, match="needs an energy meter: test: nothing to read"):
            campaign.run()
        assert campaign.state.trajectories == 0


@pytest.fixture
def pool(tmp_path):
    """A pool with one chain that was assigned, and the campaign around it."""
    spec = ROUNDS
    with Campaign.open(spec, tmp_path / "run") as campaign:
        campaign.book.write(
            Assigned(
                at=0.0,
                visit=0,
                round=0,
                chain="c0000",
                stream=0,
                dims=(4, 4, 4, 2),
                beta=5.1,
                updates=100,
                fresh=True,
                substrate="cpu:0",
                by="test",
                reason="test",
            )
        )
        yield ChainPool(
            campaign.directory,
            spec,
            campaign.book,
            monitor=Monitor(spec.warmup),
            make_watch=lambda state, log: None,
            engine=cpu_engine(threads=1),
        )


def test_a_chain_that_moves_to_another_substrate_goes_on_bit_for_bit(pool):
    stays = pool.take("c0000", "cpu:0")
    stays.begin_block()
    stays.advance(30, 100, lambda: False)
    moved = pool.take("c0000", "cpu:1")
    assert moved is not stays
    assert moved.links_digest() == stays.links_digest()
    for chain in (stays, moved):
        chain.advance(30, 100, lambda: False)
    assert moved.rows == stays.rows == 60
    assert moved.links_digest() == stays.links_digest()
    (record,) = pool._book.state.migrations
    assert isinstance(record, Migrated)
    assert (record.source, record.target, record.step) == ("cpu:0", "cpu:1", 30)


def test_checkpoints_take_no_more_than_their_share_of_the_time(pool, monkeypatch):
    """A save that takes a second is made at most every twenty seconds of a chain's time."""
    now = [0.0]
    monkeypatch.setattr(pools.time, "monotonic", lambda: now[0])
    chain = pool.take("c0000", "cpu:0")
    chain.advance(1, 100, lambda: False)
    saves = []
    save = type(chain).save

    def slow(self, path):
        now[0] += 1.0
        saves.append(now[0])
        save(self, path)

    monkeypatch.setattr(type(chain), "save", slow)
    for _ in range(400):
        now[0] += 0.5
        pool.keep("c0000")
    assert len(saves) >= 5
    assert len(saves) * 1.0 <= 0.06 * now[0]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads")
def test_a_producer_pins_its_own_thread_only(pool):
    cores = os.sched_getaffinity(0)
    seen = {}
    producer = Producer(ROUNDS, pool, "cpu:0", stopping=lambda: False, core=min(cores))

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
