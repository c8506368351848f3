"""Killed anywhere, a campaign resumes and ends bitwise equal to one that was never killed."""

import pytest

from . import ledger
from .campaigns import CAMPAIGNS, RUNS
from .kills import Victims, Whole, attack

NAMES = [*CAMPAIGNS, *RUNS]
SHORT = 4
"""Kills of each in `make test-chaos`."""
LONG, KILLS = 200, 5
"""Campaigns of the long form, and kills of each."""


@pytest.fixture(scope="module")
def victims():
    with Victims() as found:
        yield found


@pytest.fixture(scope="module")
def whole(victims, arena):
    """Campaigns by name that were left alone, each made when it is first asked for."""
    made = {}

    def get(campaign):
        if campaign not in made:
            made[campaign] = Whole(victims, campaign, arena)
        return made[campaign]

    return get


@pytest.mark.parametrize("campaign", NAMES)
def test_kills_change_nothing_whatever_the_algorithm_the_ordering_and_the_producers(victims, whole, arena, campaign):
    struck = attack(victims, whole(campaign), campaign, seed=2, kills=SHORT, folder=arena)
    assert struck.faults == (), struck
    assert len(struck.strikes) == SHORT


@pytest.mark.parametrize("campaign", ["heatbath", "check-all", "hmc", "quarks", "single"])
def test_kills_and_spoiled_links_together_change_nothing(victims, whole, arena, campaign):
    struck = attack(victims, whole(campaign), campaign, seed=3, kills=3, folder=arena, spoiled=4)
    assert struck.faults == (), struck


@pytest.mark.long
def test_a_thousand_kills_in_parts(victims, whole, arena):
    def one(seed):
        campaign = NAMES[seed % len(NAMES)]
        struck = attack(victims, whole(campaign), campaign, 1000 + seed, KILLS, arena)
        signals = ledger.counted(strike.split()[0] for strike in struck.strikes)
        return {campaign: len(struck.strikes)} | signals, [f"{campaign}: {fault}" for fault in struck.faults]

    found = ledger.add_up("kills", range(LONG), one)
    assert found == []
