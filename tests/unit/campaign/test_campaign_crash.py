"""A journal that ends anywhere resumes to the campaign that it would have been; processes are killed in tests/chaos."""

import shutil
from contextlib import suppress

import msgspec
import pytest

from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget, Running
from metalforge.campaign.state import fold
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import BlockDone, Rows
from reference.journaling import contents_of
from reference.small_campaigns import PHYSICS, ROUNDS

TARGET, SCOUT = (4, 4, 4, 2), (2, 2, 2, 2)
SHORT = msgspec.structs.replace(
    ROUNDS,
    budget=Budget(trajectories=150),
    warmup=msgspec.structs.replace(ROUNDS.warmup, longest=20, shortest=10),
    steering=msgspec.structs.replace(ROUNDS.steering, initial=2, visit=40),
    screening=msgspec.structs.replace(ROUNDS.screening, window=30),
    running=Running(producers=2, block=20, deterministic=True, checkpoint_s=0.0),
)
"""Deterministic, three visits or so, some of its blocks flagged."""
ORDERINGS = {
    "A": msgspec.structs.replace(SHORT, ordering="A"),
    "B": msgspec.structs.replace(
        SHORT,
        ordering="B",
        theory=msgspec.structs.replace(SHORT.theory, volumes=(TARGET, SCOUT)),
        budget=Budget(trajectories=300),
        screening=msgspec.structs.replace(SHORT.screening, chi=0.14),
    ),
    "C": msgspec.structs.replace(SHORT, ordering="C"),
}


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
    contents = contents_of(whole / JOURNAL)
    data = (whole / JOURNAL).read_bytes()
    # Without the end: the last visits are still to be made.
    keep = next(i for i, r in enumerate(contents.records) if isinstance(r, BlockDone) and r.visit == 6 and r.done)
    # Several records may share a line, which begins at the offset of each of them.
    borders = sorted(set(contents.offsets))
    ends = [borders[borders.index(begins) + 1] for begins in contents.offsets[:-1]]
    first, end = borders[borders.index(contents.offsets[keep]) - 1], ends[keep]
    directory = tmp_path / "cut"
    edges = [offset + near for offset in contents.offsets for near in range(-9, 10)]
    middle = (first + end) // 2
    opened = {middle, *range(first, end, 9), *edges}
    for at in range(first, end + 1):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        (directory / JOURNAL).write_bytes(data[:at])
        whole_ones = sum(line_end <= at for line_end in ends)
        assert len(read_journal(directory / JOURNAL)) == whole_ones
        if at not in opened:
            continue
        with Campaign.resume(directory) as campaign:
            assert len(read_journal(directory / JOURNAL)) == whole_ones + 1  # that of the resumption
            assert (campaign.message is None) == (at in contents.offsets)
            if at in (middle, end):
                assert campaign.run().digest() == state.digest()


def with_copies(spec, folder, monkeypatch):
    """Run a campaign; return its state and a copy of its directory as it was after each append to the journal."""
    append, copies = Journal.append, []

    def copy(source, target):
        with suppress(FileNotFoundError):  # a checkpoint that a producer has just renamed
            shutil.copy2(source, target)

    def copied(journal, *records):
        number = append(journal, *records)
        copies.append(folder / f"after-{len(copies)}")
        names = shutil.ignore_patterns(".*", "lock", "control.sock")
        shutil.copytree(folder / "whole", copies[-1], ignore=names, copy_function=copy)
        return number

    with Campaign.open(spec, folder / "whole") as campaign, monkeypatch.context() as patched:
        patched.setattr(Journal, "append", copied)
        return campaign.run(), copies


def told(state):
    """Return everything that a deterministic campaign says, without clocks and order."""
    chains = state.chains.values()
    about_chains = [d for d in state.decisions if d.chain]
    return {
        "rows, links and visits": state.digest(),
        "decisions": sorted((d.what, d.chain, d.step, d.by, d.reason, d.value, d.done) for d in about_chains),
        "checks": sorted(
            (c.chain, c.step, c.drift["action"], c.drift["plaquette"], c.drift["polyakov"]) for c in state.checks
        ),
        "promised": {c.id: (c.promised, sorted(c.unchecked)) for c in chains},
        "screened": {(c.id, s.step, s.chi, s.flagged, *sorted(s.heads.items())) for c in chains for s in c.screened},
        "estimates": [msgspec.structs.replace(e, at=0.0) for e in state.estimates],
        "ended by": state.stopped_by,
    }


def resumed(directory):
    with Campaign.resume(directory) as campaign:
        return told(campaign.run())


@pytest.mark.parametrize("name", ORDERINGS)
def test_a_block_is_one_line_of_the_journal_that_a_kill_leaves_whole(name, tmp_path, monkeypatch):
    """A dozen cuts of each campaign, by turns with the checkpoints of that moment and with none."""
    state, copies = with_copies(ORDERINGS[name], tmp_path, monkeypatch)
    whole = told(state)
    assert whole["checks"] or name in ("B", "C")
    assert name != "B" or any(visit.system == TARGET for visit in state.visits)  # a flag of the scout was followed
    for number, directory in enumerate(copies[1 :: len(copies) // 12]):
        if number % 2:
            shutil.rmtree(directory / "chains", ignore_errors=True)
        assert resumed(directory) == whole, directory.name


@pytest.mark.chaos
@pytest.mark.parametrize("name", [*ORDERINGS, "D"])
@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.long)], ids=["even", "odd"])
def test_a_campaign_that_is_killed_after_any_append_ends_as_if_it_was_not(name, lost, tmp_path, monkeypatch):
    """A kill after every append; every other one loses the checkpoints as well: those with even or odd numbers."""
    spec = ORDERINGS.get(name) or msgspec.structs.replace(SHORT, ordering=name)
    state, copies = with_copies(spec, tmp_path, monkeypatch)
    whole = told(state)
    for number, directory in enumerate(copies):
        if number % 2 == lost:
            shutil.rmtree(directory / "chains", ignore_errors=True)
        assert resumed(directory) == whole, directory.name
        shutil.rmtree(directory)


def test_a_resumed_campaign_repeats_no_finished_point(uninterrupted, tmp_path):
    state, whole = uninterrupted
    directory = tmp_path / "half"
    directory.mkdir()
    contents = contents_of(whole / JOURNAL)
    done = next(i for i, r in enumerate(contents.records) if isinstance(r, BlockDone) and r.visit == 5 and r.done)
    (directory / JOURNAL).write_bytes((whole / JOURNAL).read_bytes()[: contents.offsets[done + 1]])
    with Campaign.resume(directory) as campaign:
        known = {chain.id: chain.rows for chain in campaign.state.chains.values()}
        campaign.run()
    new = read_journal(directory / JOURNAL)[done + 1 :]
    assert all(rows.first >= known.get(rows.chain, 0) for rows in new if isinstance(rows, Rows))
    assert fold(read_journal(directory / JOURNAL)).digest() == state.digest()


def test_a_checkpoint_ahead_of_a_journal_that_lost_its_end_is_not_used(uninterrupted, tmp_path):
    state, whole = uninterrupted
    directory = tmp_path / "ahead"
    shutil.copytree(whole, directory)
    contents = contents_of(whole / JOURNAL)
    done = next(i for i, r in enumerate(contents.records) if isinstance(r, BlockDone) and r.visit == 5 and r.done)
    (directory / JOURNAL).write_bytes((whole / JOURNAL).read_bytes()[: contents.offsets[done + 1]])
    with Campaign.resume(directory) as campaign:
        assert campaign.run().digest() == state.digest()
