"""A journal that ends anywhere resumes to the campaign that it would have been; processes are killed in tests/chaos."""

import shutil

import pytest

from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.state import fold
from metalforge.campaign.store import read_journal
from metalforge.campaign.store.records import BlockDone, Record, Rows
from reference.small_campaigns import PHYSICS


@pytest.fixture(scope="module", params=PHYSICS)
def uninterrupted(request, tmp_path_factory):
    """The state of a campaign that was left alone, and its directory."""
    directory = tmp_path_factory.mktemp("whole")
    with Campaign.open(PHYSICS[request.param], directory) as campaign:
        return campaign.run(), directory


def test_the_same_spec_gives_the_same_bits(uninterrupted, tmp_path):
    with Campaign.open(uninterrupted[0].spec, tmp_path / "again") as campaign:
        again = campaign.run()
    assert again.digest() == uninterrupted[0].digest()
    assert [v.reason for v in again.visits] == [v.reason for v in uninterrupted[0].visits]


@pytest.mark.chaos
def test_the_journal_cut_anywhere_in_its_last_records_resumes(uninterrupted, tmp_path):
    """Opening cuts the torn record and keeps all before it; two of them are run to the end, too.

    Every cut is read. Opened are those at either edge of a record, and every ninth between them.
    """
    state, whole = uninterrupted
    contents = read_journal(whole / JOURNAL, Record)
    data = (whole / JOURNAL).read_bytes()
    # Without the end: the last visits are still to be made.
    keep = next(i for i, r in enumerate(contents.records) if isinstance(r, BlockDone) and r.visit == 6 and r.done)
    first = contents.offsets[keep - 1]
    end = contents.offsets[keep + 1]
    directory = tmp_path / "cut"
    edges = [offset + near for offset in contents.offsets for near in range(-9, 10)]
    middle = (first + end) // 2
    opened = {middle, *range(first, end, 9), *edges}
    for at in range(first, end + 1):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        (directory / JOURNAL).write_bytes(data[:at])
        whole_ones = sum(offset <= at for offset in contents.offsets[1:])
        assert len(read_journal(directory / JOURNAL, Record).records) == whole_ones
        if at not in opened:
            continue
        with Campaign.resume(directory) as campaign:
            assert len(read_journal(directory / JOURNAL, Record).records) == whole_ones + 1  # that of the resumption
            assert (campaign.message is None) == (at in contents.offsets)
            if at in (middle, end):
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
