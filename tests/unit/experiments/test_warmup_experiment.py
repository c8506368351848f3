"""The bias study of the warm-up rule: the rule is the campaign's own, known transients are seen, rows hold together."""

import msgspec
import numpy as np
import pytest

from experiments.protocol import EXPERIMENTS, Settings, quiet, rows_of
from experiments.warmup import ALLOWED, FULL, QUICK, RULE, CouplingChains, bias_of, judge, rule_length, run
from metalforge.campaign.running.monitor import Monitor
from metalforge.campaign.spec import WarmUpPolicy

NOISE, TAU = 0.01, 20.0


def relaxing(chains, updates, seed, *, away=0.4):
    """Return series that relax as exp(-t / tau) to 0.5: hot ones from below, cold ones from above, in turn."""
    rng = np.random.default_rng(seed)
    sign = np.where(np.arange(chains) % 2, 1, -1)[:, None]
    transient = away * np.exp(-np.arange(updates) / TAU)
    return 0.5 + sign * transient + NOISE * rng.standard_normal((chains, updates))


@pytest.fixture(scope="module")
def plan():
    return msgspec.structs.replace(FULL, betas=(5.6, 5.7, 5.8), chains=20)


@pytest.fixture(scope="module")
def places(plan):
    updates = plan.late + plan.visit
    return [
        CouplingChains(
            beta,
            {"plaquette": relaxing(plan.chains, updates, 2 * i), "|L|": relaxing(plan.chains, updates, 2 * i + 1)},
        )
        for i, beta in enumerate(plan.betas)
    ]


def test_the_number_of_chains_is_that_of_the_power_calculation():
    assert FULL.chains * len(FULL.betas) >= (3.29 / ALLOWED) ** 2
    assert FULL.chains % 2 == 0
    assert FULL.policy == WarmUpPolicy()
    assert len({recipe.stream for recipe in FULL.recipes(1)}) == len(FULL.betas)


def test_a_known_transient_leaves_its_geometric_sum(plan, places):
    starts = [np.full(plan.chains, 60)] * 3
    found = bias_of(starts, places, plan)
    left = 0.4 * np.exp(-60 / TAU) / (1 - np.exp(-1 / TAU)) / plan.visit
    in_errors = left / (NOISE / np.sqrt(plan.visit))
    for bias in found.values():
        assert bias.left.value == pytest.approx(in_errors, rel=0.3)
        assert bias.hot.value < 0 < bias.cold.value
        assert bias.left.low > ALLOWED
    # Nothing is left after twenty relaxation times.
    gone = bias_of([np.full(plan.chains, 400)] * 3, places, plan)
    assert all(abs(bias.left.value) < 0.5 for bias in gone.values())


def test_the_rule_waits_for_a_transient_and_not_beyond_the_longest(plan):
    monitor = Monitor(plan.policy)
    quick, slow = (relaxing(2, 400, 1, away=away) for away in (0.0, 40.0))
    short = rule_length(monitor, quick[0], quick[1])
    long = rule_length(monitor, slow[0], slow[1])
    assert plan.policy.shortest <= short < long <= plan.policy.longest
    assert (short - plan.policy.shortest) % 10 == 0
    drifting = np.linspace(0, 1, 400)
    assert rule_length(monitor, drifting, drifting) == plan.policy.longest


def test_the_rule_stands_beside_a_fixed_length_of_its_mean(plan, places):
    found = judge(plan, places)
    mean = found[RULE].length
    names = [RULE, "80 updates", f"{round(mean)} updates", "400 updates", "update 3 (control)"]
    assert list(found) == names
    assert found[names[2]].length == pytest.approx(mean, abs=0.5)
    assert found[names[-1]].bias["plaquette"].left.low > found[RULE].bias["plaquette"].left.value


def test_the_quick_form_answers_what_was_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("METALFORGE_CACHE", str(tmp_path))
    result = run(Settings(quick=True), quiet)
    assert {row.metric for row in result.rows} == {"bias_left", "bias_hot", "bias_cold"}
    assert all(row.low <= row.value <= row.high for row in result.rows)
    assert len(result.table) == 1 + len({row.approach for row in result.rows})
    (standard,) = rows_of(result.rows, approach="100 updates", metric="bias_left", task="plaquette, 4x4x4x2")
    assert standard.gap == 0
    assert any("fixed before" in line for line in result.words)
    asked = {what: passed for what, _, passed in result.checks}
    assert asked["the control is seen to be biased"]
    assert len(list(tmp_path.glob("warmup-*.npz"))) == len(QUICK.betas)
    assert run(Settings(quick=True), quiet) == result  # from the cache, and the same
    assert EXPERIMENTS["warmup"].run is run
