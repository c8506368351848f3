"""A head is added as CONTRIBUTING says: a `HeadSpec` in a layout, a label; everything else follows."""

import msgspec
import numpy as np
import pytest

from experiments.heads.evaluation import evaluate
from experiments.heads.labels import LABELS, context_of, examples
from experiments.heads.training import reservoir, train_heads
from metalforge.conductor.features import FrameMaker
from metalforge.conductor.program import ConductorProgram
from metalforge.conductor.shipped import CONDUCTOR_11
from metalforge.core.schema import HeadSpec
from reference.made_up_chains import corpus, scan

SPREAD = HeadSpec(
    name="spread",
    activation="relu",
    label="the deviation of |L| over the frame, in per cent",
    baseline="constant",
)
LAYOUT = msgspec.structs.replace(CONDUCTOR_11, name="conductor-12", heads=(*CONDUCTOR_11.heads, SPREAD))


def spread(seen):
    return np.array([100 * seen.chain.loop[row - 15 : row + 1].std() for row in seen.rows])


@pytest.fixture
def labelled(monkeypatch):
    monkeypatch.setitem(LABELS, "spread", spread)


@pytest.mark.usefixtures("labelled")
def test_a_new_head_is_trained_scored_and_asked_for_by_its_name():
    made = corpus(*scan((4.6, 4.9, 5.2, 5.6)), *scan((5.0, 5.3), "test", first=40, seed=2027))
    learn, held_out = examples(made, "train"), examples(made, "test")
    weights, _ = train_heads(learn, weights=reservoir(1, units=32), layout=LAYOUT)
    assert weights.heads["spread"].trained
    (score,) = (s for s in evaluate(weights, learn, held_out, routes=("f32-software",)) if s.name == "spread")
    assert score.metric == "rmse"
    assert score.baseline_name
    chain = made.part("test")[0]
    columns = {name: column.tolist() for name, column in chain.columns.items()}
    frames = FrameMaker(context_of(chain.entry)).push("measure", columns)
    with ConductorProgram(weights) as network:
        assert network.through(frames.values)["spread"].min() >= 0
