"""Every ordering does what it says, read from the journal and the graph; and the design's acceptance list of 002.

Chains are of 4^3 x 2, campaigns deterministic unless the clock is the point. The network's heads are zeros: what
orderings do must not depend on what heads say.
"""

import re
import threading
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
import pytest

from metalforge.campaign.analysis.transition import locate
from metalforge.campaign.orderings import ORDERINGS, Assignee, Ordering
from metalforge.campaign.running import campaign as running
from metalforge.campaign.running import planner
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.running.graph import Check
from metalforge.campaign.running.producer import Producer
from metalforge.campaign.running.steering import predictive_variance, reason_to_wake
from metalforge.campaign.running.visits import VisitPlan
from metalforge.campaign.spec import Budget, CampaignSpec, Running, Screening, Steering, WarmUpPolicy
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import (
    Assigned,
    BlockDone,
    Checked,
    Decided,
    Estimated,
    Extended,
    Record,
    Rows,
    Screened,
)
from metalforge.core.errors import UnknownNameError
from metalforge.lattice.campaign import Lattice
from metalforge.pipeline import Bounded, Edits, EfficiencyWindow, Filtered, GraphError, Pipeline, Run, Unbounded
from reference.untaught_heads import untaught_advisor

TARGET, SCOUT = (4, 4, 4, 2), (2, 2, 2, 2)
SPEC = CampaignSpec(
    name="trace",
    seed=7,
    theory=Lattice(volumes=(TARGET,), beta_min=4.9, beta_max=5.3),
    budget=Budget(trajectories=800),
    warmup=WarmUpPolicy(longest=40, shortest=20),
    steering=Steering(steerer="gaussian-process", initial=4, visit=100, prior="off"),
    screening=Screening(window=60, chi=0.7),
    running=Running(producers=2, block=25, deterministic=True, checkpoint_s=3600.0),
)


def changed(spec=SPEC, **parts):
    """Return the spec with fields of its tables replaced."""
    tables = {
        name: msgspec.structs.replace(getattr(spec, name), **value) if isinstance(value, dict) else value
        for name, value in parts.items()
    }
    return msgspec.structs.replace(spec, **tables)


@dataclass
class Traced:
    """A campaign that ran: its journal, its graphs, what reached the checker, and its metrics at the end."""

    state: CampaignState
    records: list[Record]
    graphs: list[Pipeline]
    delivered: list[float]
    runs: list[Run]

    def of(self, kind):
        return [record for record in self.records if isinstance(record, kind)]

    def edges(self):
        return {edge.ends: edge.channel for edge in self.graphs[-1].graph.edges}

    @property
    def flagged(self):
        return {(seen.chain, seen.step) for seen in self.of(Screened) if seen.flagged}


def trace(spec, directory, *, during=None):
    """Run a campaign and note all that can be seen of it; `during(run, state)` has a thread of its own meanwhile."""
    graphs, delivered, runs, threads, failed = [], [], [], [], []
    build, step = running.build_graph, Check.step

    def watch(run, state):
        try:
            during(run, state)
        except BaseException as error:
            failed.append(error)

    class Watched(Pipeline):
        def start(self, *args, **options):
            run = super().start(*args, **options)
            runs.append(run)
            if during is not None:
                threads.append(threading.Thread(target=watch, args=(run, campaign.state)))
                threads[-1].start()
            return run

    def noted(*args, **parts):
        graphs.append(Watched(build(*args, **parts).graph))
        return graphs[-1]

    def noting(self, state, item):
        delivered.append(item.chi)
        return step(self, state, item)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "open_advisor", untaught_advisor)
        patch.setattr(running, "build_graph", noted)
        patch.setattr(Check, "step", noting)
        with Campaign.open(spec, directory) as campaign:
            state = campaign.run()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    records = read_journal(directory / JOURNAL)
    return Traced(state, records, graphs, delivered, runs)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    even = changed(steering={"steerer": "uniform"})
    specs = {
        "A": changed(even, ordering="A"),
        "B": changed(
            even,
            ordering="B",
            theory={"volumes": (TARGET, SCOUT)},
            screening={"chi": 0.22},
            budget={"trajectories": 1600},
        ),
        "C": SPEC,
        "D": changed(even, ordering="D", budget={"trajectories": 240}),
    }
    return {name: trace(spec, tmp_path_factory.mktemp(name) / "run") for name, spec in specs.items()}


# -- what each ordering is -------------------------------------------------------------------------------------------


def test_a_checks_flagged_configurations_only_and_on_another_substrate(runs):
    a = runs["A"]
    checked = {(check.chain, check.step) for check in a.of(Checked)}
    assert checked
    assert checked <= a.flagged
    assert any(not seen.flagged for seen in a.of(Screened))
    producers = {visit.substrate for visit in a.of(Assigned)}
    assert producers == {"cpu:0"}
    assert {check.substrate for check in a.of(Checked)} == {"cpu:1"}
    assert max(abs(check.drift["plaquette"]) for check in a.of(Checked)) < 1e-12


def test_b_runs_the_large_volume_at_flagged_beta_only(runs):
    b = runs["B"]
    dims, flagged, followed, unflagged = {}, set(), 0, set()
    for record in b.records:
        if isinstance(record, Assigned):
            dims[record.chain] = record.system, record.coordinate
            if record.system == TARGET:
                followed += 1
                assert record.coordinate in flagged
                assert record.by == "follow"
                assert "flagged by the scout" in record.reason
            else:
                unflagged.add(record.coordinate)
        if isinstance(record, Screened) and record.flagged and dims[record.chain][0] == SCOUT:
            flagged.add(dims[record.chain][1])
    assert followed > 0
    assert unflagged - flagged, "the scout flagged everything: the trace shows nothing"
    places = {(visit.system, visit.substrate) for visit in b.of(Assigned)}
    assert places == {(SCOUT, "cpu:0"), (TARGET, "cpu:1")}


def test_c_produces_on_both_substrates_and_checks_nothing(runs):
    c = runs["C"]
    assert {block.substrate for block in c.of(BlockDone)} == {"cpu:0", "cpu:1"}
    assert not c.of(Checked)
    stages = set(c.graphs[-1].graph.stages)
    assert {"produce-cpu.0", "produce-cpu.1", "screen", "steer", "journal"} <= stages
    assert "check" not in stages


def test_d_checks_every_configuration_and_has_no_screen(runs):
    d = runs["D"]
    assert "screen" not in d.graphs[-1].graph.stages
    assert not d.of(Screened)
    made = {(chain.id, step + 1) for chain in d.state.chains.values() for step in range(chain.rows)}
    assert sorted((check.chain, check.step) for check in d.of(Checked)) == sorted(made)
    assert {check.substrate for check in d.of(Checked)}.isdisjoint(visit.substrate for visit in d.of(Assigned))


def test_e_sleeps_below_the_threshold_and_earlier_with_a_larger_one(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "reason_to_wake", lambda state, dims: None)
    awake = changed(ordering="E", budget={"trajectories": 1200})
    runs = {
        variance: trace(changed(awake, screening={"variance": variance}), tmp_path / str(variance))
        for variance in (1e-6, 1.0)
    }
    assert runs[1e-6].state.finished.stopped_by == "trajectories"
    assert not [d for d in runs[1e-6].of(Decided) if d.what == "sleep"]
    slept = runs[1.0]
    assert slept.state.finished.stopped_by == "asleep"
    (why,) = [d for d in slept.of(Decided) if d.what == "sleep"]
    book = type("Kept", (), {"reading": lambda self: _Given(slept.state)})()
    variance = predictive_variance(book, slept.state.spec, TARGET)
    assert variance < 1.0
    assert f"{variance:.3g}" in why.reason
    assert slept.state.trajectories < runs[1e-6].state.trajectories


@pytest.mark.parametrize("deterministic", [False, True])
def test_e_wakes_its_producer_until_the_target_is_met_or_the_budget_is_spent(tmp_path, monkeypatch, deterministic):
    """A target counts as met by the estimate that is made while the producer sleeps for the third time, or never."""
    monkeypatch.setattr(VisitPlan, "_wanted", lambda *_: None)  # chains that evidence asks for are measured anyway
    spec = changed(
        ordering="E",
        budget={"trajectories": 1200, "target_error": 1e-6},
        screening={"variance": 1.0},
        running={"deterministic": deterministic},
    )
    never = trace(spec, tmp_path / "never")
    assert never.state.finished.stopped_by == "trajectories"

    def sleeps(state):
        return [d for d in state.decisions if d.what == "sleep"]

    def met(state):
        return len(sleeps(state)) == 3

    monkeypatch.setattr(running, "target_met", met)
    meets = trace(spec, tmp_path / "meets")
    assert meets.state.finished.stopped_by == "target"
    assert meets.state.trajectories < never.state.trajectories
    for run in (never, meets):
        order = [r.what if isinstance(r, Decided) else "visit" for r in run.records if _matters(r)]
        told = "".join({"visit": "v", "sleep": "s", "wake": "w"}[what] for what in order)
        # Each time it sleeps it is woken for one visit, until the end.
        assert re.fullmatch(r"v+(sw(v+))*s?(w(v+))?", told)
        assert told.count("sw") >= 2
    assert [d.system for d in sleeps(never.state)] == [TARGET] * len(sleeps(never.state))


def _matters(record):
    return isinstance(record, Assigned) or (isinstance(record, Decided) and record.what in ("sleep", "wake"))


@pytest.mark.parametrize(
    ("target", "look", "wakes"),
    [
        (None, {"error": 0.01, "established": True}, False),
        (None, {"error": 0.01, "established": False}, True),
        (None, {"error": None, "established": False}, True),
        (0.002, {"error": 0.01, "established": True}, True),
        (None, None, True),
    ],
)
def test_what_wakes_a_producer_is_evidence_that_lacks_or_a_target_that_is_not_met(runs, target, look, wakes):
    state = runs["C"].state.fork()
    state.estimates = []
    state.extended.append(Extended(spec=changed(budget={"target_error": target})))
    if look is not None:
        state.apply(Estimated(system=TARGET, trajectories=1, result=5.1, **look))
    assert (reason_to_wake(state, TARGET) is not None) == wakes


class _Given:
    def __init__(self, state):
        self.state = state

    def __enter__(self):
        return self.state

    def __exit__(self, *_):
        return None


# -- the acceptance list: v0.3 ---------------------------------------------------------------------------------------


def test_two_producers_run_at_the_same_time(tmp_path, monkeypatch):
    both = threading.Barrier(2)
    began, step = set(), Producer.step

    def meeting(self, state, item):
        if self._substrate not in began:
            began.add(self._substrate)
            both.wait(timeout=20)  # passes only while the other producer is inside its step, too
        return step(self, state, item)

    monkeypatch.setattr(Producer, "step", meeting)
    trace(changed(budget={"trajectories": 300}), tmp_path / "run")
    assert began == {"cpu:0", "cpu:1"}
    assert not both.broken


def test_results_flow_through_bounded_channels_to_steering(runs):
    for name, run in runs.items():
        edges = run.edges()
        after = "journal" if name == "D" else "screen"
        producers = [stage for stage in run.graphs[-1].graph.stages if stage.startswith("produce-")]
        assert producers
        for producer in producers:
            assert isinstance(edges[producer, after], Bounded)
            assert isinstance(edges["steer", producer], Unbounded)
        assert isinstance(edges["journal", "steer"], Bounded)
        assert all(isinstance(kind, Bounded | Filtered | Unbounded) for kind in edges.values())
        unbounded = {ends for ends, kind in edges.items() if isinstance(kind, Unbounded)}
        assert unbounded == {("steer", producer) for producer in producers}


def test_every_stage_has_metrics_of_throughput_and_queue(runs):
    c = runs["C"]
    (run,) = c.runs
    blocks = len(c.of(BlockDone))
    for stage in ("produce-cpu.0", "produce-cpu.1", "screen", "journal", "steer"):
        seen = run.metrics(stage)
        assert seen.throughput_per_s > 0
        assert seen.queue_depth == 0
        assert 0 <= seen.utilization <= 1
    assert run.metrics("journal").items_processed == run.metrics("screen").items_processed >= blocks
    assert [use.items for use in c.state.samples[-1].stages if use.stage == "journal"] == [
        run.metrics("journal").items_processed
    ]


def test_queues_are_seen_while_it_runs(tmp_path):
    depths = []

    def look(run, state):
        while run.status == "running":
            depths.append({name: metrics.queue_depth for name, metrics in run.snapshot().items()})
            run.wait_until(lambda: run.status != "running", timeout=0.005, poll=True)

    seen = trace(changed(ordering="D", budget={"trajectories": 150}), tmp_path / "run", during=look)
    # Producing is faster than checking every configuration: blocks wait, never more than the channel holds.
    waiting = max(depth["check"] for depth in depths)
    assert seen.edges()["produce-cpu.0", "check"] == Bounded(2)
    assert 1 <= waiting <= 2


def test_two_producers_agree_with_one(tmp_path, runs):
    one = trace(changed(running={"producers": 1}), tmp_path / "one")
    both = runs["C"]
    assert {visit.substrate for visit in one.of(Assigned)} == {"cpu:0"}
    found = [locate(run.state.points(TARGET), seed=1, n_bootstrap=60).transition for run in (one, both)]
    pull = (found[0].result - found[1].result) / np.hypot(found[0].error, found[1].error)
    assert abs(pull) < 3


def test_chains_of_the_same_decisions_have_the_same_bits(tmp_path):
    # An even grid does not look at results, so one and two producers decide the same chains.
    spec = changed(steering={"steerer": "uniform", "initial": 2}, budget={"trajectories": 700})
    runs = [trace(changed(spec, running={"producers": n}), tmp_path / str(n)).state for n in (1, 2)]
    first, second = runs
    assert set(first.chains) == set(second.chains)
    assert {c.substrate for c in second.chains.values()} == {"cpu:0", "cpu:1"}
    for name, chain in first.chains.items():
        other = second.chains[name]
        shared = min(chain.rows, other.rows)
        assert shared > 100
        assert (chain.coordinate, chain.warmup, chain.phases[:shared]) == (
            other.coordinate,
            other.warmup,
            other.phases[:shared],
        )
        for column, values in chain.columns.items():
            assert values[:shared] == other.columns[column][:shared]


# -- v0.4 ------------------------------------------------------------------------------------------------------------


def test_the_topology_is_typed(runs):
    graph = runs["C"].graphs[-1].graph
    with pytest.raises(GraphError, match=r"Answer.*Volley"):
        Pipeline(Edits().add_edge("screen", "produce-cpu.0", Bounded(1), feedback=True).apply(graph))


def test_filtered_channels_deliver_critical_configurations_only(runs):
    a = runs["A"]
    assert a.edges()["produce-cpu.0", "check"] == Filtered("chi >= 0.7", Bounded(2))
    assert a.delivered
    assert min(a.delivered) >= 0.7
    assert min(seen.chi or 0.0 for seen in a.of(Screened)) < 0.7


# -- v0.5 ------------------------------------------------------------------------------------------------------------


def test_a_stage_goes_and_comes_while_it_runs_and_nothing_is_lost(tmp_path, runs):
    d = runs["D"]
    receipts = []

    def rewire(run, state):
        def after(count):
            return run.wait_until(lambda: len(state.checks) >= count or run.status != "running", timeout=30, poll=True)

        after(30)
        checker = run.graph.stages["check"].stage
        receipts.append(run.reconfigure(Edits().remove_stage("check")))
        done = state.trajectories
        run.wait_until(lambda: state.trajectories > done + 30 or run.status != "running", timeout=30, poll=True)
        receipts.append(
            run.reconfigure(
                Edits()
                .add_stage("again", "cpu:1", checker)
                .add_edge("produce-cpu.0", "again", Bounded(2))
                .add_edge("again", "journal", Bounded(8))
            )
        )

    again = trace(d.state.spec, tmp_path / "again", during=rewire)
    assert [receipt.removed_stages for receipt in receipts] == [("check",), ()]
    assert receipts[1].added_stages == ("again",)
    assert 0 < len(again.of(Checked)) < len(d.of(Checked))
    # Decisions, chains, every row and the links they end with are those of the run that nobody touched.
    assert again.state.digest() == d.state.digest()
    assert not again.state.open_visits


def test_efficiency_is_measured_for_two_orderings(tmp_path):
    found = {}
    for ordering in ("A", "C"):

        def window(run, state, ordering=ordering):
            began = state.trajectories
            with EfficiencyWindow(run, results="journal", quality=lambda: state.trajectories - began) as seen:
                run.wait_until(
                    lambda: state.trajectories > began + 150 or run.status != "running", timeout=30, poll=True
                )
            found[ordering] = seen.result

        trace(changed(ordering=ordering, budget={"trajectories": 500}), tmp_path / ordering, during=window)
    for efficiency in found.values():
        assert efficiency.throughput_per_s > 0
        assert efficiency.quality > 0
        assert 0 < efficiency.utilization["cpu:0"] <= 1
    assert found["C"].utilization["cpu:1"] > found["A"].utilization["cpu:1"]


def test_auto_tries_orderings_and_says_what_each_gave(tmp_path):
    spec = changed(
        ordering="auto",
        budget={"trajectories": None, "seconds": 1.0},
        steering={"steerer": "uniform"},
        running={"deterministic": False},
    )
    run = trace(spec, tmp_path / "run")
    (decided,) = [d for d in run.of(Decided) if d.what == "ordering"]
    figures = re.findall(r"\b([A-E]) (-?\d[\d.e+-]*)", decided.reason)
    values = {ordering: float(value) for ordering, value in figures}
    assert {"A", "C", "D"} <= set(values)
    assert decided.by == max(values, key=lambda ordering: values[ordering])
    assert decided.value == pytest.approx(values[decided.by], rel=0.01)
    # What was measured on trial counts: rows of every chain are there from the first on.
    assert sum(len(rows.columns["plaquette"]) for rows in run.of(Rows)) == run.state.trajectories > 0


def test_names_and_letters_are_the_same_choice_and_hash_alike():
    spec_at = partial(CampaignSpec, theory=Lattice())
    for one in ORDERINGS.values():
        volumes = ((8, 8, 8, 4), (4, 4, 4, 4))
        letter, name = (
            CampaignSpec(ordering=text, theory=Lattice(volumes=volumes, beta_min=5.6, beta_max=5.8))
            for text in (one.letter, one.name)
        )
        assert (letter, letter.sha256, letter.ordering) == (name, name.sha256, one.letter)
    with pytest.raises(UnknownNameError, match="all-produce"):
        spec_at(ordering="all-produces")


def test_an_ordering_is_added_in_one_place(tmp_path, monkeypatch):
    def pairs(volumes, substrates):
        return Assignee(substrates[0], volumes), Assignee("cpu:0.b", volumes)

    monkeypatch.setitem(ORDERINGS, "P", Ordering("P", "pairs", "two chains at a time on one core", pairs))
    run = trace(changed(ordering="pairs", budget={"trajectories": 200}), tmp_path / "run")
    assert run.state.opened.ordering == "P"
    assert {s.name for s in run.state.opened.silicon if s.role == "produces"} == {"cpu:0", "cpu:0.b"}
