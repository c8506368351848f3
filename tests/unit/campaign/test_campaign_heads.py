"""The shipped heads in a campaign: where they may act, what they see of other chains, and that they change no bit."""

import msgspec
import pytest

from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, Running, Steering, WarmUpPolicy, preset
from metalforge.conductor import standing
from metalforge.lattice.chain import Chain
from metalforge.lattice.observables import measure
from metalforge.lattice.warmup import WarmUp, warm_up_step
from reference.small_campaigns import ROUNDS, WITH_QUARKS
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


def heads_of(spec):
    with spec.theory.advisor() as advisor:
        return advisor.heads


@pytest.fixture
def trusting(monkeypatch):
    """Scores in which more heads are trusted."""
    monkeypatch.setattr(standing, "shipped_scores", scores)


@pytest.fixture(scope="module")
def sea(tmp_path_factory):
    """A short dynamical campaign."""
    with pytest.MonkeyPatch.context() as trusting:
        trusting.setattr(standing, "shipped_scores", scores)
        with Campaign.open(SEA, tmp_path_factory.mktemp("sea") / "run") as campaign:
            return campaign.run()


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
    heads = heads_of(spec)
    assert why in heads.domain
    assert not any(heads.acts(name) for name in heads.scores)


@pytest.mark.usefixtures("trusting")
def test_on_their_own_kind_of_chains_trusted_heads_act():
    for spec in (SEA, preset("demo")):
        heads = heads_of(spec)
        assert heads.domain is None
        assert heads.acts("anomaly")
        assert not heads.acts("beta_priority")


def test_a_head_that_was_not_tested_on_a_kind_of_chain_does_not_act_there(monkeypatch):
    few = msgspec.structs.replace(KINDS[0], heads=("thermalization", "phase"))
    shown = msgspec.structs.replace(scores(), tested_on=(few, *KINDS[1:]))
    monkeypatch.setattr(standing, "shipped_scores", lambda: shown)
    demo, sea = heads_of(preset("demo")), heads_of(SEA)
    assert demo.acts("phase")
    assert not demo.acts("anomaly")
    assert "not tested" in demo.unused["anomaly"]
    assert sea.acts("anomaly")


def test_every_head_is_named_with_its_reason(sea):
    said = {d.by: d for d in sea.decisions if d.what == "head"}
    assert len(said) == 11
    assert "plasma" in said["transport_D"].reason
    assert said["anomaly"].trusted


def test_heads_that_read_a_dynamical_chain_change_no_bit_of_it(sea):
    """The same chain alone, without any head: quenched start, tuned warm-up, frozen measurement."""
    log = sea.chains["c0000"]
    assert log.screened[-1].heads
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
