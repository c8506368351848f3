"""One worker reads the heads of a campaign: all who ask see the same, a resume too, and its failures are no harm."""

import re
import threading
from collections import defaultdict
from functools import partial

import msgspec
import pytest

from metalforge.campaign.running import equipment
from metalforge.campaign.running import heads as running_heads
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget, Running, Screening, Steering, WarmUpPolicy
from metalforge.campaign.state import fold
from metalforge.campaign.store import read_journal
from metalforge.campaign.store.records import Record
from metalforge.conductor.questions import Future
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.shipped import default_scores
from metalforge.conductor.worker import Worker, _ChainReader
from reference.small_campaigns import ROUNDS, WITH_QUARKS, one_update, run_until
from reference.trusted_heads import scores

SEA = msgspec.structs.replace(
    ROUNDS,
    name="reader",
    theory=WITH_QUARKS,
    budget=Budget(trajectories=60),
    warmup=WarmUpPolicy(longest=12, shortest=10, cheap=2),
    steering=Steering(visit=10, initial=2),
    screening=Screening(every=2, device="software"),
    running=Running(block=5, deterministic=True, producers=1, checkpoint_s=0.0),
)
"""Deterministic, two chains with sea quarks whose warm-ups tune the steps."""
STOPS = 16
"""Updates after each of which a campaign is interrupted: all of the first warm-up, and the first of the measurement."""


class Heard:
    """Every answer that was given in time: by question, with what all heads said."""

    def __init__(self):
        self.said, self.why, self._lock = defaultdict(list), [], threading.Lock()

    def take(self, question, answer):
        with self._lock:
            self.why.append(answer.why)
            if answer.said:
                self.said[question.head, question.chain, question.of].append(dict(answer.said))


@pytest.fixture
def heard(monkeypatch):
    found, plain = Heard(), Future.settle

    def settle(self, answer):
        first = plain(self, answer)
        if first:
            found.take(self.question, answer)
        return first

    monkeypatch.setattr(Future, "settle", settle)
    return found


def _run(spec, directory):
    with Campaign.open(spec, directory) as campaign:
        return campaign.run()


def test_all_who_ask_see_the_same_reading_of_a_row_before_and_after_every_resume(heard, tmp_path):
    whole = _run(SEA, tmp_path / "whole")
    steps = [n for n in whole.chains["c0000"].columns["n_steps"] if n]
    assert len(set(steps)) > 1, "the test needs a warm-up that tunes its steps"
    alone = dict(heard.said)
    assert {head for head, _, _ in alone} == {"thermalization", "cg_estimate", "rejection", "anomaly"}
    # The screen and the warm-up asked about the same rows, and the rejection head about the same trajectories.
    rows = {key[1:]: said for key, (said, *_) in alone.items() if key[0] == "thermalization"}
    both = [(said, rows[key[1:]]) for key, (said, *_) in alone.items() if key[0] == "anomaly" and key[1:] in rows]
    assert len(both) >= 2
    assert all(one == other for one, other in both)
    quarters = [said for (head, _, of), (said, *_) in alone.items() if head == "rejection"]
    assert len([said for said in quarters if said in rows.values()]) >= 10

    heard.said.clear()
    directory = tmp_path / "parts"
    with Campaign.open(SEA, directory) as campaign:
        state = one_update(campaign)
    for _ in range(STOPS):
        with Campaign.resume(directory) as campaign:
            state = one_update(campaign)
    assert state.chains["c0000"].measured > 0
    with Campaign.resume(directory) as campaign:
        state = campaign.run()
    assert state.digest() == whole.digest()
    assert max(map(len, heard.said.values())) > STOPS / 2  # the first rows were told again and again
    for key, found in heard.said.items():
        # Blocks of one update end at other rows than those of five: the screen has more to ask about. And a trajectory
        # that begins where a rejected one did is the same question, asked of a chain that is one row further.
        wanted = alone[key] if key in alone else [rows.get(key[1:], found[0])]
        assert all(said in wanted for said in found), key
    assert {key for key in alone if key[0] != "anomaly"} <= heard.said.keys()


# --- chains that change producers ------------------------------------------------------------------------------------


MOVES = msgspec.structs.replace(ROUNDS, name="moves", budget=Budget(trajectories=1400))
"""Deterministic: chains change producers a few times."""


def _decisions(state):
    """What was decided, without dates; producers write side by side."""
    undated = [msgspec.structs.replace(d, at=0.0) for d in state.decisions if d.what != "reader"]
    return sorted(undated, key=msgspec.json.encode)


def test_what_was_read_of_a_chain_is_not_read_again_when_it_changes_producers(heard, monkeypatch, tmp_path):
    spec = msgspec.structs.replace(MOVES, screening=msgspec.structs.replace(MOVES.screening, device="npu"))
    once = _run(spec, tmp_path / "once")
    said = {key: found[-1] for key, found in heard.said.items()}
    assert f"{once.trajectories} rows read" in _counts(tmp_path / "once")

    heard.said.clear()
    with monkeypatch.context() as forgetful:
        forgetful.setattr(_ChainReader, "knows", lambda *_: False)
        again = _run(spec, tmp_path / "again")
    read = int(re.search(r"(\d+) rows read", _counts(tmp_path / "again"))[1])
    assert read > 1.5 * again.trajectories, "the test needs chains that change producers"
    assert once.digest() == again.digest()
    assert said == {key: found[-1] for key, found in heard.said.items()}
    assert _decisions(once) == _decisions(again)

    heard.said.clear()
    with Campaign.open(spec, tmp_path / "parts") as campaign:
        run_until(campaign, 900)
    with Campaign.resume(tmp_path / "parts") as campaign:  # another worker, which has to be told all of it
        parts = campaign.run()
    assert parts.digest() == once.digest()
    assert all(found[-1] == said[key] for key, found in heard.said.items() if key in said)  # parts end at other rows
    assert {key for key in said if key[0] == "thermalization"} <= heard.said.keys()

    heard.said.clear()
    with equipment.HeadReader(spec, running_heads.load_heads(spec)) as reader:
        brief = once.chains["c0000"]
        reader.watch(brief).begin(brief.segments())
    assert reader.worker.statistics().rows == brief.rows
    assert not heard.said  # its warm-up is over


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.fixture
def trusting(monkeypatch):
    """Scores in which the early stop of the head was shown to be unbiased."""
    monkeypatch.setattr(running_heads, "default_scores", scores)


def _counts(directory):
    records = read_journal(directory / JOURNAL, Record).records
    (note,) = (d.reason for d in fold(records).decisions if d.what == "reader")
    return note


def test_a_campaign_writes_who_answered(tmp_path):
    state = _run(SEA, tmp_path / "run")
    note = _counts(tmp_path / "run")
    assert f"{state.trajectories} rows read" in note
    assert "by a baseline (untrusted)" in note
    assert "lost" not in note


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("dies", [False, True], ids=["raises", "dies"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_fails_leaves_the_campaign_to_its_baselines(monkeypatch, tmp_path, dies):
    """The chains are those of a campaign whose heads are not trusted: the rule ends their warm-ups."""
    with monkeypatch.context() as untrusted:
        untrusted.setattr(running_heads, "default_scores", default_scores)
        plain = _run(SEA, tmp_path / "plain")
    count = iter(range(10**6))
    observe = NetworkConductor.observe

    def broken(self, chain, frames):
        if next(count) >= 5:
            raise SystemExit if dies else RuntimeError("chip on fire")
        return observe(self, chain, frames)

    monkeypatch.setattr(NetworkConductor, "observe", broken)
    state = _run(SEA, tmp_path / "run")
    assert state.finished is not None
    assert state.digest() == plain.digest()
    ends = [d for d in state.decisions if d.what == "warmup-ends"]
    assert ends
    assert all(d.by.startswith("rule:") for d in ends)
    note = _counts(tmp_path / "run")
    assert "5 rows read" in note
    assert ("by a baseline (died)" if dies else "by a baseline (lost)") in note
    assert "rows lost" in note


class Clock:
    """Stands still, but for what a slow network takes of it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_slow_worker_is_not_waited_for_unless_the_clock_has_no_say(monkeypatch, tmp_path, deterministic):
    clock = Clock()
    run_conductor = NetworkConductor._step

    def slow(self, chain, frames):
        clock.now += 10 * equipment.DEADLINE_S
        return run_conductor(self, chain, frames)

    monkeypatch.setattr(NetworkConductor, "_step", slow)
    monkeypatch.setattr(equipment, "Worker", partial(Worker, clock=clock))
    spec = msgspec.structs.replace(SEA, running=msgspec.structs.replace(SEA.running, deterministic=deterministic))
    state = _run(spec, tmp_path / "run")
    assert state.finished is not None
    assert ("by a baseline (deadline)" in _counts(tmp_path / "run")) is not deterministic
    if not deterministic:
        solves = [d for d in state.decisions if d.what == "judged" and d.by == "cg_estimate"]
        assert not solves, "what came too late is not judged"
