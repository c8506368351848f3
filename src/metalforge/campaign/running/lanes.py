"""Where the chains of a campaign run: its lanes, how its graph is started there, how its producers are told to stop.

A lane is one producer. Cores run a chain each; a GPU runs as many at once as keep it busy. Which of them a campaign
takes is said by `running.substrate`, or lane by lane by `running.lanes`. A campaign is the same wherever its producers
are: as threads or processes of this machine, beside the journal (`Machines`), or elsewhere (`metalforge.cluster`).
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from metalforge.campaign.orderings import Arrangement, Assignee, arrange
from metalforge.campaign.report.words import system_name
from metalforge.campaign.spec import CampaignSpec, LaneSpec
from metalforge.campaign.theory import System
from metalforge.core import PlacementError, SpecError, Substrate, UnknownNameError, check_memory
from metalforge.native import MAX_THREADS, BatchEngine, Engine
from metalforge.pipeline import Pipeline, Run
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
        cores = _lanes(producer_here(), spec)
        # A deterministic campaign gives the same rows on every machine.
        no_cards = running.deterministic or spec.theory.why_no_cards
        cards = [] if no_cards else [lane for card in _able(wide=True) for lane in _lanes(card, spec)]
        cards = [lane for lane in cards if lane.engine.family == cores[0].engine.family]
        found = [*cards, *(_beside(cores, spec) if cards else cores)]
    elif running.substrate == "all":
        found = [lane for one in (*_able(wide=True), producer_here()) for lane in _lanes(one, spec)]
    else:
        # No more chains at a time than the spec wants.
        most = running.producers * min(map(prod, spec.theory.systems))
        found = [replace(lane, most=most) for lane in _lanes(_named(running.substrate), spec)]
    # What ran on cards alone goes on on cores.
    found = [lane for lane in found if lane.name not in without] or _lanes(producer_here(), spec)
    return tuple(found)


def producer_here() -> Substrate:
    """Return what runs chains here one at a time: of several substrates that do, the one `route` takes."""
    able = {one.info.name: one for one in _able(wide=False)}
    if len(able) == 1:
        return next(iter(able.values()))
    from metalforge.substrates import route, workload

    return able[route(workload(WORKLOAD), list(able.values())).substrate.name]


def engine_here(name: str) -> Engine:
    """Return the engine of a substrate of this machine; `auto` is a card's if it has the bits of the cores."""
    cores: Engine = producer_here().open_engine()
    wanted = [_named(name, ("auto",))] if name != "auto" else _able(wide=True)
    found: list[Engine] = [one.open_engine() for one in wanted]
    return next((engine for engine in found if name != "auto" or engine.family == cores.family), cores)


def arranged(ordering: str, spec: CampaignSpec, lanes: Sequence[ChainLane]) -> Arrangement:
    """Return an ordering over lanes, each with its own systems where it was given some."""
    theory = spec.theory
    found = [
        Assignee(
            substrate=lane.name,
            systems=lane.systems,
            sites=lane.sites if theory.batches else 0,
            bits=lane.engine.name if theory.sums_matter else lane.engine.family,
        )
        for lane in lanes
    ]
    made = arrange(ordering, theory.systems, found)
    return made._replace(screens=made.screens and theory.screened)


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


def _able(*, wide: bool) -> list[Substrate]:
    """Return the substrates of this machine that fields can live on: those that move many chains at once, or one."""
    found = []
    for one in discover().substrates:
        with suppress(PlacementError):
            if isinstance(one.open_engine(), BatchEngine) == wide:
                found.append(one)
    return found


def _named(name: str, besides: Sequence[str] = ("auto", "all")) -> Substrate:
    """Return a substrate by its name; `cpu` is the one of the cores. `besides` are words that are understood too."""
    if name == "cpu":
        return producer_here()
    known = {one.info.name: one for one in discover().substrates}
    if name not in known:
        raise UnknownNameError("substrate of this machine", name, [*besides, "cpu", *known])
    known[name].open_engine()  # says what is missing
    return known[name]


class StopFlag:
    """Asked before every update. Producers in other processes see it as a file, which is there while it is set."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_set, self._elsewhere = False, False
        self.clear()

    def set(self) -> None:
        """Stop; may be called from a signal handler."""
        if not self.is_set:
            self.is_set = True
            with suppress(OSError):  # of a disk that failed, which ends the campaign anyway
                self._path.touch()

    def clear(self) -> None:
        """Go on; also removes what a process that was killed has left."""
        self._path.unlink(missing_ok=True)
        self.is_set = False

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.is_set or (self._elsewhere and self._path.exists())

    def __getstate__(self) -> Path:
        return self._path

    def __setstate__(self, path: Path) -> None:
        self._path, self.is_set, self._elsewhere = path, False, True


class Machines:
    """The silicon of this machine, with producers as threads of this process or as processes beside it."""

    carried_by = ""
    """What holds producers, where that is no thread or process beside the journal."""

    def lanes(self, spec: CampaignSpec, without: Collection[str] = ()) -> tuple[ChainLane, ...]:
        """Return the producers that a campaign has now, `without` those that were lost."""
        return lanes_here(spec, without)

    def check(self, spec: CampaignSpec, lanes: Collection[ChainLane]) -> None:
        """Raise where producers could not hold their chains."""
        check_room(spec, tuple(lanes))

    def flag(self, directory: Path) -> StopFlag:
        """Return what tells the producers of a campaign to stop."""
        return StopFlag(directory / "stop")

    def start(self, graph: Pipeline) -> Run:
        """Start the graph of a campaign, with its producers where their lanes are."""
        return graph.start()

    def grown(self) -> bool:
        """Whether there is silicon that has no lanes yet, since it came later."""
        return False

    def placed(self) -> list[tuple[str, str]]:
        """Return what happened to lanes since the last call, each with its words, for the journal."""
        return []
