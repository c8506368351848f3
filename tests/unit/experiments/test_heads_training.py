"""Heads fitted to made-up chains whose labels a linear readout can know, and to labels that nothing can know."""

import msgspec
import numpy as np
import pytest

from experiments.heads.corpus import TRAJECTORIES, ChainEntry, ChainRecord
from experiments.heads.labels import Example
from experiments.heads.predictions import values_of, without_memory
from experiments.heads.training import reservoir, train_heads
from metalforge.conductor.features import SCHEMA
from metalforge.conductor.shipped import CONDUCTOR_11, GPU_PREP_11
from metalforge.reservoir.files import expect_features, load_weights, save_weights

NAMES = [feature.name for feature in SCHEMA.features]
N = 40


def example(rng: np.random.Generator, beta: float, *, ambiguous: bool = False, sweeps: bool = True) -> Example:
    """A chain whose quality follows its plaquette, and of trajectories rejections dH; whose next_run is noise.

    `schedule` is the input of three frames ago: only a memory knows it. `deconfinement` is a curve over x and more.
    """
    x = {name: rng.normal(0, 1, N) for name in ("z", "delta_h_quarter", "z_within")}
    inputs = np.zeros((N, len(SCHEMA)))
    for name, column in x.items():
        inputs[:, NAMES.index(name)] = column
    inputs[:, NAMES.index("x")] = beta - 5
    chance = 1 / (1 + np.exp(-3 * x["delta_h_quarter"]))
    values = {
        "quality": 0.5 * x["z"] + rng.normal(0, 0.1, N),
        "cg_estimate": 200 + 50 * x["z"],
        "rejection": (rng.random(N) < chance).astype(float),
        "phase": np.full(N, float(beta > 5)),
        "next_run": np.full(N, rng.normal(1, 0.1)),
        "schedule": np.concatenate([np.zeros(3), x["z_within"][:-3]]),
        "deconfinement": np.sin(4 * (beta - 5)) + 0.1 * x["z"],
        "quenched_length": np.full(N, 2.0 + rng.random()),
    }
    entry = ChainEntry(
        part="train",
        beta=beta,
        dims=(4, 4, 4, 2),
        start="hot",
        seed=1,
        stream=0,
        updates=N,
        length=1.0,
        mass=0.0,
        algorithm="heatbath" if sweeps else "hmc",
    )
    chain = ChainRecord(entry=entry, series=np.full((len(TRAJECTORIES), N), np.nan, np.float32))
    return Example(chain=chain, rows=np.arange(N), inputs=inputs, labels=values, ambiguous=ambiguous)


def chains(seed: int, betas, each: int = 4) -> list[Example]:
    """Half of them sweeps, half trajectories."""
    rng = np.random.default_rng(seed)
    return [example(rng, beta, sweeps=k % 2 == 0) for beta in betas for k in range(2 * each)]


def sweeps(found) -> list[Example]:
    return [e for e in found if e.entry.algorithm == "heatbath"]


@pytest.fixture(scope="module")
def trained():
    return train_heads(chains(1, (4.6, 4.8, 5.2, 5.4)), weights=reservoir(1, units=64))


def test_heads_learn_what_can_be_known_and_know_what_cannot(trained) -> None:
    held_out = sweeps(chains(2, (4.7, 5.3)))
    weights, fits = trained
    said = [values_of(weights, e.inputs) for e in held_out]
    quality = np.concatenate([a["quality"] for a in said])
    truth = np.concatenate([e.labels["quality"] for e in held_out])
    assert np.sqrt(np.mean((quality - truth) ** 2)) < 0.3 * truth.std()
    phase = np.concatenate([a["phase"] > 0.5 for a in said])
    assert np.mean(phase == np.repeat([0, 1], 4 * N)) > 0.95
    assert fits["quality"].error < 0.1
    assert fits["cg_estimate"].error < 0.1


def test_a_head_is_the_residual_to_a_curve_where_that_is_better_than_a_constant(trained) -> None:
    layout = trained[0].heads
    base = layout["deconfinement"].base
    assert base.feature == "x"
    at, values = np.array(base.knots).T
    np.testing.assert_allclose(values, np.sin(4 * at / 2), atol=0.15)  # x is in units of 2 as the network sees it
    assert layout["schedule"].base is msgspec.UNSET
    held_out = sweeps(chains(9, (4.7, 5.3)))
    off = [values_of(trained[0], e.inputs)["deconfinement"] - e.labels["deconfinement"] for e in held_out]
    assert np.std(np.concatenate(off)) < 0.1


def test_heads_of_sweeps_do_not_learn_from_trajectories(trained) -> None:
    assert trained[1]["quality"].rows == trained[1]["rejection"].rows == 4 * 4 * N
    only = [e for e in chains(3, (4.6, 5.4)) if e.entry.algorithm == "hmc"]
    assert set(train_heads(only, weights=reservoir(1, units=16))[1]) == {"cg_estimate", "rejection"}


def test_probabilities_are_calibrated_on_chains_that_were_not_fitted(trained) -> None:
    held_out = [e for e in chains(3, (4.7, 5.3), each=20) if e.entry.algorithm == "hmc"]
    said = np.concatenate([values_of(trained[0], e.inputs)["rejection"] for e in held_out])
    truth = np.concatenate([e.labels["rejection"] for e in held_out])
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)):
        group = (said >= low) & (said < high)
        assert group.sum() > 30
        assert abs(said[group].mean() - truth[group].mean()) < 0.12


def test_memory_is_what_the_ablation_takes_away(trained) -> None:
    _, blind = train_heads(chains(1, (4.6, 4.8, 5.2, 5.4)), weights=without_memory(reservoir(1, units=64)))
    assert trained[1]["schedule"].error < 0.8
    assert blind["schedule"].error > 0.95
    assert blind["quality"].error < 0.1


def test_heads_without_labels_are_zero_and_marked_untrained(trained) -> None:
    layout = trained[0].heads
    for name in ("thermalization", "anomaly", "transport_D", "transport_eta"):
        assert not layout[name].trained
        assert not np.any(trained[0].w_out[layout.span(name)])
    assert layout["phase"].trained
    assert layout.names == CONDUCTOR_11.names


def test_chains_of_neither_phase_do_not_teach_a_phase() -> None:
    rng = np.random.default_rng(4)
    unclear = [example(rng, beta, ambiguous=True) for beta in (4.6, 5.4)]
    assert "phase" not in train_heads(unclear, weights=reservoir(1, units=16))[1]


def test_the_other_layout_shares_labels_and_has_a_quenched_length() -> None:
    found = train_heads(chains(5, (4.6, 5.4)), weights=reservoir(1, units=16), layout=GPU_PREP_11)[1]
    assert {"phase_classify", "reject_predict", "quality_score", "quenched_length"} <= set(found)


def test_weights_travel_with_layout_and_schema(trained, tmp_path) -> None:
    save_weights(trained[0], tmp_path / "heads.safetensors")
    read = load_weights(tmp_path / "heads.safetensors")
    expect_features(read, SCHEMA)
    assert {head.name for head in read.heads.heads if head.trained} == set(trained[1])
    inputs = chains(6, (4.9,), each=1)[0].inputs
    for name, values in values_of(trained[0], inputs).items():
        np.testing.assert_array_equal(values_of(read, inputs)[name], values)
