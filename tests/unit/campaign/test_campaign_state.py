"""The fold of a journal: what it accepts, what it refuses, and chains that move between substrates."""

import msgspec
import numpy as np
import pytest

from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.state import MOST_SAMPLES, fold
from metalforge.campaign.store.reading import body_of, read_journal
from metalforge.campaign.store.records import (
    EMULATED_NPU,
    Assigned,
    BlockDone,
    Commanded,
    JoulesSample,
    Record,
    Resumed,
    Rows,
    Sampled,
    Screened,
    StageEdge,
    StageNode,
    StageSample,
    Topology,
)
from metalforge.campaign.timeline import MOST_SPANS, Span, Timeline, coarse
from metalforge.core.errors import InternalError, SpecError
from metalforge.core.quantities import Modelled
from reference.campaigns import BEGAN, records_of, spec_of
from reference.small_campaigns import QUICK, ROUNDS


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The records of a campaign that ran as fast as it could."""
    directory = tmp_path_factory.mktemp("quick") / "run"
    with Campaign.open(QUICK, directory) as campaign:
        campaign.run()
    return read_journal(directory / JOURNAL)


def test_decisions_come_before_what_they_decide(records):
    seen, ended = set(), set()
    for record in records:
        if isinstance(record, Assigned):
            seen.add(record.chain)
        elif isinstance(record, Rows):
            assert record.chain in seen
            assert record.phase != "measure" or record.chain in ended
        elif getattr(record, "what", "") == "warmup-ends":
            ended.add(record.chain)


def test_the_budget_is_kept(records):
    state = fold(records)
    assert state.finished.stopped_by == "trajectories"
    assert QUICK.budget.trajectories / 2 < state.trajectories <= QUICK.budget.trajectories


def test_rows_of_a_chain_do_not_depend_on_its_substrate_or_the_blocks(records, tmp_path):
    """The same chain alone, in one go: bit for bit what the campaign got in blocks, wherever it ran."""
    from metalforge.lattice.chain import Chain
    from metalforge.lattice.observables import measure

    state = fold(records)
    log = max(state.chains.values(), key=lambda chain: len(chain.visits))
    start = "hot" if log.stream % 2 == 0 else "cold"
    spec = QUICK.theory.chain(log.system, log.coordinate, seed=QUICK.seed, stream=log.stream, start=start)
    chain = Chain(spec, threads=1)
    plaquettes = []
    for _ in range(log.rows):
        chain.update()
        plaquettes.append(measure(chain.field).plaquette)
    assert plaquettes == log.columns["plaquette"]


def test_a_journal_without_its_beginning_is_refused(records):
    with pytest.raises(SpecError, match="opened"):
        fold(records[1:])


def test_a_spec_that_was_changed_in_the_journal_is_refused(records):
    forged = msgspec.structs.replace(records[0], spec=ROUNDS)
    with pytest.raises(SpecError, match="hash differs"):
        fold([forged, *records[1:]])


def test_a_gap_in_a_chain_is_refused(records):
    rows = [i for i, record in enumerate(records) if isinstance(record, Rows) and record.first == 0]
    with pytest.raises(InternalError, match="only 0"):
        fold([*records[: rows[0]], *records[rows[0] + 1 :]])


def test_rows_computed_again_must_be_the_same(records):
    rows = next(record for record in records if isinstance(record, Rows))
    state = fold(records)
    state.apply(rows)
    spoiled = {name: (values[0] + 1e-16, *values[1:]) for name, values in rows.columns.items()}
    spoiled["plaquette"] = (np.nextafter(rows.columns["plaquette"][0], 1.0).item(), *rows.columns["plaquette"][1:])
    with pytest.raises(InternalError, match=r"differs.*`plaquette`"):
        state.apply(msgspec.structs.replace(rows, columns=spoiled))


def test_what_a_chain_knows_is_what_the_journal_has(records):
    log = next(iter(fold(records).chains.values()))
    known = log.snapshot()
    assert known.rows == log.rows
    assert known.warmup_ends == log.warmup


def _sample(at, items, **more):
    stage = StageSample(stage="on cpu:0", items=items, busy_s=0.5 * at, waited_get_s=0.1, waited_put_s=0.0, queue=1)
    joules = JoulesSample(substrate="cpu:0", source="measured", joules=2.0 * at)
    return Sampled(at=at, window_s=at, stages=(stage,), energy=(joules,), **more)


def test_what_a_watcher_needs_is_folded_and_stays_small():
    written = records_of(spec_of(), betas=(5.68,), rows=100)
    graph = Topology(
        ordering="C",
        stages=(StageNode(name="on cpu:0", substrate="cpu:0", isolation="thread"),),
        edges=(StageEdge(source="steer", target="on cpu:0", channel="unbounded", feedback=True),),
    )
    asked = Commanded(by="somebody", what="pause", accepted=False, reason="it is paused")
    state = fold([*written, graph, asked, *(_sample(2.0 * n, n) for n in range(5000))])
    assert (state.topology, list(state.commands)) == (graph, [asked])
    assert len(state.samples) <= MOST_SAMPLES
    assert state.samples[-1].stages[0].items == 4999
    gaps = np.diff([sample.at for sample in state.samples])
    assert gaps.min() == 2.0
    assert gaps[0] >= gaps[-1] > 0
    for record in (graph, asked, state.samples[-1]):
        assert msgspec.json.decode(body_of(record), type=tuple[Record, ...]) == (record,)


def test_when_substrates_worked_is_folded():
    written = records_of(spec_of(), betas=(5.66, 5.68), rows=100)
    blocks = [r for r in written if isinstance(r, BlockDone)]
    dated = [msgspec.structs.replace(r, began=r.at - 0.9) if r in blocks else r for r in written]
    lanes = fold(dated).timelines
    assert {lane: {span.chain for span in line.spans} for lane, line in lanes.items()} == {
        "cpu:0": {"c0000"},
        "cpu:1": {"c0001"},
    }
    own = [block for block in blocks if block.substrate == "cpu:0"]
    assert [span.ended for span in lanes["cpu:0"].spans] == [block.at for block in own]
    assert lanes["cpu:0"].spans[0].began == own[0].at - 0.9
    seen = Screened(
        chain="c0000", step=100, route=EMULATED_NPU, chi=1.0, flagged=False, heads={}, at=BEGAN + 9,
        busy=Modelled(value=0.25, unit="s", profile="a board"),
    )  # fmt: skip
    state = fold([*written, seen])
    assert list(state.timelines) == [EMULATED_NPU], "blocks of earlier versions do not say when they began"
    assert state.timelines[EMULATED_NPU].spans == [("c0000", BEGAN + 8.75, BEGAN + 9, 0.25)]


def test_a_timeline_of_many_blocks_stays_small_and_forgets_no_work():
    line = Timeline()
    for n in range(100_000):
        line.add(f"c{n % 7}", 2.0 * n, 2.0 * n + 1.5)
    line.add("c6", 10.0, 20.0)  # the same chain was said to be further: nothing new
    assert len(line.spans) <= MOST_SPANS
    assert sum(span.busy for span in line.spans) == pytest.approx(150_000.0)
    assert (min(span.began for span in line.spans), max(span.ended for span in line.spans)) == (0.0, 199_999.5)
    assert sum(span.within(0.0, 100_000.0) for span in line.spans) == pytest.approx(75_000.0, rel=0.01)
    short = [Span("a", 0.0, 90.0, 90.0), Span("a", 90.0, 91.0, 1.0), Span("b", 92.0, 93.0, 1.0)]
    assert coarse(short, 10) == [short[0], Span("", 90.0, 93.0, 2.0)]


def test_one_graph_after_another_in_one_process_is_a_rewiring():
    written = records_of(spec_of(), betas=(5.68,), rows=100)
    first, second = (Topology(ordering=name, stages=(), edges=(), at=BEGAN + 20 + i) for i, name in enumerate("CA"))
    assert fold([*written[:1], first, second]).rewired == [second.at]
    again = Resumed(package_version="0", isa="plain", at=BEGAN + 20.5)
    assert fold([*written[:1], first, again, second]).rewired == []
