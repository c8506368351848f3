r"""Experiment faults: which faults of a running chain its gate finds, how late, and how many alarms are false.

Chains run as in a campaign, block by block through the gate of a producer (`campaign.running.gate`). Every chain makes
some sound updates; from there it goes on once for every fault (`chain_faults`), which is injected at a random update
of one of the next blocks, until a block is flagged or `LONGEST` updates have passed. The delay is the number of updates
from the fault to the end of the flagged block, of which nothing is written. Sound chains go through the same gate, and
every flag there is a false alarm.
"""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from experiments.chain_faults import FAULTS, FaultName, inject
from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.running.gate import Gate
from metalforge.campaign.running.point import Tools
from metalforge.campaign.spec import CampaignSpec, WarmUpPolicy
from metalforge.campaign.store.chain_files import chain_files
from metalforge.campaign.store.records import Decided, Rows
from metalforge.core.rows import ChainFaultError
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.point import LatticePoint
from metalforge.native import default_threads
from metalforge.native.cpu_engine import cpu_engine
from metalforge.native.engine import Dims
from metalforge.reservoir.metrics import wilson

from .protocol import Cell, Figure, Progress, Result, Settings, experiment, in_processes, words

BLOCK = 50
"""Updates of a block, as campaigns have by default."""
WARMUP = 100
BEFORE = 400
"""Measured updates before a fault."""
AHEAD = 6
"""Sound blocks before that of the fault, fewer than these."""
LONGEST = 600
"""Updates after a fault in which it must be found."""
SOON = 64
"""Updates within which it is found soon."""
SOUND_CHAINS = 12
"""Chains that the sound updates of a case are made by."""
NEVER = 1 << 40
FOR_ALARMS = 1e-5
"""False alarms an update that are allowed."""


class FaultCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chains of one kind: so many get every fault, and so many updates of sound ones are looked at."""

    dims: Dims
    beta: float
    algorithm: Literal["heatbath", "hmc"]
    chains: int
    sound: int

    @property
    def name(self) -> str:
        """The lattice and the algorithm, in words."""
        return f"{self.dims[0]}^3x{self.dims[3]} {self.algorithm}"


CASES = (
    FaultCase(dims=(4, 4, 4, 2), beta=5.0, algorithm="heatbath", chains=16, sound=372_000),
    FaultCase(dims=(8, 8, 8, 2), beta=5.0921, algorithm="heatbath", chains=6, sound=12_000),
    FaultCase(dims=(8, 8, 8, 4), beta=5.69, algorithm="heatbath", chains=3, sound=3_000),
    FaultCase(dims=(4, 4, 4, 2), beta=5.0, algorithm="hmc", chains=8, sound=6_000),
)
QUICK = (FaultCase(dims=(2, 2, 2, 2), beta=5.0, algorithm="heatbath", chains=2, sound=600),)


class FaultTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chain: with every fault in turn, or sound for so many updates."""

    case: FaultCase
    seed: int
    stream: int
    sound: int = 0


class Found(NamedTuple):
    """What became of a fault: the rule that found it and after how many updates; no rule where none did."""

    fault: FaultName
    by: str
    delay: int


class FaultSeen(NamedTuple):
    """The result of a task: its faults, or the updates of a sound chain and the alarms there."""

    found: tuple[Found, ...] = ()
    updates: int = 0
    alarms: int = 0


class Gated:
    """A chain that runs as a producer of a campaign runs it."""

    def __init__(self, task: FaultTask, directory: Path) -> None:
        case = task.case
        lattice = Lattice(
            volumes=(case.dims,), beta_min=case.beta - 0.1, beta_max=case.beta + 0.1, algorithm=case.algorithm
        )
        warmup = WarmUpPolicy(early=False, longest=WARMUP, shortest=WARMUP)
        spec = CampaignSpec(seed=task.seed, theory=lattice, warmup=warmup)
        self._tools = Tools(spec=spec, files=chain_files(directory), engine=cpu_engine(threads=1))
        self._path = directory / "chain.h5"
        ends = Decided(what="warmup-ends", step=WARMUP, by="experiment", reason="as long as the longest")
        self._kept = ChainLog(
            id="c0000",
            stream=task.stream,
            system=case.dims,
            coordinate=case.beta,
            start=Lattice().start_of(task.stream),
            substrate="cpu:0",
            decisions=[ends],
        )
        self.take_up()

    def take_up(self) -> None:
        """Go on from where `keep` was called last, with a new chain and a new gate."""
        self._log = self._kept.snapshot()
        self._point = LatticePoint(self._kept.snapshot(), self._tools, self._path)
        self._gate = Gate()

    def keep(self) -> None:
        """Write the chain to its file."""
        self._point.save(self._path)
        self._kept = self._log.snapshot()

    def block(self, fault: FaultName | None = None, rng: np.random.Generator | None = None, at: int = 0) -> str:
        """Make a block, with a fault before its update `at`; return the rule that flags it, if one does."""
        self._point.begin(BLOCK, NEVER)
        failed = None
        try:
            for n in range(BLOCK):
                if fault is not None and rng is not None and n == at:
                    inject(self._point.run.chain, fault, rng)
                self._point.update()
        except ChainFaultError as error:
            failed = error
        verdict = self._gate.judge(self._point, failed)
        return verdict.decisions[0].by.removeprefix("rule:") if verdict.again else ""

    def write(self) -> None:
        """Take the block as it is, flagged or not."""
        self._gate = Gate()
        for segment in self._point.take_segments():
            self._log.take(Rows(chain=self._log.id, seconds=0.0, **segment._asdict()))


def looked_at(task: FaultTask) -> FaultSeen:
    """Run one chain, sound or with every fault in turn."""
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        gated = Gated(task, Path(folder))
        alarms = 0
        for _ in range((WARMUP + (task.sound or BEFORE)) // BLOCK):
            alarms += bool(gated.block())
            gated.write()
        if task.sound:
            return FaultSeen(updates=WARMUP + task.sound, alarms=alarms)
        gated.keep()
        return FaultSeen(found=tuple(_found(gated, fault, [task.seed, task.stream]) for fault in FAULTS))


def _found(gated: Gated, fault: FaultName, seed: Sequence[int]) -> Found:
    rng = np.random.default_rng([*seed, FAULTS.index(fault)])
    at = int(rng.integers(BLOCK))
    gated.take_up()
    for _ in range(rng.integers(AHEAD)):  # witnesses come at updates of their own
        gated.block()
        gated.write()
    by, delay = gated.block(fault, rng, at), BLOCK - at
    while not by and delay < LONGEST:
        gated.write()
        by, delay = gated.block(), delay + BLOCK
    return Found(fault, by, delay)


def tasks_of(case: FaultCase, seed: int) -> list[FaultTask]:
    """Return the chains of a case: those with faults, and sound ones, hot and cold starts in turn."""
    each = max(case.sound // SOUND_CHAINS, BLOCK)
    with_faults = [FaultTask(case=case, seed=seed, stream=stream) for stream in range(case.chains)]
    return with_faults + [FaultTask(case=case, seed=seed, stream=1000 + n, sound=each) for n in range(SOUND_CHAINS)]


@experiment("faults", "Which faults of a running chain are found before they are written, and how often without one?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return detection and delay of every fault, and false alarms, on every lattice."""
    cases = QUICK if settings.quick else CASES
    table: list[dict[str, Cell]] = []
    updates, alarms = 0, 0
    for number, case in enumerate(cases):
        progress(
            number, len(cases), f"{case.chains} chains of {case.name} with every fault, {case.sound} sound updates"
        )
        seen = list(in_processes(looked_at, tasks_of(case, settings.seed), 1 if settings.quick else default_threads()))
        for fault in FAULTS:
            found = [one for s in seen for one in s.found if one.fault == fault]
            share = Figure.of(wilson(sum(bool(one.by) for one in found), len(found)), ".2f")
            table.append(_line(case, fault, f"{share} of {len(found)}", found))
        looked, raised = sum(s.updates for s in seen), sum(s.alarms for s in seen)
        updates, alarms = updates + looked, alarms + raised
        table.append(_line(case, "none", f"{raised} in {looked:,} updates", None))
    rate = wilson(alarms, updates)
    check = (f"at most {FOR_ALARMS:g} false alarms per update", f"{alarms} in {updates:,}", rate.value <= FOR_ALARMS)
    said = words("faults.all", block=BLOCK, before=BEFORE, longest=LONGEST, high=rate.high)
    return Result(table, said, [check])


def _line(case: FaultCase, fault: str, share: str, found: Sequence[Found] | None) -> dict[str, Cell]:
    """Return a fault's line: how often each rule found it, and the median and the largest delay."""
    by = Counter(one.by for one in found or () if one.by)
    delays = [one.delay for one in found or () if one.by]
    return {
        "lattice": case.name,
        "fault": fault,
        "found": share,
        f"within {SOON}": "-" if found is None else sum(delay <= SOON for delay in delays),
        "by": ", ".join(f"{name} {n}" for name, n in by.most_common()) or "-",
        "median delay [updates]": Figure(float(np.median(delays)), ".0f") if delays else "-",
        "largest": max(delays) if delays else "-",
    }
