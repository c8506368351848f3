"""A head is added as CONTRIBUTING says: a `HeadSpec` in a layout, a label; everything else follows."""

import msgspec
import numpy as np
import pytest

from metalforge.conductor.corpus import build_corpus
from metalforge.conductor.corpus_spec import CorpusGrid, CorpusSpec
from metalforge.conductor.evaluation import evaluate
from metalforge.conductor.heads_training import reservoir, train_heads
from metalforge.conductor.labels import LABELS, Label, examples, meta_rows
from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.questions import HeadQuestion
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.worker import Worker
from metalforge.core.schema import HeadSpec

SPEC = CorpusSpec(
    grids=(
        CorpusGrid(
            dims=(4, 4, 4, 2),
            train=(4.6, 4.9, 5.6),
            test=(5.3,),
            far=(4.6, 5.6),
            steps=((1.0, 5),),
            trajectories=40,
            seeds=1,
            faults=(),
        ),
    ),
    reference=30,
)

VIOLATION = HeadSpec(
    name="violation",
    activation="relu",
    label="|dH| of the trajectory, at its end",
    baseline="mean of the training couplings",
)
LAYOUT = msgspec.structs.replace(CONDUCTOR_11, name="conductor-12", heads=(*CONDUCTOR_11.heads, VIOLATION))


@pytest.fixture
def labelled(monkeypatch):
    monkeypatch.setitem(LABELS, "violation", Label(("delta_h",), lambda seen: np.abs(seen.chain.column("delta_h"))))


@pytest.mark.usefixtures("labelled")
def test_a_new_head_is_trained_scored_and_asked_for_by_its_name():
    corpus = build_corpus(SPEC)
    learn, held_out = examples(corpus, "train"), examples(corpus, "test")
    trained = train_heads(learn, weights=reservoir(1, units=32), layout=LAYOUT)
    assert trained.weights.heads["violation"].trained
    (score,) = (s for s in evaluate(trained, learn, held_out, routes=("f32-software",)) if s.name == "violation")
    assert score.metric == "rmse"
    assert score.baseline_name
    chain = corpus.part("test")[0]
    with Worker(NetworkConductor(trained.weights)) as worker:
        worker.begin("a", chain.entry.place, meta_rows(corpus, chain))
        worker.tell("a", list(enumerate(chain.trajectories())))
        answer = worker.ask(HeadQuestion(head="violation", chain="a", of=30, baseline=0.5, loss="squared")).get()
        worker.outcome(answer.id, 0.4)
    assert (answer.source, answer.value) == ("baseline", 0.5)  # no pairs yet
    assert answer.said["violation"] >= 0
    assert worker.trust.standing("violation").pairs == 1
