r"""Experiment scale: a campaign on 1 to 1,000 simulated GPUs, by the planner, steerers and journal of a real one.

Lanes are simulated in virtual time (`scale_model`), the supervisor is real and costs what it costs here (`scale_run`).
The campaign looks for beta_c of one lattice, near where a smaller one has it; a row is for as many updates as
`lattice.heatbath` and `lattice.overrelax` make (see `scale_model`), and everything else is a scan's default.

Time to an error of 1e-4 is modelled: error^2 times rows of the longest run, which is the same for all lattices when
rows are counted, over the rows per second that a run made; not less than a warm-up and a visit take on a lane.

Runs are lines of a file (`--file`): one that is there is not made again, and `--shard table` makes none; `--only`
leaves it at some of them.

Beside them the same kind of campaign on cores of this machine, run and simulated with the rate that one core had.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from math import isnan, nan, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from metalforge.campaign.report.words import system_name
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.machines import ThisMachine
from metalforge.campaign.spec import Budget, CampaignSpec, Running, Screening, Steering
from metalforge.cluster.address import ClusterAddress
from metalforge.cluster.joining import join, leave
from metalforge.cluster.machines import RayMachines
from metalforge.lattice.campaign import Lattice
from metalforge.native.engine import Dims
from metalforge.reservoir.metrics import Interval

from .lines import Job, OutcomeFile
from .protocol import Check, Progress, Result, ResultRow, Settings, experiment, row_of, words
from .scale_model import FAILURES_PER_HOUR, SITES_PER_S, Machine, SimulatedLattice, lattice_of
from .scale_run import Figures, SimulatedCampaign, Two

if TYPE_CHECKING:
    from types import ModuleType

TARGET = 1e-4
BUSY, ASK_S, MB_PER_MINUTE, RESUME_S = 0.9, 0.05, 20.0, 30.0
"""Goals at the largest size."""
ACCELERATED = 1000
"""How many times more often lanes fail in the run that says what a failure costs."""
HALF, LATE = 0.5, 0.05
"""Share of the time from which a supervisor is what lanes wait for, and of a run that its beginning may take."""
HALF_RANGE = 0.1
PRIOR_OFF, PRIOR_WIDTH = 0.002, 0.005
"""How far the smaller lattice is off, and what it says of that."""


class ScaleCase(NamedTuple):
    """A run: its lattice and lanes, how long, and how often lanes fail."""

    dims: Dims
    lanes: int
    seconds: float = 3600.0
    failures: float = FAILURES_PER_HOUR
    resumed: bool = False

    @property
    def name(self) -> str:
        """What it is called in the table."""
        often = "" if self.failures <= FAILURES_PER_HOUR else f", failures x {self.failures / FAILURES_PER_HOUR:g}"
        return f"{system_name(self.dims)}, {self.lanes:,} card{'s' * (self.lanes > 1)}{often}"


LATTICES: tuple[Dims, ...] = ((16, 16, 16, 4), (24, 24, 24, 6), (32, 32, 32, 8), (48, 48, 48, 12))
SIZES = (1, 10, 100, 1000)
# For as long as a lane takes for its warm-ups and three visits: the first visits end together, and are the worst.
CASES = (
    *(
        ScaleCase(dims, lanes, seconds)
        for dims, seconds in zip(LATTICES, (18.0, 50.0, 280.0, 3600.0), strict=True)
        for lanes in SIZES
        if (dims, lanes) != (LATTICES[-1], SIZES[-1])
    ),
    ScaleCase(LATTICES[-1], SIZES[-1], resumed=True),
    ScaleCase(LATTICES[-1], 100, failures=ACCELERATED * FAILURES_PER_HOUR),
)
QUICK_CASES = (
    ScaleCase((16, 16, 16, 4), 1, seconds=20.0),
    ScaleCase((48, 48, 48, 12), 40, seconds=1500.0, resumed=True),
    ScaleCase((48, 48, 48, 12), 10, seconds=1500.0, failures=20_000 * FAILURES_PER_HOUR),
)


class ScaleOutcome(Figures, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of a case: a line of the experiment's file."""

    case: str
    seed: int
    dims: Dims
    resume_s: float | None = None
    """To fold the journal and to the first orders, where that was tried."""

    @property
    def rows_per_s(self) -> float:
        """Rows into the journal."""
        return self.rows / self.seconds

    @property
    def mb_per_minute(self) -> float:
        """Of the journal."""
        return self.journal_bytes / 1e6 / (self.seconds / 60)

    @property
    def error_constant(self) -> float:
        """error^2 times rows, the median of the last estimates; nan where none was made."""
        return float(np.median([e**2 * self.rows_per_s * at for at, e in self.looks])) if self.looks else nan


class CoreCampaign(NamedTuple):
    """A campaign on cores of this machine, run or simulated: share of the lanes' time, and updates per second."""

    lanes: int
    busy: float
    updates_per_s: float
    nodes: bool = False
    """Whether each lane is a node of a cluster on this machine; else threads of one process."""


def spec_of(lattice: SimulatedLattice, seed: int) -> CampaignSpec:
    """Return the campaign of a lattice: a scan's defaults, near where a smaller one has its peak."""
    middle, thinning = lattice.beta_c, lattice.thinning
    return CampaignSpec(
        name="scale",
        seed=seed,
        theory=Lattice(
            volumes=(lattice.dims,),
            beta_min=round(middle - HALF_RANGE, 3),
            beta_max=round(middle + HALF_RANGE, 3),
            heatbath=thinning,
            overrelax=4 * thinning,
        ),
        budget=Budget(seconds=1e9),
        steering=Steering(steerer="gaussian-process", prior=(middle + PRIOR_OFF, PRIOR_WIDTH)),
        running=Running(exchange="off"),
    )


def run_case(case: ScaleCase, seed: int) -> ScaleOutcome:
    """Run one case."""
    lattice = lattice_of(case.dims)
    machine = Machine(case.lanes, failures=case.failures)
    with TemporaryDirectory() as folder:
        campaign = SimulatedCampaign(spec_of(lattice, seed), lattice, machine, Path(folder), seed=seed)
        figures = campaign.run(case.seconds)
        resume_s = sum(campaign.resume()) if case.resumed else None
    seen = msgspec.structs.asdict(figures)
    return ScaleOutcome(case=case.name, seed=seed, dims=case.dims, resume_s=resume_s, **seen)


# -- beside what this machine does ----------------------------------------------------------------------------------


def on_cores(lanes: int, seconds: float, seed: int, cluster: "ModuleType | None" = None) -> CoreCampaign:
    """Run a campaign on 8^3x4 with so many producers for so long, and return how busy these were.

    With a cluster that was joined, each is on a node of its own.
    """
    spec = CampaignSpec(
        name="scale",
        seed=seed,
        theory=Lattice(volumes=((8, 8, 8, 4),)),
        budget=Budget(seconds=seconds),
        steering=Steering(steerer="gaussian-process"),
        running=Running(producers=lanes, substrate="cpu", exchange="off"),
        screening=Screening(device="software", every=1000),
    )
    with ExitStack() as held:
        folder = Path(held.enter_context(TemporaryDirectory()))
        machines = ThisMachine() if cluster is None else held.enter_context(RayMachines(cluster, folder))
        campaign = held.enter_context(Campaign.open(spec, folder, machines=machines))
        began = time.monotonic()
        state = campaign.run()
        wall = time.monotonic() - began
    used = state.utilisation
    shares = [] if used is None else [one.utilisation for one in used.stages if one.stage.startswith("produce-")]
    window = wall if used is None else used.window_s
    return CoreCampaign(lanes, float(np.mean(shares)), state.trajectories / window, nodes=cluster is not None)


@contextmanager
def _cluster_here(nodes: int) -> "Iterator[ModuleType]":
    """Give a cluster of nodes of one core on this machine, which ends with the block."""
    address = ClusterAddress("local", nodes=nodes, cores=1)
    with TemporaryDirectory() as folder:
        ray = join(address, Path(folder))
        try:
            yield ray
        finally:
            leave(ray, address, Path(folder), stop=True)


def beside_this_machine(seconds: float, seed: int, *, quick: bool) -> list[tuple[CoreCampaign, CoreCampaign]]:
    """Return campaigns as they ran here on cores, and where Ray is on nodes, each with the same one simulated."""
    measured = [on_cores(lanes, seconds, seed) for lanes in ((1,) if quick else (1, 2))]
    if not quick and find_spec("ray"):
        with _cluster_here(NODES) as cluster:
            measured += [on_cores(lanes, seconds, seed, cluster) for lanes in range(1, NODES + 1)]
    return [(one, as_simulated(measured[0], one.lanes, seconds, seed)) for one in measured]


def as_simulated(measured: CoreCampaign, lanes: int, seconds: float, seed: int) -> CoreCampaign:
    """Return the same campaign on so many simulated lanes, each as fast as the measured one while it was busy."""
    lattice = lattice_of((8, 8, 8, 4))
    rate = measured.updates_per_s / measured.busy / measured.lanes * prod(lattice.dims)
    machine = Machine(lanes, rate, speeds=((1.0, 1.0),), failures=0.0, messages=False, wide=False)
    with TemporaryDirectory() as folder:
        campaign = SimulatedCampaign(spec_of(lattice, seed), lattice, machine, Path(folder), seed=seed)
        figures = campaign.run(seconds)
    return CoreCampaign(lanes, figures.busy, figures.rows * lattice.thinning / figures.seconds)


# -- the experiment -------------------------------------------------------------------------------------------------


FILE = "scale.jsonl"
NODES = 3
"""Of a cluster on this machine."""


@experiment("scale", "Where does a campaign on a thousand GPUs wait, and for what?")
def run(settings: Settings, progress: Progress) -> Result:
    """Run the cases that are not in the file and the campaigns on cores, and return the table of them."""
    cases = [case for case in (QUICK_CASES if settings.quick else CASES) if settings.only in case.name]
    jobs = [Job(case.name, [(case.name, settings.seed)], case) for case in cases]
    file = OutcomeFile(settings, FILE, ScaleOutcome, lambda one: (one.case, one.seed))
    known = file.run(jobs, lambda case: [run_case(case, settings.seed)], progress)
    progress(0, 1, "cores and nodes of this machine")
    seconds = 2.0 if settings.quick else 12.0
    pairs = [] if settings.only else beside_this_machine(seconds, settings.seed, quick=settings.quick)
    return _result([known[key] for case in cases if (key := (case.name, settings.seed)) in known], pairs)


def time_to_target(outcome: ScaleOutcome, constant: float) -> float:
    """Return the seconds to the target error, modelled: not less than a warm-up and a visit on a lane."""
    lattice = lattice_of(outcome.dims)
    spec = spec_of(lattice, 1)
    rows = spec.warmup.longest + spec.theory.wide.visit * spec.steering.visit
    shortest = rows * lattice.thinning * prod(lattice.dims) / SITES_PER_S
    return max(constant / TARGET**2 / outcome.rows_per_s, shortest)


def _result(outcomes: Sequence[ScaleOutcome], pairs: Sequence[tuple[CoreCampaign, CoreCampaign]]) -> Result:
    longest = max(outcomes, key=lambda one: one.rows * bool(one.looks), default=None)
    constant = nan if longest is None else longest.error_constant
    table: list[tuple[str, ...]] = [tuple(words("scale.columns"))]
    rows: list[ResultRow] = []
    for outcome in outcomes:
        reached = time_to_target(outcome, constant)
        table.append(_line(outcome, reached))
        rows += _rows(outcome, reached)
    for pair in pairs:
        for kind, one in zip(("measured", "simulated"), pair, strict=True):
            what = "node" if pair[0].nodes else "core"
            name = f"8^3x4, {one.lanes} {what}{'s' * (one.lanes > 1)} of this machine, {kind}"
            table.append((name, "", f"{one.busy:.1%}", "", "", f"{one.updates_per_s:,.0f}", *[""] * 7))
            rows += [_row(name, "busy", one.busy), _row(name, "updates/s", one.updates_per_s)]
    said = [*words("scale.legend"), *(_broken(one) for one in outcomes if one.busy < BUSY and not _failing(one))]
    return Result.of(rows, table, said + [_failure(one) for one in outcomes if _failing(one)], _checks(outcomes))


def _failing(outcome: ScaleOutcome) -> bool:
    """Return whether it is a run that says what failures cost."""
    return "failures" in outcome.case and outcome.failures > 0


def _line(one: ScaleOutcome, reached: float) -> tuple[str, ...]:
    return (
        one.case,
        f"{one.seconds:,.0f}",
        f"{one.busy:.1%}",
        f"{one.supervisor:.2%}",
        f"{one.began_s:.2g}",
        f"{one.rows_per_s:,.0f}",
        f"{one.mb_per_minute:.3g}",
        _shown(one.ask_s, 1e3),
        _shown(one.known_s),
        _shown(one.begun_s),
        f"{one.estimate_s[0]:.2g}" if one.estimates else "-",
        f"{one.failures} ({one.repeated_s:,.0f})",
        _duration(reached),
    )


def _rows(one: ScaleOutcome, reached: float) -> Iterator[ResultRow]:
    yield _row(one.case, "busy", one.busy, BUSY)
    yield _row(one.case, "rows/s", one.rows_per_s)
    yield _row(one.case, "MB/min", one.mb_per_minute, MB_PER_MINUTE)
    yield _row(one.case, "ask p99 s", one.ask_s[1], ASK_S)
    if one.resume_s is not None:
        yield _row(one.case, "resume s", one.resume_s, RESUME_S)
    if np.isfinite(reached):
        yield _row(one.case, "s to 1e-4, modelled", reached)


def _row(name: str, metric: str, value: float, reference: float = 0.0) -> ResultRow:
    return row_of(name, "simulated", metric, Interval.around(value), reference, precision="f64")


def _checks(outcomes: Sequence[ScaleOutcome]) -> Iterator[Check]:
    for one in outcomes:
        if one.resume_s is None:
            continue
        yield f"{one.case}: at least {BUSY:.0%} busy", f"{one.busy:.1%}", one.busy >= BUSY
        asks = f"{1e3 * one.ask_s[0]:.0f} ms, p99 {1e3 * one.ask_s[1]:.0f} ms"
        yield f"{one.case}: an ask in {1e3 * ASK_S:g} ms", asks, one.ask_s[0] <= ASK_S
        mb = one.mb_per_minute
        yield f"{one.case}: at most {MB_PER_MINUTE:g} MB per minute of journal", f"{mb:.3g}", mb <= MB_PER_MINUTE
        took = f"{one.resume_s:.1f} s, {one.rows:,} rows"
        yield f"{one.case}: taken up again in {RESUME_S:g} s", took, one.resume_s <= RESUME_S


def _broken(one: ScaleOutcome) -> str:
    cause = "begins" if one.began_s > LATE * one.seconds else "supervisor" if one.supervisor > HALF else "other"
    return words(f"scale.{cause}", one=one, block_ms=1e3 * one.supervisor * one.seconds / max(one.blocks, 1))[0]


def _failure(one: ScaleOutcome) -> str:
    each, down = one.repeated_s / one.failures, one.down_s / one.failures
    return words("scale.failure", one=one, each=each, down=down, lost=(each + down) * FAILURES_PER_HOUR / 3600)[0]


def _shown(values: Two, unit: float = 1.0) -> str:
    return " / ".join(f"{unit * value:.3g}" for value in values)


def _duration(seconds: float) -> str:
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return "-" if isnan(seconds) else f"{seconds:.3g} s"
