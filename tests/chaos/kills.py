"""Campaigns that are killed, and resumed, and killed again: each must end as the one that was left alone."""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np

from metalforge.campaign.running.campaign import JOURNAL
from metalforge.campaign.state import CampaignState, fold
from metalforge.campaign.store.reading import read_journal
from metalforge.lattice.run import ChainRun

from .campaigns import RUNS
from .victim import CHECKPOINT, INTERRUPTED, SITES, STOPPED, Job, said, visits

TESTS = Path(__file__).parents[1]
SIGNALS = ("SIGKILL", "SIGKILL", "SIGKILL", "SIGTERM", "SIGINT")
"""What strikes: mostly what cannot be caught."""
DEADLY = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, INTERRUPTED, STOPPED}


class Struck(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign under kills: what struck, in order, and in what it differed from the one that was left alone."""

    campaign: str
    seed: int
    strikes: tuple[str, ...]
    faults: tuple[str, ...]


class Victims:
    """The process that makes victims; each job waits for its end."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS.parent)))}
        self._server = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "chaos.victim"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, job: Job) -> int:
        """Run one job; return its exit code, negative for a signal."""
        self._server.stdin.write(msgspec.json.encode(job) + b"\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()


class Whole:
    """What was left alone: what it came to, and how often it passed each site."""

    def __init__(self, victims: Victims, name: str, folder: Path) -> None:
        directory = folder / name
        code = victims.run(Job(directory=str(directory), campaign=name))
        assert code == 0, said(directory)
        self._name, self.passes = name, visits(directory)
        self.sites = [site for site in SITES if self.passes.get(site, 0) > 1]
        self._found = self._end(directory)

    def _end(self, directory: Path) -> CampaignState | ChainRun:
        return ChainRun.load(directory / CHECKPOINT) if self._name in RUNS else state_of(directory)

    def faults(self, directory: Path) -> list[str]:
        """Return what is wrong with another one that was killed and has ended."""
        compare = run_differences if self._name in RUNS else differences
        return [*compare(self._found, self._end(directory)), *litter(directory)]


def state_of(directory: Path) -> CampaignState:
    """Return what the journal of a directory says."""
    return fold(read_journal(directory / JOURNAL))


def attack(
    victims: Victims, whole: Whole, campaign: str, seed: int, kills: int, folder: Path, *, spoiled: int = 0
) -> Struck:
    """Strike a campaign so many times, at sites drawn from the seed; where it ends before that, begin another.

    In every process so many links are spoiled, at updates that it may come to or not.
    """
    rng = random.Random(f"{campaign} {seed}")
    strikes: list[str] = []
    faults: list[str] = []
    directory = folder / f"{campaign}-{seed}"
    left = kills
    while left or directory.exists():
        places = tuple((rng.randrange(6), rng.randrange(100)) for _ in range(spoiled))
        job = Job(directory=str(directory), campaign=campaign, spoiled=places)
        if left:
            site = rng.choice(whole.sites)
            # So that the strikes together come to about the length of a campaign.
            count = rng.randint(1, max(1, 2 * whole.passes[site] // (kills + 1)))
            job = msgspec.structs.replace(job, site=site, count=count, signal=rng.choice(SIGNALS))
        code = victims.run(job)
        if (job.count and code in DEADLY) or (job.site == "producer" and code == 0):
            strikes.append(f"{job.signal} at {job.site} {job.count}")
            left -= 1
        if code == 0:
            faults += whole.faults(directory)
        elif code not in DEADLY:
            faults.append(f"exit code {code}: {_shown(said(directory))}")
        if code not in DEADLY:
            shutil.rmtree(directory)
    return Struck(campaign=campaign, seed=seed, strikes=tuple(strikes), faults=tuple(faults))


def _shown(text: str) -> str:
    """Return the end of what a process said, or how a crash of the interpreter begins."""
    crash = text.rfind("Fatal Python error")
    return text[crash : crash + 6000] if crash >= 0 else text[-3000:]


def differences(whole: CampaignState, state: CampaignState) -> list[str]:
    """Return what is not the same in two campaigns of one spec, each in a few words that begin with its kind."""
    found = []
    if state.digest() != whole.digest():
        found.append("digest: rows, visits or links differ")
    if _warm_ups(state) != _warm_ups(whole):
        found.append("warm-up: ended elsewhere or by another")
    if state.finished is None or state.finished.stopped_by != whole.finished.stopped_by:
        found.append("ending: stopped by something else")
    # Blocks may begin and end at other updates after a resume, and say nothing where none of theirs is looked at.
    one, other = _readings(whole), _readings(state)
    differing = [key for key in one.keys() & other.keys() if one[key] != other[key]]
    if differing:
        found.append(f"readings: {len(differing)} of {len(one)} differ, as that of {min(differing)}")
    found += _checks(whole, state)
    return found


def run_differences(whole: ChainRun, run: ChainRun) -> list[str]:
    """Return what is not the same in two runs of one chain."""
    same_rows = {name: np.array(column).tobytes() for name, column in whole.log.columns.items()} == {
        name: np.array(column).tobytes() for name, column in run.log.columns.items()
    }
    same_links = whole.chain.field.to_links().tobytes() == run.chain.field.to_links().tobytes()
    return [] if same_rows and same_links else ["digest: rows or links differ"]


def _warm_ups(state: CampaignState) -> list[tuple]:
    return sorted((d.chain, d.step, d.by) for d in state.decisions if d.what == "warmup-ends")


def _readings(state: CampaignState) -> dict[tuple[str, int], dict[str, float]]:
    return {(s.chain, s.step): s.heads for chain in state.chains.values() for s in chain.screened if s.heads}


def _checks(whole: CampaignState, state: CampaignState) -> list[str]:
    """Return which checks in higher precision are missing or differ: D promises every update, A what is flagged."""
    drifts = [
        {(c.chain, c.step): (c.drift["action"], c.drift["polyakov"]) for c in one.checks} for one in (whole, state)
    ]
    promised = {(s.chain, s.step) for chain in state.chains.values() for s in chain.screened if s.flagged}
    if state.opened.ordering == "D":
        promised = {(chain.id, step + 1) for chain in state.chains.values() for step in range(chain.rows)}
    elif state.opened.ordering != "A":
        promised = set()
    missing = promised - drifts[1].keys()
    differing = [key for key in drifts[0].keys() & drifts[1].keys() if drifts[0][key] != drifts[1][key]]
    found = [f"checks: {len(missing)} of {len(promised)} were not made"] if missing else []
    if len(drifts[1]) != len(state.checks):
        found.append(f"checks: {len(state.checks) - len(drifts[1])} were made twice")
    return found + ([f"drifts: {len(differing)} differ"] if differing else [])


def litter(directory: Path) -> list[str]:
    """Return what a finished campaign left behind that nobody reads."""
    left = sorted(path.name for path in directory.rglob(".*.tmp"))
    return [f"litter: {len(left)} temporary files"] if left else []
