"""Heads fitted to made-up chains whose labels a linear readout can know, and to labels that nothing can know."""

import numpy as np
import pytest

from metalforge.conductor.chains import SERIES, ChainEntry, ChainRecord
from metalforge.conductor.features import FEATURES, LARGEST, scaled
from metalforge.conductor.heads_training import fitted_before, reservoir, train_heads, without_memory
from metalforge.conductor.labels import ChainLabels, Example
from metalforge.conductor.layouts import CONDUCTOR_11, GPU_PREP_11
from metalforge.conductor.predicting import ensemble_of, train_ensemble, values_of
from metalforge.core.errors import SpecError
from metalforge.reservoir.files import expect_features, load_weights, save_weights

NAMES = [feature.name for feature in FEATURES.features]
N = 40


def example(rng: np.random.Generator, beta: float, *, ambiguous: bool = False) -> Example:
    """A chain whose iterations follow its plaquette, whose rejections follow dH, and whose quality is noise.

    `schedule` is the input of three trajectories ago: only a memory knows it.
    """
    x = {name: rng.normal(0, 1, N) for name in ("plaquette", "delta_h_quarter", "std_short")}
    inputs = np.zeros((N, len(FEATURES)))
    for name, column in x.items():
        inputs[:, NAMES.index(name)] = column
    chance = 1 / (1 + np.exp(-3 * x["delta_h_quarter"]))
    values = {
        "cg_estimate": 200 + 50 * x["plaquette"],
        "rejection": (rng.random(N) < chance).astype(float),
        "phase": np.full(N, float(beta > 5)),
        "quality": np.full(N, rng.normal(100, 10)),
        "schedule": 100 + 30 * np.concatenate([np.zeros(3), x["std_short"][:-3]]),
        "quenched_length": np.full(N, 7.0),
    }
    inputs[:, NAMES.index("beta")] = (beta - 5.5) / 0.5
    entry = ChainEntry(
        part="train",
        beta=beta,
        dims=(4, 4, 4, 2),
        start="hot",
        tau=1.0,
        n_steps=5,
        stream=0,
        trajectories=N,
        untested=0,
    )
    chain = ChainRecord(entry=entry, series=np.full((N, len(SERIES)), np.nan))
    return Example(chain=chain, inputs=inputs, labels=ChainLabels(values=values, length=7, ambiguous=ambiguous))


def chains(seed: int, betas, each: int = 4) -> list[Example]:
    rng = np.random.default_rng(seed)
    return [example(rng, beta) for beta in betas for _ in range(each)]


@pytest.fixture(scope="module")
def trained():
    return train_heads(chains(1, (4.6, 4.8, 5.2, 5.4)), weights=reservoir(1, units=64))


def test_heads_learn_what_can_be_known_and_know_what_cannot(trained) -> None:
    held_out = chains(2, (4.7, 5.3))
    said = [values_of(trained, e.inputs) for e in held_out]
    cg = np.concatenate([a["cg_estimate"] for a in said])
    truth = np.concatenate([e.labels.values["cg_estimate"] for e in held_out])
    assert np.sqrt(np.mean((cg - truth) ** 2)) < 0.3 * truth.std()
    phase = np.concatenate([a["phase"] > 0.5 for a in said])
    assert np.mean(phase == np.repeat([0, 1], 4 * N)) > 0.95
    assert trained.fits["quality"].error > 0.9
    assert trained.fits["cg_estimate"].error < 0.1


def test_probabilities_are_calibrated_on_chains_that_were_not_fitted(trained) -> None:
    held_out = chains(3, (4.7, 5.3), each=20)
    said = np.concatenate([values_of(trained, e.inputs)["rejection"] for e in held_out])
    truth = np.concatenate([e.labels.values["rejection"] for e in held_out])
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)):
        group = (said >= low) & (said < high)
        assert group.sum() > 30
        assert abs(said[group].mean() - truth[group].mean()) < 0.12


def test_memory_is_what_the_ablation_takes_away(trained) -> None:
    blind = train_heads(chains(1, (4.6, 4.8, 5.2, 5.4)), weights=without_memory(reservoir(1, units=64)))
    assert trained.fits["schedule"].error < 0.8
    assert blind.fits["schedule"].error > 0.95
    assert blind.fits["cg_estimate"].error < 0.1


def test_heads_without_labels_are_zero_and_marked_untrained(trained) -> None:
    layout = trained.weights.heads
    for name in ("thermalization", "anomaly", "transport_D", "transport_eta"):
        assert not layout[name].trained
        assert not np.any(trained.weights.w_out[layout.span(name)])
    assert layout["phase"].trained
    assert layout.fingerprint() == CONDUCTOR_11.fingerprint()


def test_chains_of_neither_phase_do_not_teach_a_phase() -> None:
    rng = np.random.default_rng(4)
    unclear = [example(rng, beta, ambiguous=True) for beta in (4.6, 5.4)]
    assert "phase" not in train_heads(unclear, weights=reservoir(1, units=16)).fits


def test_the_other_layout_shares_labels_and_has_a_quenched_length() -> None:
    data = chains(5, (4.6, 5.4))
    data[0] = Example(
        chain=data[0].chain,
        inputs=data[0].inputs,
        labels=ChainLabels(
            values={**data[0].labels.values, "quenched_length": np.full(N, 19.0)}, length=19, ambiguous=False
        ),
    )
    found = train_heads(data, weights=reservoir(1, units=16), layout=GPU_PREP_11)
    assert {"phase_classify", "reject_predict", "quality_score", "quenched_length"} <= set(found.fits)


def test_weights_travel_with_layout_and_schema(trained, tmp_path) -> None:
    save_weights(trained.weights, tmp_path / "heads.safetensors")
    read = load_weights(tmp_path / "heads.safetensors")
    expect_features(read, FEATURES)
    again = fitted_before(read)
    assert set(again.fits) == set(trained.fits)
    inputs = chains(6, (4.9,), each=1)[0].inputs
    for name, values in values_of(trained, inputs).items():
        np.testing.assert_array_equal(values_of(again, inputs)[name], values)


def test_an_ensemble_says_its_mean_and_covers_the_truth_as_often_as_it_says() -> None:
    ensemble = train_ensemble(chains(7, (4.5, 4.6, 4.75, 4.85, 5.15, 5.25, 5.4, 5.5), each=10), members=2)
    held_out = chains(8, (4.7, 5.3), each=10)
    inside = []
    for e in held_out:
        said = ensemble.predict(e.inputs)["cg_estimate"]
        members = [values_of(m, e.inputs)["cg_estimate"] for m in ensemble.members]
        np.testing.assert_allclose(said.value, np.mean(members, axis=0))
        off = np.abs(said.value - e.labels.values["cg_estimate"])
        inside.append((off <= said.half_68, off <= said.half_95))
    narrow, wide = np.concatenate(inside, axis=1).mean(axis=1)
    assert narrow == pytest.approx(0.68, abs=0.08)
    assert wide == pytest.approx(0.95, abs=0.035)
    with pytest.raises(SpecError, match="member"):
        ensemble_of([])


def test_inputs_are_bounded() -> None:
    seen = scaled({"delta_h_before": 1e6, "plaquette": 0.6})
    assert seen[NAMES.index("delta_h_before")] == LARGEST
    assert seen[NAMES.index("plaquette")] == pytest.approx(1.0)
