"""Budgets in seconds go by time that passes: a clock that is set, in a run or between two of them, has no say."""

import time
from itertools import pairwise

import msgspec
import pytest

from metalforge.campaign.extending import Extension
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget
from metalforge.campaign.store.reading import read_journal
from reference.small_campaigns import QUICK, one_update

SECONDS = 0.5
SPEC = msgspec.structs.replace(QUICK, budget=Budget(seconds=SECONDS, trajectories=40_000))
"""Its updates take a minute: whoever waits for the clock runs into them."""
HOUR = 3600.0


class SetClock:
    """The system's clock, set by an hour after it was read so many times."""

    def __init__(self, by, after=0):
        self._by, self._left = by, after

    def __call__(self):
        self._left -= 1
        return time.time() + (self._by if self._left < 0 else 0.0)


def _ended_in_time(state, directory):
    assert state.finished.stopped_by == "seconds"
    assert SECONDS <= state.seconds < 60
    dates = [record.at for record in read_journal(directory / JOURNAL)]
    assert all(one <= other for one, other in pairwise(dates))


@pytest.mark.parametrize("by", [-HOUR, HOUR])
def test_a_clock_that_is_set_on_the_way(by, tmp_path):
    with Campaign.open(SPEC, tmp_path / "run", clock=SetClock(by, after=30)) as campaign:
        state = campaign.run()
    _ended_in_time(state, tmp_path / "run")
    assert state.trajectories > 0


@pytest.mark.parametrize("by", [-HOUR, HOUR])
def test_a_clock_that_is_set_between_two_processes(by, tmp_path):
    directory = tmp_path / "run"
    with Campaign.open(SPEC, directory) as campaign:
        spent = one_update(campaign).seconds
    assert 0 < spent < SECONDS
    with Campaign.resume(directory, clock=SetClock(by)) as campaign:
        assert campaign.state.seconds == spent
        state = campaign.run()
    _ended_in_time(state, directory)


def test_a_block_that_takes_longer_than_the_budget_is_cut_and_goes_on_later(tmp_path):
    running = msgspec.structs.replace(SPEC.running, block=30_000)
    steering = msgspec.structs.replace(SPEC.steering, visit=30_000)
    budget = Budget(seconds=SECONDS)
    spec = msgspec.structs.replace(SPEC, running=running, steering=steering, budget=budget)
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    _ended_in_time(state, tmp_path / "run")
    rows = state.trajectories
    assert state.seconds < 20
    assert 0 < rows < 30_000
    assert state.open_visits
    with Campaign.resume(tmp_path / "run", more=Extension(seconds=0.3)) as campaign:
        again = campaign.run()
    assert again.trajectories > rows
