"""The weights in the package: they load, they are what they say, and their scores are beside them."""

import numpy as np

from metalforge.conductor.features import LARGEST, SCHEMA, FrameMaker
from metalforge.conductor.features import ChainContext as Context
from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.predicting import ROUTES
from metalforge.conductor.program import ConductorProgram
from metalforge.conductor.shipped import WEIGHTS, default_provenance, default_scores, default_weights
from metalforge.reservoir.files import expect_features
from metalforge.reservoir.weights import Ranges


def test_the_shipped_network_has_the_features_and_heads_of_the_package() -> None:
    weights = default_weights()
    expect_features(weights, SCHEMA)
    assert (weights.units, weights.inputs, weights.dtype) == (128, len(SCHEMA), np.float32)
    assert weights.heads is not None
    assert weights.heads.names == CONDUCTOR_11.names
    untrained = {head.name for head in weights.heads.heads if not head.trained}
    assert untrained == {"transport_D", "transport_eta"}
    assert len(WEIGHTS.read_bytes()) < 130_000
    assert weights.ranges == Ranges(LARGEST, 1.0)  # what a device must show: features are bounded, and so are states
    frame = FrameMaker(Context(beta=5.4, dims=(4, 4, 4, 4), algorithm="hmc")).coming("warmup", 10)
    with ConductorProgram(weights=weights).run_on() as run:
        said = run.run_conductor(frame)
    assert all(np.isfinite(values).all() for values in said.values())


def test_every_trained_head_has_a_score_on_every_route() -> None:
    found = default_scores()
    weights = default_weights()
    assert weights.heads is not None
    trained = {head.name for head in weights.heads.heads if head.trained}
    assert {(s.name, s.route) for s in found.heads} == {(name, route) for name in trained for route in ROUTES}
    for score in found.heads:
        assert score.low <= score.value <= score.high
        assert score.skill > 0 or not score.trusted
    rules = {rule.rule: rule for rule in found.thermalisation_stop.rules}
    assert not rules["trajectory 3"].unbiased
    assert found.thermalisation_stop.chains >= 80
    assert len(found.thermalisation_stop.betas) >= 3


def test_the_file_says_how_it_was_made() -> None:
    made = default_provenance()
    assert made.command
    assert len(made.corpus_sha256) == 64


def test_the_shipped_scores_hold_what_the_documents_say() -> None:
    """Skill on held-out couplings, the NPU within half a point of software, an early stop that is not trusted."""
    found = default_scores()
    scores = {(s.name, s.route): s for s in found.heads}
    for head in ("thermalization", "phase"):
        software = scores[head, "f32-software"]
        assert software.metric == "accuracy"
        for route in ("npu-w4a8-refit", "npu-w8a8"):
            assert abs(scores[head, route].value - software.value) < 0.005
    rules = {rule.rule: rule for rule in found.thermalisation_stop.rules}
    head = rules["head"]
    # Its bound is as good as that of the longest warm-up, and neither is below what is allowed: nobody is trusted.
    assert 0.3 < max(head.bias_plaquette, head.bias_polyakov) < 0.35
    assert not head.unbiased
    assert head.saved > 0.3
    assert head.premature < rules["MSER"].premature
