"""`scan | resume | replay | report | watch`, as a person and a script use them."""

import json
import signal
import subprocess
import sys

import msgspec
import pytest
from typer.testing import CliRunner

from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.spec import PRESETS, CampaignSpec
from metalforge.cli.main import app
from reference.small_campaigns import ROUNDS

LONGER = msgspec.structs.replace(ROUNDS, budget=msgspec.structs.replace(ROUNDS.budget, trajectories=20_000))


def metalforge(*arguments):
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return ended


@pytest.fixture(scope="module")
def scanned(tmp_path_factory):
    """A finished campaign: its directory, and what `scan --json` printed."""
    folder = tmp_path_factory.mktemp("scan")
    (folder / "spec.toml").write_text(spec_text(ROUNDS))
    ended = metalforge("scan", folder / "spec.toml", "--out", folder / "run", "--json")
    return folder / "run", json.loads(ended.stdout)


def test_scan_prints_the_promised_record_and_writes_a_report(scanned):
    directory, said = scanned
    assert set(said) == {"beta_c", "trajectories", "seconds", "stopped_by", "substrates", "energy", "report"}
    assert said["stopped_by"] == "trajectories"
    assert 0 < said["trajectories"] <= ROUNDS.budget.trajectories
    assert said["substrates"] == ["cpu:0", "cpu:1"]
    assert (directory / "report.html").read_text().startswith("<!doctype html>")
    assert {"value", "error"} <= set(said["beta_c"])


def test_replay_gives_the_same_numbers_from_the_journal_alone(scanned, tmp_path):
    directory, said = scanned
    (tmp_path / "journal.jsonl").write_bytes((directory / "journal.jsonl").read_bytes())
    again = json.loads(metalforge("replay", tmp_path, "--json").stdout)
    assert {k: v for k, v in again.items() if k != "report"} == {k: v for k, v in said.items() if k != "report"}


def test_resuming_a_finished_campaign_changes_nothing(scanned):
    directory, said = scanned
    before = (directory / "journal.jsonl").read_bytes()
    again = json.loads(metalforge("resume", directory, "--json").stdout)
    assert (directory / "journal.jsonl").read_bytes() == before
    assert again["beta_c"] == said["beta_c"]


def test_watch_shows_a_finished_campaign_and_returns(scanned):
    directory, _ = scanned
    seen = json.loads(metalforge("watch", directory, "--json").stdout)
    assert seen["status"] == "finished"
    assert metalforge("watch", directory).exit_code == 0


def test_report_is_written_again(scanned):
    directory, _ = scanned
    (directory / "report.html").unlink()
    assert json.loads(metalforge("report", directory, "--json").stdout)["report"] == str(directory / "report.html")
    assert (directory / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_leaves_a_campaign_that_resumes(tmp_path, number):
    (tmp_path / "spec.toml").write_text(spec_text(LONGER))
    directory = tmp_path / "run"
    command = [sys.executable, "-c", "from metalforge.cli import main; main()", "scan", str(tmp_path / "spec.toml")]
    with subprocess.Popen([*command, "--out", str(directory)], stderr=subprocess.PIPE, text=True) as child:
        try:
            # The first lines say that chains run; then the signal comes.
            for _ in range(4):
                assert child.stderr.readline()
            child.send_signal(number)
            said = child.stderr.read()
            code = child.wait(timeout=120)
        finally:
            child.kill()
    assert code == 75
    assert f"metalforge resume {directory}" in said
    assert {path.suffix for path in (directory / "chains").iterdir()} == {".h5"}
    seen = json.loads(metalforge("watch", directory, "--json").stdout)
    assert seen["status"] == "interrupted"


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_print_spec_reads_back_as_the_preset(name):
    text = metalforge("scan", "--preset", name, "--print-spec").stdout
    assert msgspec.toml.decode(text, type=CampaignSpec) == PRESETS[name]


def test_the_command_line_changes_the_preset():
    text = metalforge("scan", "--ordering", "A", "--seed", "9", "--print-spec").stdout
    spec = msgspec.toml.decode(text, type=CampaignSpec)
    assert (spec.ordering, spec.seed) == ("A", 9)
