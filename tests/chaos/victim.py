"""Processes that run a campaign, or one chain, and die at a named site; ``python -m chaos.victim`` makes them to order.

It reads jobs from its input, a line of JSON each, forks a process for every one (all that it needs is imported
already), and writes how that ended.
"""

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from pathlib import Path

import msgspec

from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.store.journal import Journal
from metalforge.conductor.shipped import shipped_weights
from metalforge.core.errors import MetalforgeError
from metalforge.lattice import observables
from metalforge.lattice.chain import Chain
from metalforge.lattice.generate import Generation
from metalforge.lattice.generate import Job as Task
from metalforge.pipeline.processes import Child
from metalforge.plasma.trajectory import TrajectoryRun
from reference.spoiled_chains import faults_at

from .campaigns import CAMPAIGNS, RUNS

LONGEST_S = 600
"""After this a process is ended by an alarm: it hung."""
INTERRUPTED, STOPPED = 75, 130
"""Exit codes of what was asked to stop, in its run or before that."""
CHECKPOINT = "checkpoint.h5"
"""Of a run without a campaign."""
SITES = ("before", "half", "sync", "update", "checkpoint", "renamed", "check", "request", "producer")
"""Where a process may be struck. `before`: a journal line is written; `half`: after half of it; `sync`: before the
journal is flushed to the disk; `update`: in a chain's work; `checkpoint`: its file is written and not yet renamed;
`renamed`: it is, and the journal does not know; `check`: a configuration is evaluated again; `request`: a process of
the campaign's own is asked for something; `producer`: the same, and it is that process which is killed."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Run the campaign of a directory, and strike at the count-th visit of a site; count 0: never."""

    directory: str
    campaign: str
    site: str = ""
    count: int = 0
    signal: str = "SIGKILL"
    spoiled: tuple[tuple[int, int], ...] = ()
    """Chains, by stream, and the steps at which a link of theirs is no number."""


class Trap:
    """Counts the visits of all sites, and strikes at one."""

    def __init__(self, job: Job) -> None:
        self.counts: Counter[str] = Counter()
        self._job, self._lock = job, threading.Lock()

    def visit(self, site: str) -> bool:
        """Count; return whether this is the visit at which to strike."""
        with self._lock:
            self.counts[site] += 1
            return (site, self.counts[site]) == (self._job.site, self._job.count)

    def strike(self, pid: int | None = None) -> None:
        """Send the signal, to this process if to no other."""
        os.kill(pid or os.getpid(), signal.Signals[self._job.signal])

    def pass_by(self, site: str) -> None:
        """Visit a site where nothing but this happens."""
        if self.visit(site):
            self.strike()

    def set(self) -> None:
        """Put this trap at every site of the package in this process."""
        self._journal()
        update, evaluate, replace, request = Chain.update, observables.evaluate_again, os.replace, Child.request

        def updating(chain, **options):
            self.pass_by("update")
            return update(chain, **options)

        def evaluating(*arguments):
            self.pass_by("check")
            return evaluate(*arguments)

        def replacing(source, target, **options):
            is_chain = str(target).endswith(".h5")
            if is_chain:
                self.pass_by("checkpoint")
            replace(source, target, **options)
            if is_chain:
                self.pass_by("renamed")

        def requesting(child, verb, *arguments):
            if verb == "step":
                self.pass_by("request")
                if self.visit("producer"):
                    self.strike(child.pid)
            return request(child, verb, *arguments)

        follow = TrajectoryRun.following

        def following(run):
            self.pass_by("update")
            return follow(run)

        Chain.update, TrajectoryRun.following, observables.evaluate_again = updating, following, evaluating
        os.replace, Child.request = replacing, requesting

    def _journal(self) -> None:
        def writing(file, data):
            self.pass_by("before")
            if self.visit("half"):
                os.write(file, bytes(data)[: len(data) // 2])
                self.strike()
                # A signal that does not kill at once: what was written of the line is the journal's to go on from.
                return len(data) // 2
            return os.write(file, data)

        def syncing(file):
            self.pass_by("sync")
            os.fsync(file)

        Journal.open.__func__.__kwdefaults__.update(write=writing, sync=syncing)


def perform(job: Job) -> int:
    """Begin or go on with what a job names; return an exit code."""
    trap = Trap(job)
    trap.set()
    finished = _run(job) if job.campaign in RUNS else _campaign(job)
    if not job.count:
        _beside(Path(job.directory), "visits").write_bytes(msgspec.json.encode(trap.counts))
    return 0 if finished else INTERRUPTED


def _campaign(job: Job) -> bool:
    directory = Path(job.directory)
    journal = directory / JOURNAL
    # One that died before its first record was whole is begun again, as the refusal to resume it says.
    there = journal.exists() and b"\n" in journal.read_bytes()
    with (
        faults_at(dict.fromkeys(job.spoiled, "nan")),
        Campaign.resume(directory) if there else Campaign.open(CAMPAIGNS[job.campaign], directory) as campaign,
    ):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: campaign.interrupt(signal.Signals(number).name))
        return campaign.run().finished is not None


def _run(job: Job) -> bool:
    chain, task = RUNS[job.campaign]
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: asked.append(number))
    there = (Path(job.directory) / CHECKPOINT).exists()
    run = Generation.resume(Path(job.directory)) if there else Generation(Chain(chain), Task(out=job.directory, **task))
    return run.run(should_stop=lambda: bool(asked), checkpoint_every_s=0.0)


def _beside(directory: Path, ending: str) -> Path:
    return directory.with_name(f"{directory.name}.{ending}")


def said(directory: Path) -> str:
    """Return what processes of a directory wrote to their error stream."""
    path = _beside(directory, "said")
    return path.read_text() if path.exists() else ""


def visits(directory: Path) -> dict[str, int]:
    """Return how often each site was visited by the process that ended the campaign of a directory."""
    return msgspec.json.decode(_beside(directory, "visits").read_bytes(), type=dict[str, int])


def _child(job: Job) -> int:
    errors = os.open(_beside(Path(job.directory), "said"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(errors, 2)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    faulthandler.enable(2)
    signal.alarm(LONGEST_S)
    try:
        return perform(job)
    except MetalforgeError as error:
        os.write(2, f"error: {error}\n".encode())
        return 2
    except KeyboardInterrupt:
        return STOPPED
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        return 1


def main() -> None:
    """Serve until the input ends."""
    shipped_weights()
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=Job)
        pid = os.fork()
        if pid == 0:
            os._exit(_child(job))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
