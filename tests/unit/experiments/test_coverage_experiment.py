"""Coverage: rehearsals are campaigns, their errors hold on an exact model, and shards add to one file through kills."""

import msgspec
import numpy as np
import pytest

from experiments import Settings, coverage
from experiments.coverage import (
    QUICK_CASES,
    Case,
    CoverageJob,
    CoverageOutcome,
    jobs_of,
    pulls_of,
    run_job,
)
from experiments.exact_model import CROSSOVER, FIRST_ORDER, ExactChains
from experiments.lines import read_lines
from experiments.protocol import quiet
from experiments.rehearsal import rehearsal_spec, rehearse
from metalforge.campaign.findings import finding
from metalforge.core.errors import SpecError


@pytest.fixture(scope="module")
def quick():
    return coverage.run(Settings(quick=True), quiet)


def test_errors_hold_on_campaigns_that_stop_by_themselves_and_on_those_that_do_not(quick):
    """40 campaigns of an exact model: the bounds are 3 binomial standard errors from a Gaussian's shares."""
    for case, line in zip(QUICK_CASES, quick.table, strict=True):
        assert line["case"] == case.name
        assert line["established"].value > 0.7
        assert line["within 1 error"].value > 0.37
        assert line["within 2 errors"].value > 0.8
    assert [passed for asked, _, passed in quick.checks if "wrong" in asked] == [True, True]


def test_the_chains_of_the_model_have_its_distribution():
    for model in (CROSSOVER, FIRST_ORDER):
        beta, chi = model.peak()
        chains = ExactChains(model, np.random.default_rng(2))
        numbers = [chains.add(beta, start) for start in ("hot", "cold") * 30]
        chains.advance(numbers, 800)
        loop = chains.advance(numbers, 1500)[1]
        means = np.array([512 * (x.var() + (x.mean() - loop.mean()) ** 2) for x in loop.T])
        assert abs(means.mean() - chi) < 4 * means.std() / np.sqrt(means.size)


def test_a_rehearsal_is_a_campaign_that_looks_and_steers():
    spec = rehearsal_spec(CROSSOVER._replace(step=0.03), 3, {"trajectories": 9000})
    (state,) = rehearse(CROSSOVER._replace(step=0.03), [spec], 1)
    assert state.finished.stopped_by == "trajectories"
    assert 8000 < state.trajectories <= 9000
    assert len({chain.coordinate for chain in state.chains.values()}) >= spec.steering.initial
    assert state.estimates[-1].evidence
    assert finding(state, state.spec.theory.volumes[0], n_bootstrap=200).transition is not None


def test_chains_side_by_side_are_held_against_the_exact_peak():
    case = Case("s", "budget", 2, 16_000, None, "crossover", 0.03, chains=8)
    first, second = run_job(CoverageJob(case, (7, 8)), "0")
    assert (first.seed, second.seed, first.updates) == (7, 8, 16_000)
    assert first.beta_c != second.beta_c
    for said in (first, second):
        assert abs(said.beta_c - CROSSOVER.peak()[0]) < 4 * said.error


OUTCOME = CoverageOutcome(
    case="c", seed=1, beta_c=5.0, error=0.1, established=True, stopped_by="target", updates=9, lacking=(), rules="0"
)
CASE = Case("c", "target", 4, 1000, 0.1)


@pytest.fixture
def counted(monkeypatch):
    """Cases whose campaigns are counted instead of run."""
    ran = []

    def run(job, rules):
        ran.extend(job.seeds)
        return [
            CoverageOutcome(
                case=job.case.name, seed=seed, beta_c=5.0 + 0.01 * (seed % 3), error=0.02, established=True,
                stopped_by="target", updates=100, lacking=(), rules=rules,
            )
            for seed in job.seeds
        ]  # fmt: skip

    monkeypatch.setattr(coverage, "CASES", (CASE,))
    monkeypatch.setattr(coverage, "run_job", run)
    return ran


def test_shards_add_to_one_file_and_nothing_is_run_twice(tmp_path, counted):
    file = str(tmp_path / "coverage.jsonl")
    coverage.run(Settings(shard="1/2", file=file), quiet)
    assert len(counted) == 2
    both = coverage.run(Settings(shard="2/2", file=file), quiet)
    assert len(counted) == len(set(counted)) == 4
    assert both.table[0]["campaigns"] == 4
    assert coverage.run(Settings(shard="table", file=file), quiet).table == both.table
    again = coverage.run(Settings(file=file), quiet)
    assert len(counted) == 4
    assert again.table == both.table


def test_a_line_that_was_cut_off_is_run_again(tmp_path, counted):
    path = tmp_path / "coverage.jsonl"
    coverage.run(Settings(file=str(path)), quiet)
    path.write_bytes(path.read_bytes()[:-20])
    assert len(read_lines(path, CoverageOutcome)) == 3
    coverage.run(Settings(file=str(path)), quiet)
    assert (len(counted), len(read_lines(path, CoverageOutcome))) == (5, 4)


def test_a_file_of_something_else_and_a_shard_that_is_none_are_refused(tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text('{"a": 1}\n')
    with pytest.raises(SpecError, match="none of its 1 lines"):
        read_lines(path, CoverageOutcome)
    for shard in ("3/2", "0/2", "x", "1"):
        with pytest.raises(SpecError, match="shard"):
            coverage.run(Settings(shard=shard, file=str(tmp_path / "f")), quiet)


def test_a_lattice_campaign_is_held_against_the_others_only():
    values = [(5.0, 0.01), (5.02, 0.01), (5.3, 0.01)]
    outcomes = [
        CoverageOutcome(
            case="c", seed=i, beta_c=v, error=e, established=True, stopped_by="", updates=1, lacking=(), rules=""
        )
        for i, (v, e) in enumerate(values)
    ]
    pulls, off = pulls_of(CASE, outcomes)
    assert off[2] == pytest.approx(5.3 - 5.01)
    assert pulls[2] == pytest.approx(0.29 / np.hypot(0.01, 0.01 / np.sqrt(2)))
    unsaid = [*outcomes, msgspec.structs.replace(OUTCOME, established=False)]
    assert len(pulls_of(CASE, unsaid)[0]) == 3


def test_every_campaign_has_its_own_seed_and_none_is_one_the_rules_were_chosen_with():
    seeds = [(job.case.name, seed) for job in jobs_of(coverage.CASES, 1) for seed in job.seeds]
    assert len(seeds) == len(set(seeds)) == sum(case.campaigns for case in coverage.CASES)
    assert min(seed for name, seed in seeds if not name.startswith("8^3x2, to")) >= 10_000


def test_a_real_campaign_of_the_experiment_runs(tmp_path):
    case = Case("tiny", "budget", 1, 900, dims=(4, 4, 4, 2), beta=(5.0, 5.2))
    (outcome,) = run_job(jobs_of((case,), 1)[0], "test")
    assert outcome.stopped_by == "trajectories"
    assert not outcome.established
    assert outcome.lacking


def test_quick_cases_end_in_both_ways():
    assert {case.ends for case in QUICK_CASES} == {"target", "budget"}


@pytest.mark.parametrize(("bias", "holds"), [(0.0, True), (0.8, False)])
def test_a_bias_against_a_long_run_fails_its_check(bias, holds):
    case, error = msgspec.structs.replace(CASE, truth=(5.69, 0.0001)), 0.002
    off = np.random.default_rng(1).normal(bias, 1.0, 40) * error
    outcomes = [
        msgspec.structs.replace(OUTCOME, case=case.name, seed=i, beta_c=5.69 + x, error=error, established=True)
        for i, x in enumerate(off)
    ]
    checks = {asked: passed for asked, _, passed in coverage._result([case], outcomes).checks}
    assert [passed for asked, passed in checks.items() if "bias" in asked] == [holds]
