"""Each test is an attack on the live page: what it asks for, it does not get."""

import pytest

from metalforge.core.errors import SpecError
from metalforge.dashboard.opening import open_page
from reference.dashboard_pages import RECORDS, campaign, served

PATHS = ["/", "/page/app.js", "/campaigns", "/state", "/decisions", "/chain?chain=c0000", "/transition", "/events"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with served(campaign(tmp_path_factory.mktemp("attacked"))) as found:
        found.enter()
        yield found


def test_without_the_token_nothing_is_read(page):
    assert {page.ask(path, cookie=False)[0] for path in PATHS} == {403}
    assert page.ask("/?token=guessed", cookie=False)[0] == 403
    assert page.ask("/?token=", cookie=False)[0] == 403
    assert page.ask(f"/state?token={page.opened.token}", cookie=False)[0] == 403  # the token opens the page, no more
    assert page.ask("/state", cookie=False, Cookie=f"metalforge-{page.port}={page.opened.token}")[0] == 403
    assert page.ask("/state", cookie=False, Cookie="\u00e9=;;=")[0] == 403
    assert page.ask("/state")[0] == 200


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(page):
    status, headers = page.enter()
    given = headers["set-cookie"].lower()
    assert status == 200
    assert "httponly" in given
    assert "samesite=strict" in given
    assert page.opened.token not in headers["set-cookie"]
    assert len(page.opened.token) >= 32


@pytest.mark.parametrize("host", ["evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[", "a b"])
def test_a_name_that_was_pointed_here_is_refused(page, host):
    assert page.ask("/state", Host=host)[0] in (400, 421)


def test_tunnels_with_another_port_are_known(page):
    assert page.ask("/state", Host="localhost:9000")[0] == 200
    assert page.ask("/state", Host="[::1]:9000")[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"])
def test_other_pages_cannot_ask(page, origin):
    assert page.ask("/state", Origin=origin)[0] == 403
    assert page.ask("/state", Origin=f"http://127.0.0.1:{page.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_nothing_but_reading(page, method):
    status, headers, _ = page.ask("/state", method)
    assert (status, headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/state", "/no-such", "/campaigns"])
@pytest.mark.parametrize("cookie", [True, False])
def test_every_answer_has_the_headers(page, path, cookie):
    _, headers, _ = page.ask(path, cookie=cookie)
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize(
    "name",
    [
        "../server.py", "..%2fserver.py", "%2e%2e/server.py", "..\\server.py", "....//server.py", "app.js%00.css",
        "/etc/passwd", "%2fetc%2fpasswd", "index.html", "page/app.js", "App.js", "",
    ],
)  # fmt: skip
def test_only_the_page_s_own_files_are_given(page, name):
    status, _, body = page.ask(f"/page/{name}")
    assert status in (404, 307)
    assert b"import" not in body
    assert b"root:" not in body


@pytest.mark.parametrize("campaign_", ["1", "-1", "..", "/etc", "0/../..", "1e3", "9" * 5000, "%00", "%D9%A3"])
def test_campaigns_are_places_in_a_list(page, campaign_):
    for path in ("/state", "/events", "/transition"):
        status, answer = page.json(f"{path}?campaign={campaign_}")
        assert status == 404
        assert "campaign" in answer["error"]


@pytest.mark.parametrize("at", ["0", "-1", "99999", "x", "1.5", "9" * 5000, ""])
def test_records_are_those_there_are(page, at):
    status, answer = page.json(f"/state?at={at}")
    assert status == 404
    assert str(RECORDS) in answer["error"]


def test_a_chain_that_is_not_there_is_said_and_not_sought_on_disk(page):
    status, answer = page.json("/chain?chain=../../../etc/passwd")
    assert status == 409
    assert "no chain" in answer["error"]


def test_other_addresses_need_a_long_token_of_one_s_own(tmp_path):
    there = campaign(tmp_path / "run")
    short = tmp_path / "short"
    short.write_text("fifteen-letters")
    spaced = tmp_path / "spaced"
    spaced.write_text("a token & with = signs #")
    for options in ({}, {"token_file": short}, {"token_file": spaced}, {"token_file": tmp_path / "none"}):
        with pytest.raises(SpecError, match=r"token|No such"):
            open_page([there], host="0.0.0.0", **options)
    long = tmp_path / "long"
    long.write_text("sixteen-letters-\n")
    with served(there, host="0.0.0.0", token_file=long) as page:
        assert page.opened.token == "sixteen-letters-"
        assert page.enter()[0] == 200
        assert page.ask("/state", Host="192.0.2.7:80")[0] == 200  # an address is nobody's domain
        assert page.ask("/state", Host="evil.example")[0] == 421


def test_by_itself_it_listens_on_this_machine_only_and_on_any_free_port(page, tmp_path):
    address, port = page.opened.listening.getsockname()
    assert address == "127.0.0.1"
    assert port > 1023
    with pytest.raises(SpecError, match="port"):
        open_page([tmp_path], port=port)
