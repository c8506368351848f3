"""The weights in the package: they load, they are what they say, and their scores are beside them."""

import numpy as np

from experiments.heads.predictions import ROUTES
from metalforge.conductor.features import LARGEST, SCHEMA, FrameMaker
from metalforge.conductor.features import ChainContext as Context
from metalforge.conductor.program import ConductorProgram
from metalforge.conductor.shipped import (
    CONDUCTOR_11,
    GPU_PREP_11,
    shipped_provenance,
    shipped_scores,
    shipped_weights,
)
from metalforge.reservoir.files import expect_features
from metalforge.reservoir.weights import Ranges


def test_the_shipped_network_has_the_features_and_heads_of_the_package() -> None:
    weights = shipped_weights()
    expect_features(weights, SCHEMA)
    assert (weights.units, weights.inputs, weights.dtype) == (128, len(SCHEMA), np.float32)
    assert weights.heads is not None
    assert weights.heads.names == CONDUCTOR_11.names
    untrained = {head.name for head in weights.heads.heads if not head.trained}
    assert untrained == {"transport_D", "transport_eta"}
    assert weights.ranges == Ranges(LARGEST, 1.0)  # what a device must show: features are bounded, and so are states
    seen = {name: [0.5] for name in ("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im")}
    frames = FrameMaker(Context(beta=5.4, dims=(4, 4, 4, 4), algorithm="hmc")).push("warmup", seen).values
    with ConductorProgram(weights) as run:
        said = run.run_conductor(frames[0])
    assert all(np.isfinite(values).all() for values in said.values())


def test_every_trained_head_has_a_score_on_every_route() -> None:
    found = shipped_scores()
    weights = shipped_weights()
    assert weights.heads is not None
    trained = {head.name for head in weights.heads.heads if head.trained}
    assert {(s.name, s.route) for s in found.heads} == {(name, route) for name in trained for route in ROUTES}
    for score in found.heads:
        assert score.low <= score.value <= score.high
        assert score.skill_low is not None
        assert score.skill_low > 0 or not score.trusted
        assert score.clusters > 5
    kinds = {(kind.algorithm, kind.flavors): set(kind.heads) for kind in found.tested_on}
    assert set(kinds) == {("heatbath", 0), ("hmc", 0), ("hmc", 4)}
    assert kinds["heatbath", 0] | kinds["hmc", 4] == trained
    assert "rejection" not in kinds["heatbath", 0]


def test_the_file_says_how_it_was_made() -> None:
    made = shipped_provenance()
    assert made.command.startswith("python -m experiments heads corpus --grid faults --out corpus")
    assert made.command.endswith("python -m experiments heads train --corpus corpus --seed 1 --layout conductor-11")
    assert (made.seed, made.corpus_seed) == (1, 2026)
    assert len(made.corpus_sha256) == 64


def test_the_npu_says_what_software_says() -> None:
    scores = {(s.name, s.route): s for s in shipped_scores().heads}
    for name in {name for name, _ in scores}:
        software = scores[name, "f32-software"]
        for route in ("npu-w4a8-refit", "npu-w8a8"):
            assert abs(scores[name, route].value - software.value) < 0.1 * abs(software.value), (name, route)


def test_the_other_layout_ships_with_its_scores() -> None:
    weights, found = shipped_weights("gpu-prep-11"), shipped_scores("gpu-prep-11")
    expect_features(weights, SCHEMA)
    assert weights.heads is not None
    assert weights.heads.names == GPU_PREP_11.names
    assert {s.name for s in found.heads} == set(GPU_PREP_11.names)
    scores = {s.name: s for s in found.heads if s.route == "f32-software"}
    assert scores["quenched_length"].trusted
    assert scores["quenched_length"].baseline_name
