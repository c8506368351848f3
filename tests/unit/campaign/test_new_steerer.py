"""A new steerer is one class and one registration: a spec may name it, and a campaign goes where it says."""

import pytest

from metalforge import campaign
from metalforge.campaign import steerers
from metalforge.core.errors import UnknownNameError
from metalforge.core.steering import History, Suggestion
from metalforge.lattice.campaign import Lattice

LATTICE = Lattice(volumes=((2, 2, 2, 2),), beta_min=4.9, beta_max=5.3)


class Descending:
    """From the upper end of the range downwards, in steps."""

    name = "descending"

    def __init__(self, beta_min, beta_max, *, step=0.1):
        self.history, self.step = History(beta_min, beta_max), step

    def tell(self, observations):
        self.history.tell(observations)

    def ask(self, n=1, pending=()):
        taken = len(self.history.measured) + len(self.history.asked(n, pending))
        betas = [self.history.high - self.step * (taken + i) for i in range(n)]
        return [Suggestion(coordinate=max(b, self.history.low), reason="next below") for b in betas]


@pytest.fixture
def _descending(monkeypatch):
    monkeypatch.setattr(steerers, "_KINDS", dict(steerers._KINDS))
    campaign.register_steerer(Descending, first_points=lambda volume: 3)


@pytest.mark.usefixtures("_descending")
def test_a_registered_steerer_steers():
    spec = campaign.CampaignSpec(
        theory=LATTICE,
        budget=campaign.Budget(trajectories=270),
        warmup=campaign.WarmUpPolicy(shortest=10, longest=10),
        steering=campaign.Steering(steerer="descending", visit=80, initial=2),
        running=campaign.Running(deterministic=True, producers=1),
        screening=campaign.Screening(device="software"),
    )
    found = campaign.run(spec)
    assert [round(visit.coordinate, 6) for visit in found.state.visits] == [5.3, 5.2, 5.1]
    assert {visit.reason for visit in found.state.visits} == {"next below"}
    (visited,) = [item for item in found.evidence if item.name == "points visited"]
    assert visited.needed == 3
    assert "descending" in campaign.steerer_names()


def test_a_name_that_nobody_registered_is_refused_with_those_there_are():
    with pytest.raises(UnknownNameError, match="gaussian-process"):
        campaign.Steering(steerer="descending")


def test_a_plug_in_is_found_by_its_name(monkeypatch):
    monkeypatch.setattr(steerers, "_KINDS", dict(steerers._KINDS))
    monkeypatch.setattr(steerers, "plugin_names", lambda group: ("theirs",) if group == steerers.GROUP else ())
    monkeypatch.setattr(steerers, "load_plugin", lambda group, name: Descending)
    assert campaign.Steering(steerer="theirs").steerer == "theirs"
    made = campaign.CampaignSpec(theory=LATTICE, steering=campaign.Steering(steerer="theirs"))
    assert steerers.find_steerer("theirs").make(made.scan((2, 2, 2, 2))).name == "descending"
