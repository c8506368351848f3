"""`metalforge search --inputs --targets`: a network for a stranger's series, deployed, on raw inputs."""

import json

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.hybrid import load
from metalforge.hybrid.search import data_task
from metalforge.reservoir.metrics import nrmse
from reference.command_line import call

pytestmark = pytest.mark.filterwarnings("ignore::metalforge.reservoir.weights.UnstableReservoirWarning")
SHORT = ("--trials", 6, "--finalists", 1, "--profile", "akd1000-claimed", "--tolerance", 100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where, rng = tmp_path_factory.mktemp("search"), np.random.default_rng(1)
    u = 40 + 15 * rng.normal(size=(1200, 1))  # far from any unit range
    np.save(where / "u.npy", u)
    np.save(where / "y.npy", 1000 + u[:, 0] + 0.5 * np.roll(u[:, 0], 1))
    kinds = rng.integers(0, 3, 60)
    lengths = rng.integers(8, 20, 60)
    noise = [rng.normal(size=(n, 2)) + 1.5 * np.eye(3, 2)[k] for k, n in zip(kinds, lengths, strict=True)]
    np.savez(where / "noise.npz", *noise)
    np.save(where / "kinds.npy", np.array(["ant", "bee", "cow"])[kinds])
    return where


@pytest.mark.chaos
def test_one_long_series_is_searched_and_deployed(folder):
    arguments = ("--inputs", "u.npy", "--targets", "y.npy", "--washout", 5, "--out", "deployed", "--json")
    found = json.loads(call("search", *SHORT, *arguments, cwd=folder).stdout)
    u, y = np.load(folder / "u.npy"), np.load(folder / "y.npy")
    with load(folder / "deployed") as model:
        said = model.predict(u)[900:, 0]  # from rest long before: raw inputs in, raw outputs out
    assert nrmse(y[900:], said) < max(0.9, 1.3 * found["best"]["error_int4"])
    assert np.mean(said) == pytest.approx(np.mean(y[900:]), rel=0.01)


def test_series_of_different_lengths_with_words_for_classes(folder):
    arguments = ("--inputs", "noise.npz", "--targets", "kinds.npy", "--out", "classes", "--json")
    call("search", *SHORT, *arguments, cwd=folder)
    with np.load(folder / "noise.npz") as held:
        noise = [held[f"arr_{i}"] for i in range(60)]
    kinds = np.load(folder / "kinds.npy")
    with load(folder / "classes") as model:
        assert np.mean(model.predict(noise) == kinds) > 0.6
    evaluated = call(
        *("npu", "evaluate", "classes", "--inputs", "noise.npz", "--targets", "kinds.npy", "--precision", "auto"),
        *("--json", "--tolerance", 0.5),
        cwd=folder,
    )
    answer = json.loads(evaluated.stdout)
    assert answer["classes"] == ["ant", "bee", "cow"]
    assert answer["rows"][0]["precision"].startswith("deployed W4")


def test_parts_share_nothing_and_the_seed_divides_them():
    rng = np.random.default_rng(2)
    series = [rng.normal(size=(n, 1)) for n in rng.integers(5, 9, 30)]
    task = data_task(series, [one[:, 0] for one in series])
    sizes = [len(part.inputs) for part in (task.training, task.validation, task.test)]
    assert sizes == [15, 6, 9]
    again, other = (
        data_task(series, [one[:, 0] for one in series]),
        data_task(series, [one[:, 0] for one in series], seed=2),
    )
    assert np.array_equal(again.training.inputs, task.training.inputs)
    assert not np.array_equal(other.training.inputs, task.training.inputs)
    assert task.name != data_task(series[:29], [one[:, 0] for one in series[:29]]).name  # another file, another study
    shown = task.training.labels
    assert np.allclose([shown.mean(), shown.std()], [0, 1], atol=1e-5)


BAD = {
    "targets alone": (("--targets", "y.npy"), "both"),
    "both": (("--task", "lorenz", "--inputs", "u.npy", "--targets", "y.npy"), "both"),
    "lengths": (("--inputs", "noise.npz", "--targets", "y.npy"), "60 series"),
    "words": (("--inputs", "kinds.npy", "--targets", "y.npy"), "real numbers"),
    "absent": (("--inputs", "u.npy", "--targets", "none.npy"), "none.npy"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_data_that_does_not_fit_is_said(folder, arguments, message):
    assert message in call("search", *SHORT, *arguments, cwd=folder, code=2).stderr


def test_too_little_data_is_refused():
    with pytest.raises(SpecError, match="three parts"):
        data_task(np.ones((20, 1)), np.ones(20))
    with pytest.raises(SpecError, match="three parts"):
        data_task(np.ones((4, 200, 1)), np.array([0, 1, 0, 1]))
