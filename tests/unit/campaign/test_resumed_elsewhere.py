"""A campaign goes on on another engine of its bit family: the same links, and rows that agree within rounding."""

import copy
import shutil

import msgspec
import pytest

from metalforge import native
from metalforge.campaign.running import lanes
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget
from metalforge.core.errors import InternalError, MetalforgeError, SpecError
from metalforge.native.cpu_engine import cpu_engine
from metalforge.substrates.cpu import CpuSubstrate
from reference.small_campaigns import ROUNDS, run_until

SHORT = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=400))


class OtherSums:
    """This CPU's engine with sums of another order, as those of wider vectors are: off in the last digits."""

    name, threads = "cpu:elsewhere", 1

    def __init__(self, error, family):
        self.error, self.family = error, family

    def grid(self, dims, precision):
        grid = copy.copy(cpu_engine(threads=1).grid(dims, precision))
        sums = grid.plaquette_sums
        grid.engine, grid.plaquette_sums = self, lambda links: tuple(s * (1 + self.error) for s in sums(links))
        return grid


class Elsewhere(CpuSubstrate):
    """A machine with wider vectors, or one whose products have other bits."""

    def __init__(self, error, family=None):
        super().__init__()
        self.error, self.family = error, family or cpu_engine().family

    def open_engine(self, *, threads=None, variant=""):
        return OtherSums(self.error, self.family)


@pytest.fixture
def interrupted(tmp_path):
    with Campaign.open(SHORT, tmp_path / "campaign") as campaign:
        assert run_until(campaign, 150).finished is None
    return tmp_path / "campaign"


@pytest.mark.parametrize("checkpoints", [True, False])
def test_it_ends_as_it_would_have_here(interrupted, tmp_path, monkeypatch, checkpoints):
    if not checkpoints:
        shutil.rmtree(interrupted / "chains")  # every row is computed again, and held against the journal
    monkeypatch.setattr(lanes, "producer_here", lambda: Elsewhere(1e-15))
    with Campaign.resume(interrupted) as campaign:
        there = campaign.run()
    monkeypatch.undo()
    with Campaign.open(SHORT, tmp_path / "whole") as campaign:
        here = campaign.run()
    assert there.finished is not None
    assert {name: chain.digest for name, chain in there.chains.items()} == {
        name: chain.digest for name, chain in here.chains.items()
    }


def test_rows_that_are_off_by_more_than_rounding_are_refused(interrupted, monkeypatch):
    shutil.rmtree(interrupted / "chains")
    monkeypatch.setattr(lanes, "producer_here", lambda: Elsewhere(1e-6))
    with Campaign.resume(interrupted) as campaign:
        with pytest.raises(MetalforgeError, match=r"cpu:elsewhere.*plaquette") as raised:
            campaign.run()
        assert not any(chain.abandoned for chain in campaign.state.chains.values())
    causes = [raised.value, raised.value.__cause__]
    assert any(isinstance(cause, InternalError) for cause in causes)
    monkeypatch.undo()
    with Campaign.resume(interrupted) as campaign:  # nothing is lost where it ran before
        assert campaign.run().finished is not None


def test_another_family_is_refused(interrupted, monkeypatch):
    monkeypatch.setattr(lanes, "producer_here", lambda: Elsewhere(0.0, family="another"))
    here = native.level()
    with pytest.raises(SpecError, match=rf"{here}.*cpu:elsewhere.*\nhint.*METALFORGE_ISA={here}"):
        Campaign.resume(interrupted)
