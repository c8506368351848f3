"""A campaign from its directory: opened or resumed, run to its end or to an interruption, with everything written.

::

    DIR/journal.jsonl    every decision and row, in order; state is its fold
    DIR/spec.toml        the resolved spec, for people
    DIR/chains/*.h5      checkpoints
    DIR/lock             one process a directory
"""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Self

import metalforge
from metalforge import __version__, native
from metalforge.campaign.extending import Extension, extended
from metalforge.campaign.findings import target_met
from metalforge.campaign.orderings import AUTO, arrange
from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.spec import CampaignSpec, load_spec
from metalforge.campaign.state import CampaignState, Fold, fold
from metalforge.campaign.store.directory import DirectoryLock, sweep, writable_directory
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import Extended, Finished, Interrupted, Opened, Record, Resumed, StoppedBy
from metalforge.campaign.view import View, view_of
from metalforge.core.closing import Closing
from metalforge.core.energy import EnergyMeter
from metalforge.core.errors import SpecError
from metalforge.core.files import naming, replacing
from metalforge.core.installation import checked_out_commit
from metalforge.native.cpu_engine import family_of_level
from metalforge.native.engine import continues

from .book import Book
from .equipment import HeadReader, OwnReader, Tools, chain_file, steerer_of
from .estimator import Estimator
from .graph import build_graph, silicon_of
from .halting import StopFlag
from .heads import PROFILE, load_heads, neighbours_of
from .lanes import check_room, lanes_of, producer_here
from .monitor import Monitor
from .notes import EnergyNotes, note_heads, note_judged, note_use
from .orders import pass_over
from .planner import Planner
from .pool import settle
from .producer import Producer
from .screen import Screen
from .sleeping import make_sleep
from .visits import VisitPlan

JOURNAL = "journal.jsonl"
MARGIN, MARGIN_S = 0.2, 10.0
"""Part of `max_wall`, and seconds at most, that are left for the last checkpoints."""
LOOK_S = 0.05
"""Between two looks at the journal and the wall time while chains run."""
VERSIONS = ("numpy", "scipy", "h5py", "msgspec", "scikit-learn")


class Campaign(Closing):
    """A campaign in a directory, locked for this process."""

    def __init__(self, directory: Path, lock: DirectoryLock, book: Book, edited: str = "") -> None:
        self.directory, self._lock, self.book = directory, lock, book
        self.spec = book.state.spec
        self._halt: str | None = None
        self._stop = StopFlag(directory / "stop")
        self._producer = producer_here()
        self.metered_by(self._producer.meter())
        self._wall = time.monotonic()
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
    ) -> Self:
        """Begin a campaign in a new or empty directory; what this machine cannot run is refused before it is made."""
        producer = producer_here()
        cpu, lanes = producer.info, lanes_of(producer.info, spec)
        check_room(spec, lanes)
        with _locked(directory) as lock:
            ordering = "C" if spec.ordering == AUTO else spec.ordering
            arrangement = arrange(ordering, spec.lattice.volumes, lanes)
            opened = Opened(
                at=clock(),
                spec=spec,
                spec_sha256=spec.sha256,
                package_version=__version__,
                isa=native.level(),
                command=tuple(command),
                ordering=spec.ordering,
                silicon=silicon_of(
                    arrangement, cpu.name, cpu.model, emulated=PROFILE if spec.screening.device == "npu" else None
                ),
                python=platform.python_version(),
                versions={name: version(name) for name in VERSIONS},
                host=f"{platform.node() or 'unnamed'}: {cpu.model}, {cpu.properties['cores']} cores",
                commit=checked_out_commit(Path(metalforge.__file__).parent),
            )
            journal: Journal[Record] = Journal.open(directory / JOURNAL, Record, mode="create")
            journal.append(opened)
            _write_spec(directory, spec)
            return cls(directory, lock, Book(journal, fold([opened], directory), clock))

    @classmethod
    def resume(
        cls,
        directory: Path,
        *,
        spec: CampaignSpec | None = None,
        more: Extension | None = None,
        command: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Go on with the campaign of a directory, from its journal and checkpoints.

        `more` extends it, finished or not: the spec in force is then another, and the journal says so.
        """
        if not (directory / JOURNAL).exists():
            raise SpecError(f"{directory}: no campaign is there\nhint: metalforge scan --out {directory} begins one")
        with _locked(directory) as lock:
            folding = Fold(directory)
            journal: Journal[Record] = Journal.open(directory / JOURNAL, Record, mode="resume", take=folding)
            with naming(directory / JOURNAL):
                if not journal.count:
                    journal.close()
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
            build, engine = state.opened.isa, producer_here().open_engine()
            dynamical = state.spec.lattice.flavors > 0
            if not continues(engine, f"cpu:{build}", family_of_level(build), links_see_sums=dynamical):
                raise SpecError(
                    f"{directory}: was run at build level {build}, this is {engine.name}: chains would not continue "
                    f"bit for bit\nhint: set METALFORGE_ISA={build}"
                )
            edited = _edited(directory, state.spec)
            in_force = extended(state, more) if more is not None and more.asks else None
            book = Book(journal, state, clock)
            if state.finished is None or in_force is not None:
                book.write(Resumed(package_version=__version__, isa=native.level(), cut=journal.message or ""))
            if in_force is not None:
                book.write(Extended(spec=in_force, command=tuple(command)))
                _write_spec(directory, in_force)
            return cls(directory, lock, book, edited)

    # -- running ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> CampaignState:
        """What the journal says."""
        return self.book.state

    def metered_by(self, meter: EnergyMeter) -> None:
        """Take the joules of the producers from this meter; by default the processor's own."""
        self._meter = meter
        self._energy = EnergyNotes(self.book, meter, self._producer.info.name)

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

    def run(self) -> CampaignState:
        """Run to the end or to an interruption; `state.finished` tells which."""
        if self.state.finished is not None:
            return self.state
        if self.spec.budget.joules is not None:
            self._joules()
        heads = load_heads(self.spec)
        note_heads(self.book, heads)
        with HeadReader(self.spec, heads) as reader:
            stopped = self.segment(self._ordering(reader), reader)
        note_judged(self.book, reader.worker)
        if reader.device is not None:
            self._energy.device(reader.device, reader.held_s, reader.emulation_s)
        self._energy.write()
        done, seconds = self.state.trajectories, self.state.elapsed(self.book.clock())
        if self.halted:
            self.book.write(Interrupted(reason=self._halt or "", trajectories=done, seconds=seconds))
        else:
            self.book.write(Finished(stopped_by=stopped or "exhausted", trajectories=done, seconds=seconds))
        self.book.journal.sync()
        return self.state

    def segment(
        self, ordering: str, reader: HeadReader, *, until: Callable[[], bool] | None = None
    ) -> StoppedBy | None:
        """Run the graph of an ordering until the campaign stops, or `until` says so."""
        spec = self.spec
        arrangement = arrange(ordering, spec.lattice.volumes, lanes_of(self._producer.info, spec))
        plan = VisitPlan(
            spec=spec,
            steerers={dims: steerer_of(spec, dims, reader.worker) for dims in spec.lattice.volumes},
            sleep=make_sleep(self.book, spec) if arrangement.sleeps else None,
        )
        planner = Planner(
            spec,
            self.book,
            arrangement.lanes,
            plan,
            stop=lambda: self._stops(until),
            halted=lambda: self.halted,
            estimate=Estimator(spec, self.book),
            beside=neighbours_of,
            checks=arrangement.checker is not None,
        )
        apart = spec.running.isolation == "process"
        hear = reader.hear if apart else pass_over
        screen = None
        if arrangement.screens:
            unused = set(reader.heads.unused)
            screen = Screen(spec, reader.worker, reader.substrate, unused=unused, hear=hear)
        early, trusted = spec.ends_warm_up_early, reader.heads.acts("thermalization")

        def produce(substrate: str, core: int | None) -> Producer:
            tools = Tools(
                spec=spec,
                directory=self.directory,
                monitor=Monitor(spec.warmup, early=early, head_trusted=trusted),
                engine=self._producer.open_engine(threads=spec.running.threads),
                lines=OwnReader(spec, reader.heads) if apart else reader,
                checks=arrangement.checks,
            )
            return Producer(tools, substrate, stopping=self._stop, core=core)

        graph = build_graph(
            spec, arrangement, book=self.book, planner=planner, screen=screen, hear=hear, produce=produce
        )
        began = time.monotonic()
        self._look()
        with graph.start() as run:
            while not run.wait(LOOK_S):
                self._look()
            note_use(self.book, run, time.monotonic() - began)
        for chain in self.state.chains.values():
            settle(chain_file(self.directory, chain.id), chain.settled)
        return planner.stopped_by

    def _look(self) -> None:
        """However long a block takes, what was written is synced in time, and the wall time does not run out."""
        self.book.journal.tick()
        if self.halted:
            self._stop.set()

    def _ordering(self, reader: HeadReader) -> str:
        if self.state.chosen is not None:
            return self.state.chosen.by
        if self.spec.ordering != AUTO:
            return self.spec.ordering
        from .choosing import choose_ordering

        return choose_ordering(self, reader)

    def _stops(self, until: Callable[[], bool] | None) -> StoppedBy | None:
        budget, state = self.spec.budget, self.state
        if until is not None and until():
            return "exhausted"
        if budget.seconds is not None and state.elapsed(self.book.clock()) >= budget.seconds:
            return "seconds"
        if budget.joules is not None and self._joules() >= budget.joules:
            return "joules"
        return "target" if target_met(state) else None

    def _joules(self) -> float:
        reason = self._meter.unavailable()
        if reason is not None:
            raise SpecError(f"`budget.joules` needs an energy meter: {reason}\nhint: use seconds or trajectories")
        return float(self._meter.total().value)

    def why_no_joules(self) -> str:
        """Return why orderings are not compared by joules."""
        reason = self._meter.unavailable()
        if reason is None:
            return "orderings A to D keep the same cores busy, of which one meter reads the sum"
        if self.spec.running.energy == "modelled":
            return f"no profile states the power of this CPU, and its meter cannot be read ({reason.split(':')[0]})"
        return f"{self._producer.info.name} is not metered ({reason.split(':')[0]})"

    def close(self) -> None:
        """Close the journal and give the directory back."""
        self._stop.clear()
        self.book.journal.close()
        self._lock.close()


@contextmanager
def _locked(directory: Path) -> Iterator[DirectoryLock]:
    """Give the lock of a directory that can be written; it stays with whoever is made inside, unless that fails."""
    writable_directory(directory)
    lock = DirectoryLock(directory)
    try:
        sweep(directory)
        yield lock
    except BaseException:
        lock.close()
        raise


def _edited(directory: Path, spec: CampaignSpec) -> str:
    """Return a line that says what stands in `spec.toml` and is not in force; nothing where that is the same."""
    path = directory / "spec.toml"
    try:
        there = load_spec(path)
    except SpecError as error:
        return f"{error}" if path.exists() else ""
    one, other = (spec_text(each).splitlines() for each in (there, spec))
    changes = [f"`{edited}` for `{kept}`" for edited, kept in zip(one, other, strict=False) if edited != kept]
    if not changes:
        return ""
    return (
        f"{path}: was edited ({', '.join(changes)}), and the campaign goes on as it was begun"
        "\nhint: the options of metalforge resume extend it; for all else begin in another directory"
    )


def _write_spec(directory: Path, spec: CampaignSpec) -> None:
    with replacing(directory / "spec.toml") as stream:
        stream.write(spec_text(spec).encode())
