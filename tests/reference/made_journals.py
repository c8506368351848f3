"""Journals of campaigns that nobody ran, in their real records, for whoever tries readers on many chains and megabytes.

Rows are random numbers with the autocorrelation and the two phases of a transition; visits, blocks, screens, samples
and estimates come as often as in a campaign of its size.
"""

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.analysis.evidence import Evidence
from metalforge.campaign.chain_log import chain_name
from metalforge.campaign.spec import Budget, CampaignSpec
from metalforge.campaign.store.directory import JOURNAL
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import (
    Assigned,
    BlockDone,
    Decided,
    Estimated,
    JoulesSample,
    Opened,
    Record,
    Rows,
    Sampled,
    Screened,
    Silicon,
    StageEdge,
    StageNode,
    StageSample,
    Topology,
)
from metalforge.core.closing import Closing
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.theory import lattice_of

SPEC = CampaignSpec(
    name="made",
    theory=Lattice(volumes=((12, 12, 12, 4),), beta_min=5.66, beta_max=5.72),
    budget=Budget(trajectories=10**8),
)
DIMS = SPEC.theory.systems[0]
BLOCK, VISIT, WARMUP = 50, 200, 200
"""Updates of a block, of a visit, and before measurement."""
LANES, BLOCK_S = 8, 1.0
PEAK, TAU = 5.6925, 20.0
BEGAN = 1.8e9
STAGES = ("produce", "screen", "record", "steer")


def made_records(chains: int = 200, seed: int = 1) -> Iterator[Record]:
    """Yield the records of a campaign that never ends, all chains in turn, by a clock that begins in 2027."""
    lattice = lattice_of(SPEC)
    betas = np.linspace(lattice.beta_min, lattice.beta_max, chains)
    rng = np.random.default_rng(seed)
    lanes = [f"cpu:{lane}" for lane in range(LANES)]
    yield Opened(
        at=BEGAN,
        spec=SPEC,
        spec_sha256=SPEC.sha256,
        package_version="made",
        isa="x86_64_v3",
        command=("made",),
        ordering="B",
        silicon=tuple(Silicon(name=name, device="cpu", model="made", role="produces") for name in lanes),
        python="3",
        campaign="0123456789ab",
    )
    nodes = tuple(StageNode(name=name, substrate=None, isolation="thread") for name in STAGES)
    pairs = zip(STAGES, (*STAGES[1:], STAGES[0]), strict=True)
    edges = tuple(StageEdge(source=a, target=b, channel="blocks", feedback=b == STAGES[0]) for a, b in pairs)
    yield Topology(at=BEGAN, ordering="B", stages=nodes, edges=edges)
    states = [_Chain(float(beta), rng) for beta in betas]
    now, visit, blocks = BEGAN, -1, 0
    for turn in count():
        for number, state in enumerate(states):
            name, first = chain_name(number), turn * VISIT
            visit += 1
            yield Assigned(
                at=now,
                visit=visit,
                round=turn,
                chain=name,
                stream=number,
                system=DIMS,
                coordinate=state.beta,
                updates=VISIT,
                fresh=turn == 0,
                substrate=lanes[number % LANES],
                by="gaussian-process",
                reason="the largest expected gain among 33 couplings",
                score=float(rng.random()),
            )
            for done in range(BLOCK, VISIT + 1, BLOCK):
                now += BLOCK_S / LANES
                blocks += 1
                lane, step = lanes[number % LANES], first + done
                yield Rows(
                    at=now,
                    chain=name,
                    phase="warmup" if step <= WARMUP else "measure",
                    first=step - BLOCK,
                    columns=state.rows(BLOCK),
                    seconds=BLOCK_S,
                )
                heads = {head: float(rng.random()) for head in ("thermalization", "phase", "anomaly", "quality")}
                yield Screened(at=now, chain=name, step=step, route="software", chi=None, flagged=False, heads=heads)
                yield BlockDone(
                    at=now,
                    began=now - BLOCK_S,
                    visit=visit,
                    chain=name,
                    step=step,
                    digest="",
                    done=done == VISIT,
                    substrate=lane,
                )
                if step == WARMUP:
                    why = "both starts agree, and the plaquette has no trend"
                    yield Decided(at=now, what="warmup-ends", chain=name, step=step, by="rule", reason=why)
                if blocks % int(2 * LANES / BLOCK_S) == 0:
                    yield _sampled(now, blocks)
            if visit % 40 == 39:
                yield _estimated(now, blocks, rng)


class _Chain:
    """A chain that goes between two phases, rarely at the peak and hardly ever far from it."""

    def __init__(self, beta: float, rng: np.random.Generator) -> None:
        self.beta, self._rng = beta, rng
        self._above = 1.0 / (1.0 + np.exp(-(beta - PEAK) / 0.005))
        self._loop = 0.0

    def rows(self, n: int) -> dict[str, tuple[float, ...]]:
        noise = self._rng.standard_normal((4, n))
        keep = np.exp(-1.0 / TAU)
        loop: NDArray[np.float64] = np.empty(n)
        for i in range(n):
            self._loop = keep * self._loop + np.sqrt(1 - keep**2) * noise[0, i]
            loop[i] = self._loop
        upper = loop > np.sqrt(2.0) * (0.5 - self._above) * 3
        size = np.where(upper, 0.16, 0.03) + 0.02 * np.abs(noise[1])
        angle = 0.3 * noise[2]
        columns = {
            "plaquette": 0.5490 + 0.3 * (self.beta - PEAK) + 0.0008 * upper + 0.0006 * noise[3],
            "polyakov_re": size * np.cos(angle),
            "polyakov_im": size * np.sin(angle),
        }
        return {name: tuple(values.tolist()) for name, values in columns.items()}


def _sampled(now: float, blocks: int) -> Sampled:
    window = now - BEGAN
    stages = tuple(
        StageSample(
            stage=name,
            items=blocks,
            busy_s=window * share,
            waited_get_s=window * (1 - share),
            waited_put_s=0.0,
            queue=2,
        )
        for name, share in zip(STAGES, (0.95, 0.1, 0.05, 0.2), strict=True)
    )
    joules = JoulesSample(substrate="host", source="measured", joules=60.0 * window)
    return Sampled(at=now, window_s=window, stages=stages, energy=(joules,))


def _estimated(now: float, blocks: int, rng: np.random.Generator) -> Estimated:
    error = 0.02 / np.sqrt(blocks)
    held = Evidence(name="effective samples", holds=blocks > 1000, value=float(blocks), needed=1000.0, text="more")
    return Estimated(
        at=now,
        system=DIMS,
        trajectories=blocks * BLOCK,
        result=float(PEAK + error * rng.standard_normal()),
        error=float(error),
        height=20.0,
        effective=float(blocks),
        evidence=(held,),
    )


class MadeJournal(Closing):
    """A journal in a directory that grows as far as it is told."""

    def __init__(self, directory: Path, *, chains: int = 200) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / JOURNAL
        # Nobody relies on it after a power cut.
        self._journal = Journal.open(self._path, mode="create", sync=lambda _: None)
        self._records = made_records(chains)

    @property
    def count(self) -> int:
        """Records so far."""
        return self._journal.count

    def more(self, records: int) -> None:
        """Append so many records."""
        for record in islice(self._records, records):
            self._journal.append(record)

    def fill(self, megabytes: float) -> None:
        """Append until the journal is about as large."""
        while self._path.stat().st_size <= 1e6 * megabytes:
            self.more(100)

    def close(self) -> None:
        """Close the file."""
        self._journal.close()


def make_journal(directory: Path, megabytes: float, *, chains: int = 200) -> int:
    """Write a journal of about this size into a directory, and return how many records it has."""
    with MadeJournal(directory, chains=chains) as made:
        made.fill(megabytes)
        return made.count
