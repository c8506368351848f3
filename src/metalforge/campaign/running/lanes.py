"""Where a campaign's chains run: the silicon of this machine that can hold their fields, and its lanes.

A lane is one producer. Cores run a chain each; a card runs as many at once as keep it busy. Which of them a campaign
takes is said by `running.substrate`, or lane by lane by `running.lanes`.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

from metalforge.campaign.orderings import Arrangement, arrange
from metalforge.campaign.report.words import system_name
from metalforge.campaign.spec import CampaignSpec, LaneSpec
from metalforge.campaign.theory import System
from metalforge.core import PlacementError, SpecError, Substrate, UnknownNameError, check_memory
from metalforge.native import MAX_THREADS, BatchEngine, Engine
from metalforge.substrates import discover

WORKLOAD = "chain_update"
OWN_BYTES = {"thread": 8 << 20, "process": 64 << 20}
"""What a producer takes besides its chains: the stack of a thread, an interpreter with its libraries."""
BESIDE_A_CARD, SITES_BESIDE = 4, 8192
"""Cores that run chains beside a card unless told otherwise, and the largest system they run there: a core adds half a
percent to what an H200 does, takes more than that from the thread that feeds it, since all threads share one
interpreter, and on a large system is still busy with its first block when the card is done."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainLane:
    """A producer: its logical name, the silicon it is on and the engine there, and the systems it may run."""

    name: str
    substrate: Substrate
    engine: Engine
    systems: tuple[System, ...] = ()
    most: int = 0
    """Sites at once at most, where it runs many chains; 0: as many as keep it busy."""

    @property
    def sites(self) -> int:
        """Sites that it is given at once; 0 for one that runs a chain at a time."""
        busy = self.engine.busy_sites if isinstance(self.engine, BatchEngine) else 0
        return min(busy, self.most) if self.most else busy


def lanes_here(spec: CampaignSpec, without: Collection[str] = ()) -> tuple[ChainLane, ...]:
    """Return the lanes of a campaign on this machine, cards first, `without` those that were lost.

    Raises
    ------
    PlacementError
        What the spec names cannot run chains.
    """
    running = spec.running
    if running.lanes:
        found = [lane for n, told in enumerate(running.lanes) for lane in _told(told, n, spec)]
    elif running.substrate == "auto":
        cards = [] if why_no_cards(spec) else [lane for card in _cards() for lane in _lanes(card, spec)]
        cores = _lanes(producer_here(), spec)
        cards = [lane for lane in cards if lane.engine.family == cores[0].engine.family]
        found = [*cards, *(_beside(cores, spec) if cards else cores)]
    elif running.substrate == "all":
        found = [lane for one in (*_cards(), producer_here()) for lane in _lanes(one, spec)]
    else:
        found = _few(_lanes(_named(running.substrate), spec), spec)
    # What ran on cards alone goes on on cores.
    found = [lane for lane in found if lane.name not in without] or _lanes(producer_here(), spec)
    return tuple(found)


def why_no_cards(spec: CampaignSpec) -> str:
    """Return why a campaign that is not told where to run leaves cards alone; nothing where it takes them."""
    if spec.running.deterministic:
        return "a deterministic campaign gives the same rows on every machine"
    return spec.theory.why_no_cards


def producer_here() -> Substrate:
    """Return what runs chains here one at a time: of several substrates that do, the one `route` takes."""
    able = {one.info.name: one for one in _with_engines() if not isinstance(one.open_engine(), BatchEngine)}
    if len(able) == 1:
        return next(iter(able.values()))
    from metalforge.substrates import route, workload

    return able[route(workload(WORKLOAD), list(able.values())).substrate.name]


def engine_here(name: str) -> Engine:
    """Return the engine of a substrate of this machine; `auto` is a card's if it has the bits of the cores."""
    cores: Engine = producer_here().open_engine()
    wanted = [_named(name, ("auto",))] if name != "auto" else _cards()
    found: list[Engine] = [one.open_engine() for one in wanted]
    return next((engine for engine in found if name != "auto" or engine.family == cores.family), cores)


def arranged(ordering: str, spec: CampaignSpec, lanes: Sequence[ChainLane]) -> Arrangement:
    """Return an ordering over lanes, each with its own systems where it was given some."""
    theory = spec.theory
    made = arrange(ordering, theory.systems, {lane.name: lane.sites if theory.batches else 0 for lane in lanes})
    own = {lane.name: lane.systems for lane in lanes if lane.systems}
    bits = {lane.name: lane.engine.name if theory.sums_matter else lane.engine.family for lane in lanes}
    first = bits[lanes[0].name]
    return replace(
        made,
        screens=made.screens and theory.screened,
        lanes=tuple(
            who._replace(systems=own.get(who.substrate, who.systems), bits=bits.get(who.substrate, first))
            for who in made.lanes
        ),
    )


def check_room(spec: CampaignSpec, lanes: Sequence[ChainLane]) -> None:
    """Return if all producers can hold a chain at a time, in memory; otherwise raise and say what they would take."""
    theory, threads = spec.theory, spec.running.threads
    if threads > MAX_THREADS:
        raise SpecError(f"`running.threads` must be at most {MAX_THREADS}. Got {threads}")
    largest = max(theory.systems, key=prod)
    chain = theory.bytes_of(largest)
    here = [lane for lane in lanes if not lane.sites]
    what = f"{len(here)} producer{'s' * (len(here) != 1)} with a chain on {system_name(largest)} each"
    check_memory(what, len(here) * (chain + OWN_BYTES[spec.running.isolation]))
    for lane in lanes:
        there = lane.substrate.info.properties.get("memory_bytes")
        if lane.sites and isinstance(there, int | float) and 2 * chain > there:
            raise PlacementError(
                f"a chain on {system_name(largest)} takes {2 * chain / 2**30:,.2f} GiB of {lane.name}, which has "
                f"{there / 2**30:,.2f} GiB\nhint: run it on cores: --substrate cpu"
            )


def _lanes(substrate: Substrate, spec: CampaignSpec, variant: str = "") -> list[ChainLane]:
    """Return the lanes of a substrate: one per core (``cpu:0``, ``cpu:1``), or as the spec wants; one per card."""
    info, engine = substrate.info, substrate.open_engine(threads=spec.running.threads, variant=variant)
    names, cores = [engine.name if variant else info.name], info.properties.get("cores")
    if cores is not None:
        count = spec.running.producers or max(int(cores) // spec.running.threads, 1)
        names = [f"{info.kind}:{i}" for i in range(count)]
    return [ChainLane(name=name, substrate=substrate, engine=engine) for name in names]


def _few(lanes: list[ChainLane], spec: CampaignSpec) -> list[ChainLane]:
    """Return the lanes of a substrate that was asked for, with no more chains at a time than the spec wants."""
    most = spec.running.producers * min(map(prod, spec.theory.systems))
    return [replace(lane, most=most) for lane in lanes]


def _beside(cores: Sequence[ChainLane], spec: CampaignSpec) -> list[ChainLane]:
    """Return the cores that run chains beside a card, and what they run; none where they look at what it moves."""
    if spec.theory.sums_matter:
        return []
    small = tuple(system for system in spec.theory.systems if prod(system) <= SITES_BESIDE)
    few = cores[: spec.running.producers or BESIDE_A_CARD] if small else []
    return [replace(lane, systems=small) for lane in few]


def _told(told: LaneSpec, number: int, spec: CampaignSpec) -> list[ChainLane]:
    """Return the lanes of an entry of `running.lanes`; the second one on a card has a name of its own."""
    earlier = sum(other.substrate == told.substrate for other in spec.running.lanes[:number])
    lanes = _lanes(_named(told.substrate), spec, told.variant)
    return [replace(one, name=f"{one.name}.{earlier}" if earlier else one.name, systems=told.systems) for one in lanes]


def _with_engines() -> list[Substrate]:
    """Return the substrates of this machine that fields can live on."""
    found = []
    for one in discover().substrates:
        with suppress(PlacementError):
            one.open_engine()
            found.append(one)
    return found


def _cards() -> list[Substrate]:
    """Return the substrates that move many chains at once."""
    return [one for one in _with_engines() if isinstance(one.open_engine(), BatchEngine)]


def _named(name: str, besides: Sequence[str] = ("auto", "all")) -> Substrate:
    """Return a substrate by its name; `cpu` is the one of the cores. `besides` are words that are understood too."""
    if name == "cpu":
        return producer_here()
    known = {one.info.name: one for one in discover().substrates}
    if name not in known:
        raise UnknownNameError("substrate of this machine", name, [*besides, "cpu", *known])
    known[name].open_engine()  # says what is missing
    return known[name]
