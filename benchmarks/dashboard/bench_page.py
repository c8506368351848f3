"""The live page under load, and what it costs the campaign that it looks at.

Twenty event streams and one Chromium look at a journal of 200 chains and 100 MB that goes on growing: how long until
the page can be used, how long from a record to the screen, what memory the server takes and what its helpers take, and
their CPU time. Then a campaign on 8^3x4 runs with and without a page on it, in interleaved pairs: its own CPU time per
update.

Goals are the ceilings of the rows: 1.5 s, 1 s, 300 MB, and CPU time that is the same within 2 %. Needs the group
`browser` and a Chromium (tools/chromium --install).
"""

import http.client
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from tempfile import NamedTemporaryFile, TemporaryDirectory
from urllib.parse import urlsplit

from benchmarks.rows import BenchRow, interval_text, load_benchmark, processor_s
from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running.campaign import JOURNAL
from metalforge.campaign.spec import Budget, CampaignSpec, Running
from metalforge.campaign.store.reading import JournalFollower
from metalforge.campaign.store.records import Rows
from metalforge.core import Measured
from metalforge.core.errors import SpecError
from metalforge.lattice.campaign import Lattice

MadeJournal = load_benchmark(Path(__file__).parents[2] / "tests" / "reference" / "made_journals.py").MadeJournal

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
STREAMS, CHAINS, MEGABYTES = 20, 200, 100.0
EVENTS, EVENT_S, RECORDS = 20, 1.0, 4
"""Additions to the journal whose way to the screen is measured, seconds between them, and records of each."""
PAIRS, UPDATES = 10, 200
"""Pairs of campaigns with and without a page, and updates of each half."""
PATIENCE_MS = 120_000
USABLE = "() => document.querySelector('#second-plot svg') && document.querySelector('#headline .big')"
WATCH = """() => {
  window.seenAt = new Map();
  new MutationObserver(() => {
    const records = document.getElementById("time-text").textContent.split(" ")[0];
    if (!window.seenAt.has(records)) window.seenAt.set(records, Date.now());
  }).observe(document.getElementById("time-text"), {childList: true, characterData: true, subtree: true});
}"""
SPEC = CampaignSpec(
    name="looked-at",
    theory=Lattice(volumes=((8, 8, 8, 4),), beta_min=5.6, beta_max=5.8),
    budget=Budget(trajectories=10**7),
    running=Running(producers=1),
)


class PageProcess:
    """`metalforge dashboard` in a process of its own, and clients of it."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-m", "metalforge", "dashboard", str(directory), "--no-browser"]
        with NamedTemporaryFile("r", prefix="mf-page-", suffix=".said") as said_to:
            # A file, since a pipe that nobody reads on would hold it up.
            with Path(said_to.name).open("ab") as told:
                self.process = subprocess.Popen(command, stderr=told)
            while not (said := Path(said_to.name).read_text()).endswith("\n"):
                if self.process.poll() is not None:
                    raise SpecError(f"the page did not begin: {said}")
                time.sleep(0.02)
        self.link = said.partition("\n")[0].partition(": ")[2].strip()
        address = urlsplit(self.link)
        self._port, self._token = address.port, address.query
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("GET", f"/?{self._token}")
        self._cookie = connection.getresponse().headers["set-cookie"].partition(";")[0]
        connection.close()

    def stream(self) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Open an event stream; the connection belongs to whoever asked."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        connection.request("GET", "/events", headers={"Cookie": self._cookie})
        return connection, connection.getresponse()

    @contextmanager
    def watched(self, clients: int) -> Iterator[None]:
        """Have so many clients that read everything they are sent."""
        streams = [self.stream() for _ in range(clients)]
        threads = [threading.Thread(target=_read, args=(answer,), daemon=True) for _, answer in streams]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for connection, _ in streams:
                if connection.sock is not None:
                    connection.sock.close()

    def processes(self) -> list[int]:
        """Return the server and its helpers."""
        found, looked = [self.process.pid], 0
        while looked < len(found):
            children = Path(f"/proc/{found[looked]}/task").glob("*/children")
            found += [int(pid) for path in children for pid in path.read_text().split()]
            looked += 1
        return found

    def megabytes(self) -> tuple[float, float]:
        """Return the memory of the server, and that of its helpers together; pages that they share are divided."""
        server, *helpers = map(_proportional, self.processes())
        return server, sum(helpers)

    @contextmanager
    def weighed(self) -> Iterator[list[tuple[float, float]]]:
        """Give a list of what server and helpers hold, which grows every second of the block."""
        held, over = [self.megabytes()], threading.Event()

        def weighing() -> None:
            while not over.wait(1.0):
                held.append(self.megabytes())

        thread = threading.Thread(target=weighing)
        thread.start()
        try:
            yield held
        finally:
            over.set()
            thread.join()

    def close(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def _proportional(pid: int) -> float:
    """Return the proportional set size of a process in MB; nothing of one that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0) / 1000


def _read(answer: http.client.HTTPResponse) -> None:
    try:
        while answer.read1(1 << 16):
            pass
    except (OSError, ValueError, http.client.HTTPException, AttributeError):
        return  # closed by whoever opened it


class UnderLoad:
    """What was measured under load."""

    def __init__(self, folder: Path, chromium: str, megabytes: float = MEGABYTES, events: int = EVENTS) -> None:
        from playwright.sync_api import sync_playwright

        with MadeJournal(folder / "made", chains=CHAINS) as journal:
            journal.fill(megabytes)
            began = time.monotonic()
            page = PageProcess(folder / "made")
            try:
                with page.watched(STREAMS), page.weighed() as held, sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=chromium)
                    first = browser.new_page()
                    first.set_default_timeout(PATIENCE_MS)
                    first.goto(page.link)
                    first.wait_for_function(f"() => document.title.length && {_shows(journal.count)}")
                    self.first_s = time.monotonic() - began
                    self.usable_s = []
                    for _ in range(5):
                        at = time.monotonic()
                        first.reload()
                        first.wait_for_function(USABLE)
                        self.usable_s.append(time.monotonic() - at)
                    first.evaluate(WATCH)
                    before, since = processor_s(page.processes()), time.monotonic()
                    wrote: dict[int, float] = {}
                    for _ in range(events):
                        journal.more(RECORDS)
                        wrote[journal.count] = time.time()
                        time.sleep(EVENT_S)
                    first.wait_for_function(f"() => {_shows(journal.count)}")
                    self.window_s = time.monotonic() - since
                    self.cpu_s = processor_s(page.processes()) - before
                    seen = {int(name): at / 1000 for name, at in first.evaluate("[...window.seenAt]")}
                    # What was written while a message was on its way is in the next one, which shows a later number.
                    later = [min(at for n, at in seen.items() if n >= count) - at for count, at in wrote.items()]
                    self.screen_s = sorted(later)
                    browser.close()
            finally:
                page.close()
        self.server_mb, self.helpers_mb = (sorted(one) for one in zip(*held, strict=True))


def _shows(records: int) -> str:
    return f"document.getElementById('time-text').textContent.startsWith('{records} of')"


class LookedAt:
    """A campaign that runs, and its CPU seconds per update over so many updates."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "spec.toml").write_text(spec_text(SPEC))
        self.directory = folder / "run"
        command = [sys.executable, "-m", "metalforge", "scan", str(folder / "spec.toml"), "--json"]
        self._process = subprocess.Popen(
            [*command, "--out", str(self.directory)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._follower = JournalFollower(self.directory / JOURNAL)
        self._updates = 0
        self._until(lambda: self._updates >= UPDATES)  # beyond the first warm-up

    def _until(self, met: Callable[[], bool]) -> None:
        while not met():
            if self._process.poll() is not None:
                raise RuntimeError(f"the campaign ended with {self._process.returncode}")
            time.sleep(0.02)
            self._updates += sum(len(r.columns["plaquette"]) for r in self._follower.poll() if isinstance(r, Rows))

    def per_update_s(self) -> float:
        """Return the campaign's CPU seconds per update from now on, from one block's rows to another's."""
        first = self._updates
        self._until(lambda: self._updates > first)
        before, cpu = self._updates, processor_s([self._process.pid])
        self._until(lambda: self._updates >= before + UPDATES)
        return (processor_s([self._process.pid]) - cpu) / (self._updates - before)

    def close(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


def costs_of_looking(folder: Path, pairs: int = PAIRS) -> list[tuple[float, float]]:
    """Return CPU seconds per update without a page and with one that is looked at, in pairs."""
    campaign, found = LookedAt(folder), []
    try:
        for number in range(pairs):

            def with_page() -> float:
                page = PageProcess(campaign.directory)
                try:
                    with page.watched(1):
                        return campaign.per_update_s()
                finally:
                    page.close()

            # Either comes first in turn: what drifts meanwhile is in both.
            if number % 2:
                looked = with_page()
                found.append((campaign.per_update_s(), looked))
            else:
                found.append((campaign.per_update_s(), with_page()))
        return found
    finally:
        campaign.close()


def rows() -> Iterator[BenchRow]:
    """Yield what is measured beside what is wanted."""
    chromium = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if chromium is None:
        raise SpecError("no Chromium is here\nhint: tools/chromium --install")
    with TemporaryDirectory(prefix="mf-page-") as folder:
        load = UnderLoad(Path(folder), chromium)
        pairs = costs_of_looking(Path(folder) / "campaign")
    goal = "goal"

    def row(name: str, value: float, unit: str, how: str, most: float) -> BenchRow:
        wanted = Measured(value=most, unit=unit, how=goal)
        return BenchRow(name=name, value=Measured(value=value, unit=unit, how=how), ceiling_name=goal, ceiling=wanted)

    wall = f"wall time, {STREAMS} streams and one Chromium on {CHAINS} chains and {MEGABYTES:g} MB"
    yield row(f"page usable, median of {len(load.usable_s)} loads", median(load.usable_s), "s", wall, 1.5)
    late = f"a record on screen, median of {EVENTS} (slowest {load.screen_s[-1]:.2f} s)"
    yield row(late, median(load.screen_s), "s", wall, 1.0)
    how = "proportional set size, /proc, every second"
    yield row("memory of the server, the most", load.server_mb[-1], "MB", how, 300.0)
    usual, most = median(load.helpers_mb), load.helpers_mb[-1]
    yield BenchRow(
        name=f"memory of its helpers, which compute curves and the past, the most (median {usual:.0f} MB)",
        value=Measured(value=most, unit="MB", how=how),
    )
    yield row(
        f"CPU of server and helpers in {load.window_s:.0f} s with a record each second",
        load.cpu_s, "s", "/proc, user and system", load.window_s,
    )  # fmt: skip
    yield row("a journal of 100 MB read, from the command to the screen", load.first_s, "s", wall, 60.0)
    ratios = [looked / alone for alone, looked in pairs]
    how = f"{PAIRS} interleaved pairs of {UPDATES} updates of 8^3x4, the campaign's process; {interval_text(ratios)}"
    yield BenchRow(
        name=f"the campaign's CPU per update with a page on it ({interval_text(ratios)})",
        value=Measured(value=1e3 * fmean(looked for _, looked in pairs), unit="ms/update", how=how),
        peer_name="without",
        peer=Measured(value=1e3 * fmean(alone for alone, _ in pairs), unit="ms/update", how=how),
    )
