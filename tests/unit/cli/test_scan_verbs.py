"""`scan | resume | replay | report | watch`, as a person and a script use them."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys

import msgspec
import pytest
from typer.testing import CliRunner

from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running import campaign as running
from metalforge.campaign.spec import preset, presets, spec_from
from metalforge.campaign.store.chain_files import ChainFiles
from metalforge.campaign.store.journal import Journal
from metalforge.cli.main import app
from metalforge.core.errors import MetalforgeError, SpecError
from reference.command_line import call
from reference.small_campaigns import ROUNDS
from reference.wide_engine import WideEngine, with_cards

LONGER = msgspec.structs.replace(ROUNDS, budget=msgspec.structs.replace(ROUNDS.budget, trajectories=20_000))


def metalforge(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


@pytest.fixture(scope="module")
def scanned(tmp_path_factory):
    """A finished campaign: its directory, and what `scan --json` printed."""
    folder = tmp_path_factory.mktemp("scan")
    (folder / "spec.toml").write_text(spec_text(ROUNDS))
    ended = metalforge("scan", folder / "spec.toml", "--out", folder / "run", "--json")
    return folder / "run", json.loads(ended.stdout)


def test_scan_prints_the_promised_record_and_writes_a_report(scanned):
    directory, said = scanned
    assert {"result", "systems", "trajectories", "seconds", "stopped_by", "substrates", "energy", "report"} <= set(said)
    assert [one["system"] for one in said["systems"]] == [[4, 4, 4, 2]]
    assert said["stopped_by"] == "trajectories"
    assert 0 < said["trajectories"] <= ROUNDS.budget.trajectories
    assert said["substrates"] == ["cpu:0", "cpu:1"]
    assert (directory / "report.html").read_text().startswith("<!doctype html>")
    assert said["result"]["name"] == "beta_c"
    assert {"value", "error", "established", "reason"} <= set(said["result"])


def test_replay_gives_the_same_numbers_from_the_journal_alone(scanned, tmp_path):
    directory, said = scanned
    (tmp_path / "journal.jsonl").write_bytes((directory / "journal.jsonl").read_bytes())
    again = json.loads(metalforge("replay", tmp_path, "--json").stdout)
    assert {k: v for k, v in again.items() if k != "report"} == {k: v for k, v in said.items() if k != "report"}


@pytest.mark.usefixtures("undrawn")
def test_where_the_report_is_stands_on_one_line_whatever_its_length(scanned, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    directory = tmp_path / ("long-" * 20 + "name")
    shutil.copytree(scanned[0], directory)
    assert f"report: {directory / 'report.html'}" in metalforge("replay", directory).stdout.splitlines()
    assert metalforge("report", directory).stdout == f"{directory / 'report.html'}\n"


@pytest.mark.usefixtures("undrawn")
def test_resuming_a_finished_campaign_changes_nothing(scanned):
    directory, said = scanned
    before = (directory / "journal.jsonl").read_bytes()
    again = json.loads(metalforge("resume", directory, "--json").stdout)
    assert (directory / "journal.jsonl").read_bytes() == before
    assert again["result"] == said["result"]


def test_watch_shows_a_finished_campaign_and_returns(scanned):
    directory, _ = scanned
    seen = json.loads(metalforge("watch", directory, "--json").stdout)
    assert seen["status"] == "finished"
    assert metalforge("watch", directory).exit_code == 0


def test_a_finished_campaign_needs_no_other_place_to_run(scanned, tmp_path):
    directory = tmp_path / "finished"
    shutil.copytree(scanned[0], directory)
    journal = (directory / "journal.jsonl").read_bytes()
    for option in (["--substrate", "cpu"], ["--cluster", "local:2x1"]):
        call("resume", directory, *option, cwd=tmp_path)
        assert (directory / "journal.jsonl").read_bytes() == journal


def test_watch_ends_when_the_process_of_the_campaign_was_killed(scanned, tmp_path):
    directory = tmp_path / "killed"
    shutil.copytree(scanned[0], directory)
    journal = directory / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:30]))
    watched = metalforge("watch", directory)
    assert watched.exit_code == 75
    assert f"metalforge resume {directory}" in watched.stderr


@pytest.mark.usefixtures("undrawn")
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
            begun = [child.stderr.readline() for _ in range(5)]
            child.send_signal(number)
            said = child.stderr.read()
            code = child.wait(timeout=120)
        finally:
            child.kill()
    assert code == 75
    assert all(begun)
    assert f"live page: metalforge dashboard {directory}\n" in begun
    assert f"metalforge resume {directory}" in said
    assert {path.suffix for path in (directory / "chains").iterdir()} == {".h5"}
    seen = json.loads(metalforge("watch", directory, "--json").stdout)
    assert seen["status"] == "interrupted"


@pytest.mark.parametrize("noticed_by", ["journal", "checkpoint"])
def test_a_campaign_whose_directory_was_deleted_is_not_to_be_resumed(noticed_by, tmp_path, monkeypatch):
    if noticed_by == "journal":
        monkeypatch.setattr(running, "note_heads", lambda *_: shutil.rmtree(tmp_path / "run"))
    else:
        save = ChainFiles._save

        def after_deletion(*arguments):
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
            save(*arguments)

        monkeypatch.setattr(ChainFiles, "_save", after_deletion)
    (tmp_path / "spec.toml").write_text(spec_text(ROUNDS))
    done = call("scan", "spec.toml", "--out", "run", cwd=tmp_path, code=75)
    assert "resume" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("file", ["journal.jsonl", "spec.toml"])
def test_a_disk_that_is_full_at_the_first_record_leaves_nothing_to_resume(file, tmp_path, monkeypatch):
    (tmp_path / "spec.toml").write_text(spec_text(ROUNDS))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if file == "journal.jsonl":
        monkeypatch.setattr(Journal, "_write_all", full)
    else:
        monkeypatch.setattr(running, "write_spec", full)
    done = call("scan", "spec.toml", "--out", "run", cwd=tmp_path, code=75)
    assert "resume" not in done.stderr
    monkeypatch.undo()
    call("resume", "run", cwd=tmp_path, code=2)
    call("scan", "spec.toml", "--out", "run", "--json", cwd=tmp_path)


@pytest.mark.parametrize("name", sorted(presets()))
def test_print_spec_reads_back_as_the_preset(name):
    text = metalforge("scan", "--preset", name, "--print-spec").stdout
    assert spec_from(msgspec.toml.decode(text)) == preset(name)


@pytest.mark.parametrize(("name", "said"), [("dynamical-nf4", True), ("demo", False)])
def test_what_is_known_of_quarks_is_said_before_the_run(name, said, tmp_path, monkeypatch):
    monkeypatch.setattr("metalforge.cli.scan._run", lambda campaign, as_json: None)
    ended = metalforge("scan", "--preset", name, "--out", tmp_path / "run")
    assert ("hep-lat/0209146" in ended.stderr) == said
    assert ended.stdout == ""


def test_the_command_line_changes_the_preset():
    options = ("--ordering", "A", "--seed", "9", "--seconds", "20", "--system", "12,12,12,6", "--coupling", "5.88,5.9")
    text = metalforge("scan", *options, "--print-spec").stdout
    spec = spec_from(msgspec.toml.decode(text))
    assert (spec.ordering, spec.seed, spec.budget.seconds) == ("A", 9, 20.0)
    assert spec.theory.volumes == ((12, 12, 12, 6),)
    assert spec.theory.beta_min < 5.894 < spec.theory.beta_max
    assert spec.steering.points == (5.88, 5.9)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--system", "12,12,12"), "12,12,12,4"),
        (("--system", "8,8,8,x"), "--system"),
        (("--system", "8,8,8,4.5"), "--system"),
        (("--coupling", "5.6;5.7"), "--coupling"),
        (("--preset", "timy"), "tiny"),
    ],
)
def test_options_that_cannot_be_read_are_named(options, word):
    with pytest.raises(MetalforgeError, match=word):
        metalforge("scan", *options, "--print-spec")


def test_a_preset_beside_a_spec_is_refused(tmp_path):
    (tmp_path / "spec.toml").write_text(spec_text(ROUNDS))
    with pytest.raises(SpecError, match="both"):
        metalforge("scan", tmp_path / "spec.toml", "--preset", "demo", "--print-spec")


def test_presets_are_listed():
    listed = json.loads(metalforge("presets", "--json").stdout)
    assert {entry["name"] for entry in listed} == set(presets())
    tiny = next(entry for entry in listed if entry["name"] == "tiny")
    assert tiny["systems"] == [[4, 4, 4, 2]]
    assert tiny["coordinate"] == "beta"
    assert tiny["low"] < 5.09 < tiny["high"]
    assert tiny["deterministic"]
    text = metalforge("presets").stdout
    assert all(name in text and about in text for name, about in presets().items())


@pytest.mark.usefixtures("undrawn")
def test_a_finished_campaign_says_how_to_extend_it_and_is_extended(scanned, tmp_path):
    directory = shutil.copytree(scanned[0], tmp_path / "run")
    assert f"metalforge resume {directory} --trajectories" in metalforge("resume", directory).stderr
    said = json.loads(metalforge("resume", directory, "--trajectories", "300", "--coupling", "5.07", "--json").stdout)
    assert scanned[1]["trajectories"] < said["trajectories"] <= scanned[1]["trajectories"] + 300
    assert "extended by" in (directory / "report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_a_scan_runs_where_it_is_told_and_goes_on_elsewhere(scanned, tmp_path, monkeypatch):
    with_cards(monkeypatch, WideEngine())
    begun, spec = tmp_path / "run", scanned[0].parent / "spec.toml"
    said = json.loads(metalforge("scan", spec, "--out", begun, "--substrate", "cuda:0", "--json").stdout)
    assert said["substrates"] == ["cuda:0"]
    with_cards(monkeypatch)  # a machine without one
    with pytest.raises(MetalforgeError, match="cuda:0"):
        metalforge("resume", begun, "--trajectories", 200)
    more = json.loads(metalforge("resume", begun, "--trajectories", 200, "--substrate", "cpu", "--json").stdout)
    assert more["trajectories"] > said["trajectories"]
    assert metalforge("scan", spec, "--substrate", "cpu", "--print-spec").stdout.count('substrate = "cpu"') == 1
