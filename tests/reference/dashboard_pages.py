"""A page on a free port of this machine, served by a thread, and journals for it."""

import http.client
import json
import threading
from contextlib import contextmanager
from pathlib import Path

import msgspec

from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Decided
from metalforge.dashboard.opening import open_page

from .watched_campaigns import lines_of

GOLDEN = Path(__file__).parents[1] / "golden" / "formats" / "campaign.jsonl"
LINES = GOLDEN.read_bytes().splitlines(keepends=True)


def records_in(lines):
    """Return how many records lines hold."""
    return sum(len(json.loads(line)["records"]) for line in lines)


RECORDS = records_in(LINES)
QUOTED = "5.0848(68)"
"""What the campaign of these lines found."""
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def campaign(folder, lines=LINES):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal.jsonl").write_bytes(b"".join(lines))
    return folder


def hostile_lines():
    """The journal with markup wherever a decision has words."""
    records = read_journal(GOLDEN)
    told = [
        msgspec.structs.replace(r, reason=HOSTILE, by=HOSTILE) if isinstance(r, Decided) and r.what != "head" else r
        for r in records
    ]
    return lines_of(told)


class Page:
    """A served page and a client of it."""

    def __init__(self, opened):
        self.opened = opened
        self.port = opened.listening.getsockname()[1]
        self.cookie = ""

    def ask(self, path, method="GET", *, cookie=True, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            sent = {"Cookie": self.cookie} if cookie and self.cookie else {}
            connection.request(method, path, body, headers=sent | headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def enter(self):
        status, headers, _ = self.ask(f"/?token={self.opened.token}")
        self.cookie = headers["set-cookie"].partition(";")[0]
        return status, headers

    def json(self, path):
        status, _, body = self.ask(path)
        return status, json.loads(body)

    @contextmanager
    def events(self, path="/events"):
        """Give a function that returns the data of the next event of a name."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        answer = connection.getresponse()

        def following(name):
            while True:
                line = answer.readline()
                assert line, "the stream ended"
                if line == b"event: %b\n" % name.encode():
                    return json.loads(answer.readline().removeprefix(b"data: "))

        try:
            yield following
        finally:
            connection.close()


@contextmanager
def served(*directories, **options):
    opened = open_page(directories, **options)
    thread = threading.Thread(target=opened.run)
    thread.start()
    try:
        yield Page(opened)
    finally:
        opened.should_exit = True
        thread.join()
        opened.listening.close()
