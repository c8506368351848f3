"""Producers on other machines: what a campaign knows of their lanes, and the host of a stage whose work is done there.

A producer has no state that is worth keeping: one that comes back empty is told what the journal knows, and takes its
chains up from their files. So a worker that dies costs the updates since its last checkpoints, and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Self

from metalforge.campaign import Answer, ChainLane, System
from metalforge.core import MeterUnavailableError, PlacementError, Quantity, SubstrateInfo
from metalforge.native import BatchEngine, cpu_engine
from metalforge.pipeline import Connection, Item, Outputs, ProcessHost, StageCrashError, StageSpec, encode_state
from metalforge.substrates import discover


class LaneFacts(NamedTuple):
    """A lane as its node describes it: all of it is data, which travels."""

    name: str
    info: SubstrateInfo
    engine: str
    family: str
    sites: int
    """That keep it busy, where it runs many chains at once; else 0."""
    threads: int
    volumes: tuple[System, ...]
    most: int
    dark: str
    """Why its joules cannot be read; nothing where they can."""


def facts_of(lane: ChainLane, threads: int) -> LaneFacts:
    """Return what other machines may know of a lane of this one."""
    engine = lane.engine
    return LaneFacts(
        name=lane.name,
        info=lane.substrate.info,
        engine=engine.name,
        family=engine.family,
        sites=engine.busy_sites if isinstance(engine, BatchEngine) else 0,
        threads=threads,
        volumes=lane.systems,
        most=lane.most,
        dark=lane.substrate.meter().unavailable() or "",
    )


def open_there(name: str, engine: str, threads: int) -> Any:
    """Open the engine of a lane on the machine that has it: what the description of one becomes when it travels."""
    kind, _, rest = engine.partition(":")
    if kind == "cpu":
        return cpu_engine(rest, threads)
    found = next((one for one in discover().substrates if one.info.name == name), None)
    if found is None:
        raise PlacementError(f"{name} is not on this machine any more")
    return found.open_engine(threads=threads, variant=rest.partition(":")[2])


class FarEngine:
    """The engine of a lane elsewhere: its names are known here; where it is sent it is opened."""

    def __init__(self, facts: LaneFacts) -> None:
        self.name, self.family, self._facts = facts.engine, facts.family, facts

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, int]]:
        return open_there, (self._facts.info.name, self.name, self._facts.threads)


class FarCard(FarEngine):
    """One that moves many chains at once; `busy_sites` of all together keep it busy."""

    def __init__(self, facts: LaneFacts) -> None:
        super().__init__(facts)
        self.busy_sites = facts.sites

    def batch(self, system: System, precision: str, chains: int) -> NoReturn:
        """Fields live where the engine is."""
        raise PlacementError(f"{self._facts.name} is another machine's: its fields cannot live here")


@dataclass(frozen=True)
class FarSubstrate:
    """Silicon of another machine, and its meter: `read` asks for joules since its worker began, `known` does not."""

    info: SubstrateInfo
    name: str
    """Of the meter."""
    dark: str
    read: Callable[[], Quantity]
    known: Callable[[], Quantity | None]

    def meter(self) -> Self:
        """Return this: it is its own meter."""
        return self

    def unavailable(self) -> str | None:
        """Return why it cannot be read on its node."""
        return self.dark or None

    def total(self) -> Quantity:
        """Return joules since the worker of the node began."""
        if self.dark:
            raise MeterUnavailableError(self.dark)
        return self.read()

    def recent(self) -> Quantity:
        """Return the joules of the worker's last answer."""
        if (found := self.known()) is None:
            raise MeterUnavailableError(self.dark or f"{self.name} was not read yet")
        return found


class LaneHost(ProcessHost):
    """The verbs of a producer that is carried by a worker somewhere; one without a place says that its lane is lost.

    `start` finds the lane a worker, again after each that died. A campaign goes on without a lane that is lost.
    """

    def __init__(self, spec: StageSpec, start: Callable[[StageSpec], Connection], substrate: str) -> None:
        super().__init__(spec, start)
        self._substrate = substrate
        self._gone = ""

    def open(self, saved: bytes | None = None) -> None:
        """Do nothing: a worker is found when there is work; a lane that finds none reports itself lost then."""

    def checkpoint(self) -> bytes:
        """Return the state of any producer: none."""
        self._log = []
        return encode_state(None)

    def step(self, item: Item) -> Outputs:
        """Run orders where the lane is; an answer that it is lost where it is nowhere."""
        if not self._gone:
            try:
                return self._do("step", item)  # type: ignore[no-any-return]
            except StageCrashError as gone:
                if self._stopping:
                    raise
                self._gone = str(gone.__cause__ or gone)
        return [Answer(substrate=self._substrate, lost=self._gone)]

    def finish(self) -> Outputs:
        """Let the producer write its chains to their files, where there is one."""
        if self._gone or self._connection is None:
            return []
        try:
            return self._do("finish", logged=False) or []
        except StageCrashError:
            return []  # chains go on from the files that are there
