"""Scores of heads against baselines, end to end on a small corpus, and the early stop with its control."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from metalforge.conductor.baselines import baselines_for
from metalforge.conductor.chains import SERIES, ChainEntry, ChainRecord, save_corpus
from metalforge.conductor.corpus import build_corpus, training_runs
from metalforge.conductor.corpus_spec import CorpusGrid, CorpusSpec
from metalforge.conductor.early_stop import IN_A_ROW
from metalforge.conductor.evaluation import calibration, evaluate, neither_phase
from metalforge.conductor.heads_training import HeadFit, LeftOut, Trained, label_rows, reservoir, train_heads
from metalforge.conductor.labels import examples, meta_rows
from metalforge.conductor.predicting import ROUTES, ensemble_of, predictions
from metalforge.conductor.scores import StopStudy, chains_to_see
from metalforge.conductor.shipped import default_scores, read_provenance
from metalforge.conductor.stopping import CHAINS, _judge, _Place, choose_factor
from metalforge.core.errors import SpecError

SPEC = CorpusSpec(
    grids=(
        CorpusGrid(
            dims=(4, 4, 4, 2),
            train=(4.6, 5.6),
            test=(4.7, 5.5),
            far=(4.5, 5.8),
            steps=((1.0, 7),),
            trajectories=44,
        ),
    ),
    reference=30,
)
ENTRY = ChainEntry(
    part="test", beta=5.0, dims=(4, 4, 4, 4), start="cold", tau=1.0, n_steps=10, stream=0, trajectories=250, untested=6
)
FIELDS = {"name", "metric", "value", "low", "high", "baseline", "baseline_name", "skill", "trusted", "route"}


@pytest.fixture(scope="module")
def corpus():
    return build_corpus(SPEC)


@pytest.fixture(scope="module")
def parts(corpus):
    return examples(corpus, "train"), examples(corpus, "test")


@pytest.fixture(scope="module")
def trained(parts):
    return train_heads(parts[0], weights=reservoir(1))


def test_every_head_is_scored_on_every_route_against_its_strongest_baseline(trained, parts) -> None:
    scores = evaluate(trained, *parts)
    assert {s.route for s in scores} == set(ROUTES)
    heads = {s.name for s in scores}
    assert {"thermalization", "anomaly", "rejection", "deconfinement"} <= heads
    assert len(scores) == len(heads) * len(ROUTES)
    for s in scores:
        assert s.low <= s.value <= s.high
        best = max if s.metric == "accuracy" else min
        assert best(s.value, s.baseline) == (s.value if s.skill > 0 else s.baseline) or s.skill == 0
        assert s.skill > 0 or not s.trusted
    # One baseline for all routes: they differ in the network only.
    assert all(len({s.baseline for s in scores if s.name == name}) == 1 for name in heads)


def test_the_device_says_nearly_what_software_says(trained, parts) -> None:
    said = {route: predictions(route, trained, *parts) for route in ("f32-software", "npu-w8a8", "npu-w4a8-refit")}
    for name in ("anomaly", "rejection"):
        exact = np.concatenate(said["f32-software"][name])
        for route, bound in (("npu-w8a8", 0.05), ("npu-w4a8-refit", 0.1)):
            found = np.concatenate(said[route][name])
            assert 0 < np.sqrt(np.mean((found - exact) ** 2)) < bound, (name, route)


def test_a_head_that_repeats_the_truth_is_trusted_and_one_that_denies_it_is_not(trained, parts, monkeypatch) -> None:
    from metalforge.conductor import evaluation

    def oracle(route, trained, train, test):
        flip = route == "npu-w8a8"
        return {
            name: [np.nan_to_num(1 - label_rows(e, name) if flip else label_rows(e, name)) for e in test]
            for name in ("anomaly", "rejection")
        }

    monkeypatch.setattr(evaluation, "predictions", oracle)
    for s in evaluate(trained, *parts, routes=("f32-software", "npu-w8a8")):
        right = s.route == "f32-software"
        assert s.trusted == right
        assert (s.skill == 1) == right
        assert s.value == (0 if right else 1)


def test_training_and_test_chains_must_not_share_couplings(trained, parts) -> None:
    with pytest.raises(SpecError, match="share"):
        evaluate(trained, parts[0], parts[0])


def test_baselines_know_training_chains_only(parts) -> None:
    train, test = parts
    found = baselines_for("rejection", train, classes=True)
    assert set(found) == {
        "constant",
        "coupling alone",
        "coupling on its lattice",
        "single feature",
        "last value",
        "published formula",
    }
    labels = np.concatenate([label_rows(e, "rejection") for e in train])
    assert found["constant"](test[0])[0] == pytest.approx(np.nanmean(labels))
    running = found["last value"](test[0])
    rejected = 1 - test[0].chain.column("accepted")
    # The share at t is of the tests before t.
    assert running[0] == 0.5
    assert running[30] == pytest.approx((np.nansum(rejected[:30]) + 1) / (np.isfinite(rejected[:30]).sum() + 2))
    assert "MSER" in baselines_for("thermalization", train, classes=True)


def test_every_head_of_the_other_layout_has_its_origin_as_a_baseline_where_there_was_one(parts) -> None:
    train, test = parts
    for head in ("param_suggest", "next_run", "quenched_length", "phase_classify", "anomaly_detect", "quality_score"):
        found = baselines_for(head, train, classes=head in ("phase_classify", "anomaly_detect"))
        said = found["published formula"](test[0])
        assert said.shape == (len(test[0].inputs),)
        assert np.isfinite(said).all()
    assert {"MSER", "Geweke"} <= set(baselines_for("therm_detect", train, classes=True))


def test_chains_of_neither_phase_are_scored_apart(trained, parts) -> None:
    train, test = parts
    scored = neither_phase(trained, train, test)
    assert scored is not None
    clear = [e for e in test if np.isfinite(label_rows(e, "phase")).any()]
    assert scored.chains + len(clear) <= len(test)
    # The same chains, called ambiguous: they leave the score of the phase and are all in this one.
    unclear = [replace(e, labels=replace(e.labels, ambiguous=True)) for e in clear[:3]]
    again = neither_phase(trained, train, [*unclear, *clear[3:]])
    assert again is not None
    assert again.chains == 3
    assert again.value is not None
    assert 0 <= again.value <= 1
    assert all(np.isnan(label_rows(e, "phase")).all() for e in unclear)


def test_calibration_counts_what_lies_within(trained, parts) -> None:
    found = {c.name: c for c in calibration(ensemble_of([trained]), parts[1])}
    order = found["deconfinement"]
    assert order.within_68 is not None
    assert order.within_95 is not None
    assert 0 <= order.within_68 <= order.within_95 <= 1
    assert found["rejection"].calibration_error is not None
    assert found["rejection"].within_68 is None
    assert 0 <= found["rejection"].calibration_error < 0.5


def test_the_factor_is_the_least_that_lets_few_chains_stop_early(parts) -> None:
    """A head that is sure at trajectory 20 of chains whose labels come at 35 needs a factor of 2."""
    train = [replace(e, labels=replace(e.labels, length=35)) for e in parts[0] if e.labels.length is not None]
    n = len(train[0].inputs)
    said = np.tile(np.where(np.arange(n) < 20 - IN_A_ROW, 0.1, 0.99), len(train))
    rows = LeftOut(said, said, np.repeat(np.arange(len(train)), n), np.full(len(said), True))
    fit = HeadFit(1.0, len(said), 0.1, 0.1)
    made = Trained(weights=reservoir(1), fits={"thermalization": fit}, left_out={"thermalization": rows})
    assert choose_factor(made, train) == 2.0
    with pytest.raises(SpecError, match="left out"):
        choose_factor(replace(made, left_out={}), train)
    with pytest.raises(SpecError, match="thermalisation head"):
        choose_factor(replace(made, fits={}), train)


def test_biases_are_those_of_the_chains_and_their_intervals_those_of_the_couplings() -> None:
    """Cold chains above the truth by a transient and hot ones below it: nothing is seen of both, all of it is left."""

    def chains(away: float) -> list[ChainRecord]:
        made = []
        for k in range(40):
            rows = np.full((250, len(SERIES)), 0.0)
            start = (1 if k % 2 == 0 else -1) * away * (np.arange(250) < 60)
            rows[:, :2] = (0.5 + start + 0.01 * np.random.default_rng(k).normal(size=250))[:, None]
            rows[:, SERIES.index("polyakov")] = rows[:, 0]
            made.append(ChainRecord(entry=msgspec.structs.replace(ENTRY, stream=k), series=rows))
        return made

    truth = {"P": (0.5, 1e-6), "|L|": (0.5, 1e-6)}
    places = [_Place(beta, chains(away), truth, [60] * 40) for beta, away in ((5.0, 0.002), (5.2, 0.004), (5.4, 0.003))]
    early, late = (_judge("rule", [[n] * 40] * 3, places) for n in (10, 60))
    # Half of a hundred trajectories are off by 0.003 in the mean; the error of a measurement is 0.01 / sqrt(100).
    left = early.left_plaquette
    assert left is not None
    assert left.value == pytest.approx(0.5 * 0.003 / 0.001, rel=0.2)
    assert left.high - left.low > 0.5  # the couplings differ by as much, however many chains there are
    assert early.premature == 1
    assert not early.unbiased
    assert early.saved == pytest.approx(1 - 10 / 150)
    assert late.left_plaquette is not None
    assert abs(late.left_plaquette.value) < 0.3
    assert late.premature == 0
    assert late.one_start < early.one_start


def test_earlier_runs_are_those_of_the_whole_corpus(corpus) -> None:
    """What heads are told of training couplings does not need the chains: the long runs come out the same."""
    made = training_runs(SPEC, (4, 4, 4, 2))
    chain = corpus.part("test")[0]
    assert meta_rows(made, chain) == meta_rows(corpus, chain)
    assert len(made.references) == 2


def test_the_early_stop_of_the_shipped_heads_needs_no_corpus(monkeypatch) -> None:
    from metalforge.cli.conductor import app

    monkeypatch.setattr("metalforge.conductor.corpus_spec.QUICK_CORPUS", SPEC)
    said = CliRunner().invoke(app, ["early-stop", "--quick", "--workers", "1", "--json"])
    assert said.exit_code == 0, said.output
    found = msgspec.json.decode(said.stdout, type=StopStudy)
    assert found.chains == 4
    assert found.rules[0].rule == "head"
    assert found.factor == default_scores().thermalisation_stop.factor


def test_the_number_of_chains_was_calculated() -> None:
    assert CHAINS == 2 * chains_to_see(0.3) == 242


def test_the_command_line_prints_the_records(corpus, tmp_path) -> None:
    from metalforge.cli.conductor import app

    path, weights = str(tmp_path / "corpus.h5"), str(tmp_path / "heads.safetensors")
    save_corpus(corpus, path)
    run = CliRunner()
    made = run.invoke(app, ["train", "--corpus", path, "--out", weights, "--json"])
    assert made.exit_code == 0, made.output
    assert {h["name"] for h in json.loads(made.stdout)["heads"]} >= {"thermalization", "rejection"}
    table = tmp_path / "table.md"
    options = ["--corpus", path, "--weights", weights, "--quick", "--workers", "1", "--table", str(table), "--json"]
    said = run.invoke(app, ["evaluate", *options])
    assert said.exit_code == 0, said.output
    record = json.loads(said.stdout)
    assert list(record) == ["heads", "thermalisation_stop"]
    assert all(set(head) == FIELDS for head in record["heads"])
    rules = {rule["rule"]: rule for rule in record["thermalisation_stop"]["rules"]}
    mean = round(150 * (1 - rules["head"]["saved"]))
    fixed = {"fixed", "fixed, 50", "fixed, 100", f"fixed, the head's mean ({mean})"}
    assert set(rules) == {"head", "MSER", "Geweke", "trajectory 3"} | fixed
    assert rules[f"fixed, the head's mean ({mean})"]["saved"] == pytest.approx(rules["head"]["saved"], abs=0.5 / 150)
    for rule in rules.values():
        for left in (rule["left_plaquette"], rule["left_polyakov"]):
            assert left["low"] <= left["value"] <= left["high"]
            assert not rule["unbiased"] or max(-left["low"], left["high"]) < 0.3
    # The control: a test that cannot see this bias would see none.
    assert not rules["trajectory 3"]["unbiased"]
    assert rules["trajectory 3"]["bias_plaquette"] > rules["fixed"]["bias_plaquette"]
    assert rules["trajectory 3"]["saved"] == pytest.approx(1 - 3 / record["thermalisation_stop"]["fixed"])
    assert rules["fixed"]["saved"] == 0
    page = table.read_text()
    assert f"`metalforge conductor evaluate --corpus {path} --weights {weights} --seed 1" in page
    for title in ("Heads", "Chains of neither phase", "Calibration", "Early stop of warm-up"):
        assert f"## {title}\n" in page
    assert page.count("| thermalization |") >= len(ROUTES)
    origin = read_provenance(weights)
    assert origin is not None
    assert origin.corpus_sha256 == corpus.sha256
    assert origin.seed == 1
    assert json.loads(made.stdout)["provenance"]["command"] == origin.command
