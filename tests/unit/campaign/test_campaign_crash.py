"""Killed anywhere, a campaign resumes and ends bitwise equal to one that was never killed."""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.state import fold
from metalforge.campaign.store import read_journal
from metalforge.campaign.store.records import BlockDone, Record, Rows
from reference.small_campaigns import ROUNDS

TESTS = Path(__file__).parents[2]
SITES = {"before": 90, "half": 90, "update": 800, "checkpoint": 25}
"""Where a process kills itself, and how often a whole campaign passes there, at least."""


def child(directory, site, count):
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "reference.small_campaigns", str(directory), site, str(count)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The state of a campaign that was left alone, and its directory."""
    directory = tmp_path_factory.mktemp("whole")
    with Campaign.open(ROUNDS, directory) as campaign:
        return campaign.run(), directory


def killed_and_resumed(directory, kills, seed):
    """Kill a campaign so many times, each time somewhere else, then let it end."""
    rng = random.Random(seed)
    deaths = 0
    for _ in range(20 * kills):
        site = rng.choice(sorted(SITES))
        ended = child(directory, site, rng.randint(1, SITES[site] // 3))
        if ended.returncode == 0:
            return ended.stdout, deaths
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        deaths += 1
        if deaths == kills:
            break
    last = child(directory, "never", 0)
    assert last.returncode == 0, last.stderr
    return last.stdout, deaths


def test_five_kills_change_nothing(uninterrupted, tmp_path):
    digest, deaths = killed_and_resumed(tmp_path / "campaign", kills=5, seed=1)
    assert deaths == 5
    assert digest == uninterrupted[0].digest()


@pytest.mark.long
def test_fifty_kills_change_nothing(uninterrupted, tmp_path):
    deaths = 0
    for seed in range(2, 12):
        digest, died = killed_and_resumed(tmp_path / f"campaign-{seed}", kills=5, seed=seed)
        assert digest == uninterrupted[0].digest()
        deaths += died
    assert deaths >= 45


def test_the_same_spec_gives_the_same_bits(uninterrupted, tmp_path):
    with Campaign.open(ROUNDS, tmp_path / "again") as campaign:
        again = campaign.run()
    assert again.digest() == uninterrupted[0].digest()
    assert [v.reason for v in again.visits] == [v.reason for v in uninterrupted[0].visits]


def test_the_journal_cut_at_every_byte_of_its_last_records_resumes(uninterrupted, tmp_path):
    """Opening cuts the torn record and keeps all before it; two of them are run to the end, too."""
    state, whole = uninterrupted
    contents = read_journal(whole / JOURNAL, Record)
    data = (whole / JOURNAL).read_bytes()
    # Without the end: the last visits are still to be made.
    keep = next(i for i, r in enumerate(contents.records) if isinstance(r, BlockDone) and r.visit == 6 and r.done)
    first = contents.offsets[keep - 1]
    end = contents.offsets[keep + 1]
    directory = tmp_path / "cut"
    for at in range(first, end + 1):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        (directory / JOURNAL).write_bytes(data[:at])
        with Campaign.resume(directory) as campaign:
            whole_ones = sum(offset <= at for offset in contents.offsets[1:])
            assert len(read_journal(directory / JOURNAL, Record).records) == whole_ones + 1  # that of the resumption
            assert (campaign.message is None) == (at in contents.offsets)
            if at in ((first + end) // 2, end):
                assert campaign.run().digest() == state.digest()


def test_a_resumed_campaign_repeats_no_finished_point(uninterrupted, tmp_path):
    state, whole = uninterrupted
    directory = tmp_path / "half"
    directory.mkdir()
    contents = read_journal(whole / JOURNAL, Record)
    done = next(i for i, r in enumerate(contents.records) if isinstance(r, BlockDone) and r.visit == 5 and r.done)
    (directory / JOURNAL).write_bytes((whole / JOURNAL).read_bytes()[: contents.offsets[done + 1]])
    with Campaign.resume(directory) as campaign:
        known = {chain.id: chain.rows for chain in campaign.state.chains.values()}
        campaign.run()
    new = read_journal(directory / JOURNAL, Record).records[done + 1 :]
    assert all(rows.first >= known.get(rows.chain, 0) for rows in new if isinstance(rows, Rows))
    assert fold(read_journal(directory / JOURNAL, Record).records).digest() == state.digest()


def test_a_checkpoint_ahead_of_a_journal_that_lost_its_end_is_not_used(uninterrupted, tmp_path):
    state, whole = uninterrupted
    directory = tmp_path / "ahead"
    shutil.copytree(whole, directory)
    contents = read_journal(whole / JOURNAL, Record)
    done = next(i for i, r in enumerate(contents.records) if isinstance(r, BlockDone) and r.visit == 5 and r.done)
    (directory / JOURNAL).write_bytes((whole / JOURNAL).read_bytes()[: contents.offsets[done + 1]])
    with Campaign.resume(directory) as campaign:
        assert campaign.run().digest() == state.digest()
