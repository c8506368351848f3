"""Frames mean the same on every lattice, for every start and however rows are cut."""

import numpy as np
import pytest

from metalforge.conductor.curves import plaquette_of
from metalforge.conductor.features import LARGEST, SCHEMA, SWEEPS, ChainContext, FrameMaker
from metalforge.core.errors import SpecError
from metalforge.lattice.chain import Chain, ChainSpec
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp

NAMES = [feature.name for feature in SCHEMA.features]
COLUMNS = ("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im")


def column(frames, name):
    return frames.values[:, NAMES.index(name)]


def chain_columns(dims, beta, updates, warmup, **more):
    spec = ChainSpec(dims=dims, beta=beta, seed=7, **more)
    run = ChainRun(Chain(spec, threads=1), WarmUp(total=warmup), COLUMNS)
    for _ in range(warmup + updates):
        run.step()
    return {name: np.array(values[warmup:]) for name, values in run.log.columns.items()}


def made_up(n, seed=0, **more):
    rng = np.random.default_rng(seed)
    columns = {
        "plaquette": 0.55 + 0.004 * rng.standard_normal(n),
        "plaquette_spatial": 0.55 + 0.004 * rng.standard_normal(n),
        "polyakov_re": 0.1 * rng.standard_normal(n),
        "polyakov_im": 0.1 * rng.standard_normal(n),
    }
    return columns | more


def trajectories(n, seed=1):
    rng = np.random.default_rng(seed)
    return made_up(
        n,
        delta_h=rng.standard_normal(n),
        delta_h_quarter=rng.standard_normal(n),
        accepted=(rng.random(n) < 0.7).astype(float),
        n_steps=np.full(n, 10.0),
        cg_iterations=100 + 10 * rng.random(n),
    )


def rows_of(columns, begin, end):
    return {name: values[begin:end] for name, values in columns.items()}


def test_the_schema_has_distinct_names_and_no_neighbours_or_phases_but_the_quench():
    assert SCHEMA.name == "metalforge-features-2"
    assert 30 <= len(SCHEMA) <= 48
    assert not {"is_warmup", "is_measure", "has_meta", "beta"} & set(NAMES)
    assert "is_quench" in NAMES


def test_plaquette_and_loop_of_an_equilibrium_do_not_depend_on_the_volume():
    seen = {}
    for n_s in (4, 6):
        context = ChainContext(beta=4.6, dims=(n_s, n_s, n_s, 2))
        columns = chain_columns(context.dims, 4.6, 320, 40)
        frames = FrameMaker(context).push("measure", columns)
        z = np.sinh(column(frames, "z"))
        # The curve's own error is a part of a deviation at these volumes; the mean of 20 frames has one of 0.1.
        assert abs(z.mean()) < 0.6
        spread = np.std(columns["plaquette"]) * context.volume**0.5
        assert spread == pytest.approx(plaquette_of(4.6).deviation, rel=0.15)
        seen[n_s] = column(frames, "loop").mean(), column(frames, "z_variance")[-1]
    assert seen[4] == pytest.approx(seen[6], abs=0.25)


@pytest.mark.parametrize("start", ["hot", "cold"])
@pytest.mark.parametrize("algorithm", ["heatbath", "hmc"])
@pytest.mark.parametrize("flavors", [0, 4])
def test_frames_are_finite_and_bounded_whatever_comes(start, algorithm, flavors):
    context = ChainContext(
        beta=5.2, dims=(4, 4, 4, 2), start=start, algorithm=algorithm, flavors=flavors, mass=0.1 * (flavors > 0)
    )
    n = 5 * SWEEPS
    columns = trajectories(n) if algorithm == "hmc" else made_up(n)
    bad = columns["plaquette"].copy()
    bad[:3] = float(start == "cold")
    bad[20], bad[21], bad[22] = np.nan, np.inf, -np.inf
    maker = FrameMaker(context)
    frames = maker.push("warmup", columns | {"plaquette": bad, "polyakov_re": np.zeros(n), "polyakov_im": np.zeros(n)})
    assert np.all(np.isfinite(frames.values))
    assert np.abs(frames.values).max() <= LARGEST
    assert len(frames.rows) == (n if algorithm == "hmc" else 5)
    healed = maker.push("warmup", rows_of(columns, 0, SWEEPS))
    assert np.abs(column(healed, "z")[-1]) < LARGEST


def test_the_outcome_of_a_trajectory_is_not_in_its_own_frame():
    context = ChainContext(beta=5.2, dims=(4, 4, 4, 2), algorithm="hmc", flavors=4, mass=0.1)
    columns = trajectories(40)
    whole = FrameMaker(context).push("measure", columns)
    maker = FrameMaker(context)
    for i in range(40):
        one = maker.push("measure", rows_of(columns, i, i + 1))
        assert np.array_equal(one.values[0], whole.values[i])
        assert one.rows.tolist() == [i]
    # Its outcome is not in it: another one gives the same frame.
    other = columns | {"accepted": 1 - columns["accepted"], "plaquette": columns["plaquette"] + 0.01}
    first = FrameMaker(context).push("measure", rows_of(other, 0, 1))
    assert np.array_equal(first.values[0], whole.values[0])


def test_quench_rows_have_no_trajectory():
    context = ChainContext(beta=5.2, dims=(4, 4, 4, 2), algorithm="hmc", flavors=4, mass=0.1)
    maker, columns = FrameMaker(context), trajectories(3) | {"delta_h": np.zeros(3)}
    quench, after = maker.push("quench", columns), maker.push("warmup", columns)
    assert column(quench, "is_quench").tolist() == [1, 1, 1]
    assert column(quench, "has_hmc").tolist() == [0, 0, 0]
    assert column(after, "has_hmc").tolist() == [1, 1, 1]
    assert column(after, "has_cg").tolist() == [0, 1, 1]


def test_columns_must_be_there():
    maker = FrameMaker(ChainContext(beta=5.2, dims=(4, 4, 4, 2)))
    with pytest.raises(SpecError, match="polyakov_im"):
        maker.push("measure", {name: [0.5] for name in COLUMNS[:3]})


@pytest.mark.parametrize(
    ("beta", "mean"),
    [(1.0, 0.060130), (2.0, 0.128811), (3.0, 0.205018), (5.5, 0.496988), (5.7, 0.5492), (5.8, 0.5677), (5.9, 0.5818),
     (6.0, 0.5937), (6.2, 0.6136), (6.4, 0.6306), (6.5, 0.6384)],
)  # fmt: skip
def test_the_plaquette_is_that_of_other_codes_and_series(beta, mean):
    assert plaquette_of(beta).mean == pytest.approx(mean, abs=1e-3)


def test_the_plaquette_is_smooth_from_strong_to_weak_coupling():
    betas = np.linspace(0.01, 30, 3000)
    means, slopes, _ = np.array([plaquette_of(b) for b in betas]).T
    assert np.all(np.diff(means) > 0)
    assert np.all(slopes > 0)
    assert np.gradient(means, betas) == pytest.approx(slopes, abs=2e-3)
    assert plaquette_of(30.0).mean == pytest.approx(1 - 2 / 30, abs=2e-3)
    with pytest.raises(SpecError, match="-1"):
        plaquette_of(-1.0)
