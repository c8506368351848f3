"""Commands through the live page: what the campaign says comes back, and no other page can give one."""

import json

import pytest

from reference.commanded_campaigns import running
from reference.dashboard_pages import HOSTILE, campaign, served

PAUSE = json.dumps({"what": "pause"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return campaign(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def page(tmp_path_factory, finished):
    """A page that commands a campaign which pauses, beside one that is over."""
    with running(tmp_path_factory.mktemp("commanded") / "run", updates=1) as run:
        assert run.command("pause").accepted  # the cores are the page's
        with served(run.directory, finished, control=True) as found:
            found.enter()
            found.run = run
            yield found


def headers(page, **changed):
    """Return what the page sends with a command, with changes; None leaves one out."""
    _, about = page.json("/control")
    sent = {
        "Origin": f"http://127.0.0.1:{page.port}",
        "Content-Type": "application/json",
        about.get("header", "x-metalforge-csrf"): about.get("value", ""),
    }
    return {name: value for name, value in (sent | changed).items() if value is not None}


def post(page, body=PAUSE, path="/command", *, cookie=True, **changed):
    status, _, answer = page.ask(path, "POST", cookie=cookie, body=body, **headers(page, **changed))
    return status, answer.decode()


def test_commands_go_to_the_campaign_and_its_answer_comes_back(page):
    status, answer = post(page, json.dumps({"what": "resume"}))
    assert (status, json.loads(answer)) == (200, {"accepted": True, "said": "goes on"})
    assert page.run.state.commands[-1].by.endswith("(page)")
    status, answer = post(page, json.dumps({"what": "steerer", "asked": {"name": HOSTILE}}))
    assert status == 200
    assert json.loads(answer)["accepted"] is False
    assert HOSTILE in json.loads(answer)["said"]
    assert json.loads(post(page)[1]) == {"accepted": True, "said": "paused"}
    records = page.run.campaign.book.journal.count
    with page.events() as following:
        while following("state")["at"] < records:
            pass
    said = [line for line in page.json("/decisions")[1] if line["what"] == "command"]
    assert [line["reason"].split(",")[0].split(" ")[0] for line in said] == ["pause", "resume", "steerer", "pause"]
    assert "refused" in said[2]["reason"]
    _, about = page.json("/control")
    assert about["allowed"]
    assert {"conductor", "uniform"} <= set(about["steerers"]["peak"])
    assert "conductor" not in about["steerers"]["curve"]


def test_limits_and_points_are_extended_as_on_the_command_line(page):
    def said(what, **asked):
        return json.loads(post(page, json.dumps({"what": what, "asked": asked}))[1])

    limit = page.run.campaign.spec.budget.trajectories + 60
    assert said("extend", trajectories="60") == {"accepted": True, "said": f"now ends at {limit} updates"}
    before = page.run.campaign.spec
    assert not said("coupling", at="50")["accepted"]
    assert said("coupling", at="50", widen="yes")["accepted"]
    assert page.run.campaign.spec.theory.beta_max == 50.0
    assert said("remove", at="50")["accepted"]
    assert page.run.campaign.spec.theory == before.theory


def test_a_campaign_that_does_not_run_says_so(page):
    status, answer = post(page, path="/command?campaign=1")
    assert status == 409
    assert "no campaign runs" in answer


ATTACKS = {
    "another page": ({"Origin": "http://evil.example"}, 403),
    "a page of another port": ({"Origin": "http://127.0.0.1:1"}, 403),
    "a sandboxed page": ({"Origin": "null"}, 403),
    "no origin": ({"Origin": None}, 403),
    "no header": ({"x-metalforge-csrf": None}, 403),
    "a guessed header": ({"x-metalforge-csrf": "guessed"}, 403),
    "an empty header": ({"x-metalforge-csrf": ""}, 403),
    "a header of other letters": ({"x-metalforge-csrf": "\u00e9\u00e9"}, 403),
    "a form": ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "a form with files": ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
    "a form of plain text": ({"Content-Type": "text/plain"}, 415),
    "no type": ({"Content-Type": None}, 415),
    "a name that was pointed here": ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_other_page_gives_a_command(page, attack):
    before = len(page.run.state.commands)
    changed, refused = ATTACKS[attack]
    assert post(page, **changed)[0] == refused
    assert len(page.run.state.commands) == before


def test_without_the_cookie_there_is_no_command_and_no_header_s_value(page):
    assert post(page, cookie=False)[0] == 403
    assert page.ask("/control", cookie=False)[0] == 403
    assert page.ask("/control", Origin="http://evil.example")[0] == 403
    assert post(page, path=f"/command?token={page.opened.token}", cookie=False)[0] == 403
    assert post(page, path=f"/?token={page.opened.token}", cookie=False)[0] == 405


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_command_is_a_post(page, method):
    before = len(page.run.state.commands)
    assert page.ask("/command", method, body=PAUSE, **headers(page))[0] in (405, 404)
    assert len(page.run.state.commands) == before


@pytest.mark.parametrize(
    "path", ["/command/", "//command", "/COMMAND", "/page/../command", "/command%2f", "/state", "/"]
)
def test_no_other_path_takes_a_command(page, path):
    assert post(page, path=path)[0] in (400, 404, 405)


@pytest.mark.parametrize("number", ["2", "-1", "..", "%2e%2e", "/etc", "9" * 400])
def test_no_other_campaign_is_reached(page, number):
    status, answer = post(page, path=f"/command?campaign={number}")
    assert (status, "campaign" in answer) == (404, True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400), ("{", 400), ("[]", 400), ('{"what":"explode"}', 400), ('{"what":"pause","sudo":true}', 400),
        ('{"what":"pause","through":"python"}', 400), ('{"what":"pause","asked":{"x":"1"}}', 400),
        ('{"what":"extend","asked":{"seconds":5}}', 400), ("[" * 4000, 400), (b"\xff", 400), ("x" * 5000, 413),
        ("x" * 3_000_000, 413), (json.dumps({"what": "steerer", "asked": {"name": "x" * 4045}}), 400),
    ],
)  # fmt: skip
def test_what_is_no_command_is_refused_before_the_campaign_hears_of_it(page, body, status):
    before = len(page.run.state.commands)
    try:
        assert post(page, body)[0] == status
    except (BrokenPipeError, ConnectionResetError):
        assert len(body) > 1_000_000  # the server did not wait for all of it
    assert len(page.run.state.commands) == before


def test_a_page_that_only_reads_takes_none(finished):
    with served(finished) as page:
        page.enter()
        assert page.json("/control")[1]["allowed"] is False
        assert "value" not in page.json("/control")[1]
        status, answer = post(page)
        assert status == 405
        assert "--control" in answer
