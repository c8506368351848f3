"""The live page in a real Chromium: that it follows, goes back in time, fits, and asks nobody but its own server."""

import pytest

from reference.dashboard_pages import HOSTILE, LINES, QUOTED, RECORDS, campaign, hostile_lines, records_in, served

pytestmark = pytest.mark.browser

PART = LINES[:90]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    one, other = (tmp_path_factory.mktemp(name) for name in ("one", "other"))
    with served(campaign(one), campaign(other, PART)) as page:
        yield page


def test_a_campaign_streams_in_while_it_runs(tmp_path, open_tab):
    there = campaign(tmp_path / "run", LINES[:40])
    with served(there) as page:
        tab = open_tab(page.opened.link)
        for end in (40, 80, len(LINES)):
            campaign(there, LINES[:end])
            records = records_in(LINES[:end])
            tab.waits_for(f"{records} of {records}", "#time-text")
        tab.waits_for("finished", "#status")
        tab.waits_for(QUOTED, "#headline")
        tab.waits_for(f"as of record {RECORDS}", "#transition-at")
        assert tab.page.locator("#chi-plot svg svg .point").count() == 5
        assert tab.page.locator("#chi-plot path.band").count() >= 1
        assert tab.page.locator("#second-plot svg svg path.s1").count() == 1
        assert "token" not in tab.page.url
        assert tab.wrong == []
        assert {url.split("/")[2] for url in tab.asked} == {f"127.0.0.1:{page.port}"}


def test_every_panel_goes_back_to_a_record_and_the_address_leads_there(finished, open_tab):
    tab = open_tab(finished.opened.link)
    tab.waits_for(f"{RECORDS} of {RECORDS}", "#time-text")
    now = tab.text("#decision-count")
    tab.page.focus("#time")
    tab.page.locator("#time").evaluate("slider => { slider.value = 60; slider.dispatchEvent(new Event('input')); }")
    tab.waits_for("as it was at record 60", "#status")
    tab.waits_for("as of record 60", "#transition-at")
    assert f"60 of {RECORDS}" in tab.text("#time-text")
    assert tab.text("#decision-count") != now
    assert "at=60" in tab.page.url
    before = tab.text("#headline")
    again = tab.context.new_page()
    again.goto(tab.page.url)
    again.wait_for_function("() => document.getElementById('status').textContent.includes('record 60')")
    assert again.inner_text("#headline") == before
    tab.page.click("#now")
    tab.waits_for("finished", "#status")
    assert "at=" not in tab.page.url
    tab.page.click("#decision-rows tr:last-child button")
    tab.waits_for("as it was at record", "#status")
    assert tab.wrong == []


def test_campaigns_chains_and_filters_are_chosen_by_keyboard(finished, open_tab):
    tab = open_tab(finished.opened.link)
    tab.waits_for(f"{RECORDS} of {RECORDS}", "#time-text")
    tab.page.select_option("#chain", "c0002")
    tab.page.wait_for_function("() => location.hash.includes('chain=c0002')")
    tab.page.select_option("#filter-what", "visit")
    kinds = tab.page.locator("#decision-rows tr td:nth-child(3)").all_inner_texts()
    assert set(kinds) == {"visit"}
    tab.page.focus("#campaign-rows tr:nth-child(2) button")
    tab.page.keyboard.press("Enter")
    part = records_in(PART)
    tab.waits_for(f"{part} of {part}", "#time-text")
    assert "campaign=1" in tab.page.url
    assert tab.wrong == []


@pytest.mark.parametrize("width", [400, 3840])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_telephones_and_walls_by_day_and_night(finished, open_tab, width, scheme):
    tab = open_tab(finished.opened.link, viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab.waits_for(f"as of record {RECORDS}", "#transition-at")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    ground = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 26)")
    assert tab.wrong == []


def test_markup_in_a_journal_is_text_on_the_page(tmp_path, open_tab):
    with served(campaign(tmp_path / "<b>run", hostile_lines())) as page:
        tab = open_tab(page.opened.link)
        tab.waits_for(HOSTILE, "#decision-rows")
        assert tab.page.locator("img").count() == 0
        assert tab.page.locator("body script").count() == 0
        assert tab.wrong == []


def test_damage_is_a_line_on_the_page_which_goes_on_when_it_is_mended(tmp_path, open_tab):
    data = b"".join(LINES)
    there = campaign(tmp_path / "run", [data[:20_000] + b"X" + data[20_001:]])
    with served(there) as page:
        tab = open_tab(page.opened.link)
        tab.waits_for("damaged", "#problem")
        campaign(there)
        tab.waits_for(f"{RECORDS} of {RECORDS}", "#time-text")
        tab.waits_for("finished", "#status")
        assert tab.page.locator("#problem").is_hidden()
        assert tab.wrong == []
