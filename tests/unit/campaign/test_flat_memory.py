"""Memory does not grow with updates: old rows are in a file, and whatever else is long is bounded."""

import tracemalloc

import msgspec
import numpy as np
import pytest

from metalforge.campaign import load
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.point import PointChain
from metalforge.campaign.state import fold
from metalforge.campaign.store import columns
from metalforge.campaign.store.columns import Column, Spool
from metalforge.campaign.store.records import BlockDone, Checked, Estimated, Rows, Screened
from reference.campaigns import records_of, spec_of
from reference.small_campaigns import ROUNDS, run_until

BLOCK, NAMES = 5000, ("plaquette", "polyakov_re", "polyakov_im")


def _blocks(chain, first, count):
    """Give the records of so many blocks of a chain, whose rows begin at an update."""
    rng = np.random.default_rng(3)
    for begin in range(first, first + BLOCK * count, BLOCK):
        values = {name: tuple(rng.random(BLOCK).tolist()) for name in NAMES}
        end = begin + BLOCK
        yield Rows(chain=chain, phase="measure", first=begin, columns=values, seconds=0.1)
        yield Screened(chain=chain, step=end, route="software", chi=1.0, flagged=False, heads={"anomaly": 0.5})
        yield BlockDone(visit=0, chain=chain, step=end, digest="", done=False, substrate="cpu:0", promised="last")
        drift = {"energy": 1e-16}
        yield Checked(chain=chain, step=end, substrate="cpu:0", precision="f64 against f80", drift=drift)
        yield Estimated(system=(8, 8, 8, 4), trajectories=end, result=5.69, error=0.01)


@pytest.mark.chaos
def test_a_million_updates_more_take_no_more_memory(tmp_path):
    state = fold(records_of(spec_of(), betas=(5.68,), rows=100), tmp_path)
    (log,) = state.chains.values()

    def grow(count):
        for record in _blocks(log.id, log.rows, count):
            state.apply(record)

    tracemalloc.start()
    try:
        grow(20)
        before = tracemalloc.get_traced_memory()[0]
        grow(200)
        assert tracemalloc.get_traced_memory()[0] - before < 2_000_000, "a million rows are 24 MB as doubles"
    finally:
        tracemalloc.stop()
    assert log.rows > 1_100_000
    assert list(tmp_path.iterdir()) == []  # the file has no name
    assert log.column("plaquette").shape == (log.measured,)
    assert sum(one.checks for one in state.drift.values()) == 220


def test_chains_in_a_producer_keep_what_is_looked_at(tmp_path, monkeypatch):
    """And the numbers are those of a campaign whose rows are all in memory, resumed or not."""
    lengths = []
    take = PointChain.take_segments

    def noting(self):
        made = take(self)
        if self.run.phase == "measure":
            lengths.append(len(self.run.log.phases))
        return made

    spec = msgspec.structs.replace(ROUNDS, screening=msgspec.structs.replace(ROUNDS.screening, window=20))
    with Campaign.open(spec, tmp_path / "whole") as campaign:
        whole = campaign.run()
    monkeypatch.setattr(PointChain, "take_segments", noting)
    monkeypatch.setattr(columns, "CHUNK", 16)
    with Campaign.open(spec, tmp_path / "run") as campaign:
        assert run_until(campaign, 400).finished is None
    with Campaign.resume(tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.digest() == whole.digest()
    assert max(lengths) <= 5 * spec.running.block < max(log.rows for log in state.chains.values())
    assert str(load(tmp_path / "run")) == str(load(tmp_path / "whole"))


@pytest.fixture
def column(monkeypatch):
    monkeypatch.setattr(columns, "CHUNK", 4)
    found = Column(Spool())
    for i in range(0, 30, 3):
        found.extend(float(n) for n in range(i, i + 3))
    return found


def test_a_column_reads_as_a_list_wherever_its_rows_are(column):
    numbers = [float(n) for n in range(30)]
    assert len(column) == 30
    assert list(column) == column == numbers
    assert [column[i] for i in range(-30, 30)] == numbers + numbers
    for begin in range(-2, 31):
        for end in (begin - 1, begin, begin + 1, begin + 9, 30, None):
            assert column[begin:end] == numbers[begin:end]
    assert column[2:25:7] == numbers[2:25:7]
    assert np.array_equal(np.array(column), numbers)
    assert list(column.copy()) == numbers
    with pytest.raises(IndexError):
        column[30]
