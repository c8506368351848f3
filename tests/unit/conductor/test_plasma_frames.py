"""What a network sees of a plasma: lags of a ring buffer, units of the measured temperature, nothing of the future."""

import numpy as np
import pytest

from experiments.plasma_heads.corpus import PLASMA_GRIDS, plasma_entries
from metalforge.conductor.plasma import COLUMNS, LAGS, SCHEMA, SETTLED, Looks, PlasmaFrames
from metalforge.plasma.observables import SERIES
from metalforge.plasma.spec import PlasmaSpec
from reference.made_up_plasmas import made_run

SPEC = PlasmaSpec(gamma=300.0, kappa=3.0, particles=172)


def samples(frames, seed=1):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=2 * frames) for name in SERIES}


def flight(frames):
    """Return particles that fly straight on: positions and velocities (frames, n, 3)."""
    rng = np.random.default_rng(3)
    start, speed = rng.uniform(0, SPEC.length, (172, 3)), rng.normal(size=(172, 3))
    times = 0.2 * np.arange(frames)
    return start + times[:, None, None] * speed, np.repeat(speed[None], frames, axis=0)


def test_free_flight_has_exact_lags():
    frames = SETTLED + 30
    positions, velocities = flight(frames)
    found = dict(zip(COLUMNS, Looks(SPEC).take(samples(frames), positions, velocities), strict=True))
    square = (velocities[0] ** 2).sum() / 172
    for lag in LAGS:
        known = np.isfinite(found[f"msd_{lag:g}"])
        assert known.sum() == frames - round(lag / 0.2)
        np.testing.assert_allclose(found[f"msd_{lag:g}"][known], square * lag**2, rtol=1e-10)
        np.testing.assert_allclose(found[f"vacf_{lag:g}"][known], square, rtol=1e-12)


def test_how_blocks_are_cut_changes_nothing():
    frames = SETTLED + 50
    positions, velocities = flight(frames)
    rows = samples(frames)
    whole = Looks(SPEC).take(rows, positions, velocities)
    looks, parts = Looks(SPEC), []
    for begin in range(0, frames, 50):
        cut = slice(begin, begin + 50)
        some = {name: column[2 * begin : 2 * begin + 100] for name, column in rows.items()}
        parts.append(looks.take(some, positions[cut], velocities[cut]))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-12)


def test_a_frame_does_not_know_the_future():
    run = made_run("train", 100.0, 2.5, 0)
    columns = np.asarray(run.window, np.float64)
    before = PlasmaFrames(343).push(columns)[:150]
    columns[:, 150:] *= 3
    np.testing.assert_array_equal(PlasmaFrames(343).push(columns)[:150], before)


def test_features_are_in_units_of_the_measured_temperature():
    """Twice the temperature with speeds, stresses and energies to match looks the same."""
    run = made_run("train", 100.0, 2.5, 0)
    columns = np.asarray(run.window, np.float64)
    warmer = columns.copy()
    for row, name in enumerate(COLUMNS):
        if name.startswith(("kinetic", "phi", "virial", "stress", "vacf")):
            warmer[row] *= 2
        elif name.startswith("current"):
            warmer[row] *= np.sqrt(2)
    np.testing.assert_allclose(PlasmaFrames(343).push(warmer), PlasmaFrames(343).push(columns), atol=1e-9)


def test_neither_gamma_nor_kappa_is_an_input():
    assert not {"gamma", "kappa", "log_gamma"} & {feature.name for feature in SCHEMA.features}
    assert (SCHEMA.name, len(SCHEMA)) == ("plasma-features-1", 36)


def test_lags_that_are_not_known_are_flagged_and_finite():
    run = made_run("train", 100.0, 2.5, 0)
    inputs = PlasmaFrames(343).push(run.window)
    assert np.isfinite(inputs).all()
    flag = inputs[:, [f.name for f in SCHEMA.features].index("has_lags")]
    np.testing.assert_array_equal(flag, np.arange(len(flag)) >= SETTLED)


@pytest.mark.parametrize("grid", PLASMA_GRIDS)
def test_grids_share_neither_points_nor_streams_and_hide_kappa(grid):
    entries = list(plasma_entries(grid))
    train, test = ({e.place for e in entries if e.part == part} for part in ("train", "test"))
    assert not train & test
    assert len({(e.seed, e.stream) for e in entries}) == len(entries)
    assert len({e.particles for e in entries}) == 1
    assert all(round(e.window / 0.2) > SETTLED for e in entries)
    assert list(plasma_entries(grid, part="test")) == [e for e in entries if e.part == "test"]
    for entry in entries:
        assert entry.spec.length >= 2 * entry.spec.cutoff
        assert entry.time >= 2 * entry.spec.segment_blocks * entry.spec.block_time
