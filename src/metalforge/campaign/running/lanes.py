"""Where a campaign's chains run: the part of this machine that can hold their fields, and its lanes."""

from collections.abc import Sequence
from math import prod

from metalforge.campaign.report.words import lattice_name
from metalforge.campaign.spec import CampaignSpec
from metalforge.core.errors import PlacementError, SpecError
from metalforge.core.memory import check_memory
from metalforge.core.substrate import Substrate, SubstrateInfo
from metalforge.native._level import MAX_THREADS
from metalforge.native.engine import BatchEngine
from metalforge.substrates import discover, route, workload

WORKLOAD = "lattice_cg"
"""What chains are placed by: most of the time of one with sea quarks, and as bound by memory as sweeps are."""
OWN_BYTES = {"thread": 8 << 20, "process": 64 << 20}
"""What a producer takes besides its chains: the stack of a thread, an interpreter with its libraries."""


def producer_here() -> Substrate:
    """Return what runs chains here: of substrates that move one chain at a time, the one `route` takes."""
    able = {s.info.name: s for s in discover().substrates if _runs_chains_alone(s)}
    return able[route(workload(WORKLOAD), list(able.values())).substrate.name]


def lanes_of(producer: SubstrateInfo, spec: CampaignSpec) -> tuple[str, ...]:
    """Return the lanes of a substrate: one a core (``cpu:0``, ``cpu:1``) or as many as the spec wants."""
    cores = producer.properties.get("cores")
    if cores is None:
        return (producer.name,)
    count = spec.running.producers or max(int(cores) // spec.running.threads, 1)
    return tuple(f"{producer.kind}:{i}" for i in range(count))


def check_room(spec: CampaignSpec, lanes: Sequence[str]) -> None:
    """Return if all producers can hold a chain at a time, in memory; otherwise raise and say what they would take."""
    lattice, threads = spec.lattice, spec.running.threads
    if threads > MAX_THREADS:
        raise SpecError(f"`running.threads` must be at most {MAX_THREADS}. Got {threads}")
    largest = max(lattice.volumes, key=prod)
    # Four links of 18 reals a site; a trajectory has momenta and the links before it besides.
    chain = prod(largest) * 72 * (8 if lattice.precision == "f64" else 4) * (3 if lattice.algorithm == "hmc" else 1)
    what = f"{len(lanes)} producer{'s' * (len(lanes) != 1)} with a chain on {lattice_name(largest)} each"
    check_memory(what, len(lanes) * (chain + OWN_BYTES[spec.running.isolation]))


def _runs_chains_alone(substrate: Substrate) -> bool:
    """Whether it has an engine for lanes, which move one chain at a time: a GPU needs thirty at once to be busy."""
    try:
        return not isinstance(substrate.open_engine(), BatchEngine)
    except PlacementError:
        return False
