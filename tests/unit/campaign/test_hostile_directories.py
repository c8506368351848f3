"""Directories, specs and journals that somebody prepared or damaged: nothing outside is written, and what is said."""

import os
import shutil
import threading

import msgspec
import pytest

from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import CampaignSpec, load_spec
from metalforge.campaign.store.directory import DirectoryError
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.reading import JournalError, read_journal
from metalforge.campaign.store.records import Assigned
from metalforge.core.errors import SpecError
from metalforge.pipeline.events import read_events
from metalforge.substrates.catalogue import load_workload
from metalforge.substrates.profiles import load_profile
from reference.command_line import call
from reference.small_campaigns import ROUNDS, one_update


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The directory of a campaign that was interrupted at its first update."""
    directory = tmp_path_factory.mktemp("begun") / "run"
    with Campaign.open(ROUNDS, directory) as campaign:
        one_update(campaign)
    return directory


@pytest.fixture
def copy(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "..", "", ".hidden", "a\0b", "a\nb"])
def test_a_name_that_no_directory_may_have_is_refused(name):
    with pytest.raises(SpecError, match="name"):
        _ = msgspec.structs.replace(ROUNDS, name=name).folder


@pytest.mark.parametrize("name", ["a\0b", "two\nlines", "\x1b[31mred", "a\x7fb", "\u202egnp.exe"])
def test_a_name_that_cannot_be_printed_is_no_name(name):
    with pytest.raises(SpecError, match="printable"):
        CampaignSpec(name=name, theory=ROUNDS.theory)


def test_such_a_name_is_refused_wherever_the_campaign_would_go(tmp_path):
    (tmp_path / "spec.toml").write_text(spec_text(ROUNDS).replace('"rounds"', '"\\u001b[31mred"'))
    ended = call("scan", tmp_path / "spec.toml", "--out", tmp_path / "run", cwd=tmp_path, code=2)
    assert "printable" in ended.stderr
    assert "\x1b" not in ended.stderr
    assert not (tmp_path / "run").exists()


def test_a_spec_with_such_a_name_writes_nothing_anywhere(tmp_path):
    folder = tmp_path / "one" / "two"
    folder.mkdir(parents=True)
    (folder / "spec.toml").write_text(spec_text(ROUNDS).replace('name = "rounds"', 'name = "../../evil"'))
    ended = call("scan", folder / "spec.toml", cwd=folder, code=2)
    assert "name" in ended.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["one", "two", "spec.toml"]


def test_a_journal_whose_chains_are_named_like_paths_is_refused(copy):
    records = read_journal(copy / JOURNAL)
    (copy / JOURNAL).unlink()
    with Journal.open(copy / JOURNAL, mode="create") as journal:
        for record in records:
            if isinstance(record, Assigned):
                journal.append(msgspec.structs.replace(record, chain="../../PWN"))
                break
            journal.append(record)
    with pytest.raises(SpecError, match=r"chain.*PWN"):
        Campaign.resume(copy)
    assert not list(copy.parent.parent.rglob("PWN*"))


@pytest.mark.parametrize("name", ["lock", "spec.toml", "stop", "chains/c0000.h5"])
def test_a_link_in_the_place_of_a_file_is_refused_and_its_target_stays(name, copy, tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(target)
    with pytest.raises(DirectoryError, match=name):
        Campaign.resume(copy)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "new" / name).symlink_to(target)
    with pytest.raises(DirectoryError, match=name):
        Campaign.open(ROUNDS, tmp_path / "new")
    assert target.read_text() == "precious"


READERS = {
    "journal": read_journal,
    "spec": load_spec,
    "device profile": load_profile,
    "workload": load_workload,
    "events of a pipeline": lambda path: list(read_events(path)),
}


@pytest.mark.parametrize("what", READERS)
def test_a_named_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(what, tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)

    def read():
        with pytest.raises((SpecError, JournalError)) as caught:
            READERS[what](pipe)
        found.append(str(caught.value))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(30)  # one that waits would do so for ever
    assert found
    assert str(pipe) in found[0]


def test_what_killed_processes_left_half_written_is_swept(copy):
    left = [copy / f".{'0a' * 8}.tmp", copy / "chains" / f".{'1b' * 8}.tmp"]
    other = copy / ".notes.tmp"
    for path in (*left, other):
        path.write_text("half")
    Campaign.resume(copy).close()
    assert not any(path.exists() for path in left)
    assert other.exists()


def test_a_spec_that_was_edited_is_said_to_be_and_not_followed(copy):
    path = copy / "spec.toml"
    path.write_text(path.read_text().replace("\nseed = 7\n", "\nseed = 8\n"))
    with Campaign.resume(copy) as campaign:
        assert campaign.spec.seed == 7
        said = campaign.message
    for word in ("spec.toml", "seed = 8", "seed = 7", "hint:"):
        assert word in said
    path.write_text(spec_text(ROUNDS))
    with Campaign.resume(copy) as campaign:
        assert campaign.message is None


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_directory_whose_first_record_is_torn_can_be_begun_again(size, begun, tmp_path):
    directory = tmp_path / "torn"
    directory.mkdir()
    torn = (begun / JOURNAL).read_bytes()[:size]
    (directory / JOURNAL).write_bytes(torn)
    with pytest.raises(SpecError, match="hint: metalforge scan"):
        Campaign.resume(directory)
    with Campaign.open(ROUNDS, directory) as campaign:
        assert campaign.state.spec == ROUNDS
    assert [path.read_bytes() for path in directory.glob("*.torn-*")] == ([torn] if torn else [])
    with Campaign.resume(directory) as campaign:
        assert isinstance(campaign.spec, CampaignSpec)
    with pytest.raises(JournalError, match="exist"):
        Campaign.open(ROUNDS, directory)
