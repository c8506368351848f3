"""Pictures of the live page and of the report: python tools/screenshots.py OUT [CAMPAIGN ...].

Without campaigns two small ones are run first, half a minute on two cores. Each picture is a whole page in the system's
Chromium: by day and by night, on a telephone (400 px), on a wall (3840 px), a moment of the past with what another
steerer would have done where that can be said, and two campaigns beside each other where there are two. Needs the group
`browser` and a Chromium (tools/chromium --install).
"""

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from playwright.sync_api import Browser, sync_playwright

from metalforge import campaign
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, preset
from metalforge.dashboard.opening import OpenPage, open_page
from metalforge.lattice.campaign.theory import lattice_of

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 15.0
WAIT_MS = 120_000
SETTLE_MS = 600
"""After which figures have the width of the page again."""
PICTURES = {
    "page-light": (1280, "light", ""),
    "page-dark": (1280, "dark", ""),
    "page-telephone": (400, "light", ""),
    "page-telephone-dark": (400, "dark", ""),
    "page-wall": (3840, "light", ""),
    "page-past": (1280, "light", "past"),
    "page-compared": (1280, "dark", "compare"),
}
"""By name: width, scheme, and what is looked at."""


def made_campaigns(folder: Path) -> list[Path]:
    """Run two campaigns for a few seconds each, one of them with two volumes and the screen on the emulated NPU."""
    small = preset("tiny")
    lattice = msgspec.structs.replace(lattice_of(small), volumes=((4, 4, 4, 2), (6, 6, 6, 2)))
    running = msgspec.structs.replace(small.running, deterministic=False)
    streaming = msgspec.structs.replace(
        small, name="two-volumes", theory=lattice, running=running, budget=Budget(seconds=SECONDS)
    )
    made = []
    for spec in (streaming, small):
        made.append(folder / spec.name)
        with Campaign.open(spec, made[-1]) as one:
            one.run()
    return made


@contextmanager
def served(directories: list[Path]) -> Iterator[OpenPage]:
    """Serve the page from a thread."""
    opened = open_page(directories)
    thread = threading.Thread(target=opened.run)
    thread.start()
    try:
        yield opened
    finally:
        opened.should_exit = True
        thread.join()
        opened.listening.close()


def page_picture(browser: Browser, link: str, name: str, out: Path) -> None:
    """Save one picture of the page."""
    width, scheme, what = PICTURES[name]
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(link)
    page.wait_for_selector("#pipeline-plot svg, #pipeline-plot p")
    page.wait_for_selector("#order-plot svg")
    if what == "past":
        half = page.locator("#time").evaluate(
            "slider => { slider.value = slider.max / 2; slider.dispatchEvent(new Event('input')); return slider.value }"
        )
        page.wait_for_function(
            "at => document.getElementById('transition-at').textContent.endsWith(`record ${at}`)", arg=half
        )
        if page.is_visible("#other-ask"):
            page.click("#other-ask")
            page.wait_for_function("() => !document.getElementById('other-ask').disabled")
    if what == "compare":
        for box in page.locator("#campaign-rows input").all()[:2]:
            box.check()
        page.wait_for_selector("#compare-order-plot svg, #compare-order-plot p")
    # The bar at the foot stands at the foot of the picture.
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=out / f"{name}.png", full_page=True)
    context.close()


def report_picture(browser: Browser, report: Path, scheme: str, out: Path) -> None:
    """Save one picture of the report."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    page.screenshot(path=out / f"report-{scheme}.png", full_page=True)
    context.close()


def main(out: Path, directories: list[Path]) -> None:
    """Make every picture."""
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        sys.exit("no Chromium is here: tools/chromium --install")
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="mf-pictures-") as folder, sync_playwright() as playwright:
        shown = directories or made_campaigns(Path(folder))
        browser = playwright.chromium.launch(executable_path=path)
        with served(shown) as opened:
            for name, (_, _, what) in PICTURES.items():
                if what != "compare" or len(shown) > 1:
                    page_picture(browser, opened.link, name, out)
        report = campaign.load(shown[0]).report()
        for scheme in ("light", "dark"):
            report_picture(browser, report, scheme, out)
        browser.close()
    for picture in sorted(out.glob("*.png")):
        print(picture)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
