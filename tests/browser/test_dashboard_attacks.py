"""Another page in the same Chromium, which has the cookie, attacks the live page: it reads and commands nothing.

It is on another port of this machine, which for cookies is the same site: the hardest case.
"""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reference.browser_tabs import Tab
from reference.commanded_campaigns import running
from reference.dashboard_pages import served

pytestmark = pytest.mark.browser

ASKED = "credentials: 'include'"
POSTS = f"method: 'POST', {ASKED}, body: '{{\"what\": \"pause\"}}'"
LOADED = "new Promise((yes, no) => {{ const one = {}; one.onload = {}; one.onerror = no; document.body.append(one) }})"
ATTACKS = {
    "reads": f"fetch(target + 'state', {{{ASKED}}}).then(a => a.text())",
    "reads the header's value": f"fetch(target + 'control', {{{ASKED}}}).then(a => a.text())",
    "reads blindly": f"fetch(target + 'state', {{{ASKED}, mode: 'no-cors'}}).then(a => a.text()).then(filled)",
    "commands": f"fetch(target + 'command', {{{POSTS}, headers: {{'Content-Type': 'application/json'}}}})",
    "commands as a form": f"fetch(target + 'command', {{{POSTS}, mode: 'no-cors'}}).then(a => a.text()).then(filled)",
    "listens": "new Promise((yes, no) => { const s = new EventSource(target + 'events', {withCredentials: true});"
    " s.onmessage = s.onopen = yes; s.onerror = no })",
    "loads a script": LOADED.format(
        "Object.assign(document.createElement('script'), {src: target + 'page/app.js'})", "yes"
    ),
    "frames": LOADED.format(
        "Object.assign(document.createElement('iframe'), {src: target})",
        "() => { try { yes(filled(one.contentDocument.body.innerHTML)) } catch (error) { no(error) } }",
    ),
}
TRY = """async ([code, target]) => {
  const filled = (text) => { if (!text) throw new Error("nothing came"); return text; };
  try { await eval(code); return "succeeds"; } catch (error) { return "fails"; }
}"""
INLINE = """() => {
  const script = document.createElement("script");
  script.textContent = "window.ran = true";
  document.head.append(script);
  return typeof window.ran;
}"""


class Hostile(BaseHTTPRequestHandler):
    """An empty page of somebody else's."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>hostile</title><body>")

    def log_message(self, *_):
        pass


@contextmanager
def another_site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_another_page_of_this_machine_reads_and_commands_nothing(tmp_path, browser):
    with running(tmp_path / "run") as run, served(run.directory, control=True) as page, another_site() as address:
        tab = Tab(browser, page.opened.link)
        tab.page.wait_for_selector("#control-pause:enabled")
        assert [cookie["httpOnly"] for cookie in tab.context.cookies()] == [True]
        hostile = tab.context.new_page()
        hostile.goto(address)
        outcome = {name: hostile.evaluate(TRY, [code, page.opened.address]) for name, code in ATTACKS.items()}
        assert outcome == dict.fromkeys(ATTACKS, "fails")
        assert run.state.pause is None
        assert not run.state.commands
        # The page itself goes on, and its own policy lets nothing in that stands in a text.
        assert "default-src 'self'" in hostile.request.get(page.opened.link).headers["content-security-policy"]
        assert tab.page.evaluate(INLINE) == "undefined"
        tab.page.click("#control-pause")
        tab.waits_for("pause: accepted", "#control-said")
        tab.close()
