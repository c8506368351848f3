"""Heads that learn while a campaign runs: from settled visits, again from the journal, and trust that is lost."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from metalforge import campaign
from metalforge.campaign.running import campaign as campaign_module
from metalforge.campaign.running.book import Book
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.running.heads import load_heads
from metalforge.campaign.running.learning import Learning
from metalforge.campaign.spec import Budget, Running, Screening, Steering
from metalforge.campaign.state import fold
from metalforge.campaign.store import read_journal
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import BlockDone, Record
from metalforge.conductor.features import SCHEMA
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.retrain import FEWEST, LEARNED, Retrain
from metalforge.conductor.trust import FEWEST_PAIRS
from metalforge.conductor.worker import Worker
from metalforge.core.schema import HeadBase, HeadLayout, HeadSpec
from metalforge.lattice.campaign.lessons import lessons_of
from metalforge.reservoir import make_esn
from metalforge.reservoir.weights import Ranges
from metalforge.substrates.npu import EmulatedDevice
from reference.small_campaigns import ROUNDS, run_until

MANY = msgspec.structs.replace(
    ROUNDS,
    budget=Budget(trajectories=2400),
    steering=Steering(steerer="uniform", visit=40, initial=3, most=4),
    running=Running(block=20, deterministic=True, producers=4),
)
"""Some fifty visits to four chains."""
CURVE = HeadBase(feature="log_nt", knots=((0.0, -0.5), (3.0, -0.5)))


def network(*, base=None):
    """A network that knows nothing of its heads; `base` is what `deconfinement` is counted from."""
    heads = HeadLayout(
        name="three",
        heads=(
            HeadSpec(name="schedule", unit=LEARNED["schedule"]),
            HeadSpec(name="deconfinement", unit=LEARNED["deconfinement"], **({} if base is None else {"base": base})),
            HeadSpec(name="anomaly", activation="sigmoid"),
        ),
    )
    made = make_esn(24, len(SCHEMA), seed=3, connectivity=1.0, leak=0.3, dtype=np.float32, features=SCHEMA)
    readout = np.zeros((3, 24 + len(SCHEMA)), np.float32), np.zeros(3, np.float32)
    return replace(made.with_readout(*readout, passthrough=True, heads=heads), ranges=Ranges(5.0, 1.0))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("learning") / "run"
    campaign.run(MANY, directory)
    return read_journal(directory / JOURNAL, Record).records


def heads_of(weights):
    return replace(
        load_heads(MANY), weights=weights, domain=None, unused={}, trusted={"schedule": True, "deconfinement": True}
    )


class Taught:
    """A campaign's journal that is told record by record, and the heads that learn from it."""

    def __init__(self, folder, records, weights, *, device=None):
        self.journal = Journal.open(folder / JOURNAL, Record, mode="create")
        self.book = Book(self.journal, fold(records[:1]))
        self.heads = heads_of(weights)
        self.conductor = NetworkConductor(weights, device=device)
        self.worker = Worker(self.conductor, threaded=False)
        self.learning = Learning(self.book, self.heads, self.worker)

    def hear(self, records, *, settle):
        for record in records:
            self.book.state.apply(record)
            if settle and isinstance(record, BlockDone) and record.done:
                self.learning.settle()
        self.learning.settle()

    def close(self):
        self.worker.close()
        self.conductor.close()
        self.journal.close()

    def readout(self):
        return self.learning._retrain.readout()


@pytest.fixture
def taught(tmp_path):
    made = []

    def make(*arguments, **options):
        (tmp_path / str(len(made))).mkdir()
        made.append(Taught(tmp_path / str(len(made)), *arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_campaign_that_is_taken_up_again_learns_the_same_from_its_journal(ran, taught):
    live, again = (taught(ran, network()) for _ in range(2))
    live.hear(ran[1:], settle=True)
    again.hear(ran[1:], settle=False)
    assert live.learning._retrain.rows("deconfinement") >= FEWEST
    assert live.learning._retrain.learned_speaks("deconfinement")
    assert all(np.array_equal(a, b) for a, b in zip(live.readout(), again.readout(), strict=True))
    (note, *_) = (d for d in live.learning.notes() if d.by == "deconfinement")
    assert note.value < note.baseline
    assert "learned one speaks" in note.reason
    cut = next(i for i, r in enumerate(ran) if i > len(ran) // 2 and isinstance(r, BlockDone) and not r.done)
    resumed = taught(ran, network())
    resumed.hear(ran[1:cut], settle=False)  # a round is under way: it teaches when it is complete
    assert all(visit.round < max(v.round for v in resumed.book.state.visits) for visit in
               (resumed.book.state.visits[n] for n in resumed.learning._told))  # fmt: skip
    resumed.hear(ran[cut:], settle=True)
    assert all(np.array_equal(a, b) for a, b in zip(live.readout(), resumed.readout(), strict=True))


def test_the_better_readout_is_written_to_the_device_that_reads(ran, taught):
    device = EmulatedDevice()
    told = taught(ran, network(), device=device)
    told.hear(ran[1:], settle=True)
    counts = told.worker.statistics()
    assert counts.rewritten > 0
    assert counts.bytes_rewritten > 0
    state = told.book.state
    log = next(iter(state.chains.values()))
    (lesson, *_) = (lesson for lesson in lessons_of(state, network()) if lesson.chain == log.id)
    said = told.conductor.observe("c", np.tile(lesson.mean[24:], (40, 1)))["deconfinement"][-1, 0]
    assert said == pytest.approx(told.learning._retrain.says("deconfinement", lesson.mean)[1], abs=0.5)
    assert said != 0.0


def test_a_head_that_loses_to_its_baseline_is_not_acted_on_and_the_journal_says_so(ran, taught, monkeypatch):
    state = fold(ran)
    labels = [lesson.labels["deconfinement"] for lesson in lessons_of(state, network())]
    # The curve is right on average, the readout adds chance to it and is not let to learn.
    base = HeadBase(feature=CURVE.feature, knots=tuple((x, float(np.mean(labels))) for x, _ in CURVE.knots))
    weights = network(base=base)
    monkeypatch.setattr(Retrain, "learned_speaks", lambda self, head: False)
    wrong = replace(weights, out_bias=np.float32([0.0, 5.0, 0.0]))
    told = taught(ran, wrong)
    assert told.heads.acts("deconfinement")
    told.hear(ran[1:], settle=True)
    assert told.worker.trust.standing("deconfinement").pairs >= FEWEST_PAIRS
    assert not told.heads.acts("deconfinement")
    (lost,) = (d for d in told.book.state.decisions if d.what == "trust" and d.head == "deconfinement")
    assert (lost.trusted, lost.value < 0) == (False, True)


def test_heads_are_not_taught_by_chains_they_were_not_trained_on(ran, taught):
    told = taught(ran, network())
    other = Learning(told.book, replace(told.heads, domain="trained on others"), told.worker)
    other.settle()
    assert other.notes() == []


READ = msgspec.structs.replace(
    MANY,
    budget=Budget(trajectories=2200),
    screening=Screening(chi=0.3, every=16, device="npu"),
)
"""The heads are read on the emulated device, and say how long visits are."""


def campaign_of(directory, *, until=None):
    """Run to the end, in one go or taken up again and again."""
    with Campaign.open(READ, directory) as running:
        state = running.run() if until is None else run_until(running, until)
    while state.finished is None:
        until += 500
        with Campaign.resume(directory) as running:
            state = run_until(running, until)
    return state


@pytest.mark.chaos
def test_what_is_learned_decides_visits_and_a_campaign_that_is_taken_up_again_decides_the_same(tmp_path, monkeypatch):
    weights = replace(network(), out_bias=np.float32([1.2, 0.0, 0.0]))
    monkeypatch.setattr(campaign_module, "load_heads", lambda spec: replace(heads_of(weights), route="npu-w8a8"))
    whole = campaign_of(tmp_path / "whole")
    parts = campaign_of(tmp_path / "parts", until=500)
    assert len(parts.resumed) >= 3
    assert parts.digest() == whole.digest()
    lengths = [d for d in whole.decisions if d.what == "visit-length"]
    assert len({d.value for d in lengths}) > 1, "what the head says of visits changed as it learned"
    assert {d.by for d in whole.decisions if d.what == "retrained"} == {"schedule", "deconfinement"}
    account = campaign.Results(whole).summary
    assert account.heads["schedule"].decisions == {"visit-length": sum(d.value != d.baseline for d in lengths)}
    assert account.answers["rewritten"] > 0
    assert account.answers["bytes_rewritten"] > 0
