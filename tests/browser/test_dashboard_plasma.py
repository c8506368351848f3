"""The live page on campaigns of a plasma: its own words in every panel, its own controls, and none of a lattice's."""

import csv
import io

import msgspec
import pytest

from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, Running, preset
from reference.commanded_campaigns import running
from reference.dashboard_pages import QUOTED, campaign, served
from reference.small_campaigns import FREEZES, PARTICLES

pytestmark = pytest.mark.browser

LONG = msgspec.structs.replace(
    PARTICLES, name="long", budget=Budget(trajectories=1_000_000), running=Running(block=4, producers=2)
)
HEADINGS = "[...document.querySelectorAll('section:not([hidden]) h2')].map(one => one.innerText)"


@pytest.fixture(scope="module")
def plasmas(tmp_path_factory):
    """A map, another one, a freezing, and a lattice."""
    folder = tmp_path_factory.mktemp("plasmas")
    for name, spec in {"map": preset("plasma-tiny"), "other": PARTICLES, "freezing": FREEZES}.items():
        with Campaign.open(spec, folder / name) as one:
            one.run()
    with served(folder / "map", folder / "other", folder / "freezing", campaign(folder / "lattice")) as page:
        yield page


@pytest.fixture
def tab_at(plasmas, open_tab):
    def opening(number):
        tab = open_tab(f"{plasmas.opened.link}#campaign={number}")
        tab.page.click(f"#campaign-rows tr:nth-child({number + 1}) button")
        tab.waits_for("as of record", "#transition-at")
        return tab

    return opening


def test_a_map_is_spoken_of_as_transport_along_gamma(tab_at):
    tab = tab_at(0)
    tab.page.wait_for_selector("#memory-plot svg")
    headings = tab.page.evaluate(HEADINGS)
    assert [text.partition(" as of")[0] for text in headings] == [
        "Campaigns", "Result", "Transport", "Trajectories", "Pipeline", "Silicon", "Decisions", "Controls",
    ]  # fmt: skip
    assert "D* to" in tab.text("#campaign-rows")
    assert "eta* to" in tab.text("#headline .big")
    assert "segments" in tab.text("#budgets")
    titles = [tab.text(f"#{name}-plot h3") for name in ("order", "chi", "second", "first")]
    assert [title.partition(",")[0] for title in titles] == [
        "D* against ln \u0393", "\u03b7* against ln \u0393", "history of D_N*", "history of \u0393",
    ]  # fmt: skip
    assert tab.page.locator("#order-plot path.dotted").count() >= 1  # what is published
    assert tab.page.locator("#chi-plot svg svg .point").count() >= 4
    assert tab.page.locator("#plane-plot svg").count() == 0
    tab.page.select_option("#chain", "c0001")
    tab.page.wait_for_function("() => location.hash.includes('chain=c0001')")
    assert "ln \u0393" in tab.text("#chain option:checked")
    tab.page.select_option("#filter-what", "visit")
    heads = tab.page.locator("#decision-rows >> xpath=../thead//th").all_inner_texts()
    assert heads[4:6] == ["trajectory", "ln \u0393"]
    assert "\u03b2" not in tab.page.evaluate("document.body.innerText.split('lattice')[0]").replace(
        tab.text("#campaign-rows"), ""
    )
    assert tab.wrong == []


def test_numbers_of_a_map_are_saved_under_its_own_names(tab_at):
    tab = tab_at(0)
    with tab.page.expect_download() as download:
        tab.page.click("#chi-plot .save >> text=CSV")
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert {"box", "ln_gamma", "eta", "error"} <= rows[0].keys()
    assert {row["what"] for row in rows} == {"chain", "curve"}
    assert tab.wrong == []


def test_a_freezing_has_one_figure_with_the_published_coupling(tab_at):
    tab = tab_at(2)
    tab.waits_for("Freezing", "#h-transition")
    tab.page.wait_for_selector("#order-plot svg svg .point")
    assert tab.text("#order-plot h3").startswith("rate of the crystal")
    assert tab.page.locator("#chi-plot *").count() == 0
    assert "published, Gamma_m = 3837 at kappa 4" in tab.page.locator("#order-plot").text_content()
    assert "freezing not located" in tab.text("#headline .big")
    assert "history of order" in tab.text("#second-plot h3")
    assert tab.wrong == []


def test_a_past_of_a_map_is_gone_back_to(tab_at):
    tab = tab_at(0)
    tab.page.locator("#time").evaluate("slider => { slider.value = 60; slider.dispatchEvent(new Event('input')); }")
    tab.waits_for("as it was at record 60", "#status")
    tab.waits_for("as of record 60", "#transition-at")
    assert tab.wrong == []


def test_maps_are_compared_and_what_has_no_figure_in_common_says_so(tab_at):
    tab = tab_at(0)
    for row in (1, 2):
        tab.page.check(f"#campaign-rows tr:nth-child({row}) input")
    tab.page.wait_for_selector("#compare-chi-plot svg")
    assert tab.text("#compare-order-plot h3").startswith("D* against ln \u0393")
    assert tab.page.locator("#compare-table tbody tr").count() == 2
    assert "D* to" in tab.text("#compare-table")
    tab.page.check("#campaign-rows tr:nth-child(4) input")
    tab.waits_for("no figure in common", "#compare-order-plot")
    assert "against \u03b2" in tab.text("#compare-order-plot")
    assert tab.page.locator("#compare-chi-plot *").count() == 0
    assert f"\u03b2c = {QUOTED[:7]}" in tab.text("#compare-table")
    assert tab.wrong == []


def test_words_and_panels_follow_the_campaign_that_is_chosen(tab_at):
    tab = tab_at(0)
    tab.page.click("#campaign-rows tr:nth-child(4) button")
    tab.waits_for("Transition", "#h-transition")
    tab.page.wait_for_selector("#overlap-plot svg")
    assert tab.page.is_visible("#other-ask")
    assert f"\u03b2c = {QUOTED}" in tab.text("#headline .big")
    tab.page.click("#campaign-rows tr:nth-child(1) button")
    tab.waits_for("Transport", "#h-transition")
    tab.page.wait_for_selector("#other-ask", state="hidden")
    assert tab.wrong == []


def test_a_running_plasma_is_commanded_in_its_own_terms(tmp_path, open_tab):
    with running(tmp_path / "run", LONG, 20) as run, served(run.directory, control=True) as page:
        tab = open_tab(page.opened.link)
        tab.page.wait_for_selector("#control-pause:enabled")
        assert tab.page.locator("form#control-rewire").count() == 0
        steerers = tab.page.locator("#control-steerer-name option").all_inner_texts()
        assert "curve" in steerers
        assert not {"conductor", "bisection"} & set(steerers)
        tab.page.click("#control-pause")
        tab.waits_for("pause: accepted", "#control-said")
        tab.page.fill("#control-coupling-at", "90,200")
        tab.page.check("#control-coupling-widen")
        tab.page.click("form#control-coupling button")
        tab.waits_for("coupling: accepted", "#control-said")
        tab.page.fill("#control-system-system", "8,8,8,4")
        tab.page.click("form#control-system button")
        tab.waits_for("system: refused, a box has a number of particles", "#control-said")
        tab.page.fill("#control-system-system", "128")
        tab.page.click("form#control-system button")
        tab.waits_for("system: accepted", "#control-said")
        plasma = run.campaign.spec.theory
        assert (plasma.particles, plasma.gamma_min) == ((104, 128), 90.0)
        tab.page.click("#control-resume")
        run.until(lambda state: any(visit.by == "user" and visit.system == (128,) for visit in state.visits))
        assert tab.wrong == []
