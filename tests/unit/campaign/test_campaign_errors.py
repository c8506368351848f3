"""Bad input and bad luck: each a clear error, and nothing that was computed is lost."""

import errno
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest

from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget, CampaignSpec, Running, load_spec
from metalforge.campaign.store.directory import DirectoryLockedError
from metalforge.campaign.store.reading import JournalError, read_journal
from metalforge.core.errors import MetalforgeError, SpecError
from reference.small_campaigns import QUICK, ROUNDS, run_until


@pytest.fixture
def interrupted(tmp_path):
    """A campaign that was asked to stop after its first blocks."""
    directory = tmp_path / "campaign"
    with Campaign.open(ROUNDS, directory) as campaign:
        state = run_until(campaign, 150)
    assert state.finished is None
    assert state.interrupted[-1].reason == "test"
    return directory


def test_an_interrupted_campaign_goes_on_to_the_same_end(interrupted, tmp_path):
    with Campaign.resume(interrupted) as campaign:
        resumed = campaign.run()
    with Campaign.open(ROUNDS, tmp_path / "whole") as campaign:
        assert campaign.run().digest() == resumed.digest()


def test_the_end_of_the_wall_time_leaves_a_campaign_to_resume(tmp_path):
    """The limit is over before the first update: nothing runs, and everything is written for the next process."""
    limited = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=1200, max_wall=1e-6))
    with Campaign.open(limited, tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished is None
    assert "wall time" in state.interrupted[-1].reason
    assert state.visits
    assert state.trajectories <= 2


def test_a_changed_spec_is_refused_and_nothing_is_touched(interrupted):
    before = (interrupted / JOURNAL).read_bytes()
    with pytest.raises(SpecError, match="another spec"):
        Campaign.resume(interrupted, spec=msgspec.structs.replace(ROUNDS, seed=8))
    assert (interrupted / JOURNAL).read_bytes() == before


def test_a_damaged_checkpoint_is_named_and_can_be_recomputed(interrupted):
    victims = sorted((interrupted / "chains").iterdir())
    for victim in victims:  # one chain may have ended its visit: which are taken up again is a matter of time
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 0xFF
        victim.write_bytes(bytes(data))
    named = "|".join(re.escape(victim.name) for victim in victims)
    with Campaign.resume(interrupted) as campaign, pytest.raises(MetalforgeError, match=named):
        campaign.run()
    for victim in victims:
        victim.unlink()
    with Campaign.resume(interrupted) as campaign:
        assert campaign.run().finished is not None


def test_a_checkpoint_of_another_chain_is_refused(interrupted):
    paths = sorted((interrupted / "chains").iterdir())
    contents = [path.read_bytes() for path in paths]
    for path, other in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(other)
    with Campaign.resume(interrupted) as campaign, pytest.raises(MetalforgeError, match="another chain"):
        campaign.run()


def test_a_second_process_is_refused(interrupted):
    code = (
        "import sys\nfrom pathlib import Path\nfrom metalforge.campaign.store.directory import DirectoryLock\n"
        "with DirectoryLock(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(interrupted)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DirectoryLockedError, match=str(other.pid)):
            Campaign.resume(interrupted)
        other.stdin.close()


def test_an_existing_campaign_is_not_overwritten(interrupted):
    with pytest.raises(JournalError, match="resume it"):
        Campaign.open(ROUNDS, interrupted)


def test_a_directory_without_a_campaign_says_how_to_begin_one(tmp_path):
    with pytest.raises(SpecError, match="metalforge scan"):
        Campaign.resume(tmp_path)


def test_a_full_disk_ends_the_campaign_and_keeps_what_was_written(tmp_path):
    directory = tmp_path / "full"
    with Campaign.open(QUICK, directory) as campaign:
        write, left = campaign.book.journal._write, [40]

        def failing(file, data):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(file, data)

        campaign.book.journal._write = failing
        with pytest.raises(MetalforgeError, match="full"):
            campaign.run()
    assert len(read_journal(directory / JOURNAL)) >= 30
    with Campaign.resume(directory) as campaign:
        assert campaign.run().finished is not None


def dead(*arguments):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def kill_the_sync(campaign, monkeypatch):
    monkeypatch.setattr(campaign.book.journal, "_sync", dead)


def kill_the_flag(campaign, monkeypatch):
    monkeypatch.setattr(campaign._stop, "clear", dead)


@pytest.mark.parametrize("kill", [kill_the_sync, kill_the_flag])
def test_a_disk_that_dies_before_the_end_leaves_no_lock_behind(kill, tmp_path, monkeypatch):
    campaign = Campaign.open(ROUNDS, tmp_path)
    kill(campaign, monkeypatch)
    with pytest.raises((JournalError, OSError)):
        campaign.close()
    monkeypatch.undo()
    with Campaign.resume(tmp_path) as again:
        assert again.run().finished is not None


def test_a_campaign_that_cannot_be_opened_or_resumed_holds_no_file(tmp_path, monkeypatch):
    with Campaign.open(ROUNDS, tmp_path / "run"):
        pass
    before = set(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as broken:
        broken.setattr("metalforge.campaign.running.campaign.write_spec", dead)
        with pytest.raises(OSError, match="Input/output"):
            Campaign.open(ROUNDS, tmp_path / "new")
    with monkeypatch.context() as broken:
        broken.setattr("metalforge.campaign.running.campaign.check_bits", dead)
        with pytest.raises(OSError, match="Input/output"):
            Campaign.resume(tmp_path / "run")
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_campaign_whose_directory_is_gone_can_be_asked_to_stop(tmp_path):
    with Campaign.open(ROUNDS, tmp_path / "run") as campaign:
        shutil.rmtree(tmp_path / "run")
        campaign.interrupt("test")
        assert campaign.halted


def test_a_device_is_given_back_where_its_network_fails(monkeypatch):
    advisor, given_back = ROUNDS.theory.advisor(), []
    monkeypatch.setattr(advisor, "device", SimpleNamespace(close=lambda: given_back.append("device")))
    monkeypatch.setattr(advisor, "_run", SimpleNamespace(close=dead))
    with pytest.raises(OSError, match="Input/output"):
        advisor.close()
    assert given_back == ["device"]


def test_an_unknown_field_is_named_with_its_path(tmp_path):
    (tmp_path / "spec.toml").write_text("[lattice]\nbeta_mim = 5.0\n")
    with pytest.raises(SpecError, match=r"beta_mim.*\$\.lattice"):
        load_spec(tmp_path / "spec.toml")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"running": Running(deterministic=True), "budget": Budget(seconds=3.0)}, "trajectories only"),
        ({"running": Running(deterministic=True), "ordering": "auto", "budget": Budget(trajectories=9)}, "clock"),
        ({"ordering": "B"}, "2 systems"),
        ({"seed": -1}, "seed"),
    ],
)
def test_specs_that_cannot_be_run_are_refused(changes, wanted):
    with pytest.raises(SpecError, match=wanted):
        CampaignSpec(theory=ROUNDS.theory, **changes)


def test_a_budget_without_a_limit_is_refused():
    with pytest.raises(SpecError, match="trajectories, seconds, joules"):
        Budget(target_error=0.01)


def test_the_journal_of_a_campaign_that_failed_can_be_read_at_once(interrupted):
    records = read_journal(interrupted / JOURNAL)
    assert records[0].spec == ROUNDS
