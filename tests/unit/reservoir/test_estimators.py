"""The scikit-learn estimators: scikit-learn's own checks, then series, labels, and learning in parts."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from metalforge.reservoir.datasets import sequence_classification
from metalforge.reservoir.estimators import FOLDS, RIDGES, EsnClassifier, EsnRegressor, SaturatedInputsWarning
from metalforge.reservoir.files import load_weights, save_weights
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.metrics import wilson
from metalforge.reservoir.online import Lms, Rls
from metalforge.reservoir.running import predict
from metalforge.reservoir.series import SeriesError
from metalforge.reservoir.training import fit
from reference.vowels import vowel_like

SMALL = {"units": 30, "connectivity": 0.3, "random_state": 0}
HISTORY = "rows are steps of one history: their order matters, and a subset is another history"


def _expected(estimator):
    if (estimator.rows or estimator.ROWS) == "samples":
        return {}
    return {"check_methods_sample_order_invariance": HISTORY, "check_methods_subset_invariance": HISTORY}


@parametrize_with_checks(
    [
        EsnRegressor(**SMALL, rows="samples"),
        EsnRegressor(**SMALL),
        EsnClassifier(**SMALL),
        EsnClassifier(**SMALL, rows="time", target="step"),
    ],
    expected_failed_checks=_expected,
)
@pytest.mark.filterwarnings("ignore::metalforge.reservoir.estimators.SaturatedInputsWarning")  # its data is around 100
def test_scikit_learn_agrees(estimator, check):
    assert check(estimator) is None  # it raises what it does not like


def _series(lengths=(40, 25, 60), features=2, outputs=1, seed=3):
    """Inputs, and targets that need a memory of two steps."""
    rng = np.random.default_rng(seed)
    u = [rng.uniform(-1, 1, (n, features)) for n in lengths]
    y = [np.tanh(one[:, :1] + np.roll(one, 2, axis=0)[:, :1] * np.arange(1, outputs + 1)) for one in u]
    return u, [one[:, 0] for one in y] if outputs == 1 else y


def _pulses(n=60, seed=4):
    """Quiet noise of different lengths with one pulse a few steps before the end, the heights, and which way."""
    rng = np.random.default_rng(seed)
    heights = rng.uniform(0.5, 1, n) * rng.choice([-1, 1], n)
    series = [0.02 * rng.normal(size=(length, 1)) for length in rng.integers(10, 20, n)]
    for one, height in zip(series, heights, strict=True):
        one[-rng.integers(3, 6)] += height
    return series, heights, np.where(heights > 0, "up", "down")


def test_it_is_the_functional_core_with_a_seed():
    u, y = _series()
    found = EsnRegressor(40, leak=0.5, bias_scaling=0.1, passthrough=True, ridge=1e-4, washout=5, random_state=7)
    found.fit(u, y)
    w = make_esn(40, 2, seed=7, leak=0.5, bias_scaling=0.1)
    wanted = fit(w, u, [one[:, None] for one in y], ridge=1e-4, washout=5, passthrough=True)
    assert found.weights_.w_out == pytest.approx(wanted.w_out, rel=1e-12)
    for one, outputs in zip(predict(wanted, u), found.predict(u), strict=True):
        assert outputs == pytest.approx(one[:, 0], rel=1e-12)
    assert found.ridge_ == 1e-4


@pytest.mark.parametrize("outputs", [1, 2])
def test_predictions_come_in_the_form_of_the_series(outputs):
    u, y = _series((30, 30), outputs=outputs)
    tail = () if outputs == 1 else (outputs,)
    model = EsnRegressor(**SMALL).fit(u, y)
    listed = model.predict(u)
    assert [one.shape for one in listed] == [(30, *tail)] * 2
    batched = model.predict(np.stack(u))
    assert batched.shape == (2, 30, *tail)
    assert np.array_equal(batched, np.stack(listed))
    assert model.predict(u[1]) == pytest.approx(listed[1], rel=1e-12, abs=1e-14)  # alone: nothing leaks
    rows = np.empty(2, object)
    rows[:] = u
    assert np.array_equal(model.predict(rows)[0], listed[0])
    same = EsnRegressor(**SMALL).fit(np.stack(u), np.stack(y))
    assert np.array_equal(same.weights_.w_out, model.weights_.w_out)


def test_it_learns_what_needs_memory_which_samples_do_not_have():
    (u,), (y,) = _series([600])
    settings = {"units": 80, "washout": 10, "random_state": 1}
    history = EsnRegressor(**settings).fit(u[:400], y[:400])
    assert history.score(u[400:], y[400:]) > 0.95
    samples = EsnRegressor(**(settings | {"washout": 0}), rows="samples").fit(u[:400], y[:400])
    assert samples.score(u[400:], y[400:]) < 0.7


def test_the_score_leaves_out_the_washout_of_every_series():
    u, y = _series()
    model = EsnRegressor(**SMALL, washout=8).fit(u, y)
    said = np.concatenate([one[8:] for one in model.predict(u)])
    wanted = np.concatenate([one[8:] for one in y])
    assert model.score(u, y) == pytest.approx(r2_score(wanted, said))
    weight = np.linspace(0, 1, 40)
    by_weight = r2_score(y[0][8:], model.predict(u[0])[8:], sample_weight=weight[8:])
    assert model.score(u[0], y[0], sample_weight=weight) == pytest.approx(by_weight)


@pytest.mark.parametrize("make", [lambda: EsnRegressor(**SMALL, ridge=1e-3), lambda: EsnRegressor(**SMALL, rule=Rls())])
def test_series_learned_in_parts_are_series_learned_together(make):
    u, y = _series()
    together = make().fit(u, y)
    parts = make()
    for one, target in zip(u, y, strict=True):
        parts.partial_fit([one], [target])
    assert parts.weights_.w_out == pytest.approx(together.weights_.w_out, rel=1e-5, abs=1e-8)
    grown = make().fit(u[:1], y[:1]).partial_fit(u[1:], y[1:])
    assert grown.weights_.w_out == pytest.approx(together.weights_.w_out, rel=1e-5, abs=1e-8)
    anew = parts.fit(u[:1], y[:1])
    assert anew.weights_.w_out == pytest.approx(make().fit(u[:1], y[:1]).weights_.w_out, rel=1e-12)


def test_rules_learn_row_by_row():
    u, y = _series()
    exact = EsnRegressor(**SMALL, ridge=1e-2).fit(u, y)
    rls = EsnRegressor(**SMALL, rule=Rls(alpha=1e-2)).fit(u, y)
    assert rls.weights_.w_out == pytest.approx(exact.weights_.w_out, rel=1e-6, abs=1e-9)
    assert rls.rule_state_.rows == 125
    lms = EsnRegressor(**SMALL, rule=Lms(rate=0.5, normalised=True)).fit(u, y)
    assert 0.3 < lms.score(u, y) < exact.score(u, y)


def test_a_list_of_ridges_is_chosen_from_once():
    u, y = _series((15, 14, 12, 15, 13))
    noisy = [one + np.random.default_rng(i).normal(size=one.shape) for i, one in enumerate(y)]
    model = EsnRegressor(**SMALL, ridge=[1e-8, 3.0, 1e6]).fit(u, noisy)
    assert model.ridge_ == 3.0
    same = EsnRegressor(**SMALL, ridge=3.0).fit(u, noisy)
    assert model.weights_.w_out == pytest.approx(same.weights_.w_out, rel=1e-12)
    more = model.partial_fit(u[:1], y[:1])
    assert more.ridge_ == 3.0
    assert more.equations_.rows == 15 + sum(map(len, u))


def test_a_target_for_every_series():
    series, heights, _ = _pulses()
    wanted = np.stack([heights, 1 - heights], axis=1)
    model = EsnRegressor(60, target="series", ridge=1e-2, random_state=0).fit(series[:40], wanted[:40])
    assert model.predict(series[40:]).shape == (20, 2)
    assert model.score(series[40:], wanted[40:]) > 0.9
    one_output = clone(model).fit(series[:40], heights[:40])
    assert one_output.predict(series[40:]) == pytest.approx(model.predict(series[40:])[:, 0], rel=1e-9)


def test_feedback_hears_targets_first_and_outputs_after():
    (u,), (y,) = _series([200])
    model = EsnRegressor(**SMALL, feedback=True, ridge=1e-2).fit(u, y)
    assert model.weights_.feedback == 1
    assert model.predict(u) == pytest.approx(predict(model.weights_, u)[:, 0], rel=1e-12)
    assert model.score(u, y) > 0.5


def test_a_ready_network_is_used_as_it_is():
    u, y = _series()
    w = make_esn(20, 2, seed=5, kind="csr")
    model = EsnRegressor(weights=w).fit(u, y)
    assert model.weights_.w_res is w.w_res
    assert w.w_out is None
    with pytest.raises(SeriesError, match=r"2 inputs\. Got X of 3"):
        model.fit(np.zeros((9, 3)), np.zeros(9))


def test_float32_networks_give_float32():
    u, y = _series()
    single = EsnRegressor(**SMALL, dtype="float32").fit(u, y)
    assert single.predict(u[0]).dtype == np.float32
    assert single.predict(u[0]) == pytest.approx(EsnRegressor(**SMALL).fit(u, y).predict(u[0]), rel=1e-7, abs=1e-2)


def test_series_are_classified_by_their_last_state():
    series, _, labels = _pulses(120)
    model = EsnClassifier(60, ridge=1e-2, random_state=0).fit(series[:80], labels[:80])
    assert model.score(series[80:], labels[80:]) > 0.95
    assert model.classes_.tolist() == ["down", "up"]
    probabilities = model.predict_proba(series)
    assert probabilities.shape == (120, 2)
    assert probabilities.min() >= 0
    assert probabilities.sum(axis=1) == pytest.approx(1, rel=1e-12)
    assert np.array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(series))
    raw = clone(model).set_params(standardise=False)  # the first part alone would say what is standard
    parts = clone(raw).partial_fit(series[:10], labels[:10], classes=["up", "down"])
    parts.partial_fit(series[10:80], labels[10:80])
    model = raw.fit(series[:80], labels[:80])
    assert parts.weights_.w_out == pytest.approx(model.weights_.w_out, rel=1e-6, abs=1e-9)


def test_steps_are_classified_one_by_one():
    (u,), (y,) = _series([400])
    labels = np.where(y > 0, 3, 8)
    model = EsnClassifier(80, target="step", rows="time", washout=5, ridge=1e-2, random_state=0).fit(
        u[:300], labels[:300]
    )
    assert model.score(u[300:], labels[300:]) > 0.85
    assert model.predict_proba(u).shape == (400, 2)
    several = clone(model).fit([u[:150], u[150:300]], [labels[:150], labels[150:300]])
    assert [one.shape for one in several.predict([u[:10], u[:20]])] == [(10,), (20,)]
    assert several.score([u[300:]], [labels[300:]]) > 0.85


def test_probabilities_are_the_nearest_distribution():
    series, _, labels = _pulses(60)
    three = np.where(np.arange(60) % 3 == 0, "other", labels)
    model = EsnClassifier(**SMALL, ridge=1e-6).fit(series, three)
    outputs = predict(model.weights_, series, last_state_only=True)
    outside = outputs.min(axis=1) < 0
    assert outside.any()
    found = model.predict_proba(series)
    assert found[~outside] == pytest.approx(outputs[~outside], rel=1e-7, abs=1e-9)
    # Against a fine grid of the simplex: no distribution on it is nearer.
    a, b = np.meshgrid(np.linspace(0, 1, 101), np.linspace(0, 1, 101))
    grid = np.stack([a, b, 1 - a - b], axis=-1)[a + b <= 1 + 1e-12]
    for y, p in zip(outputs[outside], found[outside], strict=True):
        assert np.sum((y - p) ** 2) <= np.sum((y - grid) ** 2, axis=1).min() + 1e-12


def test_a_search_splits_series_not_steps():
    u, y = _series((30, 40, 35, 30, 45, 50))
    search = GridSearchCV(EsnRegressor(**SMALL, washout=5), {"ridge": [1e-6, 1e6]}, cv=3).fit(u, y)
    assert search.best_params_ == {"ridge": 1e-6}
    assert search.best_estimator_.score(u, y) > 0.9


def test_what_does_not_fit_is_said():
    u, y = _series()
    with pytest.raises(NotFittedError):
        EsnRegressor().predict(u)
    with pytest.raises(SeriesError, match=r"`rows`.*samples"):
        EsnRegressor(rows="columns").fit(u, y)
    with pytest.raises(SeriesError, match="3 series"):
        EsnRegressor().fit(u, y[:2])
    with pytest.raises(SeriesError, match=r"25 steps.*24"):
        EsnRegressor().fit(u, [y[0], y[1][1:], y[2]])
    with pytest.raises(SeriesError, match=r"X\[1\].*1 features, 2"):
        EsnRegressor().fit([u[0], u[1][:, :1]], y[:2])
    with pytest.raises(SeriesError, match="at least one step"):
        EsnRegressor(washout=25).fit(u, y)
    with pytest.raises(SeriesError, match="y is None"):
        EsnRegressor().fit(u, None)
    with pytest.raises(ValueError, match=r"X\[1\] contains NaN"):
        EsnRegressor().fit([u[0], u[1] * np.nan], y[:2])
    series, _, labels = _pulses(6)
    model = EsnClassifier(**SMALL).fit(series, labels)
    with pytest.raises(SeriesError, match=r"\['new'\]"):
        model.partial_fit(series[:1], ["new"])
    with pytest.raises(SeriesError, match="hint: target='step'"):
        EsnClassifier(rows="time").fit(u[0], np.zeros(40, int))


PLAIN = {"leak": 1.0, "standardise": False, "input_scaling": 1.0, "bias_scaling": 0.0, "ridge": 1e-6}
"""A network whose settings know nothing of the data: the defaults of EsnRegressor."""


@pytest.mark.parametrize("made", [vowel_like(540, seed=11), sequence_classification(540, seed=11, inputs=12)])
def test_defaults_beat_settings_that_know_nothing_of_the_data(made):
    x, y = made

    def right(model):
        hits = model.fit(x[:270], y[:270]).predict(x[270:]) == y[270:]
        return wilson(int(hits.sum()), hits.size)

    ours, plain = right(EsnClassifier(random_state=0)), right(EsnClassifier(random_state=0, **PLAIN))
    assert ours.low > plain.high
    assert ours.value > 0.8


def test_units_of_the_inputs_do_not_matter():
    x, y = vowel_like(90, seed=12)
    scale, offset = 10.0 ** np.arange(-6, 6), 50 * 10.0 ** np.arange(-6, 6)
    here = EsnClassifier(random_state=0).fit(x, y)
    elsewhere = EsnClassifier(random_state=0).fit(scale * x + offset, y)
    assert elsewhere.ridge_ == here.ridge_
    assert elsewhere.predict_proba(scale * x + offset) == pytest.approx(here.predict_proba(x), abs=1e-6)


def test_learned_weights_take_inputs_as_they_are(tmp_path):
    x, y = vowel_like(90, seed=13)
    x = 1000 * x - 300
    model = EsnClassifier(random_state=0).fit(x, y)
    save_weights(model.weights_, tmp_path / "net.safetensors")
    outputs = predict(load_weights(tmp_path / "net.safetensors"), x, last_state_only=True)
    assert np.array_equal(model.classes_[outputs.argmax(axis=1)], model.predict(x))


@pytest.mark.parametrize("model", [EsnClassifier(**(SMALL | PLAIN)), EsnRegressor(**SMALL, target="series")])
def test_inputs_that_saturate_are_warned_of(model):
    x, y = vowel_like(45, seed=14)
    with pytest.warns(SaturatedInputsWarning, match="standardise"):
        model.fit(100 * x, y)


def test_inputs_in_other_units_than_those_of_the_fit_are_warned_of():
    x, y = vowel_like(45, seed=14)
    model = EsnClassifier(**SMALL).fit(x, y)
    assert len(model.predict(x)) == 45  # no warning
    with pytest.warns(SaturatedInputsWarning, match="units"):
        model.predict(1000 * x)


def test_a_ridge_is_chosen_from_whatever_there_is():
    rng = np.random.default_rng(5)
    labels = np.arange(10 * FOLDS) % FOLDS  # series number i in group i modulo FOLDS would leave out a class at a time
    series = [np.full((6, 1), float(k)) + 0.01 * rng.normal(size=(6, 1)) for k in labels]
    assert EsnClassifier(random_state=0).fit(series, labels).score(series, labels) > 0.95
    u = rng.uniform(-1, 1, (400, 1))
    held = EsnClassifier(**SMALL, rows="time", target="step").fit(u, u[:, 0] > 0)
    assert held.ridge_ in RIDGES
    assert held.score(u, u[:, 0] > 0) > 0.95
    assert EsnClassifier(**SMALL).fit(series[:1], labels[:1]).predict(series[:2]).tolist() == [0, 0]


def as_channels(series):
    """Series of (steps, features) as aeon has them: (channels, steps)."""
    return series.swapaxes(1, 2) if isinstance(series, np.ndarray) else [one.T for one in series]


@pytest.mark.parametrize("lengths", ["equal", "different"])
@pytest.mark.parametrize("make", [EsnClassifier, EsnRegressor])
def test_channels_first_is_the_same_data_in_another_order(make, lengths):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(12, 20, 3))
    series = x if lengths == "equal" else [one[: 8 + i] for i, one in enumerate(x)]
    y = np.arange(12) % 2
    options = {"random_state": 1, "target": "series"}
    usual = make(10, **options).fit(series, y)
    asked = "channels_first" if lengths == "equal" else None  # lengths that differ tell
    turned = clone(make(10, layout=asked, **options)).fit(as_channels(series), y)
    assert (usual.layout_, turned.layout_) == ("steps_first", "channels_first")
    assert turned.n_features_in_ == 3
    assert np.array_equal(turned.predict(as_channels(series)), usual.predict(series))
    assert turned.score(as_channels(series), y) == usual.score(series, y)
    one = as_channels(series[:1])
    assert np.array_equal(turned.predict(one), usual.predict(series[:1]))


def test_steps_of_series_come_out_steps_first():
    x = np.random.default_rng(2).normal(size=(4, 30, 2))
    model = EsnRegressor(10, random_state=1, layout="channels_first").fit(as_channels(x), x)
    assert model.predict(as_channels(x)).shape == x.shape


@pytest.mark.parametrize("shape", [(10, 3, 50), (10, 1, 50)])
def test_series_that_look_like_channels_first_are_not_guessed_at(shape):
    x, y = np.random.default_rng(3).normal(size=shape), np.arange(10) % 2
    for given in (x, list(x)):
        with pytest.raises(SeriesError, match="channels_first"):
            EsnClassifier(10).fit(given, y)
    wide = EsnClassifier(10, layout="steps_first").fit(x, y)
    assert wide.n_features_in_ == 50
    assert EsnClassifier(10, layout="channels_first").fit(x, y).n_features_in_ == shape[1]
    with pytest.raises(SeriesError, match="layout"):
        EsnClassifier(10, layout="aeon").fit(x, y)
