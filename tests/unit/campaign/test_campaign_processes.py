"""Producers as processes: the same rows as with threads, and a killed one is replaced from its chains' files."""

import os
import signal

import msgspec
import pytest

from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Rows
from metalforge.lattice.campaign import Lattice
from metalforge.pipeline.processes import Child
from reference.small_campaigns import PHYSICS, ROUNDS, run_until

HMC = Lattice(volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3, algorithm="hmc", n_steps=6)


def run(spec, directory):
    """Run a campaign to its end; return its state and its rows by chain and update."""
    with Campaign.open(spec, directory) as campaign:
        state = campaign.run()
    assert state.finished is not None
    return state, rows_of(directory)


def rows_of(directory):
    return {
        (record.chain, record.first): (record.phase, record.columns)
        for record in read_journal(directory / JOURNAL)
        if isinstance(record, Rows)
    }


@pytest.fixture(scope="module", params=PHYSICS)
def threads(request, tmp_path_factory):
    return run(PHYSICS[request.param], tmp_path_factory.mktemp("threads") / "run")


def in_processes(threads):
    """Return the spec of what was run in threads, to be run in processes."""
    spec = threads[0].spec
    return msgspec.structs.replace(spec, running=msgspec.structs.replace(spec.running, isolation="process"))


def decided(state):
    return [(d.what, d.chain, d.step, d.by, d.value) for d in state.decisions if d.what == "warmup-ends"]


def test_processes_give_the_rows_of_threads_bit_for_bit(threads, tmp_path):
    state, rows = run(in_processes(threads), tmp_path / "run")
    assert rows == threads[1]
    assert sorted(decided(state)) == sorted(decided(threads[0]))
    assert [(v.chain, v.coordinate, v.updates) for v in state.visits] == [
        (v.chain, v.coordinate, v.updates) for v in threads[0].visits
    ]
    if state.spec.theory.table() == "plasma":
        return  # heads do not read particles
    heads = [
        {(s.chain, s.step): s.heads for c in one.chains.values() for s in c.screened} for one in (state, threads[0])
    ]
    assert heads[0] == heads[1]
    assert any(heads[0].values())


@pytest.mark.chaos
def test_a_killed_producer_is_replaced_from_its_checkpoint(threads, tmp_path, monkeypatch):
    """Every process is killed once with chains in its memory and an order under way: nothing is lost or doubled."""
    request, killed = Child.request, []

    def deadly(self, verb, arguments, timeout_s):
        if verb == "step" and len(killed) < 2 and self.pid not in killed and not arguments[0].payload.orders[0].known:
            killed.append(self.pid)
            os.kill(self.pid, signal.SIGKILL)
        return request(self, verb, arguments, timeout_s)

    monkeypatch.setattr(Child, "request", deadly)
    _, rows = run(in_processes(threads), tmp_path / "run")
    assert len(killed) == 2
    assert rows == threads[1]


@pytest.mark.chaos
def test_heads_are_read_alike_in_processes(tmp_path):
    """Trajectories, whose rows come from the producers' own processes."""
    spec = msgspec.structs.replace(ROUNDS, theory=HMC, budget=msgspec.structs.replace(ROUNDS.budget, trajectories=600))
    found = []
    for isolation in ("thread", "process"):
        running = msgspec.structs.replace(spec.running, isolation=isolation)
        state, rows = run(msgspec.structs.replace(spec, running=running), tmp_path / isolation)
        screened = {(s.chain, s.step): s.heads for c in state.chains.values() for s in c.screened}
        found.append((rows, screened, sorted(decided(state))))
    assert found[0] == found[1]


@pytest.mark.chaos
def test_an_interrupted_campaign_of_processes_goes_on_with_threads_to_the_same_end(threads, tmp_path):
    directory = tmp_path / "run"
    with Campaign.open(in_processes(threads), directory) as campaign:
        assert run_until(campaign, campaign.spec.budget.trajectories // 4).finished is None
    assert not (directory / "stop").exists()
    with Campaign.resume(directory) as campaign:
        assert campaign.run().finished is not None
    assert by_update(rows_of(directory)) == by_update(threads[1])


def by_update(rows):
    """Return every number, whatever the blocks that it came in."""
    return {
        (chain, update, name): value
        for (chain, first), (_, columns) in rows.items()
        for name, column in columns.items()
        for update, value in enumerate(column, first)
    }
