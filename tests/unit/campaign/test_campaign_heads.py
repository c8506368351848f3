"""The shipped heads in a campaign: where they may act, what they see of other chains, and that they change no bit."""

from functools import partial

import msgspec
import pytest

from metalforge.campaign import Results
from metalforge.campaign.running import heads as running_heads
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.running.heads import load_heads
from metalforge.campaign.spec import Budget, Running, Steering, WarmUpPolicy, preset
from metalforge.campaign.state import fold
from metalforge.campaign.store import read_journal
from metalforge.campaign.store.records import Record
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.chain import Chain
from metalforge.lattice.observables import measure
from metalforge.lattice.warmup import WarmUp, warm_up_step
from reference.small_campaigns import ROUNDS, WITH_QUARKS, run_until
from reference.trusted_heads import KINDS, scores

SEA = msgspec.structs.replace(
    ROUNDS,
    name="sea",
    theory=msgspec.structs.replace(WITH_QUARKS, n_steps=6),
    budget=Budget(trajectories=160),
    warmup=WarmUpPolicy(longest=12, shortest=10, cheap=4),
    steering=Steering(visit=20, initial=3),
    running=Running(block=10, deterministic=True, producers=2),
)


@pytest.fixture
def trusting(monkeypatch):
    """Scores in which the early stop of the head was shown to be unbiased."""
    monkeypatch.setattr(running_heads, "default_scores", scores)


@pytest.fixture(scope="module")
def sea(tmp_path_factory):
    """A short dynamical campaign."""
    directory = tmp_path_factory.mktemp("sea") / "run"
    with pytest.MonkeyPatch.context() as trusting:
        trusting.setattr(running_heads, "default_scores", partial(scores, unbiased=False))
        with Campaign.open(SEA, directory) as campaign:
            campaign.run()
    return fold(read_journal(directory / JOURNAL, Record).records)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (msgspec.structs.replace(SEA, theory=msgspec.structs.replace(SEA.theory, integrator="omelyan2")), "leapfrog"),
        (msgspec.structs.replace(SEA, theory=preset("dynamical-nf4").theory), "leapfrog"),
        (
            msgspec.structs.replace(SEA, theory=msgspec.structs.replace(SEA.theory, volumes=((8, 8, 8, 4),))),
            "N_t = 2, not 4",
        ),
    ],
)
@pytest.mark.usefixtures("trusting")
def test_heads_do_not_act_on_chains_they_were_not_trained_on(spec, why):
    heads = load_heads(spec)
    assert why in heads.domain
    assert not any(heads.acts(name) for name in heads.trusted)


@pytest.mark.usefixtures("trusting")
def test_on_their_own_kind_of_chains_trusted_heads_act():
    for spec in (SEA, preset("demo")):
        heads = load_heads(spec)
        assert heads.domain is None
        assert heads.acts("anomaly")
        assert not heads.acts("beta_priority")


def test_a_head_that_was_not_tested_on_a_kind_of_chain_does_not_act_there(monkeypatch):
    few = msgspec.structs.replace(KINDS[0], heads=("thermalization", "phase"))
    shown = msgspec.structs.replace(scores(), tested_on=(few, *KINDS[1:]))
    monkeypatch.setattr(running_heads, "default_scores", lambda: shown)
    demo, sea = load_heads(preset("demo")), load_heads(SEA)
    assert demo.acts("phase")
    assert not demo.acts("anomaly")
    assert "not tested" in demo.unused["anomaly"]
    assert sea.acts("anomaly")
    monkeypatch.setattr(running_heads, "default_scores", lambda: msgspec.structs.replace(shown, tested_on=()))
    assert "not known" in load_heads(SEA).domain


def test_every_head_is_named_with_its_reason(sea):
    said = {d.by: d for d in sea.decisions if d.what == "head"}
    assert len(said) == 11
    assert "plasma" in said["transport_D"].reason
    assert said["anomaly"].trusted


def test_heads_that_watch_a_dynamical_chain_change_no_bit_of_it(sea):
    """The same chain alone, without any head: quenched start, tuned warm-up, frozen measurement."""
    log = sea.chains["c0000"]
    chain = Chain(
        SEA.theory.chain(log.system, log.coordinate, seed=SEA.seed, stream=log.stream, start="hot"), threads=1
    )
    warmup = WarmUp(total=log.cheap + SEA.warmup.longest, quenched=log.cheap)
    plaquettes = []
    for i in range(log.rows):
        if i < log.warmup:
            warmup, _ = warm_up_step(chain, warmup)
        else:
            chain.update()
        plaquettes.append(measure(chain.field).plaquette)
    assert log.phases.count("quench") == log.cheap > 0
    assert plaquettes == log.columns["plaquette"]


def test_predictions_are_judged_against_their_baselines(sea):
    judged = {d.by: d for d in sea.decisions if d.what == "judged"}
    assert set(judged) == {"cg_estimate", "rejection"}
    assert all("pairs" in d.reason for d in judged.values())


def test_solves_after_a_quench_are_asked_about_before_it(sea):
    answers = Results(sea).summary.answers
    quenched = [chain for chain in sea.chains.values() if chain.cheap]
    assert answers["ahead"] >= len(quenched) > 0  # a chain that the gate sends back to its start asks again
    assert answers["ahead_ready"] <= answers["ahead"]


def test_the_cg_head_is_judged_and_decides_nothing(sea):
    account = Results(sea).summary.heads["cg_estimate"]
    assert (account.acts, account.decisions) == (False, {})
    assert not any(d.head == "cg_estimate" for d in sea.decisions)


HMC = msgspec.structs.replace(
    ROUNDS,
    name="hmc",
    seed=3,
    theory=Lattice(
        volumes=((4, 4, 4, 4),), beta_min=5.3, beta_max=5.9, algorithm="hmc", integrator="leapfrog", n_steps=10
    ),
    budget=Budget(trajectories=1200),
    warmup=WarmUpPolicy(longest=150, shortest=20),
    steering=Steering(visit=60, initial=5),
    running=Running(block=25, deterministic=True, producers=2),
)


def test_the_thermalisation_head_is_not_acted_on_while_its_early_stop_is_not_shown_to_be_unbiased(monkeypatch):
    monkeypatch.setattr(running_heads, "default_scores", partial(scores, unbiased=False))
    heads = load_heads(HMC)
    assert heads.domain is None
    assert not heads.acts("thermalization")
    assert "not shown to be unbiased" in heads.why("thermalization")


@pytest.mark.chaos
@pytest.mark.usefixtures("trusting")
def test_a_trusted_head_ends_warm_ups_and_a_resumed_campaign_ends_them_alike(tmp_path):
    """Interrupted in every warm-up it comes to: the heads are told the past again and say the same."""
    with Campaign.open(HMC, tmp_path / "whole") as campaign:
        whole = campaign.run()
    ended = [d for d in whole.decisions if d.what == "warmup-ends" and d.by == "head:thermalization"]
    assert ended
    assert all(d.trusted and d.value > 0.5 for d in ended)
    directory = tmp_path / "parts"
    with Campaign.open(HMC, directory) as campaign:
        state = run_until(campaign, 90)
    while state.finished is None:
        with Campaign.resume(directory) as campaign:
            state = run_until(campaign, state.trajectories + 250)
    assert state.digest() == whole.digest()


def test_a_trusted_head_ends_the_warm_ups_of_sweeps_too_and_stands_beside_the_rule(monkeypatch, tmp_path):
    """One frame of sixteen sweeps is enough for this rule, and the first look is after twenty."""
    monkeypatch.setattr(running_heads, "default_scores", partial(scores, sure=0.0, in_a_row=1, factor=1.0))
    spec = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=400))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    ended = [d for d in state.decisions if d.what == "warmup-ends"]
    assert {(d.by, d.step, d.trusted, d.head) for d in ended} == {("head:thermalization", 20, True, "thermalization")}
    assert all(0 < d.value < 1 and d.baseline in (0.0, 1.0) for d in ended)
    assert {chain.warmup for chain in state.chains.values()} == {20}
