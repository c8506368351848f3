"""The controls of the live page, in a real Chromium, on a campaign that runs: each of them, and who may use them."""

import pytest

from reference.commanded_campaigns import running
from reference.dashboard_pages import campaign, served

pytestmark = pytest.mark.browser


@pytest.fixture
def page(tmp_path):
    with running(tmp_path / "<b>run") as run, served(run.directory, campaign(tmp_path / "over"), control=True) as found:
        found.run = run
        yield found


def enabled(tab):
    return [what for what in ("pause", "resume", "stop") if tab.page.is_enabled(f"#control-{what}")]


def filled(tab, what, **fields):
    """Fill in a form, by its labels' fields, and submit it by keyboard."""
    for name, text in fields.items():
        where = f"#control-{what}-{name}"
        if tab.page.locator(where).evaluate("field => field.tagName") == "SELECT":
            tab.page.select_option(where, text)
        else:
            tab.page.fill(where, text)
    tab.page.focus(f"form#control-{what} button")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_function("() => !document.getElementById('control-said').textContent.includes('asked')")
    return tab.text("#control-said")


def test_every_control_reaches_the_campaign_and_its_word_is_shown(page, open_tab):
    run, tab = page.run, open_tab(page.opened.link)
    tab.page.wait_for_selector("#control-pause:enabled")
    assert enabled(tab) == ["pause", "stop"]
    tab.page.click("#control-pause")
    tab.waits_for("pause: accepted", "#control-said")
    tab.waits_for("paused", "#status")
    tab.page.wait_for_selector("#control-resume:enabled")
    assert enabled(tab) == ["resume", "stop"]
    assert "accepted" in filled(tab, "extend", trajectories="600", target_error="0.001")
    assert run.campaign.spec.budget.target_error == 0.001
    assert "accepted" in filled(tab, "steerer", name="uniform")
    assert "accepted" in filled(tab, "system", system="8,8,8,2")
    assert "refused" in filled(tab, "coupling", at="5.05,5.4")
    tab.page.check("#control-coupling-widen")
    assert "accepted" in filled(tab, "coupling", at="5.05,5.4")
    assert "accepted" in filled(tab, "remove", at="5.4")
    assert "accepted" in filled(tab, "rewire", screen="beside")
    spec = run.campaign.spec
    assert (spec.steering.steerer, spec.steering.points) == ("uniform", (5.05,))
    assert spec.theory.volumes == ((4, 4, 4, 2), (8, 8, 8, 2))
    assert "refused, an added system" in filled(tab, "system", system="8,8,8,2")
    assert "fill in" in filled(tab, "extend", trajectories="", target_error="")
    tab.page.click("#control-resume")
    tab.waits_for("running", "#status")
    run.until(lambda state: any(d.what == "rewired" and d.by.endswith("(page)") for d in state.decisions))
    tab.page.click("#control-stop")
    tab.page.click("#control-sure >> text=let it run")
    assert run.thread.is_alive()
    tab.page.click("#control-stop")
    tab.page.click("#control-sure >> text=stop it")
    tab.waits_for("stop: accepted", "#control-said")
    tab.waits_for("interrupted: stopped by", "#status")
    tab.waits_for("takes no commands", "#control-why")
    assert enabled(tab) == []
    tab.page.select_option("#filter-what", "command")
    tab.waits_for("stop", "#decision-rows")
    said = tab.page.locator("#decision-rows tr td:last-child").all_inner_texts()
    assert [line.split(",")[0].split()[0] for line in said] == [
        "stop", "resume", "system", "rewire", "remove", "coupling", "coupling", "system", "steerer", "extend", "pause",
    ]  # fmt: skip
    assert all("(page)" in by for by in tab.page.locator("#decision-rows tr td:nth-child(4)").all_inner_texts())
    assert tab.wrong == []


def test_an_answer_that_comes_late_does_not_undo_a_later_one(page, open_tab):
    tab, late = open_tab(page.opened.link), []
    tab.page.wait_for_selector("#control-pause:enabled")

    def hold_the_first(route):
        if late:
            route.continue_()
        else:
            late.append((route, route.fetch()))

    tab.page.route("**/decisions?*", hold_the_first)
    tab.page.click("#control-pause")
    tab.waits_for("paused", "#status")
    assert "accepted" in filled(tab, "steerer", name="uniform")
    tab.waits_for("steerer", "#decision-rows")
    [(route, answer)] = late
    assert "steerer uniform" not in answer.text()
    with tab.page.expect_event("requestfinished", lambda request: "decisions?" in request.url):
        route.fulfill(response=answer)
    tab.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert "steerer" in tab.text("#decision-rows")


def test_what_cannot_be_commanded_says_why(page, open_tab):
    tab = open_tab(page.opened.link + "#campaign=1")
    tab.page.click("#campaign-rows tr:nth-child(2) button")
    tab.waits_for("the campaign is finished", "#control-why")
    assert enabled(tab) == []
    assert tab.page.locator("#control-forms fieldset:enabled").count() == 0
    tab.page.click("#campaign-rows tr:nth-child(1) button")
    tab.page.wait_for_selector("#control-pause:enabled")
    tab.page.locator("#time").evaluate("slider => { slider.value = 5; slider.dispatchEvent(new Event('input')); }")
    tab.waits_for("this is the past", "#control-why")
    assert enabled(tab) == []
    assert tab.page.evaluate(
        "[...document.querySelectorAll('#control-forms input, #control-forms select')].every(one => one.labels.length)"
    )
    assert tab.wrong == []
    with served(page.run.directory) as reading:
        only = open_tab(reading.opened.link)
        only.waits_for("--control", "#control-why")
        assert enabled(only) == []
        assert only.wrong == []


def test_a_server_that_is_gone_or_refuses_is_a_line(page, open_tab):
    tab = open_tab(page.opened.link, viewport={"width": 400, "height": 800})
    tab.page.wait_for_selector("#control-pause:enabled")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 400
    tab.context.clear_cookies()
    tab.page.click("#control-pause")
    tab.waits_for("403", "#control-said")
    assert page.run.state.pause is None
