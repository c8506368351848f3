"""Campaigns on a cluster of this machine, driven by the command line, and what strikes them."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import msgspec

from chaos.kills import differences, litter
from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget
from metalforge.campaign.state import fold
from metalforge.campaign.store.reading import JournalFollower, read_journal
from metalforge.campaign.store.records import Rows
from metalforge.cluster.local import ClusterFolder, LocalCluster
from metalforge.cluster.marked import is_marked, mark_of, marked, wait_until

from .small_campaigns import QUICK, ROUNDS

FAULTS = Path(__file__).with_name("far_faults")
LATE_S = float(os.environ.get("METALFORGE_TEST_LATE_S", "300"))
"""After which something hangs: everything here takes seconds, and minutes on cores that others use."""
SUPERVISOR, WORKER, IDLE = "ray::Supervisor", "ray::NodeWorker", "ray::IDLE"

STEADY = msgspec.structs.replace(
    ROUNDS, name="far", budget=Budget(trajectories=2400), running=msgspec.structs.replace(ROUNDS.running, producers=3)
)
"""Deterministic, of a few seconds, with a lane for each of three nodes."""
FREE = msgspec.structs.replace(QUICK, name="free", running=msgspec.structs.replace(QUICK.running, producers=0))
"""With a lane for every core that there is."""


def longer(spec, updates):
    return msgspec.structs.replace(spec, budget=Budget(trajectories=updates))


def left_alone(spec, directory):
    """Return what a campaign comes to on threads of this process."""
    with Campaign.open(spec, directory) as campaign:
        return campaign.run()


@contextmanager
def node_faults(path):
    """Let processes that are started meanwhile have the faults that a file tells, which may be written later."""
    before = dict(os.environ)
    os.environ |= {"PYTHONPATH": str(FAULTS), "METALFORGE_TEST_FAULTS": str(path)}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class FarCampaign:
    """A campaign in a directory, on a cluster that runs (`cluster`) or that is its own (`cluster` is a text)."""

    def __init__(self, folder, spec, cluster):
        self.directory, self.spec, self._cluster = folder / spec.name, spec, cluster
        self.environment = os.environ | {"PYTHONPATH": str(FAULTS), "PYTHONFAULTHANDLER": "1"}
        if isinstance(cluster, LocalCluster):
            self.environment |= cluster.environment()
        self.file = folder / f"{spec.name}.toml"
        self.file.write_text(spec_text(spec))
        self._said = folder / f"{spec.name}.said"

    @property
    def cluster(self):
        """The cluster that it is on."""
        there = self._cluster
        return there if isinstance(there, LocalCluster) else LocalCluster.find(self.directory / "cluster")

    @property
    def said(self):
        return self._said.read_text() if self._said.exists() else ""

    def verb(self, *arguments):
        """Start a verb; what it says is added to `said`."""
        with self._said.open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "metalforge", *map(str, arguments)],
                env=self.environment, stdout=subprocess.DEVNULL, stderr=said, cwd=self.file.parent,
            )  # fmt: skip

    def ended(self, process):
        """Wait for the end of a verb and return its exit code; one that hangs says where."""
        try:
            return process.wait(LATE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            return process.wait()

    def scan(self, *more):
        where = self._cluster.address if isinstance(self._cluster, LocalCluster) else self._cluster
        return self.verb("scan", self.file, "--cluster", where, "--out", self.directory, "--json", *more)

    def resume(self):
        return self.verb("resume", self.directory, "--json")

    def attach(self):
        return self.verb("attach", self.directory, "--json")

    def reached(self, updates):
        """Wait until the journal has so many updates; return whether it has, and the campaign is not over."""
        follower, seen = JournalFollower(self.directory / JOURNAL), [0]

        def there():
            found = follower.poll()
            seen[0] += sum(len(record.columns["plaquette"]) for record in found if isinstance(record, Rows))
            return seen[0] >= updates

        assert wait_until(there, LATE_S), self.said
        return self.state.finished is None

    def until(self, met):
        """Wait until this is so of the journal's state."""
        journal = self.directory / JOURNAL
        # Not more often: to read a whole journal takes a core from those who write it.
        assert wait_until(lambda: journal.exists() and met(self.state), LATE_S, every=0.25), self.said
        return self.state

    @property
    def state(self):
        """What the journal says; raises where it says anything twice."""
        return fold(read_journal(self.directory / JOURNAL))

    def faults(self, whole):
        """Return in what it differs from one that was left alone."""
        state = self.state
        same = msgspec.structs.replace(whole.opened, spec_sha256=state.opened.spec_sha256)
        before, whole.opened = whole.opened, same
        try:
            return [*differences(whole, state), *litter(self.directory)]
        finally:
            whole.opened = before

    def processes(self, title, node=None):
        """Return the processes of the cluster with this title, or those on one node."""
        place = ClusterFolder.of(self.cluster.folder)
        mark = f"{place.cluster}:" if node is None else mark_of(place.cluster, node)
        return [pid for pid in marked(mark) if title_of(pid).startswith(title)]

    def node_of(self, pid):
        """Return the number of the node that a process belongs to."""
        place = ClusterFolder.of(self.cluster.folder)
        return next(n.number for n in self.cluster.nodes() if is_marked(pid, mark_of(place.cluster, n.number)))

    def strike(self, title):
        """Kill one process with this title, once there is one; return it."""
        found = []
        assert wait_until(lambda: bool(found.extend(self.processes(title)) or found), LATE_S)
        os.kill(found[0], signal.SIGKILL)
        return found[0]

    def other_nodes(self):
        """Return the numbers of nodes that can be lost: neither the head nor that of the supervisor."""
        held = {0, *(self.node_of(pid) for pid in self.processes(SUPERVISOR))}
        return [node.number for node in self.cluster.nodes() if node.number not in held]


def title_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except OSError:
        return ""
