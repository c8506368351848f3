"""Lanes come from what the machine has: discovery, an engine, and `route`."""

import pytest

from metalforge.campaign.running import lanes
from metalforge.campaign.spec import CampaignSpec, Running, preset
from metalforge.core import Cost, Discovery, Kind, Modelled, NoEngine, PlacementError, SubstrateInfo
from metalforge.lattice.campaign import Lattice
from metalforge.native.cpu_engine import cpu_engine
from metalforge.substrates import workload
from metalforge.substrates.cpu import CpuSubstrate

NEEDS = workload(lanes.WORKLOAD).needs


class Card:
    """A device that beats any CPU by its figures."""

    info = SubstrateInfo(kind=Kind.GPU, name="card:0", model="a card", capabilities=NEEDS)

    def cost(self, workload):
        return Cost(latency=Modelled(value=1e-9, unit="s", profile="test"), unknown="no power")

    def meter(self):
        return CpuSubstrate().meter()

    def open_engine(self, *, threads=None, variant=""):
        return cpu_engine(threads=threads)


class Mute(NoEngine, Card):
    """The same without an engine."""


def here(monkeypatch, *more):
    monkeypatch.setattr(lanes, "discover", lambda: Discovery(substrates=(CpuSubstrate(), *more)))
    return lanes.producer_here()


def names_of(spec):
    return [lane.name for lane in lanes.lanes_here(spec)]


def test_the_machine_as_it_is_produces_on_its_cores(monkeypatch):
    lattice = Lattice(volumes=((4, 4, 4, 2),), beta_min=5.0, beta_max=5.4)
    every, three = (CampaignSpec(theory=lattice, running=Running(producers=n)) for n in (0, 3))
    producer = here(monkeypatch)
    assert producer.info.name == "cpu:0"
    cores = int(producer.info.properties["cores"])
    assert names_of(every) == [f"cpu:{i}" for i in range(cores)]
    assert names_of(three) == ["cpu:0", "cpu:1", "cpu:2"]


def test_a_faster_substrate_is_taken_if_fields_can_live_there(monkeypatch):
    card = here(monkeypatch, Card())
    assert card.info.name == "card:0"
    assert names_of(preset("tiny")) == ["card:0"]
    assert here(monkeypatch, Mute()).info.name == "cpu:0"


def test_no_engine_anywhere_is_an_error(monkeypatch):
    monkeypatch.setattr(lanes, "discover", lambda: Discovery(substrates=(Mute(),)))
    with pytest.raises(PlacementError, match="no substrate"):
        lanes.producer_here()
