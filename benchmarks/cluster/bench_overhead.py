"""What a cluster costs a campaign: CPU time per update of 8^3x4 on one node of one core, against threads.

Interleaved pairs. CPU time is that of all processes, Ray's servers and the terminal's among them, between two looks at
the journal while chains run; what starting takes is a row of its own, in seconds of wall time.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.rows import BenchRow, interval_text, processor_s
from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running.campaign import JOURNAL
from metalforge.campaign.spec import Budget, CampaignSpec, Running
from metalforge.campaign.store.reading import JournalFollower
from metalforge.campaign.store.records import Rows
from metalforge.cluster.local import ClusterFolder, LocalCluster
from metalforge.cluster.marked import marked
from metalforge.core import Measured
from metalforge.lattice.campaign import Lattice

PAIRS, WINDOW_S, FIRST = 5, 12.0, 200
"""Pairs, seconds of each half, and the updates before it."""
SPEC = CampaignSpec(
    name="overhead",
    theory=Lattice(volumes=((8, 8, 8, 4),), beta_min=5.6, beta_max=5.8),
    budget=Budget(trajectories=10**7),
    running=Running(producers=1),
)


class Half(msgspec.Struct, frozen=True):
    """One half of a pair: CPU seconds per update, and seconds until there were rows."""

    cpu_s: float
    start_s: float


def measured(folder: Path, cluster: str = "") -> Half:
    """Run a campaign for a while."""
    folder.mkdir()
    (folder / "spec.toml").write_text(spec_text(SPEC))
    out = folder / "run"
    options = ["--cluster", cluster] if cluster else []
    began = time.monotonic()
    driver = subprocess.Popen(
        [sys.executable, "-m", "metalforge", "scan", str(folder / "spec.toml"), "--out", str(out), "--json", *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    follower = JournalFollower(out / JOURNAL)
    updates = 0

    def arrived() -> bool:
        nonlocal updates
        if driver.poll() is not None:
            raise RuntimeError(f"the campaign ended with {driver.returncode}")
        new = sum(len(r.columns["plaquette"]) for r in follower.poll() if isinstance(r, Rows))
        updates += new
        return new > 0

    def processes() -> list[int]:
        place = ClusterFolder.of(out / "cluster") if cluster else None
        return [driver.pid, *(marked(f"{place.cluster}:") if place else ())]

    try:
        _until(arrived)
        start_s = time.monotonic() - began
        _until(lambda: arrived() and updates >= FIRST)
        before, cpu, since = updates, processor_s(processes()), time.monotonic()
        _until(lambda: arrived() and time.monotonic() - since >= WINDOW_S)
        return Half((processor_s(processes()) - cpu) / (updates - before), start_s)
    finally:
        driver.send_signal(signal.SIGTERM)
        driver.wait()
        if (left := LocalCluster.find(out / "cluster")) is not None:
            left.stop()


def _until(met: Callable[[], bool]) -> None:
    while not met():
        time.sleep(0.02)


def rows() -> Iterator[BenchRow]:
    """Yield CPU time and start."""
    with TemporaryDirectory(prefix="mf-overhead-") as folder:
        place = Path(folder)
        pairs = [(measured(place / f"t{n}"), measured(place / f"c{n}", "local:1x1")) for n in range(PAIRS)]
    ratios = [far.cpu_s / near.cpu_s for near, far in pairs]
    said = interval_text(ratios)
    how = f"{PAIRS} interleaved pairs of {WINDOW_S:g} s, all processes; {said}"
    yield BenchRow(
        name=f"CPU per update of 8^3x4 on a cluster of one node ({said})",
        value=Measured(value=1e6 * fmean(far.cpu_s for _, far in pairs), unit="us/update", how=how),
        peer_name="threads",
        peer=Measured(value=1e6 * fmean(near.cpu_s for near, _ in pairs), unit="us/update", how=how),
    )
    yield BenchRow(
        name="start until there are rows, cluster included",
        value=Measured(value=fmean(far.start_s for _, far in pairs), unit="s", how=f"{PAIRS} starts, wall time"),
        peer_name="threads",
        peer=Measured(value=fmean(near.start_s for near, _ in pairs), unit="s", how=f"{PAIRS} starts, wall time"),
    )
