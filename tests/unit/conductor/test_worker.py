"""The worker: right answers to the right askers, on time, through crashes; and trust that decides."""

import random
import threading
import time
from collections import Counter

import msgspec
import numpy as np
import pytest

from metalforge.conductor import heuristics
from metalforge.conductor.events import ChainEnded, Outcome, TrajectoryEvent
from metalforge.conductor.futures import Future
from metalforge.conductor.heads import HeadReading
from metalforge.conductor.requests import (
    AnomalyCheck,
    BootstrapFromLog,
    BootstrapFromWeights,
    CgResidual,
    ExportWeights,
    PhaseClassify,
    PredictCgIterations,
    PredictQuenchedLength,
    PreScreenBeta,
    QualityScore,
    QuenchedThermCheck,
    RecommendNextRun,
    RejectPredict,
    Retrain,
    Shutdown,
    SteerAdaptive,
    SuggestParameters,
    ThermCheck,
    kind_of,
)
from metalforge.conductor.routes import ROUTES
from metalforge.conductor.trust import Trust
from metalforge.conductor.worker import Worker, WorkerError, WorkerState, WorkerStuckWarning
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec

DIMS = (8, 8, 8, 4)
HEADS = (
    "beta_priority", "param_suggest", "therm_detect", "reject_predict", "phase_classify", "cg_estimate",
    "quality_score", "anomaly_detect", "next_run", "quenched_length", "quenched_therm",
)  # fmt: skip
LONG = 30.0
"""Seconds that a test waits for what must come; never reached."""


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class FakeConductor:
    """Reads a known function of the coupling from every head; `scale` stands for the weights."""

    def __init__(self, heads=HEADS, scale=1.0):
        self.heads, self.scale = heads, scale
        self.reads = 0
        self.steps = Counter()
        self.threads = set()
        self.crash = lambda frame: None
        self.records = None

    def _values(self, frame):
        self.threads.add(threading.get_ident())
        self.crash(frame)
        return {head: HeadReading(np.array([spoken(frame["beta"], head, self.scale)]), 0.1) for head in self.heads}

    @property
    def layout(self):
        return HeadLayout(name="fake", heads=tuple(HeadSpec(name=head) for head in self.heads))

    def read(self, frame, *, chain=None):
        self.reads += 1
        return self._values(frame)

    def end(self, chain):
        self.steps.pop(chain, None)

    def observe(self, chain, frame):
        self.steps[chain] += 1
        return self._values(frame)

    def retrain(self, records):
        self.records = list(records)
        self.scale = 2.0

    def export(self, path):
        with open(path, "w") as stream:
            stream.write(str(self.scale))


def load(path):
    with open(path) as stream:
        return FakeConductor(scale=float(stream.read()))


def spoken(beta, head, scale=1.0):
    """What the fake head says at a coupling: as different as the couplings are, in the head's unit."""
    unit = {"cg_estimate": 500.0, "quenched_length": 200.0}.get(head, 1.0)
    return scale * unit * (0.01 + (beta - 5) / 20 + 0.001 * HEADS.index(head))


class Gate:
    """Holds the worker inside the conductor, without sleeping: `entered` says that it is there."""

    def __init__(self):
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, frame):
        self.entered.set()
        assert self.open.wait(LONG)


def trusted(heads=HEADS):
    """Trust that every head has earned."""
    trust = Trust()
    losses = {name: route.loss for route in ROUTES.values() for name in route.heads if route.scored}
    for k, head in enumerate(heads):
        for i in range(20):
            trust.expect(-1 - i - 20 * k, head, 1.0, 0.5, loss=losses.get(head, "squared"))
            trust.outcome(-1 - i - 20 * k, 1.0)
        assert trust.standing(head).trusted
    return trust


def cg(beta=5.5):
    return PredictCgIterations(dims=DIMS, beta=beta, mass=0.1)


def suggest(beta=5.5):
    return SuggestParameters(dims=DIMS, beta=beta)


def therm(beta=5.5, chain="a"):
    return ThermCheck(beta=beta, window=(0.5,) * 12, chain=chain)


def reject(phase, delta_h=2.0):
    return RejectPredict(beta=5.5, delta_h_quarter=delta_h, phase=phase)


FORMULA_CG = float(heuristics.cg_iterations(8**3 * 4, 0.1))


def test_a_trusted_head_answers_and_says_so():
    conductor = FakeConductor()
    with Worker(conductor, trust=trusted()) as worker:
        response = worker.ask(suggest()).get(timeout=LONG)
    assert response.source == "head"
    assert response.head == "param_suggest"
    assert response.why == "trusted: skill 1 over 20 pairs"
    assert response.request == "suggest-parameters"
    assert response.seconds.unit == "s"
    assert response.act
    # 0.036 does not divide the trajectory of 0.5: fourteen steps, none longer than the head meant.
    assert response.answer.n_steps == 14
    assert response.answer.step_size * 14 == pytest.approx(0.5)
    assert conductor.threads != {threading.get_ident()}


def test_without_trust_the_formula_answers_while_the_head_is_read_and_scored():
    """A head earns its trust by predictions that nobody acts on yet."""
    conductor = FakeConductor()
    with Worker(conductor) as worker:
        sources = []
        for i in range(25):
            response = worker.ask(suggest(5.5 + i / 100)).get(timeout=LONG)
            sources.append(response.source)
            step = 0.5 / np.ceil(0.5 / spoken(5.5 + i / 100, "param_suggest"))
            assert worker.submit_event(Outcome(id=response.id, value=float(step) + 1e-6))
        assert sources == ["heuristic"] * 20 + ["head"] * 5
        standing = worker.trust.standing("param_suggest")
    assert response.why.startswith("trusted: skill")
    assert standing.skill > 0.99
    assert conductor.reads == 25
    statistics = worker.statistics()
    assert statistics.heads == 5
    assert statistics.heuristics == {"untrusted": 20}


def test_why_a_formula_answered():
    trust = trusted()
    trust.mark("cg_estimate", "untrained")
    trust.mark("phase_classify", "unavailable: nothing feeds it")
    with Worker(FakeConductor(), trust=trust) as worker:
        for question, why in [
            (cg(), "untrusted: untrained"),
            (PhaseClassify(beta=5.5, plaquette=0.5), "unavailable: nothing feeds it"),
            (CgResidual(residuals=(1.0,), iteration=10), "unavailable: the layout has no cg_residual"),
            (therm(chain="never seen"), "unavailable: no trajectory of the question's chain was seen"),
        ]:
            response = worker.ask(question).get(timeout=LONG)
            assert (response.source, response.why) == ("heuristic", why)
            assert response.answer == ROUTES[type(question)].estimate(question).answer
            assert response.formula == ROUTES[type(question)].estimate(question).formula
        response = worker.ask(PreScreenBeta(dims=DIMS, candidates=(5.0, 5.5, 6.0))).get(timeout=LONG)
        assert response.source == "head"


def test_a_formula_says_what_it_assumed():
    with Worker(FakeConductor(heads=("phase",))) as worker:
        response = worker.ask(PredictQuenchedLength(dims=DIMS, beta=5.5, low=5.0, high=6.0)).get(timeout=LONG)
    assert "middle of the range" in response.note
    assert response.formula == "quenched_length"


def test_untrusted_heads_do_not_steer_and_trusted_ones_stay_in_the_range():
    question = SteerAdaptive(dims=DIMS, measured=(5.0, 5.2, 5.9), low=5.0, high=6.0)
    conductor = FakeConductor()
    with Worker(conductor) as worker:
        response = worker.ask(question).get(timeout=LONG)
        assert (response.source, response.formula, conductor.reads) == ("heuristic", "find_largest_gaps", 0)
        assert response.answer.beta == pytest.approx(5.55)
    with Worker(conductor, trust=trusted()) as worker:
        response = worker.ask(question).get(timeout=LONG)
        plan = worker.ask(RecommendNextRun(dims=DIMS, measured=(5.0,), low=5.0, high=6.0)).get(timeout=LONG)
    assert response.source == "head"
    assert response.answer.beta == pytest.approx(5 + 40 / 41)  # the fake's priority grows with beta
    assert plan.head == "next_run"
    assert len(plan.answer.betas) == 3
    assert min(np.abs(np.diff(plan.answer.betas))) >= 0.0249


# --- deadlines -------------------------------------------------------------------------------------------------------


def test_a_deadline_that_passes_in_the_queue_is_answered_by_the_formula_at_the_deadline():
    clock, gate, conductor = FakeClock(), Gate(), FakeConductor()
    conductor.crash = gate
    with Worker(conductor, trust=trusted(), clock=clock) as worker:
        first = worker.ask(cg())
        assert gate.entered.wait(LONG)
        second = worker.ask(cg(), deadline_s=1.0)
        clock.now = 0.999
        assert not second.done()
        assert second.get(default="not yet", timeout=0) == "not yet"
        clock.now = 1.0
        assert second.done()
        response = second.get()
        assert (response.source, response.why, response.id) == ("heuristic", "deadline", second.id)
        assert response.answer.per_solve == FORMULA_CG
        assert response.seconds.value == 1.0
        gate.open.set()
        assert first.get(timeout=LONG).source == "head"
        assert second.get() is response
    assert conductor.reads == 1  # nobody asked the head a second time
    assert worker.statistics().late == 0
    assert worker.statistics().heuristics == {"deadline": 1}


@pytest.mark.parametrize("looked", [True, False], ids=["collected in time", "collected later"])
def test_a_heads_late_result_is_thrown_away_and_counted(looked):
    clock, gate, conductor = FakeClock(), Gate(), FakeConductor()
    conductor.crash = gate
    with Worker(conductor, trust=trusted(), clock=clock) as worker:
        future = worker.ask(cg(), deadline_s=1.0)
        assert gate.entered.wait(LONG)
        clock.now = 1.5
        if looked:
            assert future.get().why == "deadline"
        gate.open.set()
    response = future.get(timeout=LONG)
    assert (response.source, response.why) == ("heuristic", "deadline")
    assert worker.statistics().late == 1
    assert worker.statistics().heads == 0
    assert worker.trust.state().pending == ()  # what was thrown away is not scored either


def test_a_waiter_is_let_go_at_the_deadline_while_the_head_is_still_busy():
    gate, conductor = Gate(), FakeConductor()
    conductor.crash = gate
    with Worker(conductor, trust=trusted()) as worker:
        future = worker.ask(cg(), deadline_s=0.02)
        assert gate.entered.wait(LONG)
        began = time.monotonic()
        response = future.get()
        assert time.monotonic() - began < 1.0
        assert response.why == "deadline"
        assert response.seconds.value >= 0.02
        assert worker.statistics().stalled.value == pytest.approx(future.stalled_s)
        gate.open.set()


def test_get_gives_the_default_after_its_timeout_and_the_future_stays_good():
    gate, conductor = Gate(), FakeConductor()
    conductor.crash = gate
    with Worker(conductor, trust=trusted()) as worker:
        future = worker.ask(cg())
        assert future.get(default=None, timeout=0.005) is None
        with pytest.raises(TimeoutError, match=r"request 0 \(predict-cg-iterations\) had no answer within 0.005 s"):
            future.get(timeout=0.005)
        gate.open.set()
        assert future.get(timeout=LONG).source == "head"


def test_a_deadline_of_nothing_is_answered_at_once_and_one_of_ages_is_no_overflow():
    with Worker(FakeConductor(), trust=trusted(), deadline_s=0.0) as worker:
        assert worker.ask(cg()).get().why == "deadline"
        assert worker.ask(cg(), deadline_s=1e30).get(timeout=1e30).source == "head"
        assert worker.ask(cg(), deadline_s=float("inf")).get().source == "head"


# --- pipelined use ---------------------------------------------------------------------------------------------------


def test_predictions_fired_before_a_phase_and_collected_after_it_cost_nothing():
    with Worker(FakeConductor(), trust=trusted()) as worker:
        fired = [worker.ask(q) for q in (PredictQuenchedLength(dims=DIMS, beta=5.5), suggest(), cg())]
        worker.ask(Retrain(records=())).get(timeout=LONG)  # the phase: ends after the worker had time for the three
        stalled = worker.statistics().stalled.value
        kinds = [type(future.get().answer).__name__ for future in fired]
        assert kinds == ["QuenchedLength", "Parameters", "Iterations"]
        assert [future.stalled_s for future in fired] == [0.0, 0.0, 0.0]
        assert worker.statistics().stalled.value == stalled


def test_stall_time_is_what_the_clock_says_between_asking_and_having():
    class TellingClock(FakeClock):
        """Tells when the waiting thread has looked at it for the third time: in ask, in get, and to begin waiting."""

        def __init__(self):
            super().__init__()
            self.looks, self.waiter, self.waiting = 0, threading.get_ident(), threading.Event()

        def __call__(self):
            if threading.get_ident() == self.waiter:
                self.looks += 1
                now = self.now
                if self.looks == 3:
                    self.waiting.set()
                return now
            return self.now

    clock, conductor = TellingClock(), FakeConductor()

    def busy(frame):
        assert clock.waiting.wait(LONG)
        clock.now = 3.0

    conductor.crash = busy
    with Worker(conductor, trust=trusted(), clock=clock) as worker:
        future = worker.ask(cg())
        assert future.get().source == "head"
        assert future.stalled_s == 3.0
        assert worker.statistics().stalled.value == 3.0


def test_answers_cannot_reach_the_wrong_waiter_as_the_origins_did():
    """Two requests are fired before a loop whose checks ask too: by position, the checks take their answers."""
    check = QuenchedThermCheck(beta=5.5, window=(0.5,) * 12)
    asked = [suggest(), cg(), check]
    fifo = [ROUTES[type(q)].estimate(q).answer for q in asked]
    assert type(fifo[0]).__name__ == "Parameters"  # negative control: what the check would get from a queue of answers
    with Worker(FakeConductor()) as worker:
        futures = [worker.ask(q) for q in asked]
        assert futures[2].get(timeout=LONG).answer == fifo[2]
        assert futures[0].get(timeout=LONG).answer == fifo[0]
        assert futures[1].get(timeout=LONG).answer == fifo[1]
        assert [future.get().id for future in futures] == [0, 1, 2]


# --- crashes ---------------------------------------------------------------------------------------------------------


def _crash(frame):
    raise RuntimeError("chip on fire")


def test_a_head_that_raises_is_replaced_by_the_formula_and_the_worker_goes_on():
    conductor = FakeConductor()
    with Worker(conductor, trust=trusted()) as worker:
        conductor.crash = _crash
        response = worker.ask(cg()).get(timeout=LONG)
        assert (response.source, response.why) == ("heuristic", "error: RuntimeError: chip on fire")
        assert response.head == "cg_estimate"
        conductor.crash = lambda frame: None
        assert worker.ask(cg()).get(timeout=LONG).source == "head"
    assert worker.statistics().last_error == "RuntimeError: chip on fire"


def test_a_head_that_raises_is_an_error_where_that_is_wanted():
    conductor = FakeConductor()
    conductor.crash = _crash
    with Worker(conductor, trust=trusted(), on_error="raise") as worker:
        future = worker.ask(cg())
        for _ in range(2):
            with pytest.raises(WorkerError, match=r"request 0 .*chip on fire") as error:
                future.get(timeout=LONG)
            assert isinstance(error.value.__cause__, RuntimeError)
        assert worker.statistics().failures == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_a_head_that_gives_no_step_size_is_not_believed(value):
    conductor = FakeConductor()
    conductor.read = lambda frame, chain=None: {"param_suggest": HeadReading(np.array([value]), None)}
    with Worker(conductor, trust=trusted()) as worker:
        response = worker.ask(suggest()).get(timeout=LONG)
    assert response.source == "heuristic"
    assert response.why.startswith("error: SpecError: the head gave")


def test_a_layout_that_promises_a_head_it_does_not_read():
    conductor = FakeConductor()
    conductor.read = lambda frame, chain=None: {}
    with Worker(conductor, trust=trusted()) as worker:
        assert worker.ask(cg()).get(timeout=LONG).why == "error: KeyError: 'cg_estimate'"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_leaves_nobody_waiting_and_can_be_started_again():
    conductor, gate = FakeConductor(), Gate()

    def exits(frame):
        gate(frame)
        raise SystemExit

    worker = Worker(conductor, trust=trusted())
    conductor.crash = exits
    futures = [worker.ask(cg()) for _ in range(3)]
    command = worker.ask(Retrain(records=()))
    assert gate.entered.wait(LONG)
    assert worker.submit_event(ChainEnded(chain="a"))
    gate.open.set()
    assert [future.get(timeout=LONG).why for future in futures] == ["died"] * 3
    with pytest.raises(WorkerError, match="died: the command was not done"):
        command.get(timeout=LONG)
    assert worker.ask(cg()).get().why == "died"
    worker.close()
    conductor.crash = lambda frame: None
    worker.restart()
    with worker:
        again = worker.ask(cg())
        assert again.get(timeout=LONG).source == "head"
        assert again.id == 5
    assert worker.statistics().events_dropped == 1


def test_two_threads_never_share_a_conductor():
    with Worker(FakeConductor()) as worker, pytest.raises(WorkerError, match="not ended"):
        worker.restart()


# --- chains and events -----------------------------------------------------------------------------------------------


def _told(chain, beta):
    return TrajectoryEvent(chain=chain, frame={"beta": beta})


def test_a_question_sees_the_trajectories_before_it_and_waits_for_none_after():
    gate, conductor = Gate(), FakeConductor()
    with Worker(conductor, trust=trusted()) as worker:
        conductor.crash = gate
        worker.ask(cg())
        assert gate.entered.wait(LONG)
        futures = []
        for i in range(5):
            worker.submit_event(_told("a", 5.0 + i))
            futures.append(worker.ask(therm(beta=9.0)))
        worker.submit_event(_told("a", 20.0))
        gate.open.set()
        found = [future.get(timeout=LONG).answer.probability for future in futures]
    assert found == pytest.approx([spoken(5.0 + i, "therm_detect") for i in range(5)])
    assert conductor.steps["a"] == 6
    assert conductor.reads == 1  # only the first question; the others were read from the chain's state


def test_a_rejection_is_read_from_the_chains_last_frame_and_its_own_quarter():
    conductor, seen = FakeConductor(), []
    with Worker(conductor, trust=trusted()) as worker:
        worker.submit_event(TrajectoryEvent(chain="a", frame={"beta": 5.6, "plaquette": 0.55, "delta_h_quarter": 9.0}))
        conductor.crash = seen.append
        worker.ask(RejectPredict(beta=5.6, delta_h_quarter=0.25, phase="measure", chain="a")).get(timeout=LONG)
    assert seen[-1] == {"beta": 5.6, "plaquette": 0.55, "delta_h_quarter": 0.25, "has_quarter": 1.0}


def test_a_chain_that_missed_a_trajectory_is_not_spoken_of_until_it_ends():
    conductor = FakeConductor()
    with Worker(conductor, trust=trusted()) as worker:
        worker.submit_event(_told("a", 5.5))
        assert worker.ask(therm()).get(timeout=LONG).source == "head"
        conductor.crash = _crash
        worker.submit_event(_told("a", 5.5))
        worker.ask(Retrain(records=())).get(timeout=LONG)
        conductor.crash = lambda frame: None
        worker.submit_event(_told("a", 5.5))
        response = worker.ask(therm()).get(timeout=LONG)
        assert response.why == "unavailable: a trajectory of chain a was not taken in (chip on fire)"
        assert worker.ask(therm(chain="b")).get(timeout=LONG).why.startswith("unavailable: no trajectory")
        worker.submit_event(ChainEnded(chain="a"))
        worker.submit_event(_told("a", 5.5))
        assert worker.ask(therm()).get(timeout=LONG).source == "head"
    assert worker.statistics().events_failed == 1


def test_events_beyond_the_capacity_are_dropped_and_counted_and_no_producer_waits():
    gate, conductor = Gate(), FakeConductor()
    with Worker(conductor, trust=trusted(), event_capacity=2) as worker:
        conductor.crash = gate
        worker.ask(cg())
        assert gate.entered.wait(LONG)
        assert [worker.submit_event(_told(chain, 5.5)) for chain in ("a", "b", "b")] == [True, True, False]
        gate.open.set()
        assert worker.ask(therm(chain="a")).get(timeout=LONG).source == "head"
        assert worker.ask(therm(chain="b")).get(timeout=LONG).why == "unavailable: a trajectory of chain b was dropped"
    statistics = worker.statistics()
    assert (statistics.events, statistics.events_dropped) == (2, 1)
    assert not worker.submit_event(_told("a", 5.5))


# --- acting ----------------------------------------------------------------------------------------------------------


def test_rejections_are_acted_on_in_warm_up_only_and_scored_where_they_are_left_to_happen():
    with Worker(FakeConductor(), trust=trusted(), audit_every=10) as worker:
        warmup = [worker.ask(reject("warmup")).get(timeout=LONG) for _ in range(20)]
        measure = [worker.ask(reject("measure")).get(timeout=LONG) for _ in range(20)]
        scored = {pending.id for pending in worker.trust.state().pending}
    assert [r.id for r in warmup if not r.act] == [0, 10]  # audited
    assert not any(r.act for r in measure)
    assert scored == {0, 10, *range(20, 40)}
    assert all(r.source == "head" for r in warmup + measure)


def test_formulas_are_not_acted_on_in_measurement_either():
    with Worker(FakeConductor(heads=("phase",))) as worker:
        for question in (
            reject("measure"),
            SuggestParameters(dims=DIMS, beta=5.5, phase="measure"),
            ThermCheck(beta=5.5, window=(0.5,) * 12, phase="measure"),
        ):
            assert not worker.ask(question).get(timeout=LONG).act
        assert worker.ask(suggest()).get(timeout=LONG).act
        assert worker.ask(AnomalyCheck(beta=5.5, plaquette=2.0)).get(timeout=LONG).act
        answer = worker.ask(reject("measure", delta_h=float("nan"))).get(timeout=LONG).answer
        assert answer.likely_rejected


# --- commands, ending, going on --------------------------------------------------------------------------------------


def test_commands(tmp_path):
    path = str(tmp_path / "weights")
    conductor = FakeConductor()
    with Worker(conductor, trust=trusted(), load_weights=load, read_log=lambda p: [p] * 3) as worker:
        done = worker.ask(Retrain(records=(1, 2))).get(timeout=LONG)
        assert (done.source, done.answer.records, conductor.records) == ("command", 2, [1, 2])
        assert worker.ask(ExportWeights(path=path)).get(timeout=LONG).answer.path == path
        assert worker.ask(BootstrapFromLog(path="log")).get(timeout=LONG).answer.records == 3
        assert conductor.records == ["log"] * 3
        worker.submit_event(_told("a", 5.5))
        assert worker.ask(therm()).get(timeout=LONG).source == "head"
        worker.ask(BootstrapFromWeights(path=path)).get(timeout=LONG)
        assert not worker.trust.standing("cg_estimate").trusted  # other weights: from the beginning
        assert worker.ask(therm()).get(timeout=LONG).why == "unavailable: chain a began with other weights"
    assert worker.statistics().commands == 4


def test_a_command_that_fails_or_is_late_is_an_error(tmp_path):
    clock, gate, conductor = FakeClock(), Gate(), FakeConductor()
    with Worker(conductor, clock=clock) as worker:
        for command in (BootstrapFromLog(path="x"), BootstrapFromWeights(path="x")):
            with pytest.raises(WorkerError, match="hint: Worker"):
                worker.ask(command).get(timeout=LONG)
        with pytest.raises(WorkerError, match=f"request 2 .*{tmp_path}") as error:
            worker.ask(ExportWeights(path=str(tmp_path))).get(timeout=LONG)
        assert isinstance(error.value.__cause__, OSError)
        conductor.crash = gate
        worker.ask(cg())
        assert gate.entered.wait(LONG)
        late = worker.ask(Retrain(records=(1,)), deadline_s=1.0)
        clock.now = 2.0
        with pytest.raises(WorkerError, match="deadline: the command was not done"):
            late.get()
        gate.open.set()
    assert conductor.records is None  # nor was it done afterwards


def test_shutdown_comes_after_everything_that_was_asked_before_it():
    worker = Worker(FakeConductor(), trust=trusted())
    futures = [worker.ask(cg()) for _ in range(50)]
    stop = worker.ask(Shutdown())
    assert stop.get(timeout=LONG).source == "command"
    assert [future.get().source for future in futures] == ["head"] * 50
    worker.close()
    assert not worker.running
    after = worker.ask(cg())
    assert after.done()
    assert after.get().why == "shutdown"
    with pytest.raises(WorkerError, match="shutdown: the command was not done"):
        worker.ask(Retrain(records=())).get()


def test_close_answers_the_queue_by_formula_and_takes_in_what_was_told():
    gate, conductor = Gate(), FakeConductor()
    worker = Worker(conductor, trust=trusted())
    conductor.crash = gate
    futures = [worker.ask(cg()) for _ in range(20)]
    assert gate.entered.wait(LONG)
    worker.submit_event(Outcome(id=0, value=30.0))
    closing = threading.Thread(target=worker.close)
    closing.start()
    assert [future.get(timeout=LONG).why for future in futures[1:]] == ["shutdown"] * 19
    gate.open.set()
    closing.join(LONG)
    assert futures[0].get().source == "head"
    assert worker.trust.state().pending == ()  # the outcome was paired on the way out
    assert conductor.reads == 1


def test_a_call_that_never_returns_does_not_hold_up_the_end():
    gate, conductor = Gate(), FakeConductor()
    worker = Worker(conductor, trust=trusted())
    conductor.crash = gate
    future = worker.ask(cg())
    assert gate.entered.wait(LONG)
    with pytest.warns(WorkerStuckWarning, match="did not return within 0.01 s"):
        worker.close(grace_s=0.01)
    assert future.get().why == "shutdown"
    with pytest.raises(WorkerError, match="two would share one conductor"):
        worker.restart()
    gate.open.set()
    worker.close()
    assert future.get().why == "shutdown"
    assert worker.statistics().late == 1


def test_a_new_process_goes_on_with_weights_trust_and_ids(tmp_path):
    with Worker(FakeConductor()) as worker:
        worker.ask(Retrain(records=())).get(timeout=LONG)  # the weights are 2 now
        for _ in range(30):
            response = worker.ask(suggest()).get(timeout=LONG)
            worker.submit_event(Outcome(id=response.id, value=0.07))
        pending = worker.ask(suggest()).get(timeout=LONG)
        state = worker.state(tmp_path / "weights")
    state = msgspec.json.decode(msgspec.json.encode(state), type=WorkerState)
    with Worker.restore(state, load_weights=load) as again:
        assert again.trust.standing("param_suggest") == worker.trust.standing("param_suggest")
        response = again.ask(suggest()).get(timeout=LONG)
        assert response.source == "head"
        assert response.answer.n_steps == np.ceil(0.5 / spoken(5.5, "param_suggest", 2.0))
        assert response.id == state.next_id > pending.id
        assert again.trust.outcome(pending.id, 0.07)  # asked before, told after
    with pytest.raises(SpecError, match="give a conductor"):
        Worker.restore(msgspec.structs.replace(state, weights=None))


@pytest.mark.parametrize("options", [{"on_error": "shrug"}, {"audit_every": 0}, {"event_capacity": 0}])
def test_bad_settings(options):
    with pytest.raises(SpecError):
        Worker(FakeConductor(), **options)


def test_bad_questions():
    with Worker(FakeConductor()) as worker:
        with pytest.raises(SpecError, match="Got dict"):
            worker.ask({"beta": 5.5})
        with pytest.raises(SpecError, match="deadline_s"):
            worker.ask(cg(), deadline_s=float("nan"))


# --- under fire ------------------------------------------------------------------------------------------------------

N_THREADS, N_REQUESTS = 8, 10_000


def _mixed(k):
    """The k-th request: each of its kind at a coupling of its own."""
    beta = 5 + k / N_REQUESTS
    frame = {"filled": 1.0}  # heads that read a chain's state read this frame instead, which the test can foretell
    kinds = [
        lambda: PreScreenBeta(dims=DIMS, candidates=(beta, beta + 1)),
        lambda: suggest(beta),
        lambda: cg(beta),
        lambda: PredictQuenchedLength(dims=DIMS, beta=beta, low=5.0, high=6.0),
        lambda: QuenchedThermCheck(beta=beta, window=(beta,) * 12, features=frame),
        lambda: ThermCheck(beta=beta, window=(beta,) * 12, features=frame),
        lambda: RejectPredict(beta=beta, delta_h_quarter=beta, phase="measure"),
        lambda: PhaseClassify(beta=beta, plaquette=0.5, centre=5.5, features=frame),
        lambda: QualityScore(beta=beta, n_measurements=k, acceptance=0.5, features=frame),
        lambda: AnomalyCheck(beta=beta, plaquette=beta, features=frame),
        lambda: SteerAdaptive(dims=DIMS, measured=(beta,), low=beta, high=beta + 1, n_candidates=5),
        lambda: RecommendNextRun(dims=DIMS, measured=(beta,), low=beta, high=beta + 1, n_candidates=5),
        lambda: CgResidual(residuals=(beta,), iteration=k),
        lambda: Retrain(records=(k,)),
    ]
    return kinds[k % len(kinds)]()


def _crash_sometimes(frame):
    if int(frame["beta"] * N_REQUESTS) % 7 == 0:
        raise RuntimeError("chip on fire")


def _by_head(question):
    """What the head would answer, or None where it crashes or is not there."""
    route = ROUTES[type(question)]
    head = route.head_in(HEADS)

    def read(beta):
        beta = question.beta if beta is None else beta
        _crash_sometimes({"beta": beta})
        return HeadReading(np.array([spoken(beta, head)]), 0.1)

    try:
        return None if head is None else route.decode(question, read)
    except RuntimeError:
        return None


def _check(future, deadline_s):
    """Every answer is the head's or the formula's answer to this very question."""
    request = future.request
    if isinstance(request, Retrain):
        try:
            response = future.get(timeout=LONG)
        except WorkerError as error:
            said = str(error)
            response = None
        if response is None:
            assert said.startswith(f"request {future.id} (retrain): deadline")
            assert deadline_s is not None
            return None
        assert response.source == "command"
    else:
        response = future.get(timeout=LONG)
        wanted = _by_head(request)
        if response.source == "head":
            assert wanted is not None
            assert response.answer == wanted
        else:
            assert response.answer == ROUTES[type(request)].estimate(request).answer
            reason = response.why.split(":")[0]
            allowed = {"error", "unavailable"} if wanted is None else set()
            assert reason in allowed | ({"deadline"} if deadline_s is not None else set())
    assert response.id == future.id
    assert response.request == kind_of(request)
    assert future.get() is response
    return response


def _produce(worker, seed, numbers, checked, problems):
    """Ask in bursts with random deadlines, tell things in between, collect in another order."""
    rng = random.Random(seed)
    try:
        while numbers:
            size = rng.randint(1, 60)
            burst, numbers = numbers[:size], numbers[size:]
            deadlines = [rng.choice([None, None, 0.0, 1e-4, 1e-3, 1e-2]) for _ in burst]
            futures = [worker.ask(_mixed(k), deadline_s=d) for k, d in zip(burst, deadlines, strict=True)]
            worker.submit_event(TrajectoryEvent(chain=f"chain {seed}", frame={"beta": 5 + rng.random()}))
            pairs = list(zip(futures, deadlines, strict=True))
            rng.shuffle(pairs)
            for future, deadline_s in pairs:
                response = _check(future, deadline_s)
                if response is not None and response.source == "head" and rng.random() < 0.5:
                    route = ROUTES[type(future.request)]
                    for part, value in enumerate(route.scored(response.answer) if route.scored else ()):
                        worker.submit_event(Outcome(id=response.id, value=value, part=part))
                checked.append(future.id)
    except BaseException as error:
        problems.append(error)
        raise


def test_ten_thousand_mixed_requests_from_eight_threads_with_crashes_and_deadlines(monkeypatch):
    resolved, lock = Counter(), threading.Lock()
    for name in ("resolve", "fail"):
        plain = getattr(Future, name)

        def counted(self, *arguments, plain=plain):
            with lock:
                resolved[self.id] += 1
            plain(self, *arguments)

        monkeypatch.setattr(Future, name, counted)
    before = set(threading.enumerate())
    conductor = FakeConductor()
    conductor.retrain = lambda records: None
    conductor.crash = _crash_sometimes
    checked, problems = [], []
    began = time.monotonic()
    with Worker(conductor, trust=trusted()) as worker:
        threads = [
            threading.Thread(
                target=_produce, args=(worker, seed, list(range(seed, N_REQUESTS, N_THREADS)), checked, problems)
            )
            for seed in range(N_THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
    assert problems == []
    assert time.monotonic() - began < 20  # a few seconds; nothing waits for a clock
    assert sorted(checked) == list(range(N_REQUESTS))
    assert resolved == Counter(range(N_REQUESTS))  # every future once
    assert set(threading.enumerate()) == before
    assert len(conductor.threads) == 1
    statistics = worker.statistics()
    answered = statistics.heads + sum(statistics.heuristics.values()) + statistics.commands + statistics.failures
    assert answered == statistics.asked == N_REQUESTS
    # The fight was real: all ways to an answer were taken.
    assert min(statistics.heads, statistics.commands, *(statistics.heuristics[r] for r in ("deadline", "error"))) > 100
    assert statistics.events_failed > 0
    assert worker.trust.standing("cg_estimate").trusted
