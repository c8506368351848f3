"""The worker: right answers to the right askers, on time, through crashes; and trust that decides."""

import random
import threading
import time
from collections import Counter

import numpy as np
import pytest

from metalforge.conductor.features import SCHEMA, SWEEPS, ChainContext, FrameMaker
from metalforge.conductor.questions import ComingTrajectory, Future, HeadQuestion
from metalforge.conductor.trust import Trust
from metalforge.conductor.worker import KEPT, WorkerStuckWarning
from metalforge.conductor.worker import Worker as PlainWorker
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.reservoir.heads import HeadValues

DIMS = (8, 8, 8, 4)
HEADS = ("beta_priority", "thermalization", "rejection", "phase", "cg_estimate", "anomaly")
LONG = 30.0
"""Seconds that a test waits for what must come; never reached."""
BASELINE = 740.0


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


CONTEXT = ChainContext(beta=5.5, dims=DIMS, algorithm="hmc")
QUARTER = [feature.name for feature in SCHEMA.features].index("delta_h_quarter")
PLACES = {head: slice(k, k + 1) for k, head in enumerate(HEADS)}


class Worker(PlainWorker):
    """A worker that knows chain `a` from its beginning."""

    def __init__(self, conductor, **options):
        super().__init__(conductor, **options)
        self.begin("a", CONTEXT)


class FakeConductor:
    """Reads a known function of the energy error at a quarter of a trajectory from every head."""

    spreads = dict.fromkeys(HEADS, 0.1)

    def __init__(self, heads=HEADS):
        self.heads = heads
        self.reads = 0
        self.steps = Counter()
        self.threads = set()
        self.crash = lambda frame: None

    def _values(self, frames):
        self.threads.add(threading.get_ident())
        for frame in frames:
            self.crash(frame)
        return HeadValues(np.array([[_said(f[QUARTER], head) for head in self.heads] for f in frames]), PLACES)

    @property
    def layout(self):
        return HeadLayout(name="fake", heads=tuple(HeadSpec(name=head) for head in self.heads))

    def read(self, chain, frame):
        self.reads += 1
        return self._values(frame[None]).at(0)

    def end(self, chain):
        self.steps.pop(chain, None)

    def observe(self, chain, frames):
        self.steps[chain] += len(frames)
        return self._values(frames)


def _said(feature, head):
    return 0.01 + float(feature) / 20 + 0.001 * HEADS.index(head)


def spoken(at, head):
    """What the fake head says: as different as the energy errors are."""
    return _said(np.log(at + np.sqrt(at * at + 1.0)), head)  # as the feature is made


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
    for k, head in enumerate(heads):
        for i in range(20):
            trust.expect(-1 - i - 20 * k, head, 1.0, 0.5)
            trust.outcome(-1 - i - 20 * k, 1.0)
        assert trust.standing(head).trusted
    return trust


def rows(*quarters):
    columns = dict.fromkeys(("plaquette", "plaquette_spatial"), [0.5] * len(quarters))
    columns |= dict.fromkeys(("polyakov_re", "polyakov_im", "delta_h", "accepted"), [0.0] * len(quarters))
    return columns | {"n_steps": [10.0] * len(quarters), "delta_h_quarter": list(quarters)}


def planned(at=5.5, **more):
    coming = ComingTrajectory(phase="warmup", n_steps=10, delta_h_quarter=at)
    return HeadQuestion(**{"head": "cg_estimate", "chain": "a", "of": coming, "baseline": BASELINE} | more)


def about(chain="a", of=0, head="thermalization", **more):
    return HeadQuestion(head=head, chain=chain, of=of, **more)


def begun(worker, chain="a", *quarters):
    worker.begin(chain, CONTEXT)
    for i, at in enumerate(quarters):
        worker.tell(chain, i, "warmup", rows(at))


def _crash(frame):
    raise RuntimeError("chip on fire")


def test_a_trusted_head_answers_and_says_so():
    conductor = FakeConductor()
    with Worker(conductor, trust=trusted()) as worker:
        answer = worker.ask(planned()).get()
    assert (answer.source, answer.head, answer.value) == ("head", "cg_estimate", spoken(5.5, "cg_estimate"))
    assert answer.why == "trusted: skill 1 over 20 pairs"
    assert answer.spread == 0.1
    assert set(answer.said) == set(HEADS)
    assert conductor.threads != {threading.get_ident()}


def test_without_trust_the_baseline_answers_while_the_head_is_read_and_scored():
    """A head earns its trust by predictions that nobody acts on yet."""
    conductor = FakeConductor()
    with Worker(conductor) as worker:
        sources = []
        for i in range(25):
            answer = worker.ask(planned(5.5 + i / 100, loss="squared")).get()
            sources.append(answer.source)
            assert answer.said["cg_estimate"] == spoken(5.5 + i / 100, "cg_estimate")
            assert answer.value == (BASELINE if i < 20 else answer.said["cg_estimate"])
            worker.outcome(answer.id, spoken(5.5 + i / 100, "cg_estimate") + 1e-6)
        assert sources == ["baseline"] * 20 + ["head"] * 5
    assert worker.trust.standing("cg_estimate").skill > 0.99
    assert conductor.reads == 25
    statistics = worker.statistics()
    assert (statistics.heads, statistics.baselines) == (5, {"untrusted": 20})
    assert str(statistics).startswith("25 questions, 5 answered by heads, 20 by a baseline (untrusted)")


def test_why_a_baseline_answered():
    trust = trusted()
    trust.mark("cg_estimate", "untrained")
    with Worker(FakeConductor(), trust=trust) as worker:
        begun(worker, "a", 0.5)
        for question, why in [
            (planned(), "untrusted: untrained"),
            (planned(head="transport_D"), "error: KeyError: 'transport_D'"),
            (about(of=0), "trusted: skill 1 over 20 pairs"),
            (about(of=7), "error: SpecError: row 7 of chain a was not told"),
            (about("never seen"), "lost: of chain never seen nothing is known: it was not begun"),
        ]:
            assert worker.ask(question).get().why == why


def test_readings_of_rows_that_are_past_can_be_asked_for_a_while():
    with Worker(FakeConductor(), trust=trusted(), threaded=False) as worker:
        begun(worker, "a", *(i / 1000 for i in range(KEPT + 5)))
        assert worker.ask(about(of=5)).get().value == spoken(5 / 1000, "thermalization")
        assert "too long ago" in worker.ask(about(of=4)).get().why


def test_sweeps_have_a_word_for_many_rows_and_an_early_question_is_counted_apart():
    with Worker(FakeConductor(), trust=trusted(), threaded=False) as worker:
        worker.begin("s", ChainContext(beta=5.5, dims=DIMS))
        worker.tell("s", 0, "warmup", rows(*[0.1] * (SWEEPS - 1)))
        assert worker.ask(about("s", of=SWEEPS - 2)).get().why.startswith("early")
        worker.tell("s", SWEEPS - 1, "measure", rows(*[0.1] * (SWEEPS + 3)))
        seen = [worker.ask(about("s", of=row)).get().source for row in (SWEEPS - 1, 2 * SWEEPS + 1)]
        assert seen == ["head", "head"]
        assert worker.ask(about("s", of=2 * SWEEPS + 2)).get().why.startswith("error")
        assert worker.ask(about("s", of=SWEEPS - 2)).get().why.startswith("early")
    statistics = worker.statistics()
    assert (statistics.rows, statistics.baselines) == (2 * SWEEPS + 2, {"early": 2, "error": 1})


def test_without_a_thread_the_caller_does_the_work():
    conductor = FakeConductor()
    with Worker(conductor, trust=trusted(), threaded=False) as worker:
        assert worker.ask(planned()).get().source == "head"
    assert conductor.threads == {threading.get_ident()}
    assert worker.ask(planned()).get().why == "closed"


# --- deadlines -------------------------------------------------------------------------------------------------------


def test_a_deadline_that_passes_in_the_queue_is_answered_by_the_baseline_at_the_deadline():
    clock, gate, conductor = FakeClock(), Gate(), FakeConductor()
    conductor.crash = gate
    with Worker(conductor, trust=trusted(), clock=clock) as worker:
        first = worker.ask(planned())
        assert gate.entered.wait(LONG)
        second = worker.ask(planned(), deadline_s=1.0)
        clock.now = 0.999
        assert not second.done()
        clock.now = 1.0
        assert second.done()
        answer = second.get()
        assert (answer.source, answer.why, answer.value) == ("baseline", "deadline", BASELINE)
        assert answer.said == {}
        gate.open.set()
        assert first.get().source == "head"
        assert second.get() is answer
    assert conductor.reads == 1  # nobody asked the head a second time
    assert worker.statistics().late == 0
    assert worker.statistics().baselines == {"deadline": 1}


@pytest.mark.parametrize("looked", [True, False], ids=["collected in time", "collected later"])
def test_a_heads_late_result_is_thrown_away_and_counted(looked):
    clock, gate, conductor = FakeClock(), Gate(), FakeConductor()
    conductor.crash = gate
    with Worker(conductor, trust=trusted(), clock=clock) as worker:
        future = worker.ask(planned(loss="squared"), deadline_s=1.0)
        assert gate.entered.wait(LONG)
        clock.now = 1.5
        if looked:
            assert future.get().why == "deadline"
        gate.open.set()
    assert (future.get().source, future.get().why) == ("baseline", "deadline")
    assert worker.statistics().late == 1
    assert worker.statistics().heads == 0
    assert worker.trust.waiting == ()  # what was thrown away is not scored either


def test_a_waiter_is_let_go_at_the_deadline_while_the_head_is_still_busy():
    gate, conductor = Gate(), FakeConductor()
    conductor.crash = gate
    with Worker(conductor, trust=trusted()) as worker:
        future = worker.ask(planned(), deadline_s=0.02)
        assert gate.entered.wait(LONG)
        assert future.get().why == "deadline"
        gate.open.set()


def test_a_deadline_of_nothing_is_answered_at_once_and_one_of_ages_is_no_overflow():
    with Worker(FakeConductor(), trust=trusted(), deadline_s=0.0) as worker:
        assert worker.ask(planned()).get().why == "deadline"
        assert worker.ask(planned(), deadline_s=1e30).get().source == "head"
        assert worker.ask(planned(), deadline_s=float("inf")).get().source == "head"


def test_answers_cannot_reach_the_wrong_waiter():
    """Two questions are fired before a loop whose checks ask too: by position, the checks would take their answers."""
    asked = [planned(5.1), planned(5.2), about()]
    with Worker(FakeConductor(), trust=trusted()) as worker:
        begun(worker, "a", 0.5)
        futures = [worker.ask(question) for question in asked]
        assert futures[2].get().value == spoken(0.5, "thermalization")
        assert [futures[i].get().value for i in (0, 1)] == [spoken(b, "cg_estimate") for b in (5.1, 5.2)]
        assert [future.get().id for future in futures] == [0, 1, 2]


# --- crashes ---------------------------------------------------------------------------------------------------------


def test_a_head_that_raises_is_replaced_by_the_baseline_and_the_worker_goes_on():
    conductor = FakeConductor()
    with Worker(conductor, trust=trusted()) as worker:
        conductor.crash = _crash
        answer = worker.ask(planned()).get()
        assert (answer.source, answer.value, answer.why) == ("baseline", BASELINE, "error: RuntimeError: chip on fire")
        conductor.crash = lambda frame: None
        assert worker.ask(planned()).get().source == "head"
    assert worker.statistics().last_error == "RuntimeError: chip on fire"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_head_that_gives_no_number_is_not_believed(value):
    conductor = FakeConductor()
    conductor.read = lambda chain, frame: HeadValues(np.full(len(HEADS), value), PLACES)
    with Worker(conductor, trust=trusted()) as worker:
        answer = worker.ask(planned()).get()
    assert answer.source == "baseline"
    assert answer.why.startswith("error: SpecError: the head gave")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_leaves_nobody_waiting_and_is_counted():
    conductor, gate = FakeConductor(), Gate()

    def exits(frame):
        gate(frame)
        raise SystemExit

    worker = Worker(conductor, trust=trusted())
    begun(worker)
    conductor.crash = exits
    futures = [worker.ask(planned()) for _ in range(3)]
    assert gate.entered.wait(LONG)
    worker.tell("a", 0, "warmup", rows(0.5, 0.5))
    gate.open.set()
    assert [future.get().why for future in futures] == ["died"] * 3
    answer = worker.ask(planned()).get()
    assert (answer.why, answer.value) == ("died", BASELINE)
    assert not worker.running
    worker.close()
    statistics = worker.statistics()
    assert (statistics.baselines, statistics.rows_lost) == ({"died": 4}, 2)


# --- chains ----------------------------------------------------------------------------------------------------------


def test_a_question_sees_the_rows_before_it_and_waits_for_none_after():
    gate, conductor = Gate(), FakeConductor()
    with Worker(conductor, trust=trusted()) as worker:
        begun(worker)
        conductor.crash = gate
        worker.ask(planned())
        assert gate.entered.wait(LONG)
        futures = []
        for i in range(5):
            worker.tell("a", i, "warmup", rows(0.1 * i))
            futures.append(worker.ask(about(of=i)))
        worker.tell("a", 5, "warmup", rows(0.9))
        gate.open.set()
        found = [future.get().value for future in futures]
    assert found == pytest.approx([spoken(0.1 * i, "thermalization") for i in range(5)])
    assert conductor.steps["a"] == 6
    assert conductor.reads == 1  # only the first question; the others were read from the chain's state


def test_a_trajectory_under_way_is_read_from_its_own_quarter_and_moves_nothing():
    conductor, seen = FakeConductor(), []
    with Worker(conductor, trust=trusted()) as worker:
        begun(worker, "a", 0.55)
        worker.ask(about()).get()
        conductor.crash = seen.append
        coming = ComingTrajectory(phase="warmup", n_steps=10, delta_h_quarter=0.25)
        worker.ask(about(head="rejection", of=coming, baseline=0.2, loss="log")).get()
    maker = FrameMaker(CONTEXT)
    maker.push("warmup", rows(0.55))
    assert np.array_equal(seen[-1], maker.coming("warmup", 10, 0.25))
    assert conductor.steps["a"] == 1


def test_a_chain_that_missed_a_row_is_not_spoken_of_until_it_is_begun_again():
    conductor = FakeConductor()
    with Worker(conductor, trust=trusted(), threaded=False) as worker:
        begun(worker, "a", 0.5)
        assert worker.ask(about()).get().source == "head"
        conductor.crash = _crash
        worker.tell("a", 1, "warmup", rows(0.5))
        conductor.crash = lambda frame: None
        worker.tell("a", 2, "warmup", rows(0.5))
        answer = worker.ask(about(of=2)).get()
        assert answer.why.startswith("lost: of chain a nothing is known: its rows from 1 on could not be read")
        assert "chip on fire" in answer.why
        begun(worker, "a", 0.5)
        assert worker.ask(about()).get().source == "head"
        worker.tell("a", 3, "warmup", rows(0.5))
        assert "row 1 comes next" in worker.ask(about()).get().why
        worker.end("a")
        assert worker.ask(about()).get().why.startswith("lost")
    assert (worker.statistics().rows, worker.statistics().rows_lost) == (2, 3)


def past(*quarters, phase="warmup"):
    return [(phase, rows(*quarters))]


def test_a_chain_that_is_taken_up_again_goes_on_where_it_was():
    conductor = FakeConductor()
    with Worker(conductor, threaded=False) as worker:
        begun(worker, "a", 0.1, 0.2)
        worker.begin("a", CONTEXT, past(0.1, 0.2))
        assert (worker.statistics().rows, conductor.steps["a"]) == (2, 2)
        worker.begin("a", CONTEXT, [*past(0.1), *past(0.2, 0.3), *past(0.4, phase="measure")])
        assert (worker.statistics().rows, conductor.steps["a"]) == (4, 4)
        worker.tell("a", 4, "measure", rows(0.5))
        said = [worker.ask(about(of=row)).get().said["thermalization"] for row in range(5)]
    assert said == pytest.approx([spoken(at, "thermalization") for at in (0.1, 0.2, 0.3, 0.4, 0.5)])
    assert worker.statistics().rows_lost == 0


SET_BACK = {
    "fewer rows": (CONTEXT, past(0.1), 0),
    "another chain": (ChainContext(beta=5.6, dims=DIMS, algorithm="hmc"), past(0.1, 0.2, 0.3), 0),
    "another row": (CONTEXT, [("warmup", rows(0.1, 0.2, 0.3) | {"plaquette": [0.5, 0.5 + 1e-16, 0.5 + 1e-15]})], 0),
}


@pytest.mark.parametrize("taken", SET_BACK)
def test_a_chain_that_is_not_as_it_was_told_is_read_from_its_first_row_on(taken):
    context, rows_, since = SET_BACK[taken]
    conductor = FakeConductor()
    with Worker(conductor, threaded=False) as worker:
        begun(worker, "a", 0.1, 0.25, 0.35)
        worker.begin("a", context, rows_, since=since)
        count = len(rows_[0][1]["plaquette"])
        assert (worker.statistics().rows, conductor.steps["a"]) == (3 + count, count)
        assert worker.ask(about(of=0)).get().said["phase"] == pytest.approx(spoken(0.1, "phase"))


@pytest.mark.parametrize("since", [0, KEPT + 9], ids=["asked about all", "asked about the last"])
def test_a_chain_is_read_again_where_somebody_will_ask_what_is_forgotten(since):
    told = [0.001 * i for i in range(KEPT + 10)]
    with Worker(FakeConductor(), threaded=False) as worker:
        begun(worker, "a", *told)
        worker.begin("a", CONTEXT, past(*told), since=since)
        assert worker.statistics().rows == (1 if since else 2) * len(told)
        assert worker.ask(about(of=since)).get().said["phase"] == pytest.approx(spoken(told[since], "phase"))


def test_a_past_that_cannot_be_read_is_lost_and_so_is_one_that_comes_too_late():
    with Worker(FakeConductor(), threaded=False) as worker:
        worker.begin("a", CONTEXT, [("warmup", {"plaquette": [0.5]})])
        assert "nothing is known" in worker.ask(about()).get().why
        worker.begin("a", CONTEXT, past(0.1))
        assert worker.ask(about()).get().said
    worker.begin("a", CONTEXT, past(0.1, 0.2))
    assert worker.statistics().rows_lost == 3


def test_a_worker_that_is_too_far_behind_is_given_up_and_no_producer_waits():
    gate, conductor = Gate(), FakeConductor()
    worker = Worker(conductor, trust=trusted(), capacity=3)
    begun(worker)
    conductor.crash = gate
    asked = worker.ask(planned())
    assert gate.entered.wait(LONG)
    for i in range(4):
        worker.tell("a", i, "warmup", rows(0.5))
    assert asked.get().why == worker.ask(planned()).get().why == "died: 3 jobs behind"
    gate.open.set()
    worker.close()
    statistics = worker.statistics()
    assert (statistics.rows, statistics.rows_lost, statistics.baselines) == (0, 4, {"died": 2})
    assert statistics.late == 1  # the head's word came, and was thrown away


# --- ending ----------------------------------------------------------------------------------------------------------


def test_close_does_what_was_told_and_asked_before_it():
    worker = Worker(FakeConductor(), trust=trusted())
    futures = [worker.ask(planned(loss="squared")) for _ in range(50)]
    worker.outcome(futures[0].id, 1.0)
    worker.close()
    assert [future.get().source for future in futures] == ["head"] * 50
    assert futures[0].id not in worker.trust.waiting  # the outcome was paired on the way out
    assert not worker.running
    after = worker.ask(planned())
    assert after.done()
    assert after.get().why == "closed"


def test_a_call_that_never_returns_does_not_hold_up_the_end():
    gate, conductor = Gate(), FakeConductor()
    worker = Worker(conductor, trust=trusted())
    conductor.crash = gate
    future = worker.ask(planned())
    assert gate.entered.wait(LONG)
    with pytest.warns(WorkerStuckWarning, match=r"within 0\.01 s"):
        worker.close(grace_s=0.01)
    assert future.get().why == "closed"
    gate.open.set()
    worker.close()
    assert future.get().why == "closed"
    assert worker.statistics().late == 1


def test_bad_questions():
    with pytest.raises(SpecError, match="beside a baseline"):
        planned(baseline=None, loss="squared")
    with Worker(FakeConductor()) as worker, pytest.raises(SpecError, match="deadline_s"):
        worker.ask(planned(), deadline_s=float("nan"))


# --- under fire ------------------------------------------------------------------------------------------------------

N_THREADS, N_QUESTIONS = 8, 10_000


def _number(at):
    return round((at - 5) * N_QUESTIONS)


def _crash_sometimes(frame):
    if _number(np.sinh(frame[QUARTER])) % 7 == 0 and frame[QUARTER] > 1:
        raise RuntimeError("chip on fire")


def _check(future, deadline_s):
    """Every answer is the head's or the baseline's answer to this very question."""
    question, answer = future.question, future.get()
    at = question.of.delta_h_quarter
    assert answer.id == future.id
    assert future.get() is answer
    if answer.source == "head":
        assert answer.value == spoken(at, question.head)
    else:
        assert answer.value == question.baseline
        allowed = {"error"} if _number(at) % 7 == 0 else set()
        assert answer.why.split(":")[0] in allowed | ({"deadline"} if deadline_s is not None else set())
    return answer


def _produce(worker, seed, numbers, checked, problems):
    """Ask in bursts with random deadlines, tell things in between, collect in another order."""
    rng = random.Random(seed)
    try:
        chain, told = f"chain {seed}", 0
        begun(worker, chain)
        while numbers:
            size = rng.randint(1, 60)
            burst, numbers = numbers[:size], numbers[size:]
            deadlines = [rng.choice([None, None, 0.0, 1e-4, 1e-3, 1e-2]) for _ in burst]
            futures = [
                worker.ask(
                    planned(5 + k / N_QUESTIONS, chain=chain, head=HEADS[k % len(HEADS)], baseline=float(k)),
                    deadline_s=d,
                )
                for k, d in zip(burst, deadlines, strict=True)
            ]
            worker.tell(chain, told, "warmup", rows(rng.random()))
            told += 1
            pairs = list(zip(futures, deadlines, strict=True))
            rng.shuffle(pairs)
            for future, deadline_s in pairs:
                answer = _check(future, deadline_s)
                if answer.source == "head" and rng.random() < 0.5:
                    worker.outcome(answer.id, answer.value)
                checked.append(future.id)
    except BaseException as error:
        problems.append(error)
        raise


def test_ten_thousand_questions_from_eight_threads_with_crashes_and_deadlines(monkeypatch):
    settled, lock, plain = Counter(), threading.Lock(), Future.settle

    def counted(self, answer):
        first = plain(self, answer)
        with lock:
            settled[self.id] += first
        return first

    monkeypatch.setattr(Future, "settle", counted)
    before = set(threading.enumerate())
    conductor = FakeConductor()
    conductor.crash = _crash_sometimes
    checked, problems = [], []
    began = time.monotonic()
    with Worker(conductor, trust=trusted()) as worker:
        threads = [
            threading.Thread(
                target=_produce, args=(worker, seed, list(range(seed, N_QUESTIONS, N_THREADS)), checked, problems)
            )
            for seed in range(N_THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
    assert problems == []
    assert time.monotonic() - began < 20  # a few seconds; nothing waits for a clock
    assert sorted(checked) == list(range(N_QUESTIONS))
    assert settled == Counter(range(N_QUESTIONS))  # every future once
    assert set(threading.enumerate()) == before
    assert len(conductor.threads) == 1
    statistics = worker.statistics()
    assert statistics.heads + sum(statistics.baselines.values()) == statistics.asked == N_QUESTIONS
    # The fight was real: all ways to an answer were taken.
    assert min(statistics.heads, *(statistics.baselines[reason] for reason in ("deadline", "error"))) > 100
    assert worker.trust.standing("cg_estimate").trusted
