"""Where a campaign's chains run: the part of this machine that can hold their fields, and its lanes."""

from metalforge.campaign.spec import CampaignSpec
from metalforge.core.errors import PlacementError
from metalforge.core.substrate import Substrate, SubstrateInfo
from metalforge.substrates import discover, route, workload

WORKLOAD = "lattice_cg"
"""What chains are placed by: most of the time of one with sea quarks, and as bound by memory as sweeps are."""


def producer_here() -> Substrate:
    """Return the substrate of this machine that runs chains: of those with an engine, the one that `route` takes."""
    able = {s.info.name: s for s in discover().substrates if _has_engine(s)}
    return able[route(workload(WORKLOAD), list(able.values())).substrate.name]


def lanes_of(producer: SubstrateInfo, spec: CampaignSpec) -> tuple[str, ...]:
    """Return the lanes of a substrate: one a core (``cpu:0``, ``cpu:1``) or as many as the spec wants."""
    cores = producer.properties.get("cores")
    if cores is None:
        return (producer.name,)
    count = spec.running.producers or max(int(cores) // spec.running.threads, 1)
    return tuple(f"{producer.kind}:{i}" for i in range(count))


def _has_engine(substrate: Substrate) -> bool:
    try:
        substrate.open_engine()
    except PlacementError:
        return False
    return True
