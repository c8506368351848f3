"""The limit of infinite volume: a campaign a lattice, a line through those that scale, and what is published."""

import pytest

from experiments import Settings
from experiments import thermodynamics as study
from experiments.lines import append_lines, read_lines
from metalforge.lattice.campaign.published import PUBLISHED

BETA_C, H = PUBLISHED[4].beta_c, 0.12


def line(n_s, *, established=True, shift=0.0):
    """What a campaign on N_s^3 x 4 would say whose peak is on the line, or `shift` beside it."""
    return study.VolumeFound(
        dims=(n_s, n_s, n_s, 4), seed=1, rules="test", silicon="a card", updates=10_000, seconds=10.0,
        beta_c=BETA_C - H * (4 / n_s) ** 3 + shift, error=2e-4, established=established,
        lacking="" if established else "crossings", chains=8,
    )  # fmt: skip


def run(tmp_path, *lines):
    append_lines(tmp_path / "lines.jsonl", lines)
    return study.run(Settings(file=str(tmp_path / "lines.jsonl"), shard="table"), lambda *_: None)


@pytest.fixture(autouse=True)
def plan(monkeypatch):
    """N_t = 4 alone."""
    monkeypatch.setattr(study, "VOLUMES", [volume for volume in study.VOLUMES if volume.dims[3] == 4])


def test_peaks_on_a_line_give_the_published_limit(tmp_path):
    result = run(tmp_path, line(8, shift=0.01), line(12), line(16), line(24))  # 8^3 is not on the line
    names = [line["lattice"] for line in result.table]
    assert names == ["8^3x4", "12^3x4", "16^3x4", "24^3x4", "infinite, N_t = 4"]
    limit = float(result.table[-1]["beta_c"].partition("(")[0])
    assert limit == pytest.approx(BETA_C, abs=1e-5)
    assert result.checks[0][1].startswith("0.0 errors")
    assert [passed for *_, passed in result.checks] == [True]


@pytest.mark.parametrize("wrong", [line(24, established=False), line(24, shift=3e-3)])
def test_a_lattice_that_is_not_established_or_beside_the_line_is_not_passed_over(tmp_path, wrong):
    (check,) = run(tmp_path, line(8), line(12), line(16), wrong).checks
    assert not check[-1]


def test_a_lattice_that_was_not_run_is_named(tmp_path):
    result = run(tmp_path, line(8), line(12), line(16))
    assert not result.checks[0][-1]
    assert any("24^3x4" in said for said in result.words)


def test_lattices_in_the_file_are_not_run_again(tmp_path, monkeypatch):
    ran = []

    def running(volume, seed):
        ran.append(volume.dims)
        return line(volume.dims[0])

    monkeypatch.setattr(study, "run_volume", running)
    monkeypatch.setattr(study, "VOLUMES", [study.Volume((n, n, n, 4), 1.0, 1e-3, 4) for n in (12, 16)])
    append_lines(tmp_path / "lines.jsonl", [line(12)])
    study.run(Settings(file=str(tmp_path / "lines.jsonl")), lambda *_: None)
    assert ran == [(16, 16, 16, 4)]
    assert {found.dims[0] for found in read_lines(tmp_path / "lines.jsonl", study.VolumeFound)} == {12, 16}


def test_the_range_of_a_campaign_narrows_with_its_peak():
    volumes = sorted(volume for volume in study.VOLUMES if volume.dims[3] == 4)
    spans = [lattice.beta_max - lattice.beta_min for lattice in (study.spec_of(v, 1).theory for v in volumes)]
    assert spans[0] == pytest.approx(0.2)
    assert spans[1] / spans[3] == pytest.approx(8, rel=0.05)


def test_a_campaign_gives_a_line(tmp_path):
    found = study.run_volume(study.Volume((4, 4, 4, 2), 1.0, 0.02, 6), seed=3)
    assert found.dims == (4, 4, 4, 2)
    assert found.updates > 100
    assert found.silicon
