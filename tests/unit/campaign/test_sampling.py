"""What a watcher needs is in the journal of every campaign: its graph, how it does, when and where blocks were made."""

import os
from itertools import pairwise

import msgspec
import pytest

from metalforge.campaign.running import graph as graphs
from metalforge.campaign.running import producer
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.running.graph import Sampler, topology_of
from metalforge.campaign.state import fold
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import (
    EMULATED_NPU,
    Assigned,
    BlockDone,
    Estimated,
    Rows,
    Sampled,
    Screened,
    Topology,
)
from metalforge.pipeline import Edits, PipelineBuilder
from reference.small_campaigns import QUICK, ROUNDS

UPDATES = 500
SAMPLED = msgspec.structs.replace(
    QUICK,
    budget=msgspec.structs.replace(QUICK.budget, trajectories=UPDATES),
    screening=msgspec.structs.replace(QUICK.screening, device="npu"),
    running=msgspec.structs.replace(QUICK.running, rewire=False),
)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The journal of a campaign of a second with a sample at every look, and blocks that end after 3 ms."""
    directory = tmp_path_factory.mktemp("sampled") / "run"
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(graphs, "SAMPLE_S", 0.0)
        changed.setattr(producer, "LONGEST_S", 0.003)
        with Campaign.open(SAMPLED, directory) as campaign:
            campaign.run()
    return read_journal(directory / JOURNAL)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    """The journal of a deterministic one whose blocks would all end at once."""
    directory = tmp_path_factory.mktemp("rounds") / "run"
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(producer, "LONGEST_S", 0.0)
        with Campaign.open(ROUNDS, directory) as campaign:
            campaign.run()
    return read_journal(directory / JOURNAL)


def of(records, kind):
    return [record for record in records if isinstance(record, kind)]


def test_who_began_it_is_said_first(records):
    first = records[0]
    assert (len(first.campaign), int(first.campaign, 16) >= 0, first.pid) == (12, True, os.getpid())
    assert first.npu == "akd1000-published, emulated"


def test_the_graph_stands_before_the_first_visit(records):
    (graph,) = of(records, Topology)
    assert records.index(graph) < records.index(of(records, Assigned)[0])
    names = {stage.name: stage for stage in graph.stages}
    assert names["produce-cpu.0"].isolation == "thread"
    assert names["screen"].substrate == EMULATED_NPU
    (back,) = [edge for edge in graph.edges if (edge.source, edge.target) == ("steer", "produce-cpu.1")]
    assert (back.feedback, back.channel) == (True, "Unbounded")
    assert {end for edge in graph.edges for end in (edge.source, edge.target)} == set(names)


def test_samples_are_sums_that_grow_to_what_was_done(records):
    samples, (graph,) = of(records, Sampled), of(records, Topology)
    assert len(samples) > 2
    for one, other in pairwise(samples):
        assert one.window_s <= other.window_s
        for before, after in zip(one.stages, other.stages, strict=True):
            assert before.items <= after.items
    last = samples[-1]
    assert {stage.stage for stage in last.stages} == {stage.name for stage in graph.stages}
    done = {stage.stage: stage for stage in last.stages}
    assert done["journal"].items == sum(done[f"produce-cpu.{i}"].items for i in (0, 1)) >= len(of(records, BlockDone))
    for stage in last.stages:
        assert 0 <= stage.busy_s + stage.waited_get_s + stage.waited_put_s <= last.window_s + 0.1
    assert done["produce-cpu.0"].busy_s > 0
    assert done["produce-cpu.0"].queue == 0
    board = [[e.joules for e in s.energy if (e.substrate, e.source) == (EMULATED_NPU, "modelled")] for s in samples]
    assert board == sorted(board)
    assert board[-1][0] > 0


def test_blocks_end_after_a_time_and_say_when_they_began(records):
    blocks = of(records, BlockDone)
    for block in blocks:
        assert records[0].at <= block.began <= block.at
    assert len(blocks) > 2 * UPDATES / QUICK.running.block, "hardly one of them had all of its updates"
    assert {"cpu:0", "cpu:1", EMULATED_NPU} == set(fold(records).timelines)


def test_a_deterministic_campaign_does_not_look_at_the_clock(rounds):
    assert {len(rows.columns["plaquette"]) for rows in of(rounds, Rows)} >= {30}


def test_estimates_say_what_they_rest_on(rounds):
    found = [look for look in of(rounds, Estimated) if look.result is not None]
    assert found
    for look in found:
        (item,) = [item for item in look.evidence if item.name == "overlap of neighbours"]
        assert look.overlap == item.value
        assert look.crossings >= 0


def test_screens_are_charged_what_the_board_is(records):
    charged = sum(record.busy.value for record in of(records, Screened))
    spent = sum(record.energy.value for record in of(records, Screened))
    (board,) = [e for e in fold(records).energy.values() if e.substrate == EMULATED_NPU]
    assert 0 < charged <= board.busy.value * (1 + 1e-9)
    assert charged == pytest.approx(board.busy.value, rel=0.2), "beside loads, and rows after the last block of a chain"
    assert spent == pytest.approx(charged * 0.911, rel=0.5), "watts of the published board"


def test_visits_say_what_they_rest_on(rounds):
    chosen = [visit for visit in of(rounds, Assigned) if visit.candidates]
    assert chosen
    for visit in chosen:
        assert len(visit.candidates) == len(visit.acquisition) <= 33
        assert list(visit.candidates) == sorted(visit.candidates)
        assert visit.mean > 0 < visit.width
        if "asked for" not in visit.reason:  # no chain that was there was near enough
            nearest = min(range(len(visit.candidates)), key=lambda i: abs(visit.candidates[i] - visit.coordinate))
            assert visit.candidates[nearest] == pytest.approx(visit.coordinate, abs=1e-6)
            assert visit.acquisition[nearest] == max(visit.acquisition)
    assert all(visit.mean is None for visit in of(rounds, Assigned) if "a first look" in visit.reason)


class Kept:
    """A book that keeps what is written."""

    def __init__(self):
        self.records = []

    def write(self, *records):
        self.records += records


def test_a_graph_that_is_rewired_by_anybody_is_written_again():
    builder = PipelineBuilder("rewired").stage("numbers", None, lambda: iter(range(10**9)))
    builder.stage("sum", "host", lambda item: None).edge("numbers", "sum")
    graph, book, now = builder.build(), Kept(), [0.0]
    sampler = Sampler(book, graph.graph, "C", lambda: (), clock=lambda: now[0])
    with graph.start() as run:
        sampler.look(run)
        assert [type(record) for record in book.records] == [Topology], "no sample is due, and nothing has changed"
        run.reconfigure(Edits().add_stage("more", "host", lambda item: None).add_edge("numbers", "more"))
        now[0] = 2.5
        sampler.look(run)
        sampler.look(run)
        run.stop()
    first, second, sample = book.records
    assert {stage.name for stage in second.stages} - {stage.name for stage in first.stages} == {"more"}
    assert second == topology_of(run.graph, "C")
    assert sample.window_s == 2.5
    assert [stage.stage for stage in sample.stages] == ["numbers", "sum", "more"]
