"""A campaign from its directory: opened or resumed, run to its end or to an interruption, with everything written.

::

    DIR/journal.jsonl    every decision and row, in order; state is its fold
    DIR/spec.toml        the resolved spec, for people
    DIR/chains/*.h5      checkpoints, unless the spec has another place for them
    DIR/lock             one process a directory
    DIR/control.sock     takes commands while it runs
"""

import os
import platform
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Self

import metalforge
from metalforge import __version__, native
from metalforge.campaign.extending import Extension, extended
from metalforge.campaign.findings import target_met
from metalforge.campaign.orderings import AUTO
from metalforge.campaign.report.words import ENDINGS
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState, Fold, fold
from metalforge.campaign.store.chain_files import CheckpointStoreError, chain_files, own_address
from metalforge.campaign.store.directory import JOURNAL, DirectoryLock
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import (
    Commanded,
    Decided,
    Extended,
    Finished,
    Interrupted,
    Opened,
    Resumed,
    StoppedBy,
)
from metalforge.campaign.view import View, view_of
from metalforge.core import ChainFaultError, Closing, EnergyMeter, InternalError, SpecError, checked_out_commit, naming
from metalforge.pipeline import DeadlockError, PipelineError

from .advice import PROFILE, note_heads, observer, on_device, open_advisor
from .book import Book, EnergyNotes, Estimator, write_estimates
from .controls import Controls
from .graph import Sampler, build_graph, silicon_of
from .lanes import ChainLane, Machines, arranged, producer_here
from .opening import check_bits, edited_spec, locked, moved_checkpoints, write_spec
from .orders import pass_over, stage_of
from .planner import Planner
from .point import Tools
from .producer import Producer
from .screen import Screen, ScreenRule
from .visits import check_budget

MARGIN, MARGIN_S = 0.2, 10.0
"""Part of `max_wall`, and seconds at most, that are left for the last checkpoints."""
GRACE, GRACE_S = 0.02, 1.0
"""Part of `seconds`, and seconds at least, that blocks under way have to be completed."""
LOOK_S = 0.05
"""Between two looks at the journal and the wall time while chains run."""
VERSIONS = ("numpy", "scipy", "h5py", "msgspec", "scikit-learn")


class Campaign(Closing):
    """A campaign in a directory, locked for this process."""

    def __init__(
        self,
        directory: Path,
        lock: DirectoryLock,
        book: Book,
        lanes: Sequence[ChainLane],
        edited: str = "",
        machines: Machines | None = None,
        *,
        stays_paused: bool = False,
    ) -> None:
        self.directory, self._lock, self.book = directory, lock, book
        self._machines = machines or Machines()
        self.spec = book.state.spec
        self.files = chain_files(directory, book.state.checkpoints)
        self._halt: str | None = None
        self._lost: set[str] = set()
        self._stop = self._machines.flag(directory)
        self._meters: dict[str, EnergyMeter] = {}
        self._energy = EnergyNotes(book, self._meters)
        self._take_lanes(lanes)
        self._wall = time.monotonic()
        self._controls, self._stays_paused = Controls(self), stays_paused
        self.rule: ScreenRule | None = None
        """What moves the screen of the graph that runs, or ran last; None where it has none that may be moved."""
        self.message = "\n".join(said for said in (book.journal.message, edited) if said) or None
        """What was found amiss in the directory, for people."""

    @classmethod
    def open(
        cls,
        spec: CampaignSpec,
        directory: Path,
        *,
        command: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        machines: Machines | None = None,
    ) -> Self:
        """Begin a campaign in a new or empty directory; what cannot be run here is refused before it is made."""
        machines = machines or Machines()
        check_budget(spec)
        lanes = machines.lanes(spec)
        machines.check(spec, lanes)
        chain_files(directory, spec.running.checkpoints).prepare()
        if spec.screening.weights:
            spec.theory.advisor(weights=Path(spec.screening.weights))
        cpu = producer_here().info
        with locked(directory) as (lock, held):
            arrangement = arranged("C" if spec.ordering == AUTO else spec.ordering, spec, lanes)
            opened = Opened(
                at=clock(),
                spec=spec,
                spec_sha256=spec.sha256,
                package_version=__version__,
                isa=native.level(),
                command=tuple(command),
                ordering=spec.ordering,
                silicon=silicon_of(
                    arrangement,
                    {lane.name: lane.substrate.info for lane in lanes},
                    emulated=PROFILE if spec.screening.device == "npu" else None,
                ),
                python=platform.python_version(),
                versions={name: version(name) for name in VERSIONS},
                host=f"{platform.node() or 'unnamed'}: {cpu.model}, {os.cpu_count() or 1} cores",
                commit=checked_out_commit(Path(metalforge.__file__).parent),
                checkpoints=own_address(spec.running.checkpoints, spec.name),
                campaign=secrets.token_hex(6),
                pid=os.getpid(),
                npu=f"{PROFILE}, emulated" if on_device(spec) else "",
            )
            journal = held.enter_context(Journal.open(directory / JOURNAL, mode="create"))
            write_spec(directory, spec)
            journal.append(opened)  # last: with this record there is a campaign that can be resumed
            return cls(directory, lock, Book(journal, fold([opened], directory), clock), lanes, machines=machines)

    @classmethod
    def resume(
        cls,
        directory: Path,
        *,
        spec: CampaignSpec | None = None,
        more: Extension | None = None,
        command: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        machines: Machines | None = None,
        stay_paused: bool = False,
    ) -> Self:
        """Go on with the campaign of a directory, from its journal and checkpoints.

        `more` extends it, finished or not: the spec in force is then another, and the journal says so. One that was
        killed while it paused goes on, or waits for `resume` where it is to `stay_paused`.
        """
        if not (directory / JOURNAL).exists():
            raise SpecError(f"{directory}: no campaign is there\nhint: metalforge scan --out {directory} begins one")
        with locked(directory) as (lock, held):
            folding = Fold(directory)
            journal = held.enter_context(Journal.open(directory / JOURNAL, mode="resume", take=folding))
            with naming(directory / JOURNAL):
                if not journal.count:
                    raise SpecError(
                        "the process died before the first record was whole: there is nothing to go on with"
                        f"\nhint: metalforge scan --out {directory} begins it again"
                    )
                state = folding.state
            if spec is not None and spec not in (state.opened.spec, state.spec):
                raise SpecError(
                    f"{directory}: was begun with another spec (sha256 {state.opened.spec_sha256[:12]}, this one "
                    f"{spec.sha256[:12]})\nhint: resume without a spec, or begin in another directory"
                )
            kept = chain_files(directory, state.checkpoints)
            with suppress(CheckpointStoreError):  # whoever needs it will say so
                kept.sweep()
            edited = edited_spec(directory, state.spec)
            goes_on = more is not None and (more.asks_for_more or (more.asks and state.finished is None))
            in_force = extended(state, more) if more is not None and goes_on else None
            lanes = (machines or Machines()).lanes(in_force or state.spec)
            check_bits(directory, state, lanes)
            book, stays = Book(journal, state, clock), stay_paused and state.pause is not None
            if state.finished is None or in_force is not None:
                book.write(Resumed(package_version=__version__, isa=native.level(), cut=journal.message or ""))
            if in_force is not None:
                asked = more is not None and more.checkpoints is not None
                moved = moved_checkpoints(directory, kept, book, in_force) if asked else None
                book.write(Extended(spec=in_force, command=tuple(command), checkpoints=moved))
                write_spec(directory, in_force)
            return cls(directory, lock, book, lanes, edited, machines, stays_paused=stays)

    # -- running ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> CampaignState:
        """What the journal says."""
        return self.book.state

    def _take_lanes(self, lanes: Sequence[ChainLane]) -> None:
        """Run on these lanes from now on. A meter that counts already goes on, whether its lane was lost or not."""
        self._lanes = tuple(lanes)
        for lane in lanes:
            if lane.substrate.info.name not in self._meters:
                self._meters[lane.substrate.info.name] = lane.substrate.meter()

    def view(self) -> View:
        """Return what a person watches, from any thread."""
        with self.book.reading() as state:
            return view_of(state, self.book.clock())

    def interrupt(self, reason: str) -> None:
        """Ask the campaign to stop at the next update, from any thread or a signal handler."""
        self._halt = reason
        self._stop.set()

    @property
    def halted(self) -> bool:
        """Whether it was asked to stop, or must because its wall time ends."""
        limit = self.spec.budget.max_wall
        left = inf if limit is None else limit - min(MARGIN * limit, MARGIN_S) - (time.monotonic() - self._wall)
        if self._halt is None and left < 0:
            self.interrupt(f"{limit:g} seconds of wall time")
        return self._halt is not None

    @property
    def ends(self) -> bool:
        """Whether the graph is to end at the next update: for good, or for a command."""
        return self.halted or self._controls.turning is not None

    def run(self) -> CampaignState:
        """Run to the end or to an interruption; `state.finished` tells which. An end without any update is an error.

        Its stages are its own: what one of them failed of is raised, not which one it was.
        """
        try:
            return self._run()
        except PipelineError as error:
            broke = _broke(error)
            raise broke from broke.__cause__

    def _run(self) -> CampaignState:
        if self.state.finished is not None:
            return self._worked()
        if self.spec.budget.joules is not None:
            self.joules()
        for lane in self._lanes:
            if remark := getattr(lane.engine, "remark", ""):  # of engines of which there are variants
                self.book.write(Decided(what="lane", by=lane.name, reason=remark))
        with self._controls.listening():
            if self._stays_paused:
                self._controls.stay_paused()
            stopped = self._spell()
            while self._controls.turn():
                self._stop.clear()
                if self._halt is not None:  # since it was cleared
                    self._stop.set()
                stopped = self._spell()
            done, seconds = self.state.trajectories, self.state.elapsed(self.book.clock())
            if self.halted:
                self.book.write(Interrupted(reason=self._halt or "", trajectories=done, seconds=seconds))
            else:
                self.book.write(Finished(stopped_by=stopped or "exhausted", trajectories=done, seconds=seconds))
        self.book.journal.sync()
        return self._worked()

    def _worked(self) -> CampaignState:
        """Return the state; raises where the campaign has ended and has no update."""
        state = self.state
        if state.finished is not None and not state.trajectories:
            ended = f"the campaign ended without an update: {ENDINGS[state.finished.stopped_by]}"
            if given_up := sum(chain.abandoned for chain in state.chains.values()):
                raise InternalError(f"{ended}, and {given_up} chains were abandoned")
            raise SpecError(
                f"{ended}\nhint: metalforge resume {self.directory} extends it: --trajectories 1000 or --seconds 600"
            )
        return state

    def _spell(self) -> StoppedBy | None:
        """Run until the campaign is over, or must stop for a command; whoever goes on does so as one that resumes."""
        advisor = open_advisor(self.spec, self.directory, self.book)
        with nullcontext() if advisor is None else closing(advisor):
            note_heads(self.book, advisor)
            self._advisor = advisor
            self._energy.hold(advisor)
            stopped = self.segment(self._ordering())
            self._energy.settle()
        if advisor is not None and advisor.trouble:
            self.book.write(Decided(what="reader", by="advisor", reason=advisor.trouble))
        return stopped

    def change(self, spec: CampaignSpec, asked: Commanded) -> None:
        """Go on by another spec, between two graphs; raises where it cannot be run here, and leaves all as it was."""
        lanes = self._machines.lanes(spec, self._lost)
        self._machines.check(spec, lanes)
        self.book.write(asked, Extended(spec=spec, by=asked.by))
        write_spec(self.directory, spec)
        self.spec = spec
        self._take_lanes(lanes)

    def segment(self, ordering: str, *, until: Callable[[], bool] | None = None) -> StoppedBy | None:
        """Run the graph of an ordering until the campaign stops, or `until` says so; what is lost goes on elsewhere.

        The last estimate is of all rows, and is the result that is quoted: a target must be met by it.
        """
        asked = until or (lambda: False)
        while True:
            planner = self._graph(ordering, lambda: asked() or self._machines.grown())
            self._note_lanes()
            for name, reason in planner.lost.items():
                self.book.write(Decided(what="lane", by=name, reason=f"lost, others go on: {reason}"))
            more = planner.stopped_by == "exhausted" and not asked() and self._machines.grown()
            if not (planner.lost or (more and not self.ends)):
                if not asked() and not (self.ends and self.spec.running.deterministic):
                    write_estimates(self.book)
                if planner.stopped_by == "target" and not self.ends and not target_met(self.state):
                    continue  # blocks that came in after the target was met have changed the evidence
                return planner.stopped_by
            self._lost |= set(planner.lost)
            self._take_lanes(self._machines.lanes(self.spec, self._lost))
            check_bits(self.directory, self.state, self._lanes)

    def _note_lanes(self) -> None:
        self.book.write(*(Decided(what="lane", by=name, reason=what) for name, what in self._machines.placed()))

    def _graph(self, ordering: str, until: Callable[[], bool]) -> Planner:
        """Run the graph of an ordering to its end; return what planned it."""
        spec = self.spec
        arrangement = arranged(ordering, spec, self._lanes)
        estimator = Estimator(self.book)
        planner = Planner(
            spec,
            self.book,
            arrangement.lanes,
            stop=lambda: self._stops(until),
            halted=lambda: self.ends,
            estimate=estimator,
            advisor=self._advisor,
            sleeps=arrangement.ordering.sleeps,
            checks=arrangement.checker is not None,
        )
        hear = observer(self._advisor, self.book) if arrangement.screens else pass_over
        screen = Screen(spec, self._advisor, hear=hear) if arrangement.screens else None

        engines = {lane.name: lane.engine for lane in self._lanes}

        def produce(substrate: str, core: int | None) -> Producer:
            tools = Tools(
                spec=spec,
                files=self.files,
                engine=engines.get(substrate, self._lanes[0].engine),
                checks=arrangement.ordering.checks,
            )
            return Producer(tools, substrate, stopping=self._stop, core=core)

        graph = build_graph(
            spec, arrangement, book=self.book, planner=planner, screen=screen, hear=hear, produce=produce
        )
        self._look()
        sampler = Sampler(self.book, graph.graph, ordering, self._energy.samples, self._machines.carried_by)
        with estimator, _quick_turns(any(lane.sites for lane in self._lanes)), self._machines.start(graph) as run:
            self.rule = None
            if screen is not None and not spec.running.deterministic:
                producers = [stage_of(who.substrate) for who in arrangement.lanes]
                self.rule = ScreenRule(run, self.book, screen, producers)
            while not run.wait(LOOK_S):
                self._look()
                if self.rule is not None:
                    self.rule.look()
                sampler.look(run)
            sampler.write(run)
        return planner

    def _look(self) -> None:
        """However long a block takes, what was written is synced in time, and no budget of time is far exceeded."""
        self.book.journal.tick()
        self._note_lanes()
        self._controls.look()
        budget = self.spec.budget.seconds
        late = budget is not None and self.state.elapsed(self.book.clock()) > budget + max(GRACE_S, GRACE * budget)
        if self.ends or late:
            self._stop.set()

    def _ordering(self) -> str:
        if self.state.chosen is not None:
            return self.state.chosen.by
        if self.spec.ordering != AUTO:
            return self.spec.ordering
        from .choosing import choose_ordering

        return choose_ordering(self)

    def _stops(self, until: Callable[[], bool]) -> StoppedBy | None:
        budget, state = self.spec.budget, self.state
        if until():
            return "exhausted"
        if budget.seconds is not None and state.elapsed(self.book.clock()) >= budget.seconds:
            return "seconds"
        if budget.joules is not None and self.joules() >= budget.joules:
            return "joules"
        return "target" if target_met(state) else None

    def joules(self) -> float:
        """Return what the producers have spent since this process took the campaign up."""
        for name, meter in self._meters.items():
            if (reason := meter.unavailable()) is not None:
                raise SpecError(
                    f"`budget.joules` needs an energy meter of {name}: {reason}\nhint: use seconds or trajectories"
                )
        return sum(float(meter.total().value) for meter in self._meters.values())

    def why_no_joules(self) -> str:
        """Return why orderings are not compared by joules; nothing where they are."""
        dark = {name: why.split(":")[0] for name, meter in self._meters.items() if (why := meter.unavailable())}
        if not dark and len(self._meters) == 1:
            return "all of them keep the same silicon busy, of which one meter reads the sum"
        if not dark:
            return ""
        name, why = next(iter(dark.items()))
        if self.spec.running.energy == "modelled":
            return f"no profile states the power of {name}, and its meter cannot be read ({why})"
        return f"{name} is not metered ({why})"

    def close(self) -> None:
        """Close the journal and give the directory back, also where a disk fails meanwhile."""
        with self._lock, self.book.journal:
            self._stop.clear()


@contextmanager
def _quick_turns(wanted: bool) -> Iterator[None]:
    """Let threads have the interpreter in turns of half a millisecond: one that feeds a card asks for it often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, 0.0005) if wanted else before)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _broke(error: PipelineError) -> Exception:
    """Return what a stage failed of; a deadlock, or a chain's fault that the gate let through, is ours."""
    cause = error.__cause__
    if isinstance(error, DeadlockError) or isinstance(cause, ChainFaultError):
        return InternalError(f"{cause or error}")
    return cause if type(error) is PipelineError and isinstance(cause, Exception) else error
