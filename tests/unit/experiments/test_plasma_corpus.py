"""Corpora of the plasma: files that say when they are not what was written, and runs that are the same every time."""

import h5py
import numpy as np
import pytest

from experiments.plasma_heads.baselines import label_of_run, window_numbers
from experiments.plasma_heads.corpus import PlasmaCorpus, PlasmaEntry, record_plasma
from metalforge.conductor.plasma import COLUMNS, SETTLED
from metalforge.core.errors import SpecError
from reference.made_up_plasmas import made_corpus, made_run, state

TINY = PlasmaEntry(
    part="test", gamma=400.0, kappa=3.0, particles=172, seed=4, stream=2, warmup=10.0, window=50.0, time=380.0,
    shuffled=True,
)  # fmt: skip


def test_a_corpus_comes_back_as_it_was(tmp_path):
    made = made_corpus()
    made.save(tmp_path / "a.h5")
    again = PlasmaCorpus.load(tmp_path / "a.h5")
    assert again.sha256 == made.sha256
    assert [run.entry for run in again.records] == [run.entry for run in made.records]
    np.testing.assert_array_equal(again.records[3].window, made.records[3].window)
    kept = [run.shuffled is not None for run in again.records]
    assert kept == [run.shuffled is not None for run in made.records]
    assert any(kept)


def test_damage_and_doubles_are_refused(tmp_path):
    made = PlasmaCorpus(grid="made", records=(made_run("train", 100.0, 2.0, 0),))
    made.save(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["runs/0/window"][0, 0] += 1
    with pytest.raises(SpecError, match="sha256"):
        PlasmaCorpus.load(tmp_path / "a.h5")
    with pytest.raises(SpecError, match="share"):
        PlasmaCorpus.joined([made, made])
    (tmp_path / "no.h5").write_bytes(b"nothing")
    with pytest.raises(SpecError, match="damaged"):
        PlasmaCorpus.load(tmp_path / "no.h5")


def test_a_run_is_the_same_every_time_and_its_shuffled_window_has_no_lags():
    one, two = (next(iter(record_plasma([TINY]))) for _ in range(2))
    np.testing.assert_array_equal(one.window, two.window)
    np.testing.assert_array_equal(one.segments, two.segments)
    assert one.window.shape == (len(COLUMNS), 250)
    assert len(one.segments) == 1
    column = COLUMNS.index("msd_0.4")
    assert one.shuffled is not None
    # Next to each other in a random order: as far as after a third of the window, not as after 0.4 / omega_p.
    assert np.nanmean(one.shuffled[column]) > 10 * np.nanmean(one.window[column])
    np.testing.assert_allclose(np.sort(one.shuffled[0]), np.sort(one.window[0]))
    assert np.isfinite(one.window[:, SETTLED:]).all()


def test_labels_and_windows_find_what_was_put_in():
    run = made_run("train", 100.0, 2.5, 7, noise=0.0)
    diffusion, eta = state(100.0, 2.5)
    label, seen = label_of_run(run), window_numbers(run)
    assert label.value[1] == pytest.approx(np.log(eta), abs=4 * label.error[1])
    assert np.log(diffusion) < label.value[0] < np.log(diffusion) + 0.3  # of a box without borders
    assert seen.gamma == pytest.approx(100.0, rel=0.01)
    assert seen.log_viscosity == pytest.approx(np.log(eta), abs=4 * seen.viscosity_error)
    assert seen.log_diffusion == pytest.approx(label.value[0], abs=0.15)
