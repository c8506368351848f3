"""Panels of the live page in a real Chromium: what each shows, what can be saved, and what is modelled is marked."""

import csv
import io
import xml.etree.ElementTree as ElementTree

import msgspec
import pytest

from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget
from reference.dashboard_pages import LINES, RECORDS, campaign, served
from reference.made_journals import make_journal
from reference.small_campaigns import ROUNDS

pytestmark = pytest.mark.browser

REAL = msgspec.structs.replace(
    ROUNDS,
    name="real",
    budget=Budget(trajectories=2000),
    steering=msgspec.structs.replace(ROUNDS.steering, initial=2, most=4),
    screening=msgspec.structs.replace(ROUNDS.screening, device="npu"),
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A made journal with samples, a real campaign with the emulated NPU, and two short ones."""
    made, real, one, other = (tmp_path_factory.mktemp(name) for name in ("made", "real", "one", "other"))
    make_journal(made, 1.5, chains=12)
    with Campaign.open(REAL, real / "run") as running:
        running.run()
    with served(made, real / "run", campaign(one), campaign(other, LINES[:100])) as page:
        yield page


@pytest.fixture
def tab_on(shown, open_tab):
    def opening(number, **options):
        tab = open_tab(shown.opened.link, **options)
        tab.page.click(f"#campaign-rows tr:nth-child({number + 1}) button")
        tab.page.wait_for_function("n => location.hash.includes(`campaign=${n}`)", arg=number)
        return tab

    return opening


def saved(tab, figure, kind):
    with tab.page.expect_download() as download:
        tab.page.click(f"{figure} .save >> text={kind}")
    return download.value.path().read_text()


def test_the_pipeline_has_rates_queues_and_its_bottleneck(tab_on):
    tab = tab_on(0)
    tab.page.wait_for_selector("#pipeline-plot .stage")
    assert tab.page.locator("#pipeline-plot .stage").count() == 4
    assert tab.page.locator("#pipeline-plot path.edge").count() == 4
    assert tab.page.locator("#pipeline-plot .slowest").count() == 1
    assert "produce is the bottleneck" in tab.text("#bottleneck")
    words = tab.page.locator("#pipeline-plot").text_content()
    assert "items/s" in words
    assert "queue 2" in words
    assert "busy 95 %" in words
    assert tab.wrong == []


def test_silicon_has_its_bars_and_energies_are_apart_by_source(tab_on):
    tab = tab_on(0)
    tab.page.wait_for_selector("#silicon-plot .bar")
    assert tab.page.locator("#silicon-plot .bar[fill^='url']").count() == 0
    names = tab.page.locator("#silicon-plot").text_content()
    assert all(f"cpu:{lane}" in names for lane in range(8))
    assert "host, measured" in tab.page.locator("#energy-plot").text_content()
    tab.page.click("#span-minute")
    tab.page.wait_for_selector("#span-minute[aria-pressed=true]")
    assert "span=minute" in tab.page.url
    tab.page.click("#campaign-rows tr:nth-child(2) button")
    tab.page.wait_for_selector("#silicon-plot .bar[fill^='url']")
    assert "emulated" in tab.page.locator("#silicon-plot").text_content()
    assert "npu-emulated, modelled" in tab.page.locator("#energy-plot").text_content()
    assert tab.wrong == []


def test_a_chain_has_its_histories_plane_and_memory(tab_on):
    tab = tab_on(1)
    for figure in ("second", "first", "histogram", "plane", "memory"):
        tab.page.wait_for_selector(f"#{figure}-plot svg")
    assert "Im L" in tab.page.locator("#plane-plot").text_content()
    assert tab.wrong == []


def test_a_peak_rests_on_overlaps_and_effective_samples(tab_on):
    tab = tab_on(2)
    tab.page.wait_for_selector("#overlap-plot svg")
    assert tab.page.locator("#overlap-plot svg svg line.thick").count() == 4
    assert tab.page.locator("#samples-plot svg svg .hollow").count() == 5
    assert tab.wrong == []


def test_figures_are_saved_as_svg_and_their_numbers_as_csv(tab_on):
    tab = tab_on(2)
    tab.waits_for("as of record", "#transition-at")
    picture = ElementTree.fromstring(saved(tab, "#chi-plot", "SVG"))
    assert picture.tag.endswith("svg")
    assert not [e for e in picture.iter() if "class" in e.attrib]
    rows = list(csv.DictReader(io.StringIO(saved(tab, "#chi-plot", "CSV"))))
    assert len([row for row in rows if row["what"] == "chain"]) == 5
    assert [float(row["beta"]) for row in rows if row["what"] == "located"] == [pytest.approx(5.0848, abs=1e-3)]
    buttons = tab.page.locator("section .plot >> visible=true").count()
    assert tab.page.locator(".save >> text=CSV").count() == tab.page.locator(".save >> text=SVG").count() == buttons
    tab.page.click("#chi-plot summary")
    tab.page.wait_for_selector("#chi-plot tbody tr")
    tab.page.wait_for_selector("#chi-plot tbody tr")
    assert tab.page.locator("#chi-plot tbody tr").count() == min(len(rows), 200)
    assert tab.wrong == []


def test_campaigns_are_compared_and_the_address_leads_there(tab_on):
    tab = tab_on(2)
    assert tab.page.locator("#compare").is_hidden()
    for name in (3, 4):
        tab.page.check(f"#campaign-rows tr:nth-child({name}) input")
    tab.page.wait_for_selector("#compare-chi-plot svg")
    assert "compare=2%2C3" in tab.page.url
    assert tab.page.locator("#compare-table tbody tr").count() == 2
    assert tab.page.locator("#compare-chi-plot path.dashed").count() >= 1
    again = tab.context.new_page()
    again.goto(tab.page.url)
    again.wait_for_selector("#compare-chi-plot svg")
    tab.page.uncheck("#campaign-rows tr:nth-child(4) input")
    tab.page.wait_for_selector("#compare", state="hidden")
    assert tab.wrong == []


def test_another_steerer_is_worked_out_from_the_record_that_is_looked_at(tab_on):
    tab = tab_on(2)
    tab.waits_for(f"{RECORDS} of {RECORDS}", "#time-text")
    tab.page.locator("#time").evaluate("slider => { slider.value = 101; slider.dispatchEvent(new Event('input')); }")
    tab.waits_for("from record 101 on", "#other-from")
    tab.page.select_option("#other-steerer", "gaps")
    tab.page.click("#other-ask")
    tab.page.wait_for_selector("#other-rows tr")
    assert tab.text("#other-said").startswith("gaps from record 101 on: 0 of 9 visits are where they were")
    assert "modelled" in tab.text("#other-said")
    assert "modelled" in tab.text("#other-worth thead").lower()
    assert tab.page.locator("#other-plot svg svg path.f0").count() == 9
    hollow = tab.page.locator("#other-plot svg svg .hollow").count()
    assert 0 < hollow < 9
    rows = list(csv.DictReader(io.StringIO(saved(tab, "#other-plot", "CSV"))))
    planned = [row for row in rows if row["β with gaps"]]
    assert [row["rests on measurements alone"] for row in planned].count("no") == hollow
    tab.page.click("#campaign-rows tr:nth-child(2) button")
    tab.page.wait_for_function("() => location.hash.includes('campaign=1')")
    assert tab.text("#other-said") == ""
    tab.page.click("#other-ask")
    tab.waits_for("visits are where they were", "#other-said")
    assert tab.wrong == []


def test_records_are_walked_by_arrow_keys(tab_on):
    tab = tab_on(2)
    tab.waits_for(f"{RECORDS} of {RECORDS}", "#time-text")
    tab.page.focus("#time")
    tab.page.keyboard.press("ArrowLeft")
    tab.waits_for(f"as it was at record {RECORDS - 1}", "#status")
    tab.page.keyboard.press("Home")
    tab.waits_for("as it was at record 1", "#status")
    tab.page.focus("#play")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_function("() => Number(document.getElementById('time').value) > 5")
    tab.page.focus("#now")
    tab.page.keyboard.press("Enter")
    tab.waits_for("finished", "#status")
    assert tab.wrong == []
