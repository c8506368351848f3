"""The steering experiment: arms differ in who knows where to look, every campaign is a line, and the table adds up."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest

from experiments import steering
from experiments.lines import read_lines
from experiments.protocol import Settings, quiet
from experiments.steering import (
    CASES,
    QUICK_CASES,
    SteeringJob,
    SteeringOutcome,
    arms_of,
    jobs_of,
    looks_of,
    ratio_of,
    result_of,
    run,
    spec_of,
)
from metalforge.campaign.state import fold
from metalforge.campaign.store.records import Assigned, Estimated, Opened, Rows
from metalforge.conductor.curves import transition_curve, transition_of
from metalforge.core.errors import SpecError

SCOUTED = next(case for case in CASES if case.scouts)


@pytest.fixture(scope="module")
def quick():
    return run(Settings(quick=True), quiet)


def outcome(arm, seed, work, *, case="a case", off=0.0, error=0.002, reached=True):
    return SteeringOutcome(
        case=case,
        arm=arm,
        seed=seed,
        fixed_beta_c=5.69 + 2 * off,
        fixed_error=2 * error,
        reached=reached,
        work=work,
        beta_c=5.69 + off,
        error=error,
        established=True,
        chains=8,
        prior=("rule:transition", 5.7, 0.02) if arm == "conductor" else None,
        substrate="cpu",
        rules="test",
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_arms_differ_in_steerer_and_prior_alone(case):
    specs = {arm: spec_of(SteeringJob(case, arm, 5), "cpu") for arm in case.arms}
    told = {
        "uniform": ("uniform", "auto"),
        "process": ("gaussian-process", "off"),
        "base": ("gaussian-process", steering.left_out_prior(2, 4) if case.left_out else "auto"),
        "conductor": ("conductor", "auto"),
        "oracle": ("gaussian-process", (case.truth, steering.ORACLE)),
    }
    assert {arm: (spec.steering.steerer, spec.steering.prior) for arm, spec in specs.items()} == {
        arm: told[arm] for arm in case.arms
    }
    plain = [msgspec.structs.replace(spec, steering=specs["process"].steering) for spec in specs.values()]
    assert all(one == other for one, other in pairwise(plain))
    assert {spec.steering.visit for spec in specs.values()} == {case.visit}


def test_whoever_asks_for_two_volumes_is_given_updates_for_both_in_every_arm():
    for arm in SCOUTED.arms:
        spec = spec_of(SteeringJob(SCOUTED, arm, 5), "cpu")
        assert spec.theory.volumes == (SCOUTED.dims, *SCOUTED.scouts)
        assert spec.budget.trajectories > SCOUTED.most


def test_jobs_give_every_case_and_arm_its_turn_before_the_next_seed():
    jobs = jobs_of(CASES, 1)
    assert len(jobs) == sum(case.campaigns * len(case.arms) for case in CASES)
    assert len({(job.case.name, job.arm, job.seed) for job in jobs}) == len(jobs)
    first = jobs[: sum(len(case.arms) for case in CASES)]
    assert {(job.case.name, job.arm) for job in first} == {(case.name, arm) for case in CASES for arm in case.arms}
    assert not {job.seed for job in jobs} & {job.seed for job in jobs_of(CASES, 2)}


def test_the_prior_of_an_n_t_that_is_left_out_knows_nothing_of_it():
    mean, width = steering.left_out_prior(2, 4)
    assert abs(mean - 5.0842) < 2 * width
    assert width == pytest.approx(transition_curve().unit)
    assert mean != pytest.approx(transition_of(2, 4).mean, abs=1e-3)
    assert next(case for case in CASES if case.left_out).dims == (4, 4, 4, 2)


def test_work_counts_scouts_by_their_sites():
    spec = spec_of(SteeringJob(SCOUTED, "conductor", 5), "cpu")
    opened = Opened(
        spec=spec, spec_sha256=spec.sha256, package_version="", isa="", command=(), ordering="C", silicon=(), python=""
    )
    records = [opened]
    for number, dims in enumerate((SCOUTED.scouts[0], SCOUTED.dims)):
        chain = f"c{number:04d}"
        records.append(
            Assigned(
                visit=number, round=0, chain=chain, stream=number, system=dims, coordinate=5.7, updates=27, fresh=True,
                substrate="cpu:0", by="test", reason="",
            )
        )  # fmt: skip
        rows = dict.fromkeys(("plaquette", "polyakov_re", "polyakov_im"), (0.5,) * 27)
        records.append(Rows(chain=chain, phase="measure", first=0, columns=rows, seconds=0.0))
        records.append(Estimated(system=SCOUTED.dims, trajectories=0, result=5.7, error=0.01))
        records.append(Estimated(system=SCOUTED.scouts[0], trajectories=0, result=5.6, error=0.01))
    looks = list(looks_of(records, fold(records), SCOUTED.dims))
    assert [work for work, _ in looks] == pytest.approx([8.0, 35.0])
    assert [(look.result, look.error) for _, look in looks] == [(5.7, 0.01)] * 2


def test_figures_are_those_of_their_definition():
    rng = np.random.default_rng(3)
    off = 0.002 * rng.normal(size=(3, 60))
    arms = ("uniform", "process", "conductor")
    works = {"uniform": 40_000, "process": 20_000, "conductor": 12_000}
    outcomes = [
        outcome(arm, seed, works[arm] + 100 * seed, off=float(off[i, seed]), reached=arm != "uniform")
        for i, arm in enumerate(arms)
        for seed in range(60)
    ]
    found = arms_of(outcomes, arms)
    ratio = ratio_of(found["conductor"], found["process"])
    assert ratio.value == pytest.approx((12_000 + 2950) / (20_000 + 2950))
    assert ratio.low < ratio.value < ratio.high
    assert ratio_of(found["process"], found["process"]) is None
    assert np.sqrt(np.mean(found["process"].off ** 2)) == pytest.approx(0.004, rel=0.2)
    assert np.mean(np.abs(found["process"].pulls) < 1) == pytest.approx(0.68, abs=0.15)
    result = result_of({"a case": arms}, outcomes)
    lines = {line["arm"]: line for line in result.table}
    assert lines["conductor"]["work / process"].value == ratio.value
    assert [lines[arm]["reached"] for arm in ("uniform", "process")] == ["0 of 60", "60 of 60"]
    assert {asked: holds for asked, _, holds in result.checks} == {
        "a case: none established and wrong by more than 4 errors": True,
        "a case: conductor <= 1.05 of the process": True,
    }
    assert any("rule:transition in 60, width 0.02" in line for line in result.words)
    wrong = [*outcomes, outcome("conductor", 99, 10_000, off=0.03)]
    assert not result_of({"a case": arms}, wrong).checks[0][2]


def test_a_campaign_of_every_arm_runs_and_stands_in_the_table(quick):
    (case,) = QUICK_CASES
    assert [line["arm"] for line in quick.table] == list(case.arms)
    assert all(line["campaigns"] == case.campaigns for line in quick.table)
    # Which of the two depends on whether the shipped head is trusted.
    assert any(f"conductor: {by}" in line for line in quick.words for by in ("rule:transition", "head:beta_priority"))


def test_shards_add_their_lines_to_one_file_and_run_nothing_twice(tmp_path, monkeypatch):
    ran = []

    def fake(job, substrate):
        ran.append((job.arm, job.seed))
        return outcome(job.arm, job.seed, 1000.0, case=job.case.name)

    monkeypatch.setattr(steering, "run_job", fake)
    monkeypatch.setattr(steering, "CASES", (msgspec.structs.replace(CASES[0], campaigns=2),))
    file = str(tmp_path / "lines.jsonl")
    for shard in ("1/2", "2/2", "1/2", "table"):
        result = run(Settings(shard=shard, file=file), quiet)
    assert len(ran) == len(set(ran)) == 2 * len(CASES[0].arms)
    assert len(result.table) == len(CASES[0].arms)
    more = tmp_path / "more.jsonl"
    run(Settings(file=str(more), only="5.8, oracle"), quiet)
    assert {one.arm for one in read_lines(more, SteeringOutcome)} == {"oracle"}
    with pytest.raises(SpecError, match="i/n"):
        run(Settings(shard="3/2", file=file), quiet)
