"""Campaigns folded into weights: what chains teach, held-out scores, provenance, and what is refused."""

import hashlib
import json
from dataclasses import replace
from importlib.resources import as_file

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from metalforge import campaign
from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running.advice import HEAD, RULE
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget, Steering, WarmUpPolicy
from metalforge.campaign.state import PEAK_PRIOR
from metalforge.cli.main import app
from metalforge.conductor.adopting import LEARNED
from metalforge.conductor.features import SCHEMA
from metalforge.conductor.scores import AdoptedHead
from metalforge.conductor.shipped import (
    FOLDER,
    Provenance,
    read_provenance,
    save_with_provenance,
    shipped_provenance,
    shipped_weights,
)
from metalforge.conductor.standing import standings_of, with_weights
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.lattice.campaign.lessons import ENOUGH, labels_of, taught_by
from metalforge.reservoir import load_weights, make_esn, save_weights
from metalforge.reservoir.weights import Ranges
from metalforge.statistics import gamma_method
from reference.small_campaigns import ROUNDS, WITH_QUARKS, run_until

SMALL = msgspec.structs.replace(
    ROUNDS,
    budget=Budget(trajectories=700),
    warmup=WarmUpPolicy(longest=30, shortest=20),
    steering=Steering(steerer="uniform", visit=150, initial=3, most=3),
)
HEADS = HeadLayout(
    name="two",
    heads=(
        HeadSpec(name="schedule", unit=LEARNED["schedule"]),
        HeadSpec(name="deconfinement", unit=LEARNED["deconfinement"]),
    ),
)
MADE = Provenance(command="made by hand", seed=3, corpus_seed=1, corpus_sha256="0" * 64)


def network(shift=0.0):
    """A network that knows nothing of its heads, which say `shift`."""
    made = make_esn(24, len(SCHEMA), seed=3, connectivity=1.0, leak=0.3, dtype=np.float32, features=SCHEMA)
    w_out = np.zeros((HEADS.width, 24 + len(SCHEMA)), np.float32)
    bias = np.full(HEADS.width, shift, np.float32)
    return replace(made.with_readout(w_out, bias, passthrough=True, heads=HEADS), ranges=Ranges(5.0, 1.0))


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory):
    """Two finished campaigns with seeds of their own."""
    folder = tmp_path_factory.mktemp("adopt")
    for seed in (1, 2):
        campaign.run(msgspec.structs.replace(SMALL, seed=seed), folder / f"run{seed}")
    return folder / "run1", folder / "run2"


@pytest.fixture
def file(tmp_path):
    save_with_provenance(network(), MADE, tmp_path / "old.safetensors")
    return tmp_path / "old.safetensors"


def metalforge(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def test_a_chain_teaches_what_its_rows_say_once_it_is_long_enough(campaigns):
    state = campaign.load(campaigns[0]).state
    taught = {chain.labels["schedule"]: chain for chain in taught_by(campaigns[0], network()).chains}
    assert taught
    for log in state.chains.values():
        loop = np.hypot(log.column("polyakov_re"), log.column("polyakov_im"))[: log.complete - log.warmup]
        found = gamma_method(loop)
        lesson = taught.pop(float(np.log(2 * found.tau_int)), None)
        if lesson is not None:
            assert lesson.labels["deconfinement"] == pytest.approx(np.log(loop.mean() * 8))
            assert "beta_priority" not in lesson.labels  # nothing is established by so few updates
            assert lesson.mean.shape == (24 + len(SCHEMA),)
    assert not taught
    context = state.spec.theory.head_context(5.0, SMALL.theory.volumes[0], "hot")
    assert labels_of(loop[: int(ENOUGH) - 1], context) == {}


def test_two_campaigns_become_weights_that_name_them_and_are_better_on_the_one_left_out(campaigns, file, tmp_path):
    new = tmp_path / "new.safetensors"
    said = json.loads(metalforge("conductor", "adopt", *campaigns, "--weights", file, "--out", new, "--json").stdout)
    heads = {head["name"]: head for head in said["heads"]}
    assert heads["deconfinement"]["adopted"]
    assert heads["deconfinement"]["after"] < heads["deconfinement"]["before"]
    assert heads["deconfinement"]["campaigns"] == 2
    made = read_provenance(new)
    assert made.campaigns == tuple(hashlib.sha256((c / JOURNAL).read_bytes()).hexdigest() for c in campaigns)
    assert made.command.startswith(MADE.command)
    before, after = load_weights(file), load_weights(new)
    np.testing.assert_array_equal(after.w_res, before.w_res)
    assert not np.array_equal(after.w_out[1], before.w_out[1])
    assert after.ranges == before.ranges
    again = tmp_path / "again.safetensors"
    shown = metalforge("conductor", "adopt", *campaigns, "--weights", file, "--out", again).stdout
    assert "rms before" in shown
    assert again.read_bytes() == new.read_bytes()


def test_forced_heads_are_taken_whatever_they_are_worth(campaigns, file, tmp_path):
    new = tmp_path / "new.safetensors"
    said = metalforge("conductor", "adopt", *campaigns, "--weights", file, "--out", new, "--force", "--json").stdout
    assert all(head["adopted"] for head in json.loads(said)["heads"])


def test_what_cannot_teach_is_refused(campaigns, file, tmp_path):
    out = tmp_path / "new.safetensors"
    with pytest.raises(SpecError, match="left out"):
        metalforge("conductor", "adopt", campaigns[0], "--weights", file, "--out", out)
    unfinished = tmp_path / "unfinished"
    with Campaign.open(SMALL, unfinished) as begun:
        run_until(begun, 60)
    with pytest.raises(SpecError, match="resume"):
        metalforge("conductor", "adopt", campaigns[0], unfinished, "--weights", file, "--out", out)
    with pytest.raises(SpecError, match="nowhere"):
        metalforge("conductor", "adopt", campaigns[0], tmp_path / "nowhere", "--weights", file, "--out", out)
    assert not out.exists()


@pytest.fixture
def adopted(tmp_path):
    """The package's weights with another readout of one head, as campaigns might have left them."""
    weights = shipped_weights()
    assert weights.w_out is not None
    changed = replace(weights, w_out=weights.w_out * np.float32(1.5))
    path = tmp_path / "adopted.safetensors"
    save_with_provenance(changed, msgspec.structs.replace(shipped_provenance(), campaigns=("1" * 64,)), path)
    return path


@pytest.mark.chaos
@pytest.mark.usefixtures("undrawn")
def test_a_campaign_reads_with_the_weights_it_was_given_and_keeps_them(adopted, tmp_path):
    (tmp_path / "spec.toml").write_text(spec_text(SMALL))
    arguments = ["scan", tmp_path / "spec.toml", "--weights", adopted, "--trajectories", 150, "--json"]
    metalforge(*arguments, "--out", tmp_path / "own")
    metalforge(*arguments[:2], *arguments[4:], "--out", tmp_path / "package")
    own, package = (campaign.load(tmp_path / name).state for name in ("own", "package"))
    assert (tmp_path / "own" / "weights.safetensors").read_bytes() == adopted.read_bytes()
    assert [d.reason for d in own.decisions if d.what == "weights"] == [
        f"sha256 {hashlib.sha256(adopted.read_bytes()).hexdigest()}"
    ]
    read, other = ([s.heads for c in state.chains.values() for s in c.screened] for state in (own, package))
    assert read != other
    adopted.unlink()
    metalforge("resume", tmp_path / "own", "--trajectories", 100, "--json")
    (tmp_path / "own" / "weights.safetensors").write_bytes(b"others")
    with pytest.raises(SpecError, match="began with"):
        metalforge("resume", tmp_path / "own", "--trajectories", 100, "--json")


@pytest.mark.parametrize(
    ("base", "read"),
    [(SMALL, {"beta_priority"}), (msgspec.structs.replace(SMALL, theory=WITH_QUARKS), {"cg_estimate"})],
)
def test_a_campaign_reads_the_heads_that_weights_of_another_layout_share_with_its_own(base, read, tmp_path):
    with as_file(FOLDER / "gpu-prep-11.safetensors") as path:
        screening = msgspec.structs.replace(base.screening, weights=str(path))
        spec = msgspec.structs.replace(base, screening=screening, budget=Budget(trajectories=150))
        with Campaign.open(spec, tmp_path / "run") as begun:
            state = begun.run()
    assert state.finished is not None
    assert state.trajectories > 150 - 37  # a visit measures at least 37 updates
    shared = {"beta_priority", "cg_estimate"}
    said = set().union(*(s.heads for chain in state.chains.values() for s in chain.screened))
    assert read <= said <= shared
    assert not [d for d in state.decisions if d.what == "reader"]
    assert all(not said.trusted for name, said in state.heads.items() if name not in shared)


def test_heads_of_weights_that_nobody_scored_are_not_trusted_and_other_heads_are_refused(adopted, file, tmp_path):
    shipped = SMALL.theory.advisor().heads
    assert shipped.acts(HEAD)
    assert not with_weights(shipped, adopted).scores, "another readout, and no scores of it"
    save_with_provenance(shipped_weights(), MADE, adopted)
    assert with_weights(shipped, adopted).scores == shipped.scores, "the package's numbers have its scores"
    two = with_weights(shipped, file)
    assert {head.name for head in two.weights.heads.heads if head.trained} == set(HEADS.names)
    assert not two.scores
    strange = HeadLayout(name="strange", heads=(HeadSpec(name="none of ours", width=HEADS.width),))
    save_weights(replace(network(), heads=strange), tmp_path / "strange.safetensors")
    with pytest.raises(SpecError, match="none of ours"):
        with_weights(shipped, tmp_path / "strange.safetensors")


def scored(low, high, campaigns=6):
    """Scores of an adopted head, its skill amid an interval."""
    skill = (low + high) / 2
    return AdoptedHead(
        name=HEAD, campaigns=campaigns, chains=20, before=1.0, after=0.8, baseline=0.7, skill_before=-1.0,
        skill_after=skill, skill_low=low, skill_high=high, adopted=True,
    )  # fmt: skip


def written(path, head):
    """The package's weights with another readout of one head, and these scores of it."""
    weights = shipped_weights()
    w_out = weights.w_out.copy()
    w_out[weights.heads.span(HEAD)] *= np.float32(1.1)
    made = msgspec.structs.replace(shipped_provenance(), adopted=(head,))
    save_with_provenance(replace(weights, w_out=w_out), made, path)
    return path


def test_an_adopted_head_that_the_package_does_not_trust_is_not_acted_on(tmp_path):
    head = msgspec.structs.replace(scored(0.1, 0.5), name="schedule")
    shipped = SMALL.theory.advisor().heads
    assert head.trusted
    assert not shipped.scores["schedule"].trusted
    heads = with_weights(shipped, written(tmp_path / "own.safetensors", head))
    assert not heads.acts("schedule")
    assert "not trusted" in heads.why("schedule")


@pytest.mark.parametrize(
    ("head", "acts"),
    [
        (scored(0.1, 0.5), True),
        (scored(-0.1, 0.5), False),
        (scored(-0.6, -0.14), False),
        (scored(0.1, 0.5, campaigns=3), False),
    ],
    ids=["skill", "skill within its interval", "negative", "few campaigns"],
)
def test_an_adopted_head_acts_by_the_skill_of_its_own_readout(head, acts, tmp_path):
    shipped, path = SMALL.theory.advisor().heads, written(tmp_path / "own.safetensors", head)
    heads = with_weights(shipped, path)
    score = heads.scores[HEAD]
    assert (heads.acts(HEAD), score.skill) == (acts, head.skill_after)
    assert {**heads.scores, HEAD: None} == {**shipped.scores, HEAD: None}
    assert (score.value, score.trusted) == (head.after, acts)  # how far its readings are off
    standing = {one.name: one.acts for one in standings_of(path)}
    assert standing[HEAD] == acts
    assert len(standing) == len(shipped_weights().heads.names)


def test_the_journal_says_that_an_adopted_head_without_skill_is_not_trusted(tmp_path):
    path = written(tmp_path / "own.safetensors", scored(-0.6, -0.14))
    screening = msgspec.structs.replace(SMALL.screening, weights=str(path))
    steering = Steering(visit=80, initial=3)
    spec = msgspec.structs.replace(SMALL, screening=screening, steering=steering, budget=Budget(trajectories=700))
    with Campaign.open(spec, tmp_path / "run") as begun:
        state = begun.run()
    said = state.heads[HEAD]
    assert (said.trusted, said.value) == (False, pytest.approx(-0.37))
    assert "-0.37" in said.reason
    assert {d.by for d in state.decisions if d.what == PEAK_PRIOR} == {RULE}
    assert not any(visit.head for visit in state.visits)


def test_adopt_says_of_every_head_whether_campaigns_will_act_on_it(campaigns, tmp_path):
    new = tmp_path / "new.safetensors"
    said = json.loads(metalforge("conductor", "adopt", *campaigns, "--out", new, "--force", "--json").stdout)
    standings = {one["name"]: one for one in said["standings"]}
    assert set(standings) == set(shipped_weights().heads.names)
    forced = {head["name"] for head in said["heads"] if head["adopted"]}
    assert forced
    assert not any(standings[name]["acts"] for name in forced), "two campaigns are too few"
    assert standings[HEAD]["acts"], "its readout is the package's"
    assert all(one["reason"] for one in standings.values())
    assert {head.name for head in read_provenance(new).adopted} == forced
    again = tmp_path / "again.safetensors"
    shown = metalforge("conductor", "adopt", *campaigns, "--weights", new, "--out", again, "--force").stdout
    assert all(name in shown for name in standings)
