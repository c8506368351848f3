"""The Chromium of the system, and tabs of it."""

import shutil

import pytest

from reference.browser_tabs import Tab

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    path = next(found for name in NAMES if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path)
        yield chromium
        chromium.close()


@pytest.fixture
def open_tab(browser):
    tabs = []

    def opening(link, **options):
        tabs.append(Tab(browser, link, **options))
        return tabs[-1]

    yield opening
    for tab in tabs:
        tab.close()
