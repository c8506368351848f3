"""A page that is left open: Chromium's heap, nodes and listeners do not grow while a campaign streams in."""

import os
import time
from statistics import median

import pytest

from reference.dashboard_pages import served
from reference.made_journals import MadeJournal

pytestmark = [pytest.mark.browser, pytest.mark.long]

MINUTES = float(os.environ.get("METALFORGE_TEST_PAGE_MINUTES", "30"))
SETTLE, LOOKS = 0.2, 20
"""Part of the time after which the page has everything that it holds, and looks at its heap after that."""
GROWTH = 1.1
"""That the last third of the looks may be above the first: figures of more rows hold a little more."""


class Heap:
    """What a tab holds, by Chromium's own account, after it was told to throw away what nobody holds."""

    def __init__(self, tab):
        self._session = tab.context.new_cdp_session(tab.page)
        self._session.send("HeapProfiler.enable")
        self._session.send("Performance.enable")

    def look(self):
        self._session.send("HeapProfiler.collectGarbage")
        metrics = {one["name"]: one["value"] for one in self._session.send("Performance.getMetrics")["metrics"]}
        return metrics["JSHeapUsedSize"] / 1e6, metrics["Nodes"], metrics["JSEventListeners"]


def test_a_page_left_open_does_not_grow(tmp_path, open_tab):
    with MadeJournal(tmp_path / "run", chains=200) as journal:
        journal.fill(20)
        with served(tmp_path / "run") as page:
            tab = open_tab(page.opened.link)
            tab.page.wait_for_selector("#chi-plot svg", timeout=600_000)  # of 200 chains: the last figure to come
            heap, looks = Heap(tab), []
            begin, seconds = time.monotonic(), 60 * MINUTES
            while (gone := time.monotonic() - begin) < seconds:
                journal.more(8)
                tab.page.wait_for_timeout(500)
                if gone >= seconds * (SETTLE + (1 - SETTLE) * len(looks) / LOOKS):
                    looks.append(heap.look())
            tab.waits_for(f"of {journal.count},", "#time-text")
    print(f"heap [MB], nodes, listeners over {MINUTES:g} minutes: {looks}")
    assert len(looks) >= LOOKS - 1
    third = len(looks) // 3
    for what in zip(*looks, strict=True):  # medians: what was just replaced may still be held at one look
        assert median(what[-third:]) <= GROWTH * median(what[:third]), what
    assert tab.wrong == []
